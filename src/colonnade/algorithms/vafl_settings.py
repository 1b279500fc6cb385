"""The settings of VAFL, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from colonnade.learning import Settings

if TYPE_CHECKING:
    from colonnade.learning import Task


class VAFLSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: those of `splitnn`, as in the comparisons of DVFL and FedVS."""

    # In which the clients go over the rows: DVFL's comparison lets all take the same one, so that
    # what the server has stored is recent; the paper's clients have each their own.
    order: Literal["same", "own"] = "same"
    combine: Literal["concat", "mean", "sum"] = "concat"  # mean: as the comparison of FedVS does

    polynomials: ClassVar[bool] = True

    def check(self, task: Task) -> None:
        from colonnade.learning import check_one_width

        super().check(task)
        check_one_width(self.combine, self.encoder, task)
