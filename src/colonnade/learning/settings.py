"""The keys that every `[[methods]]` table takes, and their checks."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import msgspec

from colonnade.errors import InputError
from colonnade.learning.task import Task


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that every `[[methods]]` table takes."""

    name: str
    algorithm: str
    epochs: int | None = None  # 60; on small data more, up to 300, for 2,000 rounds
    batch: int = 64
    lr: float | dict[str, float] = 1e-3  # or by group, e.g. { clients = 0.01, server = 0.08 }
    optimizer: Literal["sgd", "adam"] = "adam"
    momentum: float = 0.0
    weight_decay: float = 0.0
    patience: int | None = None  # epochs without better validation before stopping; 10 or more
    encoder: list[int | float] | Literal["cnn"] | None = (
        None  # widths; below 1: shares of the columns
    )
    head: list[int] | None = None
    compile: bool = False

    # Keys that make no difference before the first prediction: methods that differ in nothing else
    # are trained once.
    at_inference: ClassVar[tuple[str, ...]] = ()

    def resolved(self) -> Settings:
        """With short names written out as what they stand for."""
        return self

    def training(self) -> Settings:
        """Equal for methods that train the same models."""
        plain = {f.name: f.default for f in msgspec.structs.fields(self)}
        same = {key: plain[key] for key in self.resolved().at_inference}
        return msgspec.structs.replace(self.resolved(), name="", **same)

    def check(self, task: Task) -> None:
        """Raises InputError (naming the key) for values that cannot work."""
        for key in ("epochs", "batch"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"{key} = {value}: expected 1 or more")
        rates = self.lr.values() if isinstance(self.lr, dict) else [self.lr]
        if not all(0 < rate < math.inf for rate in rates):
            raise InputError(f"lr = {self.lr}: expected a rate above 0")
        for key in ("momentum", "weight_decay"):
            if not 0 <= getattr(self, key) < math.inf:
                raise InputError(f"{key} = {getattr(self, key)}: expected 0 or more")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience = {self.patience}: expected 1 or more epochs")
        if self.encoder == "cnn" and any(len(shape) != 3 for shape in task.shapes):
            raise InputError('encoder = "cnn": needs images split by bands or patches')
        check_widths("encoder", self.encoder, shares=True)
        check_widths("head", self.head)
        if self.encoder == []:
            raise InputError("encoder = []: expected at least one width")


def check_widths(key: str, widths: Any, shares: bool = False) -> None:
    """`shares`: numbers below 1 will do as well."""
    if isinstance(widths, list) and not all(
        (shares and 0 < w < 1) or (w >= 1 and float(w).is_integer()) for w in widths
    ):
        also = ", or shares of the columns below 1" if shares else ""
        raise InputError(f"{key} = {widths}: expected widths of 1 or more{also}")
