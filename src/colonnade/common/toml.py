"""TOML files as typed values; errors name the key and say in plain words what was expected."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from colonnade.common.text import nearest
from colonnade.common.user_code import Source
from colonnade.errors import InputError

Table = dict[str, Any]
T = TypeVar("T")
Spec = TypeVar("Spec", bound=msgspec.Struct)

SHOWN = 60  # characters of a wrong value in an error
WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text in quotes", "texts in quotes"),
}


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


def convert(value: Any, kind: type[T], where: str) -> T:
    """A plain value as a typed one; the error names the key as it is written in the file."""
    if isinstance(value, dict):
        known_keys(value, getattr(kind, "__struct_fields__", tuple(value)), where)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):  # raised by the struct's own check
            raise error.__cause__ from None
        raise InputError(_complaint(value, kind, where)) from None


def _complaint(value: Any, hint: Any, where: str) -> str:
    """Which part of the value does not fit, and what was expected there."""
    for kind in _alternatives(hint) if isinstance(value, dict) else ():
        if hasattr(kind, "__struct_fields__"):
            known_keys(value, kind.__struct_fields__, where)
    for inner, inner_hint, place in _parts(value, hint, where):
        if inner is msgspec.UNSET:
            return f"{place}: missing"
        if not _fits(inner, inner_hint):
            return _complaint(inner, inner_hint, place)
    return f"{where}: expected {_words(hint)}, not {_shown(value)}{_example(hint, where)}"


def _example(hint: Any, where: str) -> str:
    """What may be written instead, where a type names an example."""
    examples = [kind.example for kind in _alternatives(hint) if hasattr(kind, "example")]
    return f"; e.g. {where.rpartition('.')[2]} = {examples[0]}" if examples else ""


def _parts(value: Any, hint: Any, where: str) -> Iterator[tuple[Any, Any, str]]:
    """The parts of a table or a list, each with its type and its place in the file."""
    for kind in _alternatives(hint):
        origin, inner = get_origin(kind), cast(Any, get_args(kind))
        if isinstance(value, dict) and hasattr(kind, "__struct_fields__"):
            hints = get_type_hints(kind)
            for field in msgspec.structs.fields(kind):
                if field.name in value:
                    yield value[field.name], hints[field.name], f"{where}.{field.name}"
                elif field.required:
                    yield msgspec.UNSET, None, f"{where}.{field.name}"
        elif isinstance(value, dict) and origin is dict:
            yield from ((v, inner[1], f"{where}.{key}") for key, v in value.items())
        elif isinstance(value, list | tuple) and origin in (list, tuple):
            yield from ((v, inner[0], f"{where}[{i}]") for i, v in enumerate(value))


def _fits(value: Any, hint: Any) -> bool:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def _alternatives(hint: Any) -> tuple[Any, ...]:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(kind for kind in kinds if kind is not NoneType)  # TOML has no null


def _words(hint: Any, several: bool = False) -> str:
    """A type as a person would name it."""
    kinds = _alternatives(hint)
    kinds = [kind for kind in kinds if not (kind is int and float in kinds)]
    return " or ".join(_word(kind, several) for kind in kinds)


def _word(kind: Any, several: bool) -> str:
    if kind in WORDS:
        return WORDS[kind][several]
    origin, inner = get_origin(kind), cast(Any, get_args(kind))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else _shown(inner[0])
    if origin in (list, tuple):
        return f"{'lists' if several else 'a list'} of {_words(inner[0], several=True)}"
    of = f" of {_words(inner[1], several=True)}" if origin is dict and inner[1] is not Any else ""
    return f"{'tables' if several else 'a table'}{of}"


def _shown(value: Any) -> str:
    """A value as it is written in a file."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = f"a Python object ({type(value).__name__})"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


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
    """The result of the call. An InputError of the call begins with a key; the table `where` is put
    before it."""
    try:
        return call()
    except InputError as error:
        raise InputError(f"{where}.{error}") from None


def placed(spec: Spec, folder: Path | None) -> Spec:
    """The struct with its `path`, and the files that it attaches, if it has any, taken relative to
    the folder."""
    path, attach = getattr(spec, "path", None), getattr(spec, "attach", None)
    if path is None or folder is None:
        return spec

    def place(name: str) -> str:
        return str((folder / Path(name).expanduser()).resolve())

    more = {"attach": {name: place(file) for name, file in attach.items()}} if attach else {}
    return msgspec.structs.replace(spec, path=place(path), **more)


def plain(struct: msgspec.Struct) -> Table:
    """The struct as plain values, with every default written out and without what is None."""
    return cast(Table, _without_none(msgspec.to_builtins(struct, enc_hook=_describe)))


def _describe(value: Any) -> str:
    """The text for a Python object in a resolved experiment, such as a model factory: the name by
    which a file can refer to it, or else one for people."""
    if isinstance(source := getattr(value, "source", None), Source):
        return source.name
    return f"python: {getattr(value, '__qualname__', repr(value))}"


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_none(inner) for inner in value]
    return value
