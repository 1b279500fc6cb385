"""The settings of MAGS, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from colonnade.algorithms.mags_names import written_out
from colonnade.errors import InputError
from colonnade.learning import PROBABILITY, SECONDS, Settings, at_least

if TYPE_CHECKING:
    from colonnade.learning import Task


class MAGSSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's, appendix F.3: Adam 1e-3, batch 64, 100 epochs, the epoch with the
    lowest validation loss."""

    method: str | None = None  # the paper's name for some of what follows, e.g. "CD-MVFL-G4"
    aggregators: int | Literal["all"] = "all"  # or so many devices, drawn by the seed
    gossip: Annotated[int, at_least(0, "rounds")] = 0  # when predicting
    # In training, messages or devices are left out with this probability.
    dropout: Annotated[float, PROBABILITY] = 0.0
    dropout_kind: Literal["communication", "party"] = "communication"
    # Further rounds of messages before the prediction (Deep MVFL).
    depth: Annotated[int, at_least(0, "rounds")] = 0
    imputation: Literal["zeros", "mean", "learnt"] = "zeros"  # for an encoding that did not come
    deadline: Annotated[float | None, SECONDS] = None  # when predicting, what is later is missing
    objective: Literal["autoencoder", "simclr", "barlow"] | None = None  # encoders learn alone
    encoder_epochs: Annotated[int, at_least(1)] = 20  # if so

    at_inference: ClassVar[tuple[str, ...]] = ("method", "gossip", "deadline")

    def resolved(self) -> MAGSSettings:
        return self if self.method is None else written_out(self, self.method)

    def check(self, task: Task) -> None:
        super().check(task)
        self.resolved()
        if self.aggregators != "all" and not 1 <= self.aggregators <= len(task.clients):
            raise InputError(
                f"aggregators = {self.aggregators}: expected 1 to {len(task.clients)}, the number "
                'of devices, or "all"'
            )
        if self.depth and self.objective:
            raise InputError(
                f'depth = {self.depth}: but objective = "{self.objective}", and encoders that '
                "learn alone are not passed any gradients; leave out one of the two"
            )
        if self.depth and self.head is not None:
            raise InputError(f"depth = {self.depth}: deals out the usual head; leave out head")
