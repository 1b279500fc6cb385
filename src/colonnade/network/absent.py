"""The value of a party that is not run by this process.

In the projected engine a process runs one party, yet executes every line of the choreography.
Whatever belongs to a group with no member here is `ABSENT`: it absorbs every operation, so a line
that concerns other parties costs nothing and changes nothing. Branching on it is an error, which
enforces the first rule of choreographies: control flow depends only on what every party knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar, overload

from typing_extensions import TypeIs

Given = ParamSpec("Given")
Result = TypeVar("Result")


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
        raise TypeError(
            "an absent value cannot be unpacked, because nobody knows how many values it stands "
            "for; compute it in a function marked @local(results=...)"
        )

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


@overload
def local(function: Callable[Given, Result], /) -> Callable[Given, Result]: ...
@overload
def local(*, results: int) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]: ...
def local(function: Any = None, /, *, results: int = 1) -> Any:
    """Mark a function or a method that computes for the members of one group. It runs in processes
    where its arguments are present, and its result is absent elsewhere.

    @local(results=2)
    def solved(inbox: Inbox, y: Tensor) -> tuple[Tensor, Tensor]: ...

    `results`: how many values it returns, so that they can be unpacked where they are absent. Of an
    argument that is a list or a tuple, all elements must be present.
    """
    if function is None:
        return lambda function: _local(function, results)
    return _local(function, results)


def _local(function: Callable[..., Any], results: int) -> Callable[..., Any]:
    nothing = ABSENT if results == 1 else (ABSENT,) * results

    @wraps(function)
    def computed(*args: Any, **named: Any) -> Any:
        return nothing if _lacking(args) or _lacking(named.values()) else function(*args, **named)

    return computed


def locally(function: Callable[..., Any], *values: Any) -> Any:
    """Call a function as if it were marked `@local`."""
    return ABSENT if _lacking(values) else function(*values)


def _lacking(values: Iterable[Any]) -> bool:
    return any(
        value is ABSENT or (isinstance(value, list | tuple) and any(v is ABSENT for v in value))
        for value in values
    )
