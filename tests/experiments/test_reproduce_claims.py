"""Figures beside the paper's: differences, claims and sentences, on results made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colonnade.common.results import LedgerRow, Result, write_lines
from colonnade.experiments.findings import PLAIN
from colonnade.experiments.reproduce.assess import CLIENT_BYTES, Assessment, Evidence, assess
from colonnade.experiments.reproduce.claims import Claim, Fact, judge
from colonnade.experiments.reproduce.pictures import draw
from colonnade.experiments.reproduce.present import (
    claim_grid,
    document,
    figure_grid,
    narrow_grids,
)
from colonnade.experiments.reproduce.statements import ClaimText, Reader
from colonnade.experiments.reproduce.study import (
    NOT_BUILT,
    Column,
    Place,
    Published,
    Sheet,
    printed,
    row,
)
from colonnade.experiments.table import Cell

A, B, C, D = ("one", "x"), ("other", "x"), ("one", "y"), ("other", "y")


def cells(*values: tuple[float, ...]) -> dict[tuple[str, str], Cell]:
    return dict(zip((A, B, C, D), map(Cell, values), strict=False))


def fact(text: str, **limits: Any) -> Fact:
    """A fact about the cells above, written as in the file of a table."""
    reader = Reader("a file", ("one", "other"), ("x", "y"), ("x", "y"), {})
    [claim] = reader.read(ClaimText("a claim", [text], **limits))
    return claim.facts[0]


def verdict(fact: Fact, *values: tuple[float, ...]) -> tuple[str, str]:
    judgement = judge(Claim("a claim", (fact,)), cells(*values))
    return judgement.verdict, judgement.certainty


@pytest.mark.parametrize(
    ("fact", "values", "expected"),
    [
        (fact("one > other"), [(0.9, 0.91), (0.8, 0.81)], ("holds", "clearly")),
        (fact("one > other"), [(0.8, 0.81), (0.9, 0.91)], ("does not hold", "clearly")),
        (fact("one > other"), [(0.90, 0.94), (0.89, 0.93)], ("holds", "clearly")),
        (fact("one > other"), [(0.90, 0.94), (0.89, 0.90)], ("holds", "at every seed")),
        (fact("one > other"), [(0.90, 0.94), (0.91, 0.92)], ("holds", "may be chance")),
        (fact("one > other"), [(0.9,), (0.8,)], ("holds", "one seed")),
        (fact("one > other"), [(0.9, 0.91)], ("not measured", "")),
        (fact("one > other"), [(0.9, 0.9), (0.9, 0.9)], ("does not hold", "may be chance")),
        (fact("one > other", by=0.1), [(0.9, 0.9), (0.85, 0.85)], ("does not hold", "clearly")),
        (fact("one > other", by=0.1), [(0.9, 0.9), (0.75, 0.75)], ("holds", "clearly")),
        (fact("one ~ other", within=0.02), [(0.9, 0.9), (0.91, 0.91)], ("holds", "clearly")),
        (
            fact("one ~ other", within=0.02),
            [(0.9, 0.9), (0.93, 0.93)],
            ("does not hold", "clearly"),
        ),
        (
            fact("one ~ other", within=0.02),
            [(0.93, 0.93), (0.9, 0.9)],
            ("does not hold", "clearly"),
        ),
        (fact("one > other", by=-0.02), [(0.99, 0.99), (0.9, 0.9)], ("holds", "clearly")),
        (fact("one > other", by=-0.02), [(0.9, 0.9), (0.91, 0.91)], ("holds", "clearly")),
        (fact("one > other", by=-0.02), [(0.9,), (0.95,)], ("does not hold", "one seed")),
        (fact("one is 7", within=0.5), [(7.0, 7.0)], ("holds", "clearly")),
        (fact("one is 7", within=0.5), [(8.0, 8.0)], ("does not hold", "clearly")),
    ],
)
def test_a_claim_is_judged_by_the_means_and_told_with_what_the_seeds_allow(
    fact: Fact, values: list[tuple[float, ...]], expected: tuple[str, str]
) -> None:
    assert verdict(fact, *values) == expected


def test_a_distance_is_compared_with_another_distance() -> None:
    lead = fact("one @ x - other @ x > one @ y - other @ y")
    wider = [(0.9,), (0.5,), (0.8,), (0.7,)]  # 0.4 against 0.1
    assert verdict(lead, *wider) == ("holds", "one seed")
    assert verdict(lead, *wider[2:], *wider[:2]) == ("does not hold", "one seed")


def test_all_facts_of_a_claim_must_hold_and_one_clear_failure_is_clear() -> None:
    figures = cells((0.9, 0.9), (0.8, 0.8), (0.50, 0.54), (0.51, 0.54))
    both = Claim("ahead in both", (Fact((A,), (B,)), Fact((C,), (D,))))
    assert judge(both, figures).verdict == "does not hold"
    assert judge(both, figures).certainty == "may be chance"
    turned = Claim("behind in both", (Fact((B,), (A,)), Fact((D,), (C,))))
    assert judge(turned, figures).certainty == "clearly"


# -- a sheet ---------------------------------------------------------------------------------------

SHEET = Sheet(
    "A table",
    "300 of 60,000 rows",
    (
        Column("none", "Without faults"),
        Column("links", "Under “links”"),
        Column("other data", "Elsewhere", substitute=True),
    ),
    (
        row(
            "ours",
            [Place("p", "ours"), Place("p", "ours", "links"), Place("q", "ours")],
            printed("97.80±0.12 97.00 90.00"),
        ),
        row("theirs", [Place("p", "theirs"), Place("p", "theirs", "links"), None]),
        row("theirs again", [Place("p", "theirs"), None, None]),
        row("future", [None] * 3, printed("96.00 95.00 –"), NOT_BUILT),
    ),
    (
        Claim("ours is ahead under links", (Fact((("ours", "links"),), (("theirs", "links"),)),)),
        Claim("so is the future", (Fact((("future", "none"),), (("ours", "none"),)),), ours=True),
    ),
)


def results(method: str, faults: str, *accuracies: float) -> list[Result]:
    return [
        Result(method, faults, seed, f"{method}.{faults}.{seed}", {"test_accuracy": value}, {})
        for seed, value in enumerate(accuracies)
    ]


def assessed() -> Assessment:
    runs = [
        *results("ours", "none", 0.970, 0.972),
        *results("ours", "links", 0.95, 0.952),
        *results("theirs", "none", 0.98, 0.982),
        *results("theirs", "links", 0.97, 0.972),
    ]
    here = Path("nowhere")
    elsewhere = Evidence(here, results("ours", "none", 0.5, 0.5), (0, 1))
    return assess(SHEET, {"p": Evidence(here, runs, (0, 1)), "q": elsewhere})


def test_the_difference_is_ours_minus_the_papers_and_never_between_different_data() -> None:
    assessment = assessed()
    assert assessment.difference(("ours", "none")) == pytest.approx(-0.007)
    assert assessment.difference(("ours", "links")) == pytest.approx(-0.019)
    assert assessment.difference(("ours", "other data")) is None
    assert assessment.difference(("theirs", "none")) is None
    assert assessment.difference(("future", "none")) is None


def test_the_table_shows_ours_above_the_papers_and_why_something_is_missing() -> None:
    grid = figure_grid(assessed())
    assert grid.rows == (
        ("ours", "97.10 ± 0.28", "95.10 ± 0.28", "50.00 ± 0.00"),
        ("  paper", "97.80 ± 0.12", "97.00", "90.00"),
        ("  difference", "−0.70", "−1.90", "–"),
        ("theirs", "98.10 ± 0.28", "97.10 ± 0.28", "–"),
        ("theirs again", "98.10 ± 0.28", "–", "–"),
        ("future", "not built", "not built", "not built"),
        ("  paper", "96.00", "95.00", "–"),
    )
    assert grid.best == {(3, 1), (4, 1), (3, 2)}
    assert grid.faint == {1, 2, 6}
    assert grid.caption.endswith("300 of 60,000 rows.")


def test_a_narrow_terminal_gets_the_table_in_pieces() -> None:
    wide, narrow = narrow_grids(assessed(), 200), narrow_grids(assessed(), 40)
    assert [len(grid.header) for grid in wide] == [4]
    assert [grid.header[1:] for grid in narrow] == [("none",), ("links",), ("other data",)]
    assert [bool(grid.caption) for grid in narrow] == [False, False, True]


def test_the_sentences_say_who_wins_also_when_it_is_not_the_paper() -> None:
    first, *others = assessed().findings(PLAIN)
    assert first == "theirs is best in all settings."
    assert others[0] == (
        "Without faults, theirs (98.10\u00a0%) is best, 1.00 points ahead of ours (97.10\u00a0%)."
    )
    assert others[1].startswith("Under “links”, theirs (97.10\u00a0%) is best, 2.00 points")
    assert "again" not in "".join(others)  # the same runs, shown twice


def test_the_claims_are_told_as_they_came_out() -> None:
    refuted, open_question = claim_grid(assessed()).rows
    assert refuted == (
        "ours is ahead under links",
        "clearly does not hold",
        "ours, links: 95.10 ± 0.28; theirs, links: 97.10 ± 0.28",
    )
    assert open_question[1] == "not measured"
    told = document(assessed())["claims"]
    assert [claim["of"] for claim in told] == ["the paper", "us"]


def test_figures_far_from_all_others_are_told_at_the_edge_of_the_picture() -> None:
    none, links, other = draw(assessed(), "sheet")
    assert ">◂ 50.0<" in other.svg
    assert "◂" not in none.svg + links.svg
    assert "theirs 98.10 ± 0.28, theirs again" in none.description


Figures = dict[str, float | int | None]


def mags_results() -> dict[str, Evidence]:
    """Two methods at two fault rates, with figures that differ by metric."""
    runs = []
    for method, best in (("MVFL", 0.9), ("MVFL-G4", 0.8)):
        for faults, lost in (("none", 0.0), ("links .5", 0.2)):
            for seed in (0, 1):
                share = best - lost + 0.01 * seed
                metrics: Figures = {
                    "active_best": share,
                    "active_worst": share - 0.3,
                    "spread": 0.3,
                }
                cost: Figures = {"messages_per_prediction": 168.0 + seed}
                name = f"{method}.{faults}.{seed}"
                runs.append(Result(method, faults, seed, name, metrics, cost))
    return {"p": Evidence(Path("nowhere"), runs, (0, 1))}


def mags_sheet(columns: tuple[Column, ...], **more: Any) -> Sheet:
    """A column is a fault rate or a metric."""
    faults = [column.name if "links" in column.name else "none" for column in columns]
    rows = tuple(row(m, [Place("p", m, f) for f in faults]) for m in ("MVFL", "MVFL-G4"))
    return Sheet("A table", "MNIST", columns, rows, **more)


def test_columns_may_be_metrics_of_the_same_runs() -> None:
    columns = (Column("best", "By best", metric="active_best"),)
    columns += (Column("worst", "By worst", metric="active_worst"),)
    assessment = assess(mags_sheet(columns, settings="metrics"), mags_results())
    assert figure_grid(assessment).rows[0] == ("MVFL", "90.50 ± 1.41", "60.50 ± 1.41")
    assert assessment.findings(PLAIN)[0] == "MVFL is best in all metrics."
    told = document(assessment)["cells"]
    assert [cell["metric"] for cell in told[:2]] == ["active_best", "active_worst"]


def test_messages_are_plain_numbers_spread_is_in_points_and_less_of_both_is_better() -> None:
    columns = (Column("none", "Without faults"),)
    sheet = mags_sheet(columns, metric="messages_per_prediction", ranked=False)
    assessment = assess(sheet, mags_results())
    assert figure_grid(assessment).rows[0] == ("MVFL", "168.5 ± 1.4")
    assert assessment.findings(PLAIN) == []
    spread = assess(mags_sheet(columns, metric="spread"), mags_results()).ours
    assert spread.caption().startswith("Spread (points), mean")
    assert not spread.metric.higher_is_better
    assert spread.metric.figure(0.3) == "30.00\u00a0points"


def test_lines_have_bands_as_wide_as_the_error() -> None:
    columns = (Column("none", "Without faults"), Column("links .5", "Under links"))
    sheet = mags_sheet(columns, metric="active_best", picture="lines", axis="faults")
    [picture] = draw(assess(sheet, mags_results()), "sheet")
    assert picture.svg.count("FillBetweenPolyCollection") == 2
    assert "LineCollection" not in picture.svg, "bars"


def test_papers_print_accuracies_in_per_cent_or_as_fractions() -> None:
    assert printed(".42±.01 – .5", whole=1) == (Published(0.42, 0.01), None, Published(0.5))
    assert printed("42±1") == (Published(0.42, 0.01),)


def test_bytes_per_client_are_those_of_training_and_of_clients_only(tmp_path: Path) -> None:
    [run] = results("ours", "none", 0.9)
    rows = [
        LedgerRow("training", "client0", "aggregator0", "encoding", 2, 100),
        LedgerRow("training", "client0", "aggregator1", "encoding", 2, 100),
        LedgerRow("training", "client1", "aggregator0", "encoding", 2, 400),
        LedgerRow("training", "owner", "client1", "decision", 2, 7),
        LedgerRow("inference", "client0", "aggregator0", "encoding", 2, 1000),
    ]
    write_lines(tmp_path / "ledger" / f"{run.run}.jsonl", rows)
    cell = Evidence(tmp_path, [run], (0,)).cell(Place("p", "ours"), CLIENT_BYTES)
    assert cell == Cell((300.0,))
