"""Messages as bytes: safetensors, with our header in its metadata. Never pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import safetensors.torch
from torch import Tensor

from colonnade.errors import ColonnadeError

VERSION = "1"


class WireError(ColonnadeError):
    """These bytes are not a message of ours."""


@dataclass(frozen=True)
class Header:
    """Which message of which exchange this is."""

    program: str
    round: int
    step: int
    src: str  # group
    sender: int  # member of src
    dst: str
    receiver: int
    kind: str
    register: bool = False  # the newest one counts, whatever the round
    nothing: bool = False  # the sender has nothing to say, do not wait for it


def encode(header: Header, value: Tensor | None) -> bytes:
    tensors = {} if value is None else {"value": value.contiguous()}
    fields = {"colonnade": VERSION, "header": json.dumps(asdict(header))}
    return safetensors.torch.save(tensors, metadata=fields)


def decode(data: bytes) -> tuple[Header, Tensor | None]:
    """The message in these bytes; WireError if they are anything else."""
    try:
        length = int.from_bytes(data[:8], "little")
        fields = json.loads(data[8 : 8 + length])["__metadata__"]
        if fields["colonnade"] != VERSION:
            raise WireError(f"wire version {fields['colonnade']!r}, expected {VERSION!r}")
        header = Header(**json.loads(fields["header"]))
        _check(header)
        tensors = safetensors.torch.load(data)
    except WireError:
        raise
    except Exception as error:  # whatever garbage provokes, it is one thing to us: not a message
        raise WireError(f"not a message: {type(error).__name__}") from error
    return header, tensors.get("value")


def _check(header: Header) -> None:
    for name, kind in Header.__annotations__.items():
        expected = {"str": str, "int": int, "bool": bool}[kind]
        value = getattr(header, name)
        if type(value) is not expected or (expected is int and value < 0):
            raise WireError(f"header field {name} is {value!r}")
