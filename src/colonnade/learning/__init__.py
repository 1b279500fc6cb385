"""What every algorithm uses and no paper describes: declarations of groups and exchanges, tasks,
training control, state that survives a crash, versions of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common import lazy

if TYPE_CHECKING:
    from colonnade.learning.algorithm import Algorithm
    from colonnade.learning.declare import Columns, Exchange, LabelHolder, Members
    from colonnade.learning.models import encoder_widths, make_decoder, make_encoder, make_head
    from colonnade.learning.settings import Settings, check_widths
    from colonnade.learning.state import Numbers, Table, Value
    from colonnade.learning.task import Batch, LocalBatches, Part, Task
    from colonnade.learning.training import Training

__all__ = [
    "Algorithm",
    "Batch",
    "Columns",
    "Exchange",
    "LabelHolder",
    "LocalBatches",
    "Members",
    "Numbers",
    "Part",
    "Settings",
    "Table",
    "Task",
    "Training",
    "Value",
    "check_widths",
    "encoder_widths",
    "make_decoder",
    "make_encoder",
    "make_head",
]

__getattr__ = lazy.attributes(
    __name__,
    {
        "algorithm": ("Algorithm",),
        "declare": ("Columns", "Exchange", "LabelHolder", "Members"),
        "models": ("encoder_widths", "make_decoder", "make_encoder", "make_head"),
        "settings": ("Settings", "check_widths"),
        "state": ("Numbers", "Table", "Value"),
        "task": ("Batch", "LocalBatches", "Part", "Task"),
        "training": ("Training",),
    },
)
