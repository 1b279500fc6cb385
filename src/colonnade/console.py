"""What the commands share about how they speak."""

from __future__ import annotations

import inspect
from collections.abc import Mapping


def paragraphs(text: str | None) -> str:
    """Help as paragraphs: typer would keep the line breaks of the source."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def with_reasons(absent: Mapping[str, str]) -> str:
    """`lab (away), ward (untrained)`"""
    return ", ".join(f"{party} ({why})" for party, why in absent.items())
