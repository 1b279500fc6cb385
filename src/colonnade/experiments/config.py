"""The experiment file: typed, with errors that name the file, the key and the reason."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
import tomli_w

from colonnade.algorithms import load_plugins, registry
from colonnade.algorithms.algorithm import Settings
from colonnade.code import FACTORIES, Factory, code_folder, find_factory, is_reference
from colonnade.data import DataSpec
from colonnade.data.mapping import nearest
from colonnade.errors import InputError
from colonnade.network.delays import Delays
from colonnade.network.faults import KINDS, Fault
from colonnade.network.topology import Kind, Topology

Table = dict[str, Any]
T = TypeVar("T")
Spec = TypeVar("Spec", DataSpec, Fault)


class GraphSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is linked to whom: the part of `[network]` that simulated and real networks share."""

    topology: Kind = "complete"
    radius: float | None = None

    @property
    def graph(self) -> Topology:
        return Topology(self.topology, self.radius)


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
    plugins: tuple[str, ...] | None = None  # modules with algorithms of the user's own
    code: str | None = None  # the folder where they and model factories may be
    sha256: dict[str, str] | None = None  # of that code, as it was found; never read from a file

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
        if self.target is not None and not 0 < self.target <= 1:
            raise InputError(f"target = {self.target:g}: expected an accuracy above 0, at most 1")

    def table(self) -> Table:
        """As plain values, with every default written out: what `config.toml` holds."""
        table = plain(self)
        kinds = {kind: name for name, kind in KINDS.items() if kind is not Fault}
        for fault, written in zip(self.faults, table["faults"], strict=True):
            if type(fault) in kinds:
                written["kind"] = kinds[type(fault)]
        return table

    def toml(self) -> str:
        return tomli_w.dumps(self.table())


def read_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment in a TOML file, with `key=value` overrides on top."""
    return parse_experiment(read_toml(path), str(path), path.parent, overrides)


def read_toml(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InputError(f"{path}: cannot be read ({reason})") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error


def parse_experiment(
    table: Mapping[str, Any],
    source: str,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> Experiment:
    """`folder`: what relative paths in the file are relative to."""
    table = copy.deepcopy(dict(table))
    for override in overrides:
        _override(table, override)
    try:
        known_keys(table, Experiment.__struct_fields__, "")
        for key in ("name", "data", "methods"):
            if key not in table:
                raise InputError(f"{key}: missing")
        code, plugins = parse_plugins(table, folder)
        parse = lambda entry, where: parse_method(entry, where, code)  # noqa: E731
        fields = {
            "name": convert(table["name"], str, "name"),
            "data": placed(convert(table["data"], DataSpec, "data"), folder),
            "network": _network(table.get("network", {})),
            "faults": tuple(
                placed(fault, folder)
                for fault in tables(table.get("faults", [{"name": "none"}]), "faults", parse_fault)
            ),
            "methods": tuple(tables(table["methods"], "methods", parse)),
            "plugins": plugins,
        }
        if "seeds" in table:
            fields["seeds"] = convert(table["seeds"], tuple[int, ...], "seeds")
        if "target" in table:
            fields["target"] = convert(table["target"], float, "target")
        if digests := _digests(plugins or (), fields["methods"], code):
            fields |= {"sha256": digests, "code": str(code.resolve()) if code else None}
        return Experiment(**fields)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def parse_plugins(
    table: Mapping[str, Any], folder: Path | None
) -> tuple[Path | None, tuple[str, ...] | None]:
    """The folder of the user's own code, and the modules with algorithms, which are imported."""
    code = code_folder(table.get("code"), folder)
    if "plugins" not in table:
        return code, None
    plugins = convert(table["plugins"], tuple[str, ...], "plugins")
    load_plugins(plugins, code)
    return code, plugins


def _digests(
    plugins: Sequence[str], methods: Sequence[Settings], code: Path | None
) -> dict[str, str]:
    """By name: results that were made by other code must not be mixed with new ones."""
    sources = [*load_plugins(plugins, code).values()]
    sources += [factory.source for method in methods for factory in own_models(method).values()]
    return {source.name: source.sha256 for source in sources}


