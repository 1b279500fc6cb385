"""The data of an experiment at one scale: so many rows, seeds and epochs, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from colonnade.experiments.reproduce.study import Part, Scale

FEW_ROWS = 2_000
VALIDATION = 0.1  # share of the rows, unless the data say otherwise
LENGTHS = ("epochs", "client_epochs", "aggregator_epochs", "encoder_epochs", "patience")


class ScaleText(Struct, frozen=True, forbid_unknown_fields=True):
    """What a scale takes of the paper's experiments."""

    seeds: int
    epochs: float  # share of the paper's
    rows: int | None = None  # training rows; all of them, unless given
    dataset: str = ""  # another data set than the paper's


class DataText(Struct, frozen=True, forbid_unknown_fields=True):
    """A data set in the words of the papers."""

    title: str
    rows: int  # training rows
    stand_in: str = ""  # the set that is used where this one is absent


@dataclass(frozen=True)
class Size:
    """The data of a paper, or what stands in for them, at one scale."""

    scale: Scale
    data: Mapping[str, Any]
    words: str
    seeds: int
    share: float = 1.0  # of the paper's epochs
    rows: int = 0  # with those set aside for validation
    substitute: bool = False  # other data than the paper's
    name: str = ""  # of the paper's set or its stand-in, also at scale smoke
    title: str = ""  # the same in words

    @property
    def training_rows(self) -> int:
        return self.rows - round(self.data.get("validation", VALIDATION) * self.rows)

    def method(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """A method with a paper's settings, but with epochs and batches of this size. The key
        `fixed` lists the settings that are the same at every scale."""
        chosen = {key: value for key, value in settings.items() if key != "fixed"}
        for key in chosen.keys() - settings.get("fixed", ()):
            if key in LENGTHS:
                chosen[key] = max(1, round(self.share * chosen[key]))
            elif key == "batch" and self.rows < FEW_ROWS:
                chosen[key] //= 4  # in larger batches, few rows teach nothing at all
        return {"name": name, **chosen}

    def part(
        self, name: str, title: str, explain: Mapping[str, Any] | None = None, **more: Any
    ) -> Part:
        """An experiment on these data; `more`: the other tables of an experiment file. `explain`:
        see `Part`."""
        data = {**self.data, **more.pop("data", {})}
        seeds = list(range(self.seeds))
        title = f"{title} ({self.words})"
        return Part(name, {"name": title, "seeds": seeds, "data": data, **more}, explain)


def sized(
    scale: Scale, chosen: ScaleText, known: Mapping[str, DataText], data: Mapping[str, Any]
) -> Size:
    """`known`: data sets by name; `data`: the table `data` of the experiments."""
    from colonnade.data import present  # with torch; a list of names goes without

    paper = data["dataset"]
    stand_in = known[paper].stand_in
    found = stand_in if stand_in and not present(paper) else paper
    used = chosen.dataset or found
    words = [known[used].title]
    if used != paper:
        words[0] += f" as a substitute for {known[paper].title}"
    words.append(_row_words(used, known[used].rows, chosen))
    if chosen.epochs != 1:
        words.append(f"{chosen.epochs:.0%} of the epochs")
    rows = {} if chosen.rows is None else {"rows": chosen.rows}
    return Size(
        scale,
        {**data, "dataset": used, **rows},
        ", ".join(words),
        chosen.seeds,
        chosen.epochs,
        chosen.rows or known[used].rows,
        used != paper,
        found,
        known[found].title,
    )


def _row_words(dataset: str, rows: int, chosen: ScaleText) -> str:
    from colonnade.data import listing

    if chosen.dataset:
        return f"{chosen.rows or rows:,} training rows"
    if chosen.rows is not None:
        return f"{chosen.rows:,} of {rows:,} training rows"
    note = next(known.note for known in listing() if known.name == dataset)
    return note if note.startswith("subset") else f"all {rows:,} training rows"
