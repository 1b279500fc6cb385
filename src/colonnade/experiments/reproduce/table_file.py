"""A published table as data: a TOML file with the figures that the paper printed, its claims, and
the settings of the experiments that make the table anew. `docs/how-to/add-a-reproduction.md` shows
one.

A file inherits from another one: from the file that its key `like` names, else from `paper.toml` in
the same folder if there is one, and that from `common.toml`. Tables are merged key by key, lists of
tables (claims) are joined, and any other value replaces the inherited one. Sheets and settings
inherit in the same way from the sheet or the settings that their key `like` names.

The texts of a sheet may contain `{data}` (the data in words), `{first}` and `{last}` (the first and
the last column at this scale), and any other word that the study fills in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from colonnade.common.toml import Table, convert, known_keys, read_toml
from colonnade.errors import InputError
from colonnade.experiments.reproduce.claims import Claim
from colonnade.experiments.reproduce.size import DataText, ScaleText, Size, sized
from colonnade.experiments.reproduce.statements import ClaimText, Reader
from colonnade.experiments.reproduce.study import (
    NOT_BUILT,
    Column,
    Explanation,
    Figures,
    Part,
    Place,
    Published,
    Reproduction,
    Scale,
    Sheet,
    Study,
    across,
    printed,
    row,
)
from colonnade.experiments.table import ACCURACY

COMMON = Path(__file__).with_name("common.toml")
PAPER = "paper.toml"
Rows = Mapping[str, Sequence[Place | None]]  # row → where our figures are, column by column


class SheetText(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of figures, at all scales."""

    title: str
    columns: dict[str, str]  # name → how a sentence about the column begins
    quick: list[str] = []  # the columns at scale quick, if not all
    smoke: list[str] = []  # the columns at scale smoke, if not those at scale quick
    printed: dict[str, str] = {}  # row → figures in the order of the columns, – for none
    whole: float | None = None  # if another than the paper's
    claims: list[ClaimText] = []
    metric: str = ACCURACY
    metrics: dict[str, str] = {}  # column → its metric, if it has one of its own
    data: str = ""  # in words, if more is to be said than that of the experiments
    any_data: bool = False  # figures do not depend on the data: a difference is told in any case
    ranked: bool = True  # sentences and bold figures say which row is best in which column
    picture: Literal["dots", "lines", "none"] = "dots"
    axis: str = ""  # what the columns are, under a picture of lines
    settings: str = "settings"  # what the columns are, in a sentence

    def shown(self, scale: Scale) -> list[str]:
        fewer = {"quick": self.quick, "smoke": self.smoke or self.quick}
        return fewer.get(scale) or list(self.columns)


class ExplanationText(Struct, frozen=True, forbid_unknown_fields=True):
    """Why our figures differ from the printed ones."""

    text: str  # or a key of `words`
    sheet: str = ""  # all of them, unless given
    rows: list[str] = []  # all of them, unless given
    at: list[str] = []  # columns; all of them, unless given
    scales: list[Scale] = []  # all of them, unless given


class TableFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of one table, with what it inherits. A study builds its experiments and sheets with
    the methods of this class."""

    file: str  # name of the file, for errors
    name: str  # as in `colonnade reproduce NAME`
    title: str
    source: str  # which table of which paper, in short
    citation: str
    takes: dict[Scale, str]  # about so long on two cores
    data: Table  # table `data` of the experiments
    scales: dict[Scale, ScaleText]
    datasets: dict[str, DataText]
    faults: dict[str, Table]  # name → the other keys of a fault in an experiment file
    sheets: dict[str, Table]  # each a `SheetText`; `columns` may also be a key of `columns` below,
    # or a list of names of faults
    columns: dict[str, dict[str, str]] = {}  # columns that several sheets have in common
    settings: dict[str, Table] = {}  # of the paper's methods; `{name}` is the name of the method
    methods: dict[str, Table] = {}  # methods to run: their own settings, and with `like` a key of
    # `settings`; without, the settings that have the method's name or are the only ones
    words: dict[str, str] = {}  # texts that several files have in common
    notes: list[str] = []  # what a reader must know: texts, or keys of `words`
    notes_below_full: list[str] = []  # the same at the scales smoke and quick, shown first
    explanations: list[ExplanationText] = []  # of differences; the last that is about a cell counts
    whole: float = 100.0  # how the paper writes an accuracy of 1
    deviations: float = 2.0  # how many standard deviations the paper's ± is
    extra: Table = {}  # anything else that the study needs

    def size(self, scale: Scale, **data: Any) -> Size:
        """The data at a scale; `data` replaces keys of the file's."""
        return sized(scale, self.scales[scale], self.datasets, {**self.data, **data})

    def method(self, size: Size, name: str, **more: Any) -> Table:
        """A method for an experiment; `more` replaces or adds settings."""
        only = next(iter(self.settings)) if len(self.settings) == 1 else name
        own = {"like": only, **self.methods.get(name, {}), **more}
        return size.method(name, filled(self._like(own, self.settings, "settings"), {"name": name}))

    def runs(self, size: Size, names: Iterable[str] = (), **more: Any) -> list[Table]:
        """Some or all of the methods."""
        return [self.method(size, name, **more) for name in names or self.methods]

    def fault_list(self, names: Iterable[str]) -> list[Table]:
        """Faults for an experiment."""
        chosen = list(names)
        self._check(chosen, self.faults, "faults")
        return [{"name": name, **self.faults[name]} for name in chosen]

    def shown(self, scale: Scale, sheet: str = "") -> list[str]:
        """The columns of a sheet (the first, if none is named) at this scale."""
        return self._text(sheet, {}).shown(scale)

    def figures(self, sheet: str = "") -> Figures:
        """What the paper printed in a sheet, at all scales; ± is two standard deviations."""
        return self._figures(self._text(sheet, {}))

    def sheet(
        self,
        size: Size,
        rows: Rows,
        name: str = "",
        *,
        words: Mapping[str, str] | None = None,
        more: Figures | None = None,
    ) -> Sheet:
        """A sheet (the first, if none is named): `rows` with the printed figures beside them, then
        the printed rows that are not in `rows`, marked as not built. `words` are filled into its
        texts. `more`: figures that the paper printed elsewhere."""
        columns = self._text(name, words or {}).shown(size.scale)
        known = {"data": size.words, "first": columns[0], "last": columns[-1]}
        text = self._text(name, {**known, **(words or {})})
        figures = {**self._figures(text), **(more or {})}
        unbuilt = {line: [None] * len(columns) for line in figures if line not in rows}
        lines = tuple(
            row(
                line,
                places,
                [figures.get(line, {}).get(column) for column in columns],
                NOT_BUILT if line in unbuilt else "",
            )
            for line, places in {**rows, **unbuilt}.items()
        )
        reader = Reader(
            self.file, [line.name for line in lines], list(text.columns), columns, figures
        )
        substitute = size.substitute and not text.any_data
        return Sheet(
            text.title,
            text.data or size.words,
            tuple(
                Column(column, text.columns[column], substitute, text.metrics.get(column, ""))
                for column in columns
            ),
            lines,
            tuple(self._claims(text, reader, size.scale)),
            text.metric,
            text.ranked,
            None if text.picture == "none" else text.picture,
            text.axis,
            text.settings,
            self._explanations(name, [line.name for line in lines], list(text.columns), size.scale),
        )

    def by_faults(
        self, size: Size, name: str, title: str, faults: Sequence[str] = (), **words: str
    ) -> tuple[Part, Sheet]:
        """One experiment, and the first sheet for it: its rows are all methods, its columns are
        `faults`. If the columns have the names of faults, `faults` need not be given."""
        faults = faults or self.shown(size.scale)
        methods, named = self.runs(size), self.fault_list(faults)
        part = size.part(name, title, methods=methods, faults=named)
        return part, self.sheet(size, across(name, self.methods, faults), words=words)

    def study(self, scale: Scale, parts: Iterable[Part], sheets: Iterable[Sheet]) -> Study:
        notes = [*(self.notes_below_full if scale != "full" else ()), *self.notes]
        return Study(tuple(parts), tuple(sheets), [self.words.get(note, note) for note in notes])

    def reproduction(self, study: Callable[[Scale], Study]) -> Reproduction:
        return Reproduction(self.name, self.title, self.source, self.citation, self.takes, study)

    def _explanations(
        self, sheet: str, rows: Sequence[str], columns: Sequence[str], scale: Scale
    ) -> tuple[Explanation, ...]:
        """Those of a sheet (the first, if none is named) at a scale."""
        sheet, found = sheet or next(iter(self.sheets)), []
        for one in self.explanations:
            self._check({one.sheet} - {""}, self.sheets, "explanations.sheet")
            if one.sheet in ("", sheet) and (not one.scales or scale in one.scales):
                if one.sheet or len(self.sheets) == 1:
                    self._check(one.rows, rows, "explanations.rows")
                    self._check(one.at, columns, "explanations.at")
                text = self.words.get(one.text, one.text)
                found.append(Explanation(text, tuple(one.rows), tuple(one.at)))
        return tuple(found)

    def _text(self, name: str, words: Mapping[str, str]) -> SheetText:
        """A sheet with all that it inherits; `words` are filled in."""
        name = name or next(iter(self.sheets))
        own = self._like({"like": name}, self.sheets, "sheets")
        columns = own.get("columns")
        if isinstance(columns, list):
            own["columns"] = {
                n: f"Under “{n}”" if n != "none" else "Without faults" for n in columns
            }
        elif isinstance(columns, str):
            self._check([columns], self.columns, "columns")
            own["columns"] = self.columns[columns]
        for claim in own.get("claims", ()):
            self._check(claim, ClaimText.__struct_fields__, f"sheets.{name}.claims")
        text = convert(filled(own, words), SheetText, f"{self.file}: sheets.{name}")
        self._check([*text.quick, *text.smoke], text.columns, f"sheets.{name}.columns")
        return text

    def _like(self, own: Table, known: Mapping[str, Table], where: str) -> Table:
        """A table with what it inherits."""
        if "like" not in own:
            return own
        self._check([own["like"]], known, where)
        rest = {key: value for key, value in own.items() if key != "like"}
        return merged(self._like(known[own["like"]], known, where), rest)

    def _check(self, names: Iterable[str], known: Iterable[str], where: str) -> None:
        known_keys(dict.fromkeys(names), list(known), f"{self.file}: {where}")

    def _figures(self, text: SheetText) -> dict[str, dict[str, Published | None]]:
        found = {}
        for name, line in text.printed.items():
            try:
                figures = printed(line, text.whole or self.whole, 2 / self.deviations)
                found[name] = dict(zip(text.columns, figures, strict=True))
            except ValueError:
                expected = f"expected {len(text.columns)} figures or –, not {line!r}"
                raise InputError(f"{self.file}: printed.{name}: {expected}") from None
        return found

    def _claims(self, text: SheetText, reader: Reader, scale: Scale) -> Iterable[Claim]:
        for each, group in groupby(text.claims, lambda claim: claim.each):
            claims = list(group)
            for column in reader.shown if each else [None]:
                for claim in claims:
                    self._check({claim.below_full} - {""}, self.words, "words")
                    added = self.words.get(claim.below_full, "") if scale != "full" else ""
                    yield from reader.read(claim, column, added)


