"""The keys that every `[[methods]]` table takes, and their checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_type_hints

import msgspec

from colonnade.common.devices import DeviceName, chosen
from colonnade.errors import InputError
from colonnade.network.spec import Wire
from colonnade.privacy.spec import Hide, LabelPrivacy, Noise

if TYPE_CHECKING:
    from colonnade.learning.task import Task


@dataclass(frozen=True)
class Limits:
    """What the value of a key may be, beside its type. Limits stand in the annotation of the key,
    `Annotated[int, at_least(1)]`, and every `Settings` checks them. Nothing (None) and words in
    place of a number are not looked at."""

    expected: str
    hold: Callable[[Any], bool]


def at_least(least: float, of: str = "") -> Limits:
    """A finite number; `of`: what is counted."""
    return Limits(f"{least:g} or more {of}".rstrip(), lambda value: least <= value < math.inf)


SHARE = Limits("0 or more, below 1", lambda value: 0 <= value < 1)
POSITIVE = Limits("a number above 0", lambda value: 0 < value < math.inf)
SECONDS = Limits("more than 0 seconds", lambda value: 0 < value < math.inf)
PROBABILITY = Limits("a probability, 0 to 1", lambda value: 0 <= value <= 1)


def widths(shares: bool = False) -> Limits:
    """A list of widths; `shares`: numbers below 1 will do as well. A factory of the user's own may
    stand in place of a list."""

    def hold(value: Any) -> bool:
        return not isinstance(value, list) or all(
            (shares and 0 < w < 1) or (w >= 1 and float(w).is_integer()) for w in value
        )

    also = ", or shares of the columns below 1" if shares else ""
    return Limits(f"widths of 1 or more{also}", hold)


WIDTHS = widths()


class Polynomial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An encoder that is a polynomial of the columns, without products of two columns: the clients'
    model of FedVS."""

    degree: int = 2
    width: int = 64
    clip: float | None = None  # columns are clipped to ±clip

    def check(self) -> None:
        if self.clip is not None and not POSITIVE.hold(self.clip):
            raise InputError(f"encoder.clip = {self.clip}: expected {POSITIVE.expected}")
        for key in ("degree", "width"):
            if getattr(self, key) < 1:
                raise InputError(f"encoder.{key} = {getattr(self, key)}: expected 1 or more")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that every `[[methods]]` table takes."""

    name: str
    algorithm: str
    # 60; on small data more, up to 300, for 2,000 rounds.
    epochs: Annotated[int | None, at_least(1)] = None
    batch: Annotated[int, at_least(1)] = 64
    lr: float | dict[str, float] = 1e-3  # or by group, e.g. { clients = 0.01, server = 0.08 }
    # "cosine": from epoch to epoch the rate falls from `lr` to nearly 0, along half a cosine.
    lr_schedule: Literal["constant", "cosine"] = "constant"
    optimizer: Literal["sgd", "adam"] = "adam"
    momentum: Annotated[float, at_least(0)] = 0.0
    weight_decay: Annotated[float, at_least(0)] = 0.0
    # Epochs without better validation before stopping; 10 or more.
    patience: Annotated[int | None, at_least(1, "epochs")] = None
    # Widths; below 1: shares of the columns.
    encoder: Annotated[
        list[int | float] | Literal["cnn"] | Polynomial | None, widths(shares=True)
    ] = None
    head: Annotated[list[int] | None, WIDTHS] = None
    noise: Noise | None = None  # on the encodings of rows that column holders send
    # Noise on the gradients that column holders are told; a number is the strength of the form
    # "shape". 0: no noise, and no warning that two classes are told.
    hide_labels: float | Hide | None = None
    label_privacy: LabelPrivacy | None = None  # noise on the training labels, once
    # Weight of the correlation between columns and encodings, in what column holders minimise.
    decorrelate: Annotated[float | None, at_least(0)] = None
    wire: Wire | None = None  # encodings, gradients and models are rounded to this when they leave
    device: DeviceName = "cpu"  # where the models, the batches and the masks are
    compile: bool = False

    # Keys that make no difference before the first prediction: methods that differ in nothing else
    # are trained once.
    at_inference: ClassVar[tuple[str, ...]] = ()
    polynomials: ClassVar[bool] = False  # whether encoders may be polynomials
    pooled: ClassVar[bool] = False  # whether one party holds all columns
    own_head: ClassVar[bool] = True  # whether the label holder has a head that `head` describes

    @property
    def hiding(self) -> Hide | None:
        """How gradients are to hide labels; None: not at all."""
        asked = self.hide_labels
        hide = asked if isinstance(asked, Hide | None) else Hide(strength=asked)
        return None if hide is None or hide.strength == 0 else hide

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
        self.check_alone()
        if self.encoder == "cnn" and any(len(shape) != 3 for shape in task.shapes):
            raise InputError('encoder = "cnn": needs images split by bands or patches')
        if self.hiding is not None:
            self.hiding.check(task.classes)
        chosen(self.device)

    def check_alone(self) -> None:
        """The part of `check` that needs neither a task nor torch: errors when a file is read."""
        for key, limits in _limits(type(self)).items():
            value = getattr(self, key)
            if value is not None and not isinstance(value, str) and not limits.hold(value):
                shown = f"{value:g}" if isinstance(value, float) else value
                raise InputError(f"{key} = {shown}: expected {limits.expected}")
        rates = self.lr.values() if isinstance(self.lr, dict) else [self.lr]
        if not all(0 < rate < math.inf for rate in rates):
            raise InputError(f"lr = {self.lr}: expected a rate above 0")
        if isinstance(self.encoder, Polynomial):
            self.encoder.check()
            if not self.polynomials:
                raise InputError(f"encoder: {self.algorithm} takes no polynomial; expected widths")
        if self.head is not None and not self.own_head:
            raise InputError(f"head: {self.algorithm} has no layers there to choose; leave it out")
        if self.encoder == []:
            raise InputError("encoder = []: expected at least one width")
        if self.noise is not None:
            self.noise.check()
        if self.label_privacy is not None:
            self.label_privacy.check()


@cache
def _limits(kind: type[Settings]) -> dict[str, Limits]:
    """By key, as annotated in a class and in those that it inherits from. An algorithm's own keys
    come first: `resolved` may have made others of them, which are then not the ones to name."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        key: fact
        for key in reversed(kind.__struct_fields__)
        for fact in getattr(hints[key], "__metadata__", ())
        if isinstance(fact, Limits)
    }
