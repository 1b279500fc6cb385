"""The settings of the yardstick, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from colonnade.errors import InputError
from colonnade.learning import Settings

if TYPE_CHECKING:
    from colonnade.learning import Task


class CentralisedSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`encoder`: widths per client; the layers here are the sums over clients."""

    pooled: ClassVar[bool] = True

    def check(self, task: Task) -> None:
        super().check(task)
        for key in ("encoder", "head"):
            value = getattr(self, key)
            if value is not None and not isinstance(value, list):
                raise InputError(f"{key}: the centralised yardstick takes a list of widths only")
