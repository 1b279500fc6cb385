"""Protocols by which one side learns which of its keys another side has.

One interface for all of them. Keys come in parts, so that messages stay small and progress can be
shown. The asking side sends `request` for each part of its keys; the answering side sends `setup`
for each part of its own and `answer` for each request; from both, the asking side finds `matched`.
Every protocol here is for sides that follow it (semi-honest): a side that makes up keys finds out
whether the other side has them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from colonnade.errors import ColonnadeError, InputError

Match = Literal["private", "plain", "spu"]
PART = 4096  # keys of one part
ELEMENT = 64  # bytes of one key in a message, at most


class NotOfThisProtocol(ColonnadeError):
    """These bytes of the other side are no part of the protocol."""


class Asking(Protocol):
    """The side that learns."""

    def request(self, keys: Sequence[str]) -> bytes:
        """What is sent for a part of the own keys."""
        ...

    def learn(self, setups: Sequence[bytes], count: int) -> None:
        """Take what the other side sent for all its keys, which are so many."""
        ...

    def matched(self, keys: Sequence[str], answer: bytes) -> list[int]:
        """Which of a part of the own keys the other side has, by the answer to its request."""
        ...


class Answering(Protocol):
    """The side that is asked. It learns how many keys the other side has."""

    def setup(self, keys: Sequence[str]) -> bytes:
        """What is sent for a part of the own keys."""
        ...

    def answer(self, request: bytes, most: int) -> bytes:
        """The answer to a request, which may be about so many keys."""
        ...


@dataclass(frozen=True)
class Kind:
    """A protocol by the name that `rows.match` gives it. Both sides are made with the salt of the
    run, 16 bytes which both know."""

    asking: Callable[[bytes], Asking]
    answering: Callable[[bytes], Answering]
    warning: str = ""  # shown wherever the protocol is used


_kinds: dict[str, Callable[[], Kind]] = {}


def register(name: Match, make: Callable[[], Kind]) -> None:
    """Give the protocol of a name; `make` is called when it is used first."""
    _kinds[name] = make


def protocol(name: str) -> Kind:
    """The protocol that `rows.match` names; InputError if it is not installed."""
    if name not in _kinds:
        raise InputError(
            f'rows.match = "{name}": expected one of {", ".join(get_args(Match))} for a protocol'
        )
    return _kinds[name]()


def parts(keys: Sequence[str]) -> list[Sequence[str]]:
    return [keys[start : start + PART] for start in range(0, len(keys), PART)]


def intersection(kind: Kind, mine: Sequence[str], theirs: Sequence[str], salt: bytes) -> list[int]:
    """Both sides in one process, for tests and measurements: which of mine are among theirs."""
    asking, answering = kind.asking(salt), kind.answering(salt)
    asking.learn([answering.setup(part) for part in parts(theirs)], len(theirs))
    found: list[int] = []
    for number, part in enumerate(parts(mine)):
        answer = answering.answer(asking.request(part), PART)
        found += [number * PART + place for place in asking.matched(part, answer)]
    return found


def _private() -> Kind:
    if importlib.util.find_spec("private_set_intersection") is None:
        raise InputError('rows.match = "private": needs openmined-psi: pip install colonnade[psi]')
    from colonnade.privacy.alignment.ecdh import AnsweringEcdh, AskingEcdh

    return Kind(AskingEcdh, AnsweringEcdh)


def _plain() -> Kind:
    from colonnade.privacy.alignment.salted import WARNING, AnsweringSalted, AskingSalted

    return Kind(AskingSalted, AnsweringSalted, WARNING)


def _spu() -> Kind:
    raise InputError(
        'rows.match = "spu": its protocols are not connected yet. They fit the interface in '
        "colonnade.privacy.alignment.protocols: register one under this name, or take "
        'match = "private"'
    )


register("private", _private)
register("plain", _plain)
register("spu", _spu)
