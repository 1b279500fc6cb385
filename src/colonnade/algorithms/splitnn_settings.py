"""The settings of split learning, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from colonnade.errors import InputError
from colonnade.learning import SECONDS, SHARE, Settings

if TYPE_CHECKING:
    from colonnade.learning import Task


class SplitNNSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: DVFL, appendix D.3: batch 64, 60 epochs, early stopping, and Adam 1e-3 as for its
    tables. (For MNIST it has SGD, lr 1e-2, momentum 0.5.)"""

    missing: Literal["wait", "skip", "zeros", "buffer", "stale"] = "zeros"
    combine: Literal["concat", "mean", "sum", "max", "weighted"] = "concat"
    weighted_start: Literal["sum", "mean"] = "sum"  # learnt weights begin at 1, or at 1/clients
    dropout: Annotated[float, SHARE] = 0.0  # of the clients, left out of a batch at random
    # In a training round, an embedding that comes later is missing.
    deadline: Annotated[float | None, SECONDS] = None

    polynomials: ClassVar[bool] = True

    def check(self, task: Task) -> None:
        from colonnade.learning import check_one_width

        super().check(task)
        if self.deadline is not None and self.missing == "wait":
            raise InputError(
                f'deadline = {self.deadline:g}: missing = "wait" waits for every embedding; leave '
                "one of the two out"
            )
        if self.weighted_start == "mean" and self.combine != "weighted":
            raise InputError(
                'weighted_start = "mean": is for combine = "weighted", whose weights are learnt; '
                "leave it out"
            )
        check_one_width(self.combine, self.encoder, task)
