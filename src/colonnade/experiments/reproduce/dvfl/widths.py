"""Table 5: how wide the encodings of clients (W_g, all together) and aggregators (W_h) are."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.experiments.reproduce.claims import Claim, ahead
from colonnade.experiments.reproduce.dvfl.setting import CITATION, STOPPING, dvfl, mnist
from colonnade.experiments.reproduce.study import (
    Place,
    Reproduction,
    Row,
    Scale,
    Sheet,
    Study,
    printed,
    row,
)

CLIENTS = 4
JOINED: tuple[int, ...] = (200, 240, 320, 400)  # W_g
FIGURES = {
    120: "97.43 97.28 97.09 97.34",
    160: "97.60 97.86 97.89 97.69",
    200: "97.81 97.89 98.15 98.30",
}  # by W_h
NOTES = (
    "The paper searches for the best rates in every cell; ours are those of W_g = 320, W_h = 160 "
    "everywhere.",
)


def _study(scale: Scale) -> Study:
    size = mnist(scale, seeds=3)
    joined = (JOINED[0], JOINED[-1]) if scale == "smoke" else JOINED
    methods = [
        dvfl(size, _method(g, h), encoder=[100, g // CLIENTS], aggregator_width=h)
        for h in FIGURES
        for g in joined
    ]
    sheet = Sheet(
        "Accuracy by width of the encodings",
        size.words,
        tuple(size.column(f"W_g = {g}", f"With W_g = {g}") for g in joined),
        tuple(_row(h, joined) for h in FIGURES),
        _claims(joined),
        picture="lines",
        axis="width of all clients' encodings together",
    )
    part = size.part("widths", "Widths of encodings", methods=methods)
    return Study((part,), (sheet,), [*NOTES, STOPPING])


def _row(code: int, joined: Sequence[int]) -> Row:
    known = dict(zip(JOINED, printed(FIGURES[code]), strict=True))
    places = [Place("widths", _method(g, code)) for g in joined]
    return row(f"W_h = {code}", places, [known[g] for g in joined])


def _method(joined: int, code: int) -> str:
    return f"W_g {joined}, W_h {code}"


def _claims(joined: Sequence[int]) -> tuple[Claim, ...]:
    narrow, *_, wide = (f"W_h = {h}" for h in FIGURES)
    first, *_, last = (f"W_g = {g}" for g in joined)
    return (
        Claim(
            "Wider aggregators are better: W_h = 200 is ahead of 120 at every W_g",
            tuple(ahead((wide, f"W_g = {g}"), (narrow, f"W_g = {g}")) for g in joined),
        ),
        Claim(
            "The widest network is ahead of the narrowest",
            (ahead((wide, last), (narrow, first)),),
        ),
    )


REPRODUCTION = Reproduction(
    "dvfl-widths",
    "Accuracy by width of the encodings",
    "DVFL, table 5",
    CITATION,
    {"smoke": "10 s", "quick": "6 min", "full": "3 h"},
    _study,
)
