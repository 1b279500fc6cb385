"""A paper's claims as its files have them: in words, and as facts in a small language.

    A > B            A's figure is above B's by more than `by`; a negative `by` is how far A may be
                     behind
    A ~ B            the two figures are less than `within` apart
    A - B > C - D    A's lead over B is larger than C's lead over D
    A is 58.8        A's figure differs from 58.8 by less than `within`, or than this `share` of it
    A is printed     the same, with the figure that the paper printed in this place
    A falls          A's figures fall from each column to the next

A, B, C and D are rows of the sheet, and the statement is about each column of `at`. `A @ column` is
the figure in that column only. `*` on the right of `>` stands for every other row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from colonnade.common.text import nearest
from colonnade.errors import InputError
from colonnade.experiments.reproduce.claims import At, Claim, Fact
from colonnade.experiments.reproduce.study import Figures


class ClaimText(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    facts: list[str]
    at: list[str] | Literal["after the first"] = []  # columns; all of them, unless given
    by: float = 0.0
    within: float = 0.0
    share: float = 0.0
    mean: bool = False  # the facts compare the means over the columns
    each: bool = False  # not one claim but one for each column, which the text calls {column}
    ours: bool = False
    any_scale: bool = False
    below_full: str = ""  # what the words add at the scales below full, as a key of `words`


@dataclass(frozen=True)
class Reader:
    """Reads the claims about one sheet."""

    file: str  # for errors
    rows: Sequence[str]
    columns: Sequence[str]  # all of the sheet
    shown: Sequence[str]  # those at this scale
    figures: Figures

    def read(self, claim: ClaimText, column: str | None = None, added: str = "") -> list[Claim]:
        """The claim about the columns that are shown, or about one of them; nothing if it is about
        no such column. `added`: to its words."""
        if column is not None:
            claim = replace(claim, text=claim.text.replace("{column}", column), at=[column])
        try:
            facts = [fact for text in claim.facts for fact in self._facts(text, claim)]
        except ValueError as error:
            raise InputError(f"{self.file}: claim {claim.text!r}: {error}") from None
        kept = [fact for fact in facts if all(column in self.shown for _, column in fact.places)]
        words = claim.text + added
        return [Claim(words, tuple(kept), claim.ours, claim.any_scale)] if kept else []

    def _facts(self, text: str, claim: ClaimText) -> list[Fact]:
        at = self.shown[1:] if claim.at == "after the first" else claim.at or self.shown
        columns = [column for column in at if self._column(column) in self.shown]
        if text.endswith(" falls"):
            row = self._row(text.removesuffix(" falls"))
            return [Fact(((row, one),), ((row, after),)) for one, after in pairwise(columns)]
        if text.endswith(" > *"):
            one = text.removesuffix(" > *")
            others = [row for row in self.rows if row != one]
            return [fact for other in others for fact in self._facts(f"{one} > {other}", claim)]
        facts = [self._fact(text, column, claim) for column in columns]
        if claim.mean and facts:
            return [_total(facts)]
        return list(dict.fromkeys(facts))  # about cells named with @, it is the same every time

    def _fact(self, text: str, column: str, claim: ClaimText) -> Fact:
        if " is " in text:
            name, figure = text.split(" is ")
            at = self._at(name, column)
            value = self._printed(at) if figure == "printed" else float(figure)
            margin = claim.within + claim.share * value
            return Fact((at,), (), value - margin, value + margin)
        sign = " > " if " > " in text else " ~ "
        sides = [side.split(" - ") for side in text.split(sign)]
        if len(sides) != 2:
            raise ValueError(f"{text!r} has none of the forms A > B, A ~ B, A is …, A falls")
        (one, *taken), (other, *given) = (
            [self._at(name, column) for name in side] for side in sides
        )
        low, high = (claim.by, inf) if sign == " > " else (-claim.within, claim.within)
        return Fact((one, *given), (*taken, other), low, high)

    def _printed(self, at: At) -> float:
        figure = self.figures.get(at[0], {}).get(at[1])
        if figure is None:
            raise ValueError(f"no figure is printed in row {at[0]!r}, column {at[1]!r}")
        return figure.value

    def _at(self, name: str, column: str) -> At:
        row, _, named = name.partition(" @ ")
        return self._row(row), self._column(named or column)

    def _row(self, name: str) -> str:
        if name not in self.rows:
            raise ValueError(f"{name!r} is not a row of the sheet{nearest(name, self.rows)}")
        return name

    def _column(self, name: str) -> str:
        if name not in self.columns:
            raise ValueError(f"{name!r} is not a column of the sheet{nearest(name, self.columns)}")
        return name


def _total(facts: Sequence[Fact]) -> Fact:
    """One fact about the sums of all figures, and so about their means."""
    return Fact(
        tuple(at for fact in facts for at in fact.plus),
        tuple(at for fact in facts for at in fact.minus),
        sum(fact.low for fact in facts),
        sum(fact.high for fact in facts),
    )
