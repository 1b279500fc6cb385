"""The keys of a method that protect rows and labels: `noise`, `hide_labels`, `label_privacy`.

What they do is in noise.py, hiding.py and label_noise.py, which import torch.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import msgspec

from colonnade.errors import InputError


class Noise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`noise = { clip, sigma }`, or `{ clip, epsilon, delta }`: then sigma follows from what a run
    will release."""

    clip: float  # L2 norm of a row of an encoding, at most
    sigma: float | None = None  # standard deviation of the noise on every number
    epsilon: float | None = None  # of a row, over all its releases
    delta: float = 1e-5
    releases: int | None = None  # of a row, that epsilon is for; as many as are planned

    def check(self) -> None:
        """Raises InputError, naming the key, for values that cannot work."""
        both = "either sigma (the noise) or epsilon (what it is worth)"
        if self.sigma is None and self.epsilon is None:
            raise InputError(f"noise: has neither sigma nor epsilon; expected {both}")
        if self.sigma is not None and self.epsilon is not None:
            raise InputError(f"noise: has sigma and epsilon; expected {both}")
        if self.releases is not None and self.epsilon is None:
            raise InputError("noise.releases: is a budget together with epsilon; leave it out")
        wrong = [
            ("clip", "a number above 0", 0 < self.clip < math.inf),
            ("sigma", "0 or more", self.sigma is None or 0 <= self.sigma < math.inf),
            ("epsilon", "a number above 0", self.epsilon is None or 0 < self.epsilon < math.inf),
            ("delta", "a number above 0, below 1", 0 < self.delta < 1),
            ("releases", "1 or more", self.releases is None or self.releases >= 1),
        ]
        for key, expected, holds in wrong:
            if not holds:
                raise InputError(f"noise.{key} = {getattr(self, key):g}: expected {expected}")


class Hide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hide_labels = { how, strength }`; a number alone is the strength of `shape`."""

    example: ClassVar[str] = "16"  # for errors
    how: Literal["shape", "marvell", "max_norm"] = "shape"
    # shape: of the variance between the classes; marvell: of their squared distance.
    strength: float | None = None

    def check(self, classes: int) -> None:
        """Raises InputError, naming the key, for values that cannot work."""
        key = "hide_labels.strength"
        if self.how == "marvell" and classes > 2:
            raise InputError(
                f'hide_labels.how = "marvell": is for two classes, and there are {classes}; '
                'expected "shape", which hides any number of classes'
            )
        if self.how == "max_norm":
            if self.strength is not None:
                raise InputError(f'{key}: how = "max_norm" has none; leave it out')
        elif self.strength is None:
            raise InputError(f'{key}: how = "{self.how}" needs one, e.g. strength = 4.0')
        elif not 0 <= self.strength < math.inf:
            raise InputError(f"{key} = {self.strength:g}: expected 0 or more")

    def numbers(self, classes: int) -> int:
        """The number of normal numbers that the noise of one row is made of."""
        return classes if self.how == "shape" else 1


class LabelPrivacy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`label_privacy = { epsilon, how }`."""

    epsilon: float  # of a training row's label, over the whole training
    how: Literal["response", "alibi"] = "response"

    def check(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"label_privacy.epsilon = {self.epsilon:g}: expected a number above 0")
