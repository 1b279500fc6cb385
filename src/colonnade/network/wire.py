"""Messages as bytes: safetensors, with our header in its metadata. Never pickle."""

from __future__ import annotations

from typing import Annotated

import msgspec
import safetensors.torch
from torch import Tensor

from colonnade.errors import ColonnadeError

VERSION = "2"

Count = Annotated[int, msgspec.Meta(ge=0)]
Path = Annotated[tuple[int, ...], msgspec.Meta(min_length=2, max_length=32)]
Name = Annotated[str, msgspec.Meta(max_length=200)]


class WireError(ColonnadeError):
    """These bytes are not a message of ours."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which message of which exchange this is."""

    program: Name
    place: Annotated[
        tuple[int, ...], msgspec.Meta(min_length=2, max_length=32)
    ]  # … rounds begun, step
    src: Name  # group
    sender: Count  # member of src
    dst: Name
    receiver: Count
    kind: Name
    register: bool = False  # the newest one counts, whatever the round
    nothing: bool = False  # the sender has nothing to say, do not wait for it
    federation: Name = ""  # the hash of its file
    era: Count = 0  # how often its leader has begun
    note: str = ""  # of a message that is no part of an exchange


_writer, _reader = msgspec.json.Encoder(), msgspec.json.Decoder(Header)
_fields = msgspec.json.Decoder(dict[str, object])


def encode(header: Header, value: Tensor | None) -> bytes:
    tensors = {} if value is None else {"value": value.contiguous()}
    fields = {"colonnade": VERSION, "header": _writer.encode(header).decode()}
    return safetensors.torch.save(tensors, metadata=fields)


def decode(data: bytes) -> tuple[Header, Tensor | None]:
    """The message in these bytes; WireError if they are anything else."""
    try:
        length = int.from_bytes(data[:8], "little")
        fields: object = _fields.decode(data[8 : 8 + length])["__metadata__"]
        assert isinstance(fields, dict)
        if fields["colonnade"] != VERSION:
            raise WireError(f"wire version {fields['colonnade']!r}, expected {VERSION!r}")
        header = _reader.decode(fields["header"])
        value = safetensors.torch.load(data).get("value")
    except WireError:
        raise
    except Exception as error:  # whatever garbage provokes, it is one thing to us: not a message
        raise WireError(f"not a message: {type(error).__name__}") from error
    if (value is None) != (header.nothing or bool(header.note)):
        raise WireError("a message without content that does not say so")
    return header, value
