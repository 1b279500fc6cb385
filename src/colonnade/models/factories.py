"""Model factories of a user's own, and those that a file names as `"module:name"`.

factory = find_factory("encoder", "my_models:Tower", folder)
factory(30)                        # an nn.Module for 30 columns
factory.source                     # Source(name="my_models:Tower", sha256="…")

torch takes seconds to import, and is imported when the module of a factory has been found.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.text import nearest
from colonnade.common.user_code import FACTORIES, REFERENCE, Source, find_module, sha256_of
from colonnade.errors import InputError

if TYPE_CHECKING:
    from torch import nn


class Maker:
    """Makes models, one per call, and checks each: it must be a module that takes its input, and
    its output must have the width that the other parties expect. Errors begin with `where`."""

    def __init__(self, key: str, where: str, make: Any) -> None:
        self.key, self.where, self.make = key, where, make
        self.gives: int | None = None  # the output width that this party's encoder must have
        self.why = ""  # the reason for `gives`, for an error
        self.calls = 0

    def __call__(self, *sizes: int) -> nn.Module:
        from torch import nn

        from colonnade.models.layers import output_width

        self.calls += 1
        names = FACTORIES[self.key].split(", ")
        called = ", ".join(f"{name} = {size}" for name, size in zip(names, sizes, strict=True))
        try:
            module = self.make(*sizes)
            found = output_width(module, sizes[0]) if isinstance(module, nn.Module) else 0
        except Exception as error:
            raise self.wrong(f"fails for {called}: {type(error).__name__}: {error}") from error
        if not isinstance(module, nn.Module):
            raise self.wrong(f"gives {type(module).__name__}, expected a torch.nn.Module")
        expected = self.gives if self.key == "encoder" else sizes[-1]
        if expected is not None and found != expected:
            raise self.wrong(f"for {called}, its output is {found} wide, not {expected}{self.why}")
        return module

    def wrong(self, what: str) -> InputError:
        return InputError(f"{self.where}: {what}")


class Factory(Maker):
    """A maker that a file names."""

    def __init__(self, key: str, source: Source, make: Any) -> None:
        super().__init__(key, f'{key} = "{source.name}"', make)
        self.source = source
        self.__name__ = source.name
        self.widths: tuple[int, ...] | None = None  # of all encoders, if agreed among parties

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Factory) and (self.key, self.source) == (other.key, other.source)

    def __hash__(self) -> int:
        return hash((self.key, self.source))


def find_factory(key: str, reference: str, folder: Path | None) -> Factory:
    """The factory that `key = "module:name"` means. Errors begin with the key."""
    where = f'{key} = "{reference}"'
    found = REFERENCE.fullmatch(reference)
    if not found:
        raise InputError(f'{where}: expected "module:name", e.g. {key} = "my_models:Tower"')
    module, name = find_module(found["module"], where, folder), found["name"]
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise InputError(
            f"{where}: there is no {name!r} in {module.__file__}{nearest(name, names)}"
        )
    from torch import nn

    make, call = getattr(module, name), f"{name}({FACTORIES[key]})"
    if isinstance(make, nn.Module):
        raise InputError(
            f"{where}: is a module that was made already; expected a class or a function that "
            f"makes one when it is called as {call}"
        )
    if not callable(make):
        raise InputError(
            f"{where}: is of type {type(make).__name__}; expected a class or a function that is "
            f"called as {call} and gives a torch.nn.Module"
        )
    return Factory(key, Source(reference, sha256_of(module, where)), make)
