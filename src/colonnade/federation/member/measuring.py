"""What must be said about the rows on which a label holder measured a model."""

from __future__ import annotations

from collections.abc import Iterator

from colonnade.learning.task import Holding, Part

FEW = 10  # rows: a figure of fewer says little


def cautions(data: Holding, classes: int, party: str) -> list[str]:
    """`party`: whose labels these are. classes: 0 for numbers."""
    found = []
    if not data.validation.rows:
        found.append(
            f"{party} has no labels of validation rows: the newest model is kept, not the best"
        )
    for name, part in (("validation", data.validation), ("test", data.test)):
        found += [f"warning: {text}" for text in _about(name, part, classes, party)]
    return found


def _about(name: str, part: Part, classes: int, party: str) -> Iterator[str]:
    if not part.rows:
        return
    if part.rows < FEW:
        rows = f"{part.rows} {name} row{'s' if part.rows > 1 else ''}"
        yield f"{party} has labels of {rows} only: figures measured there say little"
    elif classes and len(part.y.unique()) == 1:
        yield f"the {name} rows that {party} has labels of are all of one class"
