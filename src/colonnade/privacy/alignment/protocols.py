"""Protocols by which one side learns which of its keys another side has.

One interface for all of them. Keys come in parts, so that messages stay small and progress can be
shown. The asking side sends `request` for each part of its keys; the answering side sends `setup`
for each part of its own and `answer` for each request; from both, the asking side finds `matched`.
A protocol of another package that cannot be cut into such parts is a process of its own at each
party (`Kind.worker`).
Every protocol here is for sides that follow it (semi-honest): a side that makes up keys finds out
whether the other side has them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, Protocol, get_args

from colonnade.errors import ColonnadeError, InputError

Match = Literal["private", "plain", "spu"]
PART = 4096  # keys of one part
ELEMENT = 64  # bytes of one key in a message, at most
SPU_PYTHON = "COLONNADE_SPU_PYTHON"  # names the python of an environment that has spu


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


def _by_worker(salt: bytes) -> NoReturn:
    raise TypeError("a process runs this protocol: see Kind.worker")


@dataclass(frozen=True)
class Kind:
    """A protocol by the name that `rows.match` gives it. Both sides are made with the salt of the
    run, 16 bytes which both know.

    A protocol that another package runs over connections of its own has a `worker` in place of the
    two sides: the command of a process that each party starts, and whose connections are carried
    to the other party; see spu_worker.py."""

    asking: Callable[[bytes], Asking] = _by_worker
    answering: Callable[[bytes], Answering] = _by_worker
    warning: str = ""  # shown wherever the protocol is used
    worker: tuple[str, ...] = ()


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
    """RR22 of the package spu, which may be in an environment of its own: it takes a gigabyte, and
    older versions of numpy and jax than others need."""
    python = os.environ.get(SPU_PYTHON) or sys.executable
    test = [python, "-c", "import spu.psi"]
    try:
        failed = subprocess.run(test, capture_output=True, timeout=60, check=False).returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        failed = True
    if failed:
        raise InputError(
            f'rows.match = "spu": {python} has no package spu. pip install "spu==0.9.5" into this '
            f"environment, or into another one (Python 3.10 or 3.11), and set {SPU_PYTHON} to the "
            'path of that one\'s python; or take match = "private"'
        )
    return Kind(worker=(python, str(Path(__file__).with_name("spu_worker.py"))))


register("private", _private)
register("plain", _plain)
register("spu", _spu)