def own_models(method: Settings) -> dict[str, Factory]:
    """The model factories that a file names, by key."""
    given = {key: getattr(method, key, None) for key in FACTORIES}
    return {key: factory for key, factory in given.items() if isinstance(factory, Factory)}


def convert(value: Any, kind: type[T], where: str) -> T:
    """A plain value as a typed one; the error names the key as it is written in the file."""
    if isinstance(value, dict):
        known_keys(value, getattr(kind, "__struct_fields__", tuple(value)), where)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):  # a struct's own check, with its own words
            raise error.__cause__ from None
        reason, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`")
        choices = _choices(kind, path.removeprefix("."))
        if choices and reason.startswith("Invalid enum value"):
            others = " (or a number)" if _takes_numbers(kind, path.removeprefix(".")) else ""
            reason = f"expected one of {', '.join(choices)}{others}, not {reason.split()[-1]}"
        raise InputError(f"{where}{path}: {reason[0].lower()}{reason[1:]}") from None


def _choices(kind: type, field: str) -> list[str]:
    """The words that a field takes, if it takes only certain words."""
    if not hasattr(kind, "__struct_fields__"):
        return []
    hint = get_type_hints(kind).get(field)
    return [
        str(word)
        for part in (hint, *get_args(hint))
        if get_origin(part) is Literal
        for word in get_args(part)
    ]


def _takes_numbers(kind: type, field: str) -> bool:
    hint = get_type_hints(kind).get(field)
    return bool({int, float} & {hint, *get_args(hint)})


def placed(spec: Spec, folder: Path | None) -> Spec:
    """With its path, if it has one, taken relative to the folder."""
    path = getattr(spec, "path", None)
    if path is None or folder is None:
        return spec
    return msgspec.structs.replace(spec, path=str((folder / Path(path).expanduser()).resolve()))


def _network(table: Any) -> NetworkSpec:
    if isinstance(table, dict) and isinstance(table.get("delays"), dict):
        known_keys(table["delays"], Delays.__struct_fields__, "network.delays")
    network = convert(table, NetworkSpec, "network")
    prefixed("network.delays", network.delays.check)
    return network


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


def parse_method(table: Table, where: str, code: Path | None = None) -> Settings:
    """`code`: the folder where model factories that the table names may be."""
    if "algorithm" not in table:
        raise InputError(f"{where}.algorithm: missing; expected one of {', '.join(registry())}")
    name = table["algorithm"]
    if not isinstance(name, str) or name not in registry():
        known = list(registry())
        raise InputError(
            f"{where}.algorithm: {name!r} is not known{nearest(str(name), known)}; "
            f"there are {', '.join(known)}"
        )
    usual = table.get("method", name)  # a method that has a name of its own goes by it
    kind = registry()[name].settings
    named = [
        key for key in FACTORIES if key in kind.__struct_fields__ and is_reference(table.get(key))
    ]
    plain_values = {key: value for key, value in table.items() if key not in named}
    settings = convert({"name": usual, **plain_values}, kind, where)
    found = {
        key: prefixed(where, lambda key=key: find_factory(key, table[key], code)) for key in named
    }
    return prefixed(where, msgspec.structs.replace(settings, **found).resolved)


def tables(value: Any, key: str, parse: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise InputError(f"{key}: expected [[{key}]] tables")
    if not value:
        raise InputError(f"{key}: the list is empty")
    return [parse(entry, f"{key}[{i}]") for i, entry in enumerate(value)]


def known_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            path = f"{where}.{key}" if where else key
            raise InputError(f"{path}: unknown key{nearest(key, list(known))}")


def prefixed(where: str, call: Callable[[], T]) -> T:
    """What the call gives; its errors, which begin with a key, name the table as well."""
    try:
        return call()
    except InputError as error:
        raise InputError(f"{where}.{error}") from None


def _override(table: Table, override: str) -> None:
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


def plain(struct: msgspec.Struct) -> Table:
    """As plain values, with every default written out and without what is not set."""
    return cast(Table, _without_none(msgspec.to_builtins(struct, enc_hook=_describe)))


def _describe(value: Any) -> str:
    """Python objects in a resolved experiment: a model factory, by the name that a file can have,
    or by one for people."""
    if isinstance(value, Factory):
        return value.source.name
    return f"python: {getattr(value, '__qualname__', repr(value))}"


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_none(inner) for inner in value]
    return value
