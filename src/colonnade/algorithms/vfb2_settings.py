"""The settings of VFB²."""

from __future__ import annotations

from typing import ClassVar

from colonnade.learning import Settings


class VFB2Settings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """VFB² has no keys of its own."""

    polynomials: ClassVar[bool] = True
