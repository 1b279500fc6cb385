"""What every algorithm uses and no paper describes: declarations of groups and exchanges, tasks,
training control, state that survives a crash, versions of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common import lazy

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm
    from colonnade.learning.collection import Collection
    from colonnade.learning.combining import Combined, combine
    from colonnade.learning.declare import (
        Columns,
        Exchange,
        LabelHolder,
        LabelHolders,
        Members,
        Numbered,
    )
    from colonnade.learning.models import (
        check_one_width,
        encoder_widths,
        make_decoder,
        make_encoder,
        make_head,
    )
    from colonnade.learning.replay import Replay
    from colonnade.learning.settings import (
        POSITIVE,
        PROBABILITY,
        SECONDS,
        SHARE,
        WIDTHS,
        Limits,
        Settings,
        at_least,
    )
    from colonnade.learning.side_by_side import Epoch, Rows, pace_of
    from colonnade.learning.state import Numbers, Table, Value
    from colonnade.learning.task import Batch, LocalBatches, Part, Task
    from colonnade.learning.training import Training

__all__ = [
    "POSITIVE",
    "PROBABILITY",
    "SECONDS",
    "SHARE",
    "WIDTHS",
    "Algorithm",
    "Batch",
    "Collection",
    "Columns",
    "Combined",
    "Epoch",
    "Exchange",
    "LabelHolder",
    "LabelHolders",
    "Limits",
    "LocalBatches",
    "Members",
    "Numbered",
    "Numbers",
    "Part",
    "Replay",
    "Rows",
    "Settings",
    "Table",
    "Task",
    "Training",
    "Value",
    "at_least",
    "check_one_width",
    "combine",
    "encoder_widths",
    "make_decoder",
    "make_encoder",
    "make_head",
    "pace_of",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "algorithm": ("Algorithm",),
        "collection": ("Collection",),
        "combining": ("Combined", "combine"),
        "declare": ("Columns", "Exchange", "LabelHolder", "LabelHolders", "Members", "Numbered"),
        "models": (
            "check_one_width",
            "encoder_widths",
            "make_decoder",
            "make_encoder",
            "make_head",
        ),
        "settings": (
            "POSITIVE",
            "PROBABILITY",
            "SECONDS",
            "SHARE",
            "WIDTHS",
            "Limits",
            "Settings",
            "at_least",
        ),
        "replay": ("Replay",),
        "side_by_side": ("Epoch", "Rows", "pace_of"),
        "state": ("Numbers", "Table", "Value"),
        "task": ("Batch", "LocalBatches", "Part", "Task"),
        "training": ("Training",),
    },
)
