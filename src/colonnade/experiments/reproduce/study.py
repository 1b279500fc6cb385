"""What a reproduction is made of: ordinary experiments, and sheets that put their figures beside
published ones. Nothing here runs or computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from colonnade.experiments.reproduce.claims import Claim
from colonnade.experiments.table import ACCURACY

Scale = Literal["smoke", "quick", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
NOT_BUILT = "not built"
SMOKE = "Scale smoke shows that everything runs; its figures say nothing about the paper."


@dataclass(frozen=True)
class Published:
    """A figure of the paper, in our units: accuracy is a fraction."""

    value: float
    spread: float | None = None


Figures = Mapping[str, Mapping[str, Published | None]]  # row → column → the paper's figure


def printed(row: str, whole: float = 100, widen: float = 1) -> tuple[Published | None, ...]:
    """Figures as a paper prints them: "97.80±0.12 97.65 –", with – for none. `whole`: how the paper
    writes an accuracy of 1. `widen`: what its ± is multiplied by."""

    def figure(text: str) -> Published:
        value, *spread = (float(number) / whole for number in text.split("±"))
        return Published(value, *(widen * number for number in spread))

    return tuple(None if text == "–" else figure(text) for text in row.split())


@dataclass(frozen=True)
class Place:
    """Where a figure of ours comes from: a method under a kind of faults, over all seeds."""

    part: str
    method: str
    faults: str = "none"


@dataclass(frozen=True)
class Entry:
    """One cell of a sheet: ours, the paper's, or both."""

    ours: Place | None = None
    published: Published | None = None
    why: str = ""  # why there is none of ours


@dataclass(frozen=True)
class Row:
    name: str
    entries: tuple[Entry, ...]  # one per column


def row(
    name: str,
    places: Sequence[Place | None],
    published: Sequence[Published | None] = (),
    why: str = "",
) -> Row:
    published = published or [None] * len(places)
    entries = [Entry(place, figure, why) for place, figure in zip(places, published, strict=True)]
    return Row(name, tuple(entries))


def across(part: str, methods: Iterable[str], faults: Iterable[str]) -> dict[str, list[Place]]:
    """The places of a part's methods under each kind of faults, by method."""
    faults = list(faults)
    return {method: [Place(part, method, fault) for fault in faults] for method in methods}


@dataclass(frozen=True)
class Column:
    name: str
    words: str  # how a sentence about it begins: "With 128 labelled rows"
    substitute: bool = False  # other data than the paper's: no difference is told
    metric: str = ""  # if another than the sheet's, of the same unit


@dataclass(frozen=True)
class Explanation:
    """Why figures of ours differ from the paper's: in these rows and columns, or in all of them."""

    text: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def about(self, row: str, column: str) -> bool:
        return (not self.rows or row in self.rows) and (not self.columns or column in self.columns)


@dataclass(frozen=True)
class Sheet:
    """A table of the paper, filled in by our runs, and what the paper says about it."""

    title: str
    data: str  # in words, with what is cut off or stands in for something else
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...] = ()
    metric: str = ACCURACY
    ranked: bool = True  # sentences and bold figures say which method is best where
    picture: Literal["dots", "lines"] | None = "dots"
    axis: str = ""  # what the columns are, under a picture of lines
    settings: str = "settings"  # what the columns are, in a sentence
    # Of differences; the last one that is about a cell counts.
    explanations: tuple[Explanation, ...] = ()


@dataclass(frozen=True)
class Part:
    """One experiment, with a folder of its own."""

    name: str
    experiment: Mapping[str, Any]  # a table of the shape of an experiment file
    explain: Mapping[str, Any] | None = None  # options of `Ask`: every run is explained as well

    @property
    def dataset(self) -> str:
        return self.experiment["data"]["dataset"]


@dataclass(frozen=True)
class Study:
    """A reproduction at one scale."""

    parts: tuple[Part, ...]
    sheets: tuple[Sheet, ...]
    notes: Sequence[str] = ()  # what differs from the paper


@dataclass(frozen=True)
class Reproduction:
    """A published table or figure that can be made anew."""

    name: str
    title: str
    source: str  # paper, and which table or figure, in short
    citation: str
    takes: Mapping[Scale, str]  # about so long on two cores
    study: Callable[[Scale], Study]
