"""Errors that a person can act on."""

from __future__ import annotations


class ColonnadeError(Exception):
    """Base of every error raised on purpose; the command line exits with 1."""


class InputError(ColonnadeError, ValueError):
    """Something the user gave is wrong; the message says what, where and what to do. Exit code
    2."""


class Unsuited(InputError):
    """This party cannot work with the others it met, because their federation files or their rows
    differ. The only error by which a message of another party ends this one."""


class PartyLost(ColonnadeError):
    """A party that the method cannot go on without does not answer."""


class Unanswerable(ColonnadeError):
    """Too few parties answered for a prediction; it may succeed when more of them are there."""


class Diverged(ColonnadeError):
    """The loss is not a number any more."""


class Deadlock(ColonnadeError):
    """Programs wait for each other and nothing can happen any more."""
