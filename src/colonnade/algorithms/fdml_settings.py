"""The settings of FDML."""

from __future__ import annotations

from typing import ClassVar, Literal

from colonnade.learning import Settings


class FDMLSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    combine: Literal["sum", "mean"] = "sum"  # VIM's text says mean; its formula and its code, sum

    own_head: ClassVar[bool] = False
