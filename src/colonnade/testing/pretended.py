"""A CUDA device that is not there: computes on the CPU, and refuses what CUDA would refuse.

with pretended_cuda(), computing_on("cuda"):
    train(…)

Every tensor is on the device that it was made on or moved to. An operation on tensors of two
devices is an error, as it is with a real device: numbers (tensors without axes) of the CPU may take
part in any operation, copies go between devices, and row numbers of the CPU may index. numpy takes
tensors of the CPU only, and a generator of the CPU draws there only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda")
CPU = torch.device("cpu")


class MixedDevices(RuntimeError):
    """An operation on tensors of two devices."""


class Places:
    """Which memory is on the pretended device."""

    def __init__(self) -> None:
        self.there: dict[int, Any] = {}  # kept alive, so that no address is used again

    def move(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self.there[storage._cdata] = storage
        return tensor

    def of(self, tensor: Tensor) -> torch.device:
        return CUDA if tensor.untyped_storage()._cdata in self.there else CPU


class Labels(TorchDispatchMode):
    """Looks at every operation, also those inside `vmap` and of the backward computation."""

    COPIES = ("aten.copy_", "aten._to_copy")
    INDEXING = ("aten.index.", "aten.index_put", "aten._index_put", "aten._unsafe_index")

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        self.within = CPU  # a call of torch that makes tensors on its way makes them there

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        name = str(func)
        if name.startswith(self.INDEXING):
            values = args[2:3] if "put" in name else ()
            tensors = [x for x in (args[0], *values) if isinstance(x, Tensor)]
            if self.places.of(args[0]) == CPU:  # row numbers of the device do not index there
                tensors += [x for x in args[1] if isinstance(x, Tensor)]
        with_axes = {self.places.of(x) for x in tensors if x.dim()}
        devices = with_axes or {self.places.of(x) for x in tensors} or {self.within}
        if name.startswith(self.COPIES):
            devices = {self.places.of(args[0])}
        elif len(devices) > 1:
            shapes = [f"{tuple(x.shape)} on {self.places.of(x).type}" for x in tensors]
            raise MixedDevices(f"{name}: {', '.join(shapes)}")
        result = func(*args, **(kwargs or {}))
        if CUDA in devices:
            for one in tree_leaves(result):
                if isinstance(one, Tensor):
                    self.places.move(one)
        return result


class Calls(TorchFunctionMode):
    """Answers what a call says of devices: `device=`, `to`, `cpu`, `device`, `numpy`."""

    def __init__(self, places: Places, labels: Labels) -> None:
        super().__init__()
        self.places, self.labels = places, labels

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func in (Tensor.to, Tensor.cpu, Tensor.cuda):
            return self._move(func, args, kwargs)
        if func == Tensor.device.__get__:  # pyright: ignore[reportAttributeAccessIssue]
            return self._device(args[0])
        if func is Tensor.numpy and self.places.of(args[0]) == CUDA:
            raise MixedDevices("numpy() of a tensor on the device")
        device = kwargs.get("device")
        wanted = device is not None and torch.device(device).type == "cuda"
        if wanted:
            kwargs["device"] = CPU
            if kwargs.get("generator") is not None:
                raise MixedDevices(f"{name}: a generator of the CPU draws on the device")
        with self._within(args):
            result = func(*args, **kwargs)
        if wanted:
            for one in tree_leaves(result):
                self.places.move(one)
        return result

    @contextmanager
    def _within(self, args: Any) -> Iterator[None]:
        tensors = [x for x in tree_leaves(args) if type(x) in (Tensor, torch.nn.Parameter)]
        before = self.labels.within
        if any(self._device(x) == CUDA for x in tensors):
            self.labels.within = CUDA
        try:
            yield
        finally:
            self.labels.within = before

    def _device(self, tensor: Tensor) -> torch.device:
        try:
            return self.places.of(tensor)
        except (NotImplementedError, RuntimeError):  # wrapped by vmap
            return CUDA

    def _move(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        tensor, *rest = args
        if func is not Tensor.to:
            target = CPU if func is Tensor.cpu else CUDA
            return self._moved(tensor, target)
        device = kwargs.pop("device", None)
        named = [x for x in rest if isinstance(x, str | torch.device)]
        if named:
            device, rest = named[0], [x for x in rest if x is not named[0]]
        result = Tensor.to(tensor, *rest, **kwargs) if rest or kwargs else tensor
        return result if device is None else self._moved(result, torch.device(device))

    def _moved(self, tensor: Tensor, target: torch.device) -> Tensor:
        if self.places.of(tensor).type == target.type:
            return tensor
        with _disable_current_modes():
            copied = tensor.detach().clone()
        return self.places.move(copied) if target.type == "cuda" else copied


@contextmanager
def pretended_cuda() -> Iterator[None]:
    places = Places()
    labels = Labels(places)
    with patch("torch.cuda.is_available", lambda: True), labels, Calls(places, labels):
        yield
