"""What the commands share about how they speak."""

from __future__ import annotations

import inspect


def paragraphs(text: str | None) -> str:
    """Help as paragraphs: typer would keep the line breaks of the source."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)
