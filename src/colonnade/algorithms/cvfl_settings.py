"""The settings of CVFL, and what can be wrong with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from colonnade.errors import InputError
from colonnade.learning import SECONDS, Limits, Settings, at_least
from colonnade.learning.label_split import LabelSplit

if TYPE_CHECKING:
    from colonnade.learning import Task

ABOVE_0 = Limits("a length above 0", lambda value: 0 < value < math.inf)


class CVFLSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's λ; gradients clipped, without which q = 3 diverges; and Adam, as in
    other algorithms. The paper's SGD, with the largest of its rates and momentum 0.9, learnt
    nothing in the first 70 steps on digits."""

    active: int | list[str] | None = None  # so many parties, or these; none given: all
    label_split: LabelSplit = "iid"
    asynchronous: bool = True
    # How a synchronous round uses its gradients; unless given, as steps.
    synchronous: Literal["steps", "mean"] | None = None
    q: Annotated[float | Literal["auto"], at_least(1)] = 1.0
    # How much slower than others: by party, or one share for all active parties but the first.
    slow: float | dict[str, float] = 0.0
    single: bool = False  # one active party's labels only, and no collaborator
    decay: Annotated[float, at_least(0)] = 1e-3  # λ of the bottom nets' regulariser
    clip: Annotated[float, ABOVE_0] = 8.0  # the longest gradient of a net
    # The model that is measured and kept is a mean over so many rounds; unless given, the newest.
    average: Annotated[int | None, at_least(1)] = None
    stale: bool = False  # stored embeddings in place of late ones
    # With `stale`, so many seconds for embeddings to come.
    deadline: Annotated[float | None, SECONDS] = None

    def check(self, task: Task) -> None:
        super().check(task)
        if not task.classes:
            raise InputError('algorithm = "cvfl": learns classes, but the label is a number')
        self._check_pace()
        self._check_players(task)
        for party, share in self.slower(task).items():
            if party not in task.clients:
                raise InputError(f"slow.{party}: expected a party: {', '.join(task.clients)}")
            if not 0 <= share < 1:
                raise InputError(f"slow.{party} = {share:g}: expected a share, 0 or more, below 1")

    def _check_players(self, task: Task) -> None:
        """What a federation file may say of the roles."""
        if "collaborator" not in task.players:
            return
        if self.single:
            raise InputError("single = true: is for experiments; give one party the role 'active'")
        count = len(task.players["collaborator"])
        if count > 1 or (not count and len(self.holders(task)) > 1):
            raise InputError(
                f"parties: {count or 'none'} of them have the role 'collaborator'; where several "
                "parties hold labels, one holds the top net"
            )

    def _check_pace(self) -> None:
        if self.asynchronous and self.synchronous is not None:
            raise InputError(
                f'synchronous = "{self.synchronous}": says what a synchronous round does; set '
                "asynchronous = false, or leave it out"
            )
        if self.stale and not self.asynchronous:
            raise InputError("stale = true: a synchronous round waits for everybody; leave it out")
        if self.hiding is not None and not self.asynchronous:
            raise InputError(
                "hide_labels: a synchronous round sends the gradients of several batches at once, "
                "which is not supported; leave it out, or set asynchronous = true"
            )
        if self.stale and self.noise is not None:
            raise InputError("stale = true: sends late embeddings without noise; leave noise out")
        if self.deadline is not None and not self.stale:
            raise InputError(
                f"deadline = {self.deadline:g}: what is late is replaced with stale = true only"
            )

    def holders(self, task: Task) -> tuple[str, ...]:
        """The parties among which the labels are split."""
        if "active" in task.players:  # a federation file names them
            named = task.players["active"]
            if self.active not in (None, len(named), list(named)):
                raise InputError(
                    f"active = {self.active}: but the role 'active' is that of {', '.join(named)}; "
                    "leave it out"
                )
            return named
        active = len(task.clients) if self.active is None else self.active
        if isinstance(active, int):
            if not 1 <= active <= len(task.clients):
                raise InputError(
                    f"active = {active}: expected 1 to {len(task.clients)} parties with labels"
                )
            return task.clients[:active]
        if not active:
            raise InputError("active = []: expected at least one party with labels")
        if strange := [party for party in active if party not in task.clients]:
            raise InputError(
                f"active: there is no party {strange[0]!r}; expected some of "
                f"{', '.join(task.clients)}"
            )
        if repeated := [party for i, party in enumerate(active) if party in active[:i]]:
            raise InputError(f"active: {repeated[0]!r} stands there twice; expected it once")
        return tuple(active)

    def slower(self, task: Task) -> dict[str, float]:
        """How much slower, by party."""
        if isinstance(self.slow, dict):
            return self.slow
        return dict.fromkeys(self.holders(task)[1:], self.slow) if self.slow else {}
