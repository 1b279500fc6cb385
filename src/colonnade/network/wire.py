"""Messages as bytes: safetensors, with our header in its metadata. Never pickle.

Whatever comes from another party is decoded here, and every integer and text in it has bounds.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeVar

import msgspec
import torch
from torch import Tensor

from colonnade.common.text import printable
from colonnade.errors import ColonnadeError
from colonnade.network.program_counter import DEPTH, LARGEST, MAIN, ProgramCounter

VERSION = "6"

Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Step = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]  # negative: programs side by side
Name = Annotated[str, msgspec.Meta(max_length=200)]
# The longest honest notes are the account of one of 1,024 devices (about 1 MB) and a call for 1,024
# rows with ids of up to 4,000 characters.
Note = Annotated[str, msgspec.Meta(max_length=2**22)]

T = TypeVar("T")


class WireError(ColonnadeError):
    """These bytes are not a message of ours. `kind` is the same for all errors of one cause,
    whatever the bytes are; `detail` is for the log."""

    def __init__(self, kind: str, detail: str = "") -> None:
        self.kind, self.detail = kind, printable(detail)
        super().__init__(f"{kind}: {self.detail}" if detail else kind)


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which message of which exchange this is."""

    at: Annotated[tuple[Step, ...], msgspec.Meta(min_length=2, max_length=DEPTH)]
    src: Name  # group
    sender: Count  # member of src
    dst: Name
    receiver: Count
    kind: Name
    register: bool = False  # the newest one counts, whatever the round
    nothing: bool = False  # the sender has nothing to say, do not wait for it
    federation: Name = ""  # the hash of its file
    # The program that the message belongs to, by how many numbers of `at` say where that program
    # was started, and the generation of that program's leader.
    program: Annotated[int, msgspec.Meta(ge=0, lt=DEPTH)] = 0
    generation: Count = 0
    life: Count = 0  # which start of its sender's process sent it
    note: Note = ""  # of a message that is no part of an exchange

    @property
    def counter(self) -> ProgramCounter:
        return ProgramCounter(self.at)

    @property
    def origin(self) -> ProgramCounter:
        """Where the program that the message belongs to was started."""
        return ProgramCounter(self.at[: self.program]) if self.program else MAIN


class _Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    colonnade: str
    header: str


class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: Annotated[tuple[Count, ...], msgspec.Meta(max_length=8)]
    data_offsets: tuple[Count, Count]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What stands before the numbers in a safetensors file with one tensor, or none."""

    metadata: _Fields = msgspec.field(name="__metadata__")
    value: _Tensor | None = None


# The format is simple, and the library's own functions take several times as long for 80 KB.
KINDS = {
    torch.int8: "I8",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int32: "I32",
    torch.int64: "I64",
}
TYPES = {name: kind for kind, name in KINDS.items()}
_json, _header, _file = (
    msgspec.json.Encoder(),
    msgspec.json.Decoder(Header),
    msgspec.json.Decoder(_File),
)


def encode(header: Header, value: Tensor | None) -> bytes:
    numbers, tensor = b"", None
    if value is not None:
        known = value.cpu().contiguous()
        if known.dtype == torch.bfloat16:  # which numpy does not know
            known = known.view(torch.int16)
        numbers = known.numpy().tobytes()
        tensor = _Tensor(KINDS[value.dtype], tuple(value.shape), (0, len(numbers)))
    fields = _Fields(VERSION, _json.encode(header).decode())
    head = _json.encode(_File(fields, tensor))
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + numbers


def decode(data: bytes) -> tuple[Header, Tensor | None]:
    """The message in these bytes; WireError if they are anything else."""
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        file = _file.decode(data[8:start])
        if file.metadata.colonnade != VERSION:
            found = file.metadata.colonnade
            raise WireError("another wire version", f"{found!r}, expected {VERSION!r}")
        header = _header.decode(file.metadata.header)
        value = _numbers(file.value, data, start)
    except WireError:
        raise
    except Exception as error:  # whatever garbage provokes, it is one thing to us: not a message
        raise WireError("not a message", type(error).__name__) from error
    if (value is None) != header.nothing:
        raise WireError("a message without content that does not say so")
    return header, value


def read_note(note: str | bytes, type: type[T]) -> T:
    """What another party wrote as JSON; WireError if it is anything else, or nested too deep."""
    try:
        return msgspec.json.decode(note, type=type)
    except Exception as error:
        raise WireError(f"not a valid {type.__name__}", str(error)) from error


def _numbers(tensor: _Tensor | None, data: bytes, start: int) -> Tensor | None:
    size = 0
    if tensor is not None:
        size = math.prod(tensor.shape) * TYPES[tensor.dtype].itemsize
    if len(data) - start != size or (tensor and tensor.data_offsets != (0, size)):
        raise WireError("not as long as it says")
    if tensor is None:
        return None
    if not size:
        return torch.zeros(tensor.shape, dtype=TYPES[tensor.dtype])
    flat = torch.frombuffer(bytearray(memoryview(data)[start:]), dtype=TYPES[tensor.dtype])
    return flat.view(tensor.shape)
