"""The federation file: public, and the same at every party.

federation = read_federation(Path("federation.toml"))
algorithm = federation.algorithm()
federation.leader, federation.members, federation.edges(), federation.hash
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from colonnade.algorithms import registry
from colonnade.algorithms.method_table import parse_method, parse_plugins
from colonnade.common.file_kinds import FEDERATION, read_kind
from colonnade.common.toml import Table, convert, placed, prefixed, tables
from colonnade.common.user_code import FACTORIES, is_reference
from colonnade.data import DataSpec
from colonnade.data.datasets import check_there
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation, loaded
from colonnade.federation.agreement.specs import ConnectionSpec, PartySpec, Roles, RowsSpec
from colonnade.learning.settings import Settings


def read_federation(path: Path) -> Federation:
    return parse_federation(read_kind(path, FEDERATION), str(path), path.parent)


def parse_federation(
    table: Mapping[str, Any], source: str, folder: Path | None = None
) -> Federation:
    """`folder`: what a relative `data.path` is relative to."""
    try:
        federation = _parse(table, folder)
        federation.check()
        return federation
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _parse(table: Mapping[str, Any], folder: Path | None) -> Federation:
    FEDERATION.check(table)
    name = convert(table["name"], str, "name")
    seed = convert(table.get("seed", 0), int, "seed")
    rows = _rows(table["rows"]) if "rows" in table else None
    data = None
    if "data" in table:
        data = placed(convert(table["data"], DataSpec, "data"), folder)
        check_there(data)
    network = convert(table.get("network", {}), ConnectionSpec, "network")
    named = tables(table["parties"], "parties", _party) if "parties" in table else None
    # Last, because plugins import torch, which takes seconds: errors above come at once.
    code, plugins = parse_plugins(table, folder)
    method = _method(table["method"])
    if named is not None:
        parties = tuple(named)
        method = _counted(method, table["method"], parties)
    elif data is not None and rows is None:
        parties = _own_parties(method, data, seed)
    else:
        raise InputError("parties: missing; add a [[parties]] table for each party")
    return Federation(
        name=name,
        method=method,
        parties=parties,
        seed=seed,
        rows=rows,
        data=data,
        network=network,
        plugins=plugins,
        code=str(code.resolve()) if plugins and code else None,
    )


def _rows(table: Any) -> RowsSpec:
    matched = "rows are matched"
    found = {"parts": "the parties meet", **dict.fromkeys(("alignment", "extra", "added"), matched)}
    for key, when in found.items():
        if isinstance(table, dict) and key in table:
            raise InputError(f"rows.{key}: is found when {when}; leave it out")
    return convert(table, RowsSpec, "rows")


def _method(table: Any) -> Settings:
    if not isinstance(table, dict):
        raise InputError("method: expected a [method] table")
    for key in FACTORIES:
        if is_reference(table.get(key)):
            raise InputError(
                f'method.{key} = "{table[key]}": a federation file names no models of one\'s own; '
                f"each party does, by {key} in its party file. Here, {key} gives the widths that "
                "all count on"
            )
    method = parse_method(table, "method")
    prefixed("method", method.check_alone)
    if method.pooled:
        raise InputError(
            f'method.algorithm = "{method.algorithm}": has all columns at one party, so there is '
            "nothing to federate; it is for experiments"
        )
    return method


def _counted(method: Settings, table: Table, parties: Iterable[PartySpec]) -> Settings:
    """With the sizes of groups that the file does not give, such as `aggregators`, counted."""
    counts = {
        role: sum(role in party.roles for party in parties)
        for role in Roles.of(registry()[method.algorithm]).others
        if role in method.__struct_fields__ and role not in table
    }
    return msgspec.structs.replace(method, **counts)


def _party(table: Table, where: str) -> PartySpec:
    table = dict(table)
    if "role" in table:
        if "roles" in table:
            raise InputError(f"{where}.role: give role or roles, not both")
        table["roles"] = [convert(table.pop("role"), str, f"{where}.role")]
    table.setdefault("roles", [])
    return convert(table, PartySpec, where)


def _own_parties(method: Settings, data: DataSpec, seed: int) -> tuple[PartySpec, ...]:
    """Those that the data and the algorithm name, where the file names none."""
    from colonnade.learning.task import Task

    task = Task.of(loaded(data, seed), seed)
    prefixed("method", lambda: method.check(task))
    kind = registry()[method.algorithm]
    algorithm, known = kind(method, task), Roles.of(kind).all
    roles = {
        party: tuple(g.name for g in algorithm.groups if party in g.parties and g.name in known)
        for party in algorithm.world().parties
    }
    return tuple(PartySpec(name=party, roles=played) for party, played in roles.items() if played)
