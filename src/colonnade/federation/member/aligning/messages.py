"""What parties write to each other while they match their rows. All of it has bounds, and is
checked when it is read."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from colonnade.common.text import LONGEST
from colonnade.network.wire import Name, WireError
from colonnade.privacy.alignment.protocols import ELEMENT, PART

MARK = b"colonnade align 1\n"  # what begins otherwise belongs to a training, or to nobody
MOST = 2**24  # keys of one party
BITS = MOST // 8  # bytes of one bit for each common row
PLACES = 2**22  # rows of one party that are told by their places, where parties lack some
CHUNK = 2**17  # bytes of a carried connection in one message
BODY = PART * ELEMENT + 1024
LARGEST = max(2 * BODY, BITS, 4 * PLACES) + 2**16

Run = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Keys = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Number = Annotated[int, msgspec.Meta(ge=0, le=MOST // PART)]
Bytes = Annotated[bytes, msgspec.Meta(max_length=BODY)]
Stage = Literal["find", "tell"]  # the leader finds what is common; it lets the others find it


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Hello(Message, frozen=True, omit_defaults=True):
    """To the leader, from a party that is ready."""

    digests: Annotated[dict[Name, Name], msgspec.Meta(max_length=10_000)]  # of the federation file
    keys: Keys = 0
    kind: Literal["numbers", "text", ""] = ""  # "": it has no rows
    # To add rows to an alignment: the names of those that the sender can go on from, and how many
    # of its keys are not in each. Empty: all rows are matched anew.
    outside: Annotated[dict[Name, Keys], msgspec.Meta(max_length=2)] = {}


class Greet(Message, frozen=True):
    """From the leader, between two runs: say that you are ready."""


class Begin(Message, frozen=True, omit_defaults=True):
    """From the leader: a run begins; how many keys the leader has. `after`: rows are added to the
    alignment of this name, and keys that are in it take no part."""

    run: Run
    keys: Keys
    after: Name = ""


class Ask(Message, frozen=True):
    """A part of the asking side's keys, in the form of the protocol."""

    run: Run
    stage: Stage
    part: Number
    request: Bytes


class Answer(Message, frozen=True):
    """The answer to a part, and a part of the answering side's own keys."""

    run: Run
    stage: Stage
    part: Number
    setup: Bytes
    answer: Bytes


class Tell(Message, frozen=True):
    """From the leader: so many rows are common to all; ask which they are. A bit for each, in the
    order that the digests of their keys have: is it for training, validation and test?

    With `rows.partial`: so many rows are common to the leader and the receiver. For each, in the
    same order, its place (4 bytes, the lowest first) among `rows` rows, which are those that the
    leader has in common with any party; the first `aligned` of them are for training, validation
    and test."""

    run: Run
    common: Keys
    labelled: Annotated[bytes, msgspec.Meta(max_length=BITS)] = b""
    places: Annotated[bytes, msgspec.Meta(max_length=4 * PLACES)] = b""
    rows: Keys = 0
    aligned: Keys = 0


class Carry(Message, frozen=True):
    """Bytes of a connection of a process that runs the protocol, in order. Connections have odd
    numbers if they were made at the asking side, else even ones. `last`: the connection has ended.
    Connection 0 tells of the sender's process: first that it listens, at last that it has ended."""

    run: Run
    stage: Stage
    number: Annotated[int, msgspec.Meta(ge=0, le=2**40)]
    connection: Annotated[int, msgspec.Meta(ge=0, le=2**20)]
    data: Annotated[bytes, msgspec.Meta(max_length=CHUNK)] = b""
    last: bool = False


class Carried(Message, frozen=True):
    """What was carried up to this number has been handed on."""

    run: Run
    stage: Stage
    number: Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class Ready(Message, frozen=True):
    """To the leader: the sender has found the common rows."""

    run: Run


class Commit(Message, frozen=True):
    """From the leader: every party is ready; keep the alignment. Where rows are added, 0 common
    ones say that there are no new ones."""

    run: Run
    common: Keys
    aligned: Keys
    extra: Keys


class Kept(Message, frozen=True):
    run: Run


class Over(Message, frozen=True):
    """From the leader: every party has kept it."""

    run: Run


class Stop(Message, frozen=True):
    """The sender cannot go on with the receiver."""

    why: Annotated[str, msgspec.Meta(max_length=4 * LONGEST)]


Any_ = (
    Hello
    | Greet
    | Begin
    | Ask
    | Answer
    | Tell
    | Carry
    | Carried
    | Ready
    | Commit
    | Kept
    | Over
    | Stop
)
_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Any_)


def encode(message: Any_) -> bytes:
    return MARK + _encoder.encode(message)


def decode(data: bytes) -> Any_:
    """The message in these bytes; WireError if they are anything else."""
    if not data.startswith(MARK):
        raise WireError("a message that is not about matching rows")
    if len(data) > LARGEST:
        raise WireError("a message that is too long")
    try:
        return _decoder.decode(data[len(MARK) :])
    except Exception as error:  # whatever garbage provokes
        raise WireError("not a message about matching rows", str(error)) from error
