"""What parties write to each other beside the messages of an algorithm: greetings, calls of who
asks for predictions, and accounts of what left a party. All of it is checked when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from colonnade.common.text import LONGEST
from colonnade.common.user_code import Source
from colonnade.network.parts import Version
from colonnade.network.program_counter import END, ProgramCounter
from colonnade.network.wire import Count, Name

AT_ONCE = 1024  # rows of one question
AMOUNT = 2**46  # messages or bytes of one line of an account; their sums fit into 64 bits

CodeKey = Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[A-Za-z0-9_. ]+\Z")]


class Greeting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What parties tell each other when they meet."""

    digests: dict[Name, Name]  # of the federation file, by key
    rows: Name = ""  # fingerprint of the ids of the aligned rows
    code: Annotated[dict[CodeKey, Source], msgspec.Meta(max_length=32)] = {}  # of its own
    new: Count = 0  # the number of its start, if it had no checkpoint then; else 0


Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the label holder asks of everybody once the training is over."""

    number: Count
    ids: Annotated[list[str], msgspec.Meta(min_length=1, max_length=AT_ONCE)] | None = (
        None  # None: the test rows
    )
    account: bool = False  # tell what left you, instead
    over: bool = False  # there will be no more
    caller: Name = ""  # where it is not the label holder who asks
    version: Version | None = None  # of the model that answers
    # Column holders that say nothing of their columns this time, to find what they contribute.
    without: Annotated[list[Name], msgspec.Meta(max_length=4096)] = []
    check: bool = False  # send nothing; tell only which of the rows you would not answer about
    seconds: Seconds | None = None  # the answer is needed within so many; None: `patience`


Amount = Annotated[int, msgspec.Meta(ge=0, le=AMOUNT)]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of a ledger, as another party tells it."""

    phase: Name
    sender: Name
    receiver: Name
    kind: Name
    messages: Amount
    bytes: Amount


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What others tell whoever asks, or each other after a common test: what left them, or whom
    they did not hear."""

    rows: list[Line] = []
    number: Count = 0  # of the call
    silent: list[Name] = []
    why: Annotated[str, msgspec.Meta(max_length=LONGEST)] = ""  # the sender itself was silent
    alone: Count = 0  # rounds without labels that the sender did
    # Which rows of the call the sender does not answer about, by their place in it.
    refused: Annotated[list[Count], msgspec.Meta(max_length=AT_ONCE)] = []


def place_of(call: Call, members: Sequence[str]) -> ProgramCounter:
    """Where the exchanges of a call are. Calls of others than the leader go on beside its own."""
    beside = (~members.index(call.caller),) if call.caller else ()
    return ProgramCounter((END, *beside, call.number))


def done_with(call: Call, members: Sequence[str]) -> ProgramCounter:
    """The program counter after all that a call asks for."""
    return place_of(call, members).at(END, 0)


def text(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
