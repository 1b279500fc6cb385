"""The table of a file that names an algorithm and its settings (`[[methods]]`, `[method]`), and the
plugins that bring further algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from colonnade.algorithms import built_in_names, load_plugins, names, settings_of
from colonnade.common.text import nearest
from colonnade.common.toml import Table, convert, prefixed
from colonnade.common.user_code import FACTORIES, code_folder, is_reference
from colonnade.errors import InputError
from colonnade.learning.settings import Settings

if TYPE_CHECKING:
    from colonnade.models.factories import Factory


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


def parse_method(table: Table, where: str, code: Path | None = None) -> Settings:
    """`code`: the folder where model factories that the table names may be."""
    if "algorithm" not in table:
        raise InputError(f"{where}.algorithm: missing; expected one of {', '.join(names())}")
    name = table["algorithm"]
    # Installed packages are asked for other names only: what they offer imports torch.
    if name not in built_in_names() and name not in (known := names()):
        raise InputError(
            f"{where}.algorithm: {name!r} is not known{nearest(str(name), known)}; "
            f"there are {', '.join(known)}"
        )
    kind = settings_of(name)
    usual = table.get("method", name)  # a method that has a name of its own goes by it
    given = {key: table.get(key) for key in FACTORIES if key in kind.__struct_fields__}
    named = [key for key, value in given.items() if is_reference(value)]
    own = {key: value for key, value in given.items() if callable(value)}  # from Python
    plain_values = {k: value for k, value in table.items() if k not in (*named, *own)}
    settings = convert({"name": usual, **plain_values}, kind, where)
    found = {key: prefixed(where, lambda key=key: _factory(key, table, code)) for key in named}
    return prefixed(where, msgspec.structs.replace(settings, **own, **found).resolved)


def _factory(key: str, table: Table, code: Path | None) -> Factory:
    from colonnade.models.factories import find_factory

    return find_factory(key, table[key], code)
