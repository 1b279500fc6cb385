"""Tables whose columns are data sets, each with experiments of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Sheet


def together(sizes: Mapping[str, Size]) -> Size:
    """The sets of all columns, in words."""
    words = dict.fromkeys(size.words for size in sizes.values())
    return replace(next(iter(sizes.values())), words="; ".join(words))


def marked(sheet: Sheet, sizes: Mapping[str, Size]) -> Sheet:
    """Columns by name of the set: those whose set is a substitute are marked."""
    columns = (replace(c, substitute=sizes[c.name].substitute) for c in sheet.columns)
    return replace(sheet, columns=tuple(columns))
