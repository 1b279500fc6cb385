"""The algorithms: one file per family in this folder, and those that plugins bring.

registry()["splitnn"]              # every algorithm by name
settings_of("splitnn")             # what its `[[methods]]` table may say
register(Mine)                     # one of your own, for this process

Algorithms import torch, which takes seconds, their settings do not: the settings of `splitnn.py`
are in `splitnn_settings.py`, so that an error in a file is told at once.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from colonnade.common.processes import stop_afterwards
from colonnade.common.user_code import Source, find_module, sha256_of
from colonnade.errors import InputError
from colonnade.learning.settings import Settings

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm

GROUP = "colonnade.algorithms"  # of entry points
SETTINGS = "_settings"  # ends the name of a module with the settings of an algorithm
Kind = TypeVar("Kind", bound="type[Algorithm]")

_registered: dict[str, type[Algorithm]] = {}  # known in this process only
_plugins: dict[str, type[Algorithm]] = {}  # of modules that a file names


def registry() -> dict[str, type[Algorithm]]:
    """Every algorithm by name, in alphabetical order."""
    known = {**built_in(), **installed(), **_plugins, **_registered}
    return dict(sorted(known.items()))


def names() -> list[str]:
    """Of every algorithm, in alphabetical order."""
    return sorted({*built_in_names(), *installed(), *_plugins, *_registered})


def settings_of(name: str) -> type[Settings]:
    """The settings of an algorithm that is among `names`."""
    if name not in built_in_names():
        return {**installed(), **_plugins, **_registered}[name].settings
    module = importlib.import_module(f"{__name__}.{name}{SETTINGS}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
        if issubclass(value, Settings)
    ]
    assert len(own) == 1, f"{module.__name__} has {len(own)} settings structs; expected one"
    return own[0]


@cache
def built_in_names() -> tuple[str, ...]:
    """Those of this folder, by the modules of their settings."""
    modules = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(n.removesuffix(SETTINGS) for n in modules if n.endswith(SETTINGS))


@cache
def built_in() -> dict[str, type[Algorithm]]:
    """Those of this folder. A new file is found by itself."""
    from colonnade.learning.algorithm import Algorithm

    with stop_afterwards():  # torch comes with them, which takes seconds
        for module in pkgutil.iter_modules(__path__):
            importlib.import_module(f"{__name__}.{module.name}")
    ours = [kind for kind in _descendants(Algorithm) if kind.__module__.startswith(f"{__name__}.")]
    return {kind.name: kind for kind in sorted(ours, key=lambda kind: kind.name)}


@cache
def installed() -> dict[str, type[Algorithm]]:
    """Those that installed packages offer by an entry point: a class, or a module of several."""
    found: dict[str, type[Algorithm]] = {}
    for entry in entry_points(group=GROUP):
        package = f" of the package {entry.dist.name}" if entry.dist else ""
        where = f"entry point {entry.name} = {entry.value!r}{package}"
        try:
            value = entry.load()
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(
                f"{where}: cannot be imported: {reason}; mend or uninstall it"
            ) from error
        kinds = algorithms_of(value, where) if isinstance(value, ModuleType) else [value]
        for kind in kinds:
            _add(kind, found, {**built_in(), **found}, where)
    return found


def load_plugins(names: Sequence[str], folder: Path | None) -> dict[str, Source]:
    """Import the modules that `plugins` of a file names, and make their algorithms known. Which
    code that was, by key."""
    code: dict[str, Source] = {}
    for name in names:
        where = f'plugins: "{name}"'
        module = find_module(name, where, folder)
        for kind in algorithms_of(module, where):
            _add(kind, _plugins, registry(), where)
        code[f"plugin {name}"] = Source(name, sha256_of(module, where))
    return code


def register(kind: Kind) -> Kind:
    """Make an algorithm known to this process; also as a decorator of its class."""
    _add(kind, _registered, registry(), "register")
    return kind


@contextmanager
def registered(kind: type[Algorithm]) -> Iterator[None]:
    """Known to this process for a while."""
    before = dict(_registered)
    register(kind)
    try:
        yield
    finally:
        _registered.clear()
        _registered.update(before)


def is_local(name: str) -> bool:
    """Whether other processes would not know this algorithm."""
    return name in _registered and name not in {*built_in(), *installed(), *_plugins}


def algorithms_of(module: ModuleType, where: str) -> list[type[Algorithm]]:
    """The algorithms that a module defines."""
    from colonnade.learning.algorithm import Algorithm

    inside = (module.__name__, f"{module.__name__}.")
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Algorithm) and "name" in vars(value)
        if value.__module__ == inside[0] or value.__module__.startswith(inside[1])
    ]
    if not kinds:
        raise InputError(
            f"{where}: {module.__file__} defines no algorithm; expected a subclass of "
            "colonnade.learning.algorithm.Algorithm with a name"
        )
    return kinds


def _add(
    kind: Any, to: dict[str, type[Algorithm]], known: dict[str, type[Algorithm]], where: str
) -> None:
    check_kind(kind, where)
    other = known.get(kind.name)
    if other is not None and other is not kind:
        raise InputError(
            f"{where}: {kind.__module__}.{kind.__qualname__} has the name {kind.name!r}, which is "
            f"that of {other.__module__}.{other.__qualname__}; give it another name"
        )
    to[kind.name] = kind


def check_kind(kind: Any, where: str) -> None:
    """An algorithm that can be used: a concrete class with a name and settings."""
    from colonnade.learning.algorithm import Algorithm

    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise InputError(f"{where}: {kind!r} is not a subclass of Algorithm")
    who = f"{where}: {kind.__qualname__}"
    if not isinstance(getattr(kind, "name", None), str):
        raise InputError(f'{who}: has no name; expected name = "…" in the class')
    if inspect.isabstract(kind):
        lacking = ", ".join(sorted(kind.__abstractmethods__))
        raise InputError(f"{who}: lacks {lacking}")
    if not (isinstance(kind.settings, type) and issubclass(kind.settings, Settings)):
        raise InputError(f"{who}.settings: expected a subclass of Settings")


def _descendants(kind: type[Algorithm]) -> list[type[Algorithm]]:
    children = kind.__subclasses__()
    named = [child for child in children if "name" in vars(child)]
    return named + [found for child in children for found in _descendants(child)]
