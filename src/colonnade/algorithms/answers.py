"""What somebody outside gets who asks devices for their predictions, some of which cannot answer.

MAGS, section 2.2. A is the set of devices that can answer. Whoever is asked in vain stands for the
class prior: an answer drawn from it is right with the prior's probability of the true class. Every
expectation over whom to ask and what to draw is computed, not sampled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.network import Inbox, local

LEAST = 1e-12  # a class that was never seen is not impossible


@dataclass(frozen=True)
class Answers:
    """The predictions of some rows at the one who asked."""

    log_p: Tensor  # [devices, rows, classes] log-probabilities
    active: Tensor  # [devices] bool: A

    @classmethod
    @local
    def heard(cls, inbox: Inbox) -> Answers:
        """What reached the one who asked."""
        return cls(inbox.value[0], inbox.arrived[0])

    @classmethod
    @local
    def own(cls, log_p: Tensor) -> Answers:
        """What the devices here would answer."""
        return cls(log_p, torch.ones(len(log_p), dtype=torch.bool))

    def first(self, prior: Tensor) -> Tensor:
        """Of the first device that can answer; the prior if there is none. [rows, classes]"""
        able = self.active.nonzero()[:, 0]
        if not len(able):
            return prior.clamp(min=LEAST).log().expand_as(self.log_p[0])
        return self.log_p[able[0]]


@local
def metrics(
    answers: list[Answers], y: Tensor, prior: Tensor
) -> tuple[dict[str, float], list[float]]:
    """`active_rand`: an aggregator of A at random. `active_best`, `active_worst`: right if any (if
    every) one of A is. `any_rand`: an aggregator at random, able to answer or not. And active rand
    batch by batch."""
    truths = y.split([one.log_p.shape[1] for one in answers])
    parts = [_by_row(one, truth, prior) for one, truth in zip(answers, truths, strict=True)]
    mean = {name: float(torch.cat([part[name] for part in parts]).mean()) for name in parts[0]}
    figures = {
        "test_accuracy": mean["rand"],
        "test_loss": mean["loss"],
        "active_rand": mean["rand"],
        "active_best": mean["best"],
        "active_worst": mean["worst"],
        "any_rand": mean["any"],
        "spread": mean["best"] - mean["worst"],
    }
    return figures, [float(part["rand"].mean()) for part in parts]


def _by_row(one: Answers, truth: Tensor, prior: Tensor) -> dict[str, Tensor]:
    guess = prior[truth].double()  # [rows]
    heard = one.log_p[one.active].double()  # [A, rows, classes]
    if not len(heard):
        silence = -guess.clamp(min=LEAST).log()
        return {"rand": guess, "best": guess, "worst": guess, "any": guess, "loss": silence}
    right = (heard.argmax(2) == truth).double()  # [A, rows]
    loss = -heard.gather(2, truth.expand(right.shape)[..., None])[..., 0]
    rand, share = right.mean(0), one.active.double().mean()
    anyone = share * rand + (1 - share) * guess
    figures = {"rand": rand, "best": right.amax(0), "worst": right.amin(0)}
    return figures | {"any": anyone, "loss": loss.mean(0)}
