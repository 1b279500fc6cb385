"""Figure 2: accuracy over time, for FedVS and those that wait for stragglers, ignore them or let
everybody go on at its own pace."""

from __future__ import annotations

import msgspec

from colonnade.common.toml import Table
from colonnade.experiments.reproduce.fedvs.stragglers import numbered, stragglers
from colonnade.experiments.reproduce.sets import marked, together
from colonnade.experiments.reproduce.size import Size, sized
from colonnade.experiments.reproduce.study import Part, Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    sizes = {name: _size(scale, known) for name, known in _sets(scale).items()}
    parts = [_part(name, size, TABLE.extra[name]) for name, size in sizes.items()]
    rows = {method: [Place(part.name, method) for part in parts] for method in TABLE.methods}
    columns = {name: TABLE.columns["sets"][name] for name in sizes}
    table = msgspec.structs.replace(TABLE, columns={"sets": columns})
    sheets = [table.sheet(together(sizes), rows, sheet) for sheet in TABLE.sheets]
    return TABLE.study(scale, parts, [marked(sheet, sizes) for sheet in sheets])


def _sets(scale: Scale) -> dict[str, Table]:
    """Data sets with the key `when_present` are left out where they are not on this machine, and
    at scale smoke, at which all are one built-in set."""
    from colonnade.data import present  # with torch; a list of names goes without

    def is_used(known: Table) -> bool:
        here = scale != "smoke" and present(known["data"]["dataset"])
        return bool(here) or not known.get("when_present", False)

    return {name: known for name, known in TABLE.extra.items() if is_used(known)}


def _size(scale: Scale, known: Table) -> Size:
    """Small sets are taken whole; the built-in one of scale smoke has no views."""
    chosen, data = TABLE.scales[scale], known["data"]
    if scale == "smoke":
        data = {**data, "split": "columns"}
    elif (chosen.rows or 0) > TABLE.datasets[data["dataset"]].rows:
        chosen = msgspec.structs.replace(chosen, rows=None)
    return sized(scale, chosen, TABLE.datasets, data)


def _part(name: str, size: Size, known: Table) -> Part:
    shared = {**known["method"], **({} if size.scale == "smoke" else {"fixed": ["batch"]})}
    polynomial = known["polynomial"]
    encoder, coded = {"encoder": {**polynomial, "width": 64}}, {**polynomial, **known["bits"]}
    rate = shared.get("lr", TABLE.settings["all"]["lr"])
    # A sum moves N² times as far as a mean, by steps of the same size of all encoders.
    summed = {**encoder, "lr": {"clients": rate / known["data"]["parties"] ** 2, "server": rate}}
    own = {"FedVS": coded, "VFB2": summed}
    methods = [
        TABLE.method(size, method, **{**shared, **own.get(method, encoder)})
        for method in TABLE.methods
    ]
    names = numbered(known["data"]["parties"])
    if size.scale != "smoke":
        names = known.get("clients", names)
    batch = known["method"].get("batch", TABLE.settings["all"]["batch"])  # the paper's
    delays = stragglers(names, batch)
    return size.part(name, known["title"], methods=methods, network={"delays": delays})


REPRODUCTION = TABLE.reproduction(_study)
