"""The settings of FedOnce."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from colonnade.learning import WIDTHS, Settings, at_least

RATES = {"clients": 2e-3, "server": 8e-2}


class FedOnceSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: those of DVFL's clients and owner (its appendix D.3). `epochs`, `optimizer`,
    `momentum` and `patience` are the server's; clients learn by Adam with weight decay 1e-5."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = msgspec.field(default_factory=lambda: dict(RATES))
    objective: Literal["autoencoder", "noise"] = "autoencoder"
    # Hidden widths; the encoder's layers mirrored.
    decoder: Annotated[list[int] | None, WIDTHS] = None
    client_epochs: Annotated[int, at_least(1)] = 20
    missing: Literal["zeros", "retry"] = "zeros"  # retry: until every encoding came
