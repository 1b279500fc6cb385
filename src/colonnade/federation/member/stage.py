"""The stages in the life of a party."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """Where a party is, or how its process ended. The values are those of `status.json` and of
    `colonnade status`."""

    STARTING = "starting"
    MATCHING = "matching rows"
    WAITING = "waiting for the others"
    TRAINING = "training"
    TRAINED = "trained"
    TESTING = "testing"
    ANSWERING = "answering questions"
    DONE = "done"

    LEFT = "left"  # by Ctrl-C or SIGTERM
    FAILED = "ended with an error"
    GONE = "gone"  # killed: others found its folder unlocked

    @property
    def after_training(self) -> bool:
        return self in LIFE[LIFE.index(Stage.TRAINED) :]


# The stages of a process that runs, in their order.
LIFE = (
    Stage.STARTING,
    Stage.MATCHING,
    Stage.WAITING,
    Stage.TRAINING,
    Stage.TRAINED,
    Stage.TESTING,
    Stage.ANSWERING,
    Stage.DONE,
)
