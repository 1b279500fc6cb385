"""The settings of VIM, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from colonnade.errors import InputError
from colonnade.learning import POSITIVE, Settings, at_least

if TYPE_CHECKING:
    from colonnade.learning import Task

WIDTH = 60  # the paper's
FEW = 30  # clients. `old` is ahead with 20, about level with 30, 4 points behind with 40 (vim.md)


class VIMSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's appendix B.3, but for `lr`, `rho` and `residual`, which are those of
    the authors' code: with the new heads of equation 9 the training diverges."""

    batch: Annotated[int, at_least(1)] = 1024
    lr: float | dict[str, float] = 0.1
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: Annotated[float, at_least(0)] = 0.9  # of the clients; the server has none
    solver: Literal["sgd", "admm", "admm-j"] = "admm"
    rho: Annotated[float, POSITIVE] = 1.0  # the penalty on what z and the logits differ by
    tau: Annotated[int, at_least(1)] = 20  # local steps of a client in a round
    # The clients' embeddings; 60, or what the encoders give.
    width: Annotated[int | None, at_least(1)] = None
    beta: Annotated[float, at_least(0)] = 0.005  # of the squared parameters, in the objective
    # What a client is told: what is lacking after the others' logits by their new heads (equation
    # 9), or by their old ones (the authors' code); or its share of what is lacking altogether (Boyd
    # et al., section 7.3). Old for classes, shared for numbers and for more than `FEW` clients.
    residual: Literal["new", "old", "shared"] | None = None

    own_head: ClassVar[bool] = False  # linear, one per client

    def resolved(self) -> Settings:
        if self.encoder is not None:
            return self
        width = self.width or WIDTH
        return msgspec.structs.replace(self, encoder=[2 * width, width])

    def check(self, task: Task) -> None:
        super().check(task)
        if self.solver == "sgd" and self.residual is not None:
            raise InputError(
                f'residual = "{self.residual}": says what clients are told by ADMM; leave it out '
                'with solver = "sgd"'
            )
        if self.hiding and self.solver != "sgd":
            raise InputError(
                f'hide_labels: solver = "{self.solver}" tells clients the dual variables of single '
                'rows, which are their labels; leave it out, or take solver = "sgd"'
            )
        if task.partial and self.solver != "sgd":
            raise InputError(
                f'solver = "{self.solver}": tells clients what their share of every row should be, '
                'also of rows that they lack; with partial rows, take solver = "sgd"'
            )
        if self.decorrelate and self.solver == "admm-j":
            raise InputError(
                'decorrelate: solver = "admm-j" sends no embeddings, only logits; leave it out, or '
                "take another solver"
            )
        if not task.classes and self.residual in ("new", "old"):
            raise InputError(
                f'residual = "{self.residual}": the squared error of a number label then grows '
                'without end; expected "shared", or leave it out'
            )
