"""The mean of a net over the newest rounds, for CVFL whose parties pull the model back and forth.

A slow party's steps come seldom and together; between them the fast party's rounds pull the model
to its own classes. So a model as it happens to be at the end of an epoch may be much worse than the
one twenty rounds before. The mean over both is better than either.
"""

from __future__ import annotations

from torch import Tensor

from colonnade.learning import Algorithm


class Averaged:
    """The models of a stack that learn, and those that are measured, kept and asked: the mean of
    the first over about so many rounds; without `rounds`, the same."""

    def __init__(self, algorithm: Algorithm, name: str, rounds: int | None) -> None:
        group, self.asked = algorithm.stacks[name]
        self.learning, self.rounds = self.asked, rounds
        if rounds is not None:
            self.learning = self.asked.twin()
            algorithm.stacks[f"learning {name}"] = (group, self.learning)

    def follow(self, where: Tensor) -> None:
        """After a step of the models that learn. `where`: which members took it."""
        if self.rounds is not None:
            self.asked.follow(self.learning, self.rounds, where)
