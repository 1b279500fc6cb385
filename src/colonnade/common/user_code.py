"""Modules of a user's own that a file names: where they are found, and digests of their code.

module = find_module("my_models", "plugins", folder)
sha256_of(module, "plugins")

A module is an installed one, or a file in the folder of the file that names it or in the current
folder. These two folders come last on `sys.path`: a file in them cannot take the place of a module
that Colonnade or torch imports.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec

from colonnade.errors import InputError

MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
REFERENCE = re.compile(rf"(?P<module>{MODULE}):(?P<name>[A-Za-z_]\w*)")
FACTORIES = {  # key → how the factory is called
    "encoder": "width",
    "head": "width, classes",
    "decoder": "code, width",
}


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which code a party runs, as it tells the others: a name and a digest."""

    name: Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[A-Za-z0-9_.:]+\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]

    def __str__(self) -> str:
        return f"{self.name} (sha256 {self.sha256[:12]}…)"


def is_reference(value: Any) -> bool:
    return isinstance(value, str) and ":" in value


def find_module(name: str, where: str, folder: Path | None) -> ModuleType:
    """Import the module of this name: an installed one, or one in `folder` or the current folder.
    `where` begins the error."""
    folders = [path.resolve() for path in (folder, Path.cwd()) if path is not None]
    sys.path += [str(path) for path in folders if str(path) not in sys.path]
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            places = " or ".join(map(str, dict.fromkeys(folders)))
            raise InputError(
                f"{where}: there is no module {name!r}, neither in {places} nor installed"
            ) from None
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{where}: the module {name!r} cannot be imported: {reason}") from error
    expected = next((file for path in folders for file in _files(path, name)), None)
    if expected is not None and Path(module.__file__ or "").resolve() != expected.resolve():
        raise InputError(
            f"{where}: the module {name!r} is {module.__file__ or 'built in'}, not {expected}, "
            "which has the same name; rename yours"
        )
    return module


def _files(folder: Path, name: str) -> list[Path]:
    place = folder.joinpath(*name.split("."))
    return [f for f in (place / "__init__.py", place.with_suffix(".py")) if f.is_file()]


def sha256_of(module: ModuleType, where: str) -> str:
    """The digest of a module's file, as `sha256sum` gives it; of a package, the digest of the list
    of its files and their digests."""
    if module.__file__ is None:
        raise InputError(f"{where}: the module {module.__name__!r} has no source file")
    file = Path(module.__file__)
    if not hasattr(module, "__path__"):
        return hashlib.sha256(file.read_bytes()).hexdigest()
    lines = [
        f"{hashlib.sha256(part.read_bytes()).hexdigest()}  {part.relative_to(file.parent)}\n"
        for part in sorted(file.parent.rglob("*.py"))
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def code_folder(given: Any, folder: Path | None) -> Path | None:
    """The folder that the key `code` of a file names; `folder`: where the file is."""
    if given is None:
        return folder
    if not isinstance(given, str):
        raise InputError("code: expected a folder")
    place = Path(given).expanduser() if folder is None else folder / Path(given).expanduser()
    if not place.is_dir():
        raise InputError(f'code = "{given}": is not a folder')
    return place


def shown(key: str, source: Source) -> str:
    """One item of a list: `encoder my_models:Tower (sha256 …)`, `plugin average (sha256 …)`."""
    return f"{key.removesuffix(source.name).strip()} {source}"


def changes(before: Mapping[str, Source], now: Mapping[str, Source]) -> Sequence[str]:
    """What differs between two lists of code, as parts of a sentence."""
    told = []
    for key in dict.fromkeys([*before, *now]):
        old, new = before.get(key), now.get(key)
        if old != new:
            told.append(f"{key}: {old or 'none of its own'} before, {new or 'none of its own'} now")
    return told
