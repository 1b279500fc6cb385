"""The lists that `colonnade datasets` and `colonnade reproduce` print, for terminals of 80 columns.

An entry is a line of figures and under it, dim, a line of words: in a table, words would make tall
and narrow cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from colonnade.data.datasets import Listing
from colonnade.experiments.reproduce.study import SCALES, Reproduction

GAP = "  "
SHORT = {
    "embedded": "embedded",
    "in data folder": "present",
    "can be downloaded": "to download",
    "to be obtained by hand": "by hand",
}
SOURCES = (
    "embedded: comes with Colonnade. present: in the data folder. to download: fetched when first "
    "used. by hand: --json says where to get it."
)

Entry = tuple[Sequence[str], Sequence[str]]  # figures, and the lines of words under them


def show_datasets(entries: Iterable[Listing], folder: object, console: Console) -> None:
    rows: list[Entry] = [
        (
            (e.name, e.size, SHORT[e.source]),
            (f"{e.title} · {e.split}, {e.parties} parties", *([e.note] if e.note else [])),
        )
        for e in entries
    ]
    _show(("name", "size", "source"), rows, console)
    console.print(Text(f"\n{SOURCES}\nData folder: {folder}"))


def show_reproductions(entries: Iterable[Reproduction], console: Console) -> None:
    rows: list[Entry] = [
        ((e.name, e.source, *(e.takes[scale] for scale in SCALES)), (e.title,)) for e in entries
    ]
    _show(("name", "from", *SCALES), rows, console)
    console.print(Text("\nTimes at the scales smoke, quick and full: about, on two cores."))


def _show(header: Sequence[str], entries: Sequence[Entry], console: Console) -> None:
    lines = [header, *(figures for figures, _ in entries)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return GAP.join(padded).rstrip()

    console.print(Text(line(header), "bold"))
    for figures, words in entries:
        console.print(Text(line(figures)))
        for text in words:
            console.print(Text(GAP + text, "dim"))
