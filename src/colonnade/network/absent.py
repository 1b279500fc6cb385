"""The value of a party that is not run by this process.

In the projected engine a process runs one party, yet executes every line of the choreography.
Whatever belongs to a group with no member here is `ABSENT`: it absorbs every operation, so a line
that concerns other parties costs nothing and changes nothing. Branching on it is an error, which
enforces the first rule of choreographies: control flow depends only on what every party knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from typing_extensions import TypeIs


class Absent:
    """Absorbs attribute access, calls, indexing, arithmetic and torch functions."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Absent:
        return self

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Absent:
        return ABSENT

    def __bool__(self) -> bool:
        raise RuntimeError(
            "a choreography branched on a value of a party that does not run here; "
            "decide at one party and share it with net.agree(...)"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("an absent value cannot be unpacked; keep it whole or use locally(...)")

    def _absorb(self, *_: Any) -> Absent:
        return self

    def __eq__(self, other: object) -> Any:
        return self

    def __ne__(self, other: object) -> Any:
        return self

    __hash__ = object.__hash__

    def __deepcopy__(self, memo: object) -> Absent:
        return self

    __getitem__ = __neg__ = __invert__ = _absorb
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _absorb
    __floordiv__ = __mod__ = __xor__ = __rpow__ = __abs__ = _absorb
    __truediv__ = __rtruediv__ = __pow__ = __matmul__ = __rmatmul__ = _absorb
    __and__ = __rand__ = __or__ = __ror__ = __lt__ = __le__ = __gt__ = __ge__ = _absorb


ABSENT = Absent()


def is_absent(value: object) -> TypeIs[Absent]:
    return value is ABSENT


def locally(function: Callable[..., Any], *values: Any) -> Any:
    """The function's result where all values are here, absent elsewhere: a party's own
    computation."""
    return ABSENT if any(value is ABSENT for value in values) else function(*values)
