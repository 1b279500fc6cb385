"""The wire format."""

from __future__ import annotations

import contextlib
import json

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.network.wire import Header, WireError, decode, encode

HEADER = Header((3, 1), "clients", 2, "server", 0, "embedding")


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_a_message_comes_back_bit_by_bit(values: list[float]) -> None:
    header, value = decode(encode(HEADER, torch.tensor(values)))
    assert header == HEADER
    assert value is not None
    assert torch.equal(value.view(torch.int32), torch.tensor(values).view(torch.int32))


def test_nothing_to_say_is_a_message_too() -> None:
    silent = Header((0, 1), "server", 0, "clients", 1, "gradient", nothing=True)
    assert decode(encode(silent, None)) == (silent, None)


@pytest.mark.parametrize(
    "value", [torch.randn(3, 4), torch.randn(2, 1, 5).double(), torch.zeros(0, 3)]
)
def test_it_is_a_safetensors_file(value: torch.Tensor) -> None:
    data = encode(HEADER, value)
    assert torch.equal(safetensors.torch.load(data)["value"], value)
    length = int.from_bytes(data[:8], "little")
    fields = json.loads(data[8 : 8 + length])["__metadata__"]
    theirs = safetensors.torch.save({"value": value}, fields)
    header, back = decode(theirs)
    assert header == HEADER
    assert back is not None
    assert torch.equal(back, value)


@given(st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_message_or_an_error_but_never_a_crash(
    place: int, byte: int
) -> None:
    data = bytearray(encode(HEADER, torch.ones(4)))
    data[place % len(data)] = byte
    with contextlib.suppress(WireError):
        decode(bytes(data))


@given(st.integers(0, 400))
def test_a_truncated_message_is_refused(length: int) -> None:
    data = encode(HEADER, torch.ones(4))
    with pytest.raises(WireError):
        decode(data[: length % len(data)])
