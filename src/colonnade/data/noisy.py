"""Parties whose columns are noisy, to see what a method makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from colonnade.common.seeds import torch_stream
from colonnade.common.text import nearest
from colonnade.data.partition import Rows, VerticalData
from colonnade.errors import InputError


def with_noise(data: VerticalData, noisy: Mapping[str, float], seed: int) -> VerticalData:
    """Gaussian noise of these standard deviations on all scaled rows of some parties: rows to train
    on, to validate with, to test with, and rows of its own."""
    for party in noisy:
        if party not in data.clients:
            raise InputError(
                f"data.noisy.{party}: is none of the parties {', '.join(data.clients)}"
                f"{nearest(party, data.clients)}"
            )

    def disturbed(x: tuple[Tensor, ...], part: str) -> tuple[Tensor, ...]:
        return tuple(
            own + noisy[party] * _normal(own, seed, party, part) if party in noisy else own
            for party, own in zip(data.clients, x, strict=True)
        )

    def rows(part: str) -> Rows:
        known: Rows = getattr(data, part)
        found = replace(known, x=disturbed(known.x, part))
        return found if known.held is None else found.only_held(known.held)

    told = ", ".join(f"{party} (standard deviation {sd:g})" for party, sd in noisy.items())
    return replace(
        data,
        train=rows("train"),
        validation=rows("validation"),
        test=rows("test"),
        extra=disturbed(data.extra, "extra") if data.extra else (),
        notes=(*data.notes, f"Gaussian noise was added to the columns of {told}"),
    )


def _normal(like: Tensor, seed: int, party: str, part: str) -> Tensor:
    return torch.randn(like.shape, generator=torch_stream(seed, party, "noisy", part))
