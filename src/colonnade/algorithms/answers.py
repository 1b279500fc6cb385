"""What somebody outside gets who asks devices for their predictions, some of which cannot answer.

MAGS, section 2.2. A is the set of devices that can answer. Whoever is asked in vain stands for the
class prior: an answer drawn from it is right with the prior's probability of the true class. Every
expectation over whom to ask and what to draw is computed, not sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Answers:
    """The predictions of some rows at the one who asked."""

    log_p: Tensor  # [devices, rows, classes] log-probabilities
    active: Tensor  # [devices] bool: A

    def first(self, prior: Tensor) -> Tensor:
        """Of the first device that can answer; the prior if there is none. [rows, classes]"""
        able = self.active.nonzero()[:, 0]
        if not len(able):
            return prior.clamp(min=1e-12).log().expand_as(self.log_p[0])
        return self.log_p[able[0]]


def metrics(answers: list[Answers], y: Tensor, prior: Tensor) -> dict[str, float]:
    """`active_rand`: a device of A at random. `active_best`, `active_worst`: right if any (if
    every) device of A is. `any_rand`: a device at random, able to answer or not."""
    sums = dict.fromkeys(("rand", "best", "worst", "any", "loss"), 0.0)
    first = 0
    for one in answers:
        rows = one.log_p.shape[1]
        truth = y[first : first + rows]
        first += rows
        guess = prior[truth].double()  # [rows]
        share = one.active.double().mean()
        heard = one.log_p[one.active]
        if len(heard):
            right = (heard.argmax(2) == truth).double()  # [A, rows]
            loss = -heard.double().gather(2, truth.expand(len(heard), rows)[..., None])[..., 0]
            rand, best, worst = right.mean(0), right.amax(0), right.amin(0)
            loss = loss.mean(0)
        else:
            rand = best = worst = guess
            loss = -guess.clamp(min=1e-12).log()
        sums["rand"] += float(rand.sum())
        sums["best"] += float(best.sum())
        sums["worst"] += float(worst.sum())
        sums["loss"] += float(loss.sum())
        sums["any"] += float((share * (rand if len(heard) else 0) + (1 - share) * guess).sum())
    mean = {name: value / first for name, value in sums.items()}
    return {
        "test_accuracy": mean["rand"],
        "test_loss": mean["loss"],
        "active_rand": mean["rand"],
        "active_best": mean["best"],
        "active_worst": mean["worst"],
        "any_rand": mean["any"],
        "spread": mean["best"] - mean["worst"],
    }
