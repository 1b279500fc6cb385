"""The experiment file: typed, with errors that name the file, the key and the reason."""

from __future__ import annotations

import copy
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tomli_w

from colonnade.algorithms import load_plugins, registry
from colonnade.algorithms.method_table import parse_method, parse_plugins
from colonnade.common.file_kinds import EXPERIMENT, read_kind
from colonnade.common.metric_names import OF_CLASSES, OF_NUMBERS, UNBOUNDED
from colonnade.common.results import CONFIG
from colonnade.common.text import nearest
from colonnade.common.toml import Table, convert, known_keys, placed, plain, prefixed, tables
from colonnade.common.user_code import FACTORIES, Source
from colonnade.data.datasets import check_there
from colonnade.data.spec import DataSpec
from colonnade.errors import InputError
from colonnade.learning.settings import Settings
from colonnade.network.delays import Delays
from colonnade.network.faults import KINDS, Fault
from colonnade.network.spec import GraphSpec

if TYPE_CHECKING:
    from colonnade.models.factories import Factory


class NetworkSpec(GraphSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[network]` table."""

    delays: Delays = msgspec.field(default_factory=Delays)


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Methods × faults × seeds on one data set."""

    name: str
    data: DataSpec
    methods: tuple[Settings, ...]
    seeds: tuple[int, ...] = (0,)
    network: NetworkSpec = msgspec.field(default_factory=NetworkSpec)
    faults: tuple[Fault, ...] = msgspec.field(default_factory=lambda: (Fault(name="none"),))
    target: float | None = None
    stop_at_target: bool = False  # a run ends with the epoch that reaches it
    summarise: tuple[float, ...] | None = None  # trained anew with these shares of the parties
    plugins: tuple[str, ...] | None = None  # modules with algorithms of the user's own
    code: str | None = None  # the folder where plugins and model factories may be
    sha256: dict[str, str] | None = None  # digests of that code; computed, never read from a file

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("methods: none given; add a [[methods]] table")
        if not self.seeds:
            raise InputError(
                "seeds: the list is empty; expected at least one, e.g. seeds = [0, 1, 2]"
            )
        names: list[Any]
        for key, names in (
            ("seeds", list(self.seeds)),
            ("methods", [method.name for method in self.methods]),
            ("faults", [fault.name for fault in self.faults]),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise InputError(f"{key}: {twice!r} is used twice; each must be different")
        if self.target is not None:
            self._check_target(self.target)
        elif self.stop_at_target:
            raise InputError("stop_at_target: there is no target; add e.g. target = 0.95")
        for share in self.summarise or ():
            if not 0 < share < 1:
                raise InputError(f"summarise: {share:g} is not a share above 0, below 1")

    def _check_target(self, target: float) -> None:
        metric = self.data.metric or (OF_NUMBERS if self.data.number else OF_CLASSES)[0]
        unknown = self.data.path and not (self.data.metric or self.data.goal)  # until it is read
        most = math.inf if unknown or metric in UNBOUNDED else 1
        if not 0 < target <= most:
            limit = "" if most == math.inf else ", at most 1"
            what = "an accuracy" if metric == "accuracy" else f"a value of {metric}"
            raise InputError(f"target = {target:g}: expected {what} above 0{limit}")

    def table(self) -> Table:
        """The experiment as plain values, with every default written out: the content of
        `config.toml`."""
        table = plain(self)
        kinds = {kind: name for name, kind in KINDS.items() if kind is not Fault}
        for fault, written in zip(self.faults, table["faults"], strict=True):
            if type(fault) in kinds:
                written["kind"] = kinds[type(fault)]
        return table

    def toml(self) -> str:
        return tomli_w.dumps(self.table())


def read_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a TOML file, with `key=value` overrides on top. Data that are not there are
    refused, and not read."""
    table = read_kind(path, EXPERIMENT)
    experiment = parse_experiment(table, str(path), path.parent, overrides)
    try:
        check_methods(experiment, Settings.check_alone)
        check_there(experiment.data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return experiment


def read_folder(folder: Path) -> Experiment:
    """The experiment of an output folder, whose own code is what it was."""
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: not an output folder (no {CONFIG}); give that of a run")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a resolved experiment file: {error}") from None
    if "method" in table:
        raise InputError(
            f"{folder}: the folder of a real party; give its party file (its label holder's, where "
            "there is one) while the parties run, or the folder of `colonnade up`"
        )
    experiment = parse_experiment(table, str(path))
    for name, digest in (experiment.sha256 or {}).items():
        if table.get("sha256", {}).get(name) != digest:
            raise InputError(f"{folder}: the code of {name} has changed since; run anew")
    return experiment


def check_methods(experiment: Experiment, check: Callable[[Settings], object]) -> None:
    """Check each method. An InputError names the method."""
    for i, method in enumerate(experiment.methods):
        try:
            check(method)
        except InputError as error:
            raise InputError(f"methods[{i}] ({method.name}): {error}") from None


def parse_experiment(
    table: Mapping[str, Any],
    source: str,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> Experiment:
    """An experiment from a table of plain values. `source` begins errors; relative paths in the
    table are relative to `folder`."""
    table = copy.deepcopy(dict(table))
    for override in overrides:
        apply_override(table, override)
    try:
        EXPERIMENT.check(table)
        fields: dict[str, Any] = {
            "name": convert(table["name"], str, "name"),
            "data": placed(convert(table["data"], DataSpec, "data"), folder),
            "network": _network(table.get("network", {})),
            "faults": tuple(
                placed(fault, folder)
                for fault in tables(table.get("faults", [{"name": "none"}]), "faults", parse_fault)
            ),
        }
        if "seeds" in table:
            fields["seeds"] = convert(table["seeds"], tuple[int, ...], "seeds")
        if "target" in table:
            fields["target"] = convert(table["target"], float, "target")
        if "summarise" in table:
            fields["summarise"] = convert(table["summarise"], tuple[float, ...], "summarise")
        if "stop_at_target" in table:
            fields["stop_at_target"] = convert(table["stop_at_target"], bool, "stop_at_target")
        # Last, because plugins import torch, which takes seconds: errors above come at once.
        code, plugins = parse_plugins(table, folder)
        parse = lambda entry, where: parse_method(entry, where, code)  # noqa: E731
        fields["plugins"] = plugins
        fields["methods"] = tuple(tables(table["methods"], "methods", parse))
        _check_kinds(fields["network"].delays, fields["methods"])
        if digests := _digests(plugins or (), fields["methods"], code):
            fields |= {"sha256": digests, "code": str(code.resolve()) if code else None}
        return Experiment(**fields)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _digests(
    plugins: Sequence[str], methods: Sequence[Settings], code: Path | None
) -> dict[str, str]:
    """Digests of the user's own code, by name: `config.toml` holds them, so that results of other
    code are not mixed with new ones."""
    sources = [*load_plugins(plugins, code).values()]
    sources += [factory.source for method in methods for factory in own_models(method).values()]
    return {source.name: source.sha256 for source in sources}


def own_models(method: Settings) -> dict[str, Factory]:
    """The model factories that a file names, by key."""
    given: dict[str, Any] = {key: getattr(method, key, None) for key in FACTORIES}
    return {k: f for k, f in given.items() if isinstance(getattr(f, "source", None), Source)}


def _network(table: Any) -> NetworkSpec:
    if isinstance(table, dict) and isinstance(table.get("delays"), dict):
        known_keys(table["delays"], Delays.__struct_fields__, "network.delays")
    network = convert(table, NetworkSpec, "network")
    prefixed("network.delays", network.delays.check)
    return network


def _check_kinds(delays: Delays, methods: Sequence[Settings]) -> None:
    """Refuse keys of `lag_factors` that are no kind of message of any method."""
    if not delays.lag_factors:
        return  # without the import of algorithms
    sent = {e.kind for method in methods for e in registry()[method.algorithm].exchanges}
    known_keys(delays.lag_factors, sorted(sent), "network.delays.lag_factors")


def parse_fault(table: Table, where: str) -> Fault:
    table = dict(table)
    kind = table.pop("kind", None)
    if not isinstance(kind, str | None) or kind not in KINDS:
        known = [str(name) for name in KINDS if name is not None]
        raise InputError(
            f"{where}.kind: {kind!r} is not a kind of fault{nearest(str(kind), known)}"
        )
    fault = convert(table, KINDS[kind], where)
    prefixed(where, fault.check)
    return fault


def apply_override(table: Table, override: str) -> None:
    """`data.parties=8`, `methods.0.lr=0.1`, or `methods.*.epochs=3` for all of them."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise InputError(f"--set {override}: expected key=value, e.g. data.parties=8")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    _set(table, path.strip().split("."), value, override)


def _set(place: Any, path: list[str], value: Any, override: str) -> None:
    step, *rest = path
    if isinstance(place, list):
        chosen = range(len(place)) if step == "*" else [int(step)] if step.isdigit() else []
        if not chosen or max(chosen) >= len(place):
            raise InputError(
                f"--set {override}: {step!r} is not one of the {len(place)} entries, nor *"
            )
        if not rest:
            raise InputError(f"--set {override}: expected a key of the entry, e.g. {step}.name")
        for i in chosen:
            _set(place[i], rest, value, override)
    elif not isinstance(place, dict):
        raise InputError(f"--set {override}: {step!r} is inside something that is not a table")
    elif rest:
        _set(place.setdefault(step, {}), rest, value, override)
    else:
        place[step] = value
