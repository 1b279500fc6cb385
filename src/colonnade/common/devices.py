"""The device on which a method computes.

with computing_on("cuda"):
    torch.zeros(3)          # is made there
    to_device(torch.from_numpy(mask))  # is moved there

What has no device in its call is made on the device of the block, by torch's own device context.
What comes from elsewhere (numpy, the data, the network) is moved by `to_device`. Random numbers are
drawn on the CPU and moved (`device="cpu"` in the call), so that they are the same on every device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

from colonnade.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

DeviceName = Literal["auto", "cpu", "cuda"]

_chosen: ContextVar[str] = ContextVar("device", default="cpu")


def chosen(name: DeviceName) -> str:
    """The device that a name stands for. InputError: it is not there."""
    if name == "cpu":
        return name
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "auto":
        return "cpu"
    build = "" if torch.backends.cuda.is_built() else f"; torch {torch.__version__} is without CUDA"
    raise InputError(
        f'device = "cuda": there is no CUDA device here{build}. Expected "auto", "cpu", or a '
        "machine that has one"
    )


@contextmanager
def computing_on(name: DeviceName) -> Iterator[None]:
    """In this block, tensors are made on this device."""
    device = chosen(name)
    if device == _chosen.get():
        yield
        return
    import torch

    before = _chosen.set(device)
    try:
        with torch.device(device):
            yield
    finally:
        _chosen.reset(before)


def on_cpu() -> bool:
    return _chosen.get() == "cpu"


def to_device(tensor: Tensor) -> Tensor:
    """The tensor on the device of the block; the same tensor on the CPU, where nothing is to do."""
    device = _chosen.get()
    return tensor if device == "cpu" else tensor.to(device)