def read_table(file: str | Path) -> TableFile:
    """Reads the file of a table. `file` may have any ending: a study passes its `__file__`, and its
    table is the TOML file of the same name."""
    path = Path(file).with_suffix(".toml")
    table = {"file": path.name, **_read(path)}
    if isinstance(names := table.get("methods"), list):  # no settings of their own
        table["methods"] = {name: {} for name in names}
    return convert(table, TableFile, path.name)


@cache
def _read(path: Path) -> Table:
    own = read_toml(path)
    like, paper = own.pop("like", None), path.with_name(PAPER)
    if path == COMMON:
        return own
    if like:
        return merged(_read(path.with_name(f"{like}.toml")), own)
    return merged(_read(paper if path != paper and paper.exists() else COMMON), own)


def merged(below: Table, above: Table) -> Table:
    """`below` with the values of `above` replacing its own, or added."""
    both = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            both[key] = merged(old, value)
        elif isinstance(value, list) and isinstance(old, list) and _tables(old + value):
            both[key] = old + value
        else:
            both[key] = value
    return both


def _tables(values: Sequence[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def filled(value: Any, words: Mapping[str, str]) -> Any:
    """All texts of a table, keys as well, with their {words} filled in."""
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(f"{{{word}}}", text)
        return value
    if isinstance(value, dict):
        return {filled(key, words): filled(inner, words) for key, inner in value.items()}
    return [filled(inner, words) for inner in value] if isinstance(value, list) else value
