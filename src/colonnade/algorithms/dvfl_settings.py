"""The settings of DVFL, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from colonnade.errors import InputError
from colonnade.learning import SHARE, WIDTHS, Settings, at_least

if TYPE_CHECKING:
    from colonnade.learning import Task

RATES = {"clients": 2e-3, "aggregators": 2e-3, "owner": 8e-2}


class DVFLSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's for MNIST, appendix D. `optimizer`, `momentum` and `patience` are the
    owner's; clients and aggregators learn by Adam with weight decay 1e-5."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = msgspec.field(default_factory=lambda: dict(RATES))
    aggregators: Annotated[int, at_least(0, "aggregators")] = 4  # 0: the owner has their layers
    # Of an aggregator's encoding; half of what it joins.
    aggregator_width: Annotated[int | None, at_least(1)] = None
    objective: Literal["autoencoder", "simclr", "barlow"] = "autoencoder"
    # Hidden widths; the encoder's layers mirrored.
    decoder: Annotated[list[int] | None, WIDTHS] = None
    client_epochs: Annotated[int, at_least(1)] = 20
    aggregator_epochs: Annotated[int, at_least(1)] = 40
    owner_epochs: Annotated[int | None, at_least(1)] = None  # another name of `epochs`
    period: Annotated[int, at_least(1)] = 1  # encodings are sent in every so many-th client epoch
    # Batches an aggregator keeps to train on again; 0: none.
    replay: Annotated[int | Literal["all"], at_least(0, "batches")] = 2000
    centre: bool = True  # the owner brings encodings to mean 0 and a common scale
    dropout: Annotated[float, SHARE] = 0.0  # of the encodings, which the owner learns to do without
    imputation: Literal["zeros", "learnt"] = "zeros"  # for an encoding that did not come
    missing: Literal["zeros", "retry"] = "zeros"  # retry: the owner's collection waits for everyone

    def check(self, task: Task) -> None:
        super().check(task)
        if self.aggregators and self.period > self.client_epochs:
            raise InputError(
                f"period = {self.period}: {self.client_epochs} client epochs would send nothing"
            )
        if self.owner_epochs is not None and self.epochs not in (None, self.owner_epochs):
            raise InputError(f"owner_epochs = {self.owner_epochs}: but epochs = {self.epochs}")
        if self.imputation == "learnt" and not self.dropout:
            raise InputError(
                'imputation = "learnt": is learnt from encodings left out, so it needs dropout '
                "above 0, e.g. dropout = 0.25"
            )
