"""A limit on the absolute values in received messages; a message that exceeds it is refused.

A member may send numbers that are finite and yet spoil everybody's training, such as 1e20. The
limit for a kind of message is a large multiple of the largest number in the first message of any
sender, or of 1. First messages must obey the limit, too, so a malicious member can raise it only
once, to the square of the multiple.
"""

from __future__ import annotations

import math

from torch import Tensor

MULTIPLE = 1e4


def magnitude(values: Tensor) -> float:
    """The largest absolute value; infinite if any value is not finite."""
    if not values.numel():
        return 0.0
    low, high = (float(end) for end in values.aminmax())
    return max(-low, high) if math.isfinite(low) and math.isfinite(high) else math.inf


class Loudness:
    def __init__(self, multiple: float = MULTIPLE) -> None:
        """`multiple`: infinity to accept all finite numbers."""
        self.multiple = multiple
        self.first: dict[tuple[str, str], float] = {}  # by kind and sender
        self.largest: dict[str, tuple[float, str]] = {}  # by sender: largest value, and its kind
        self._reference: dict[str, float] = {}  # by kind

    def limit(self, kind: str) -> float:
        return self.multiple * self._reference.get(kind, 1.0)

    def heard(self, kind: str, sender: str, size: float) -> None:
        """Note the magnitude of a message that was accepted."""
        if (kind, sender) not in self.first:
            self.first[kind, sender] = size
            self._reference[kind] = max(1.0, self._reference.get(kind, 1.0), size)
        if size > self.largest.get(sender, (-1.0, ""))[0]:
            self.largest[sender] = (size, kind)

    def loudest(self, count: int = 3) -> str:
        """The parties that sent the largest numbers, as text for an error message."""
        order = sorted(self.largest.items(), key=lambda item: item[1], reverse=True)[:count]
        names = [f"{who} ({kind} up to {size:.2g})" for who, (size, kind) in order]
        return ", ".join(names) or "nobody"
