"""The table that a comparison prints, from results that are complete or not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from colonnade.common.results import LedgerRow, Result
from colonnade.experiments.findings import PLAIN, verdict
from colonnade.experiments.paired import Certainty, half_width
from colonnade.experiments.table import (
    Grid,
    Metric,
    Plan,
    bytes_text,
    cost_grid,
    ledger_grid,
    party_labels,
    render,
    summarise,
)

PLAN = Plan(("DVFL", "SplitNN zeros", "FedVS"), ("none", "links"), (0, 1, 2))


def result(
    method: str, faults: str, seed: int, accuracy: float, **cost: float | int | None
) -> Result:
    return Result(method, faults, seed, "run", {"test_accuracy": accuracy}, cost)


def finished() -> list[Result]:
    """FedVS never ran, one combination lacks a seed, and the order is not the planned one."""
    generator = np.random.default_rng(3)
    runs = [
        result(method, faults, seed, float(generator.uniform(0.9, 0.99)), bytes=2_000_000)
        for method in ("SplitNN zeros", "DVFL")
        for faults in ("links", "none")
        for seed in (2, 0, 1)
    ]
    return runs[:-1]


def printed(grid: Grid) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(render(grid))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_cells_are_mean_and_two_sample_standard_deviations() -> None:
    runs = finished()
    summary = summarise(runs, PLAN)
    for (method, faults), cell in summary.cells.items():
        values = [r.metrics["test_accuracy"] or 0 for r in runs if r.key[:2] == (method, faults)]
        assert cell.mean == pytest.approx(np.mean(values))
        assert cell.spread == pytest.approx(2 * np.std(values, ddof=1))
    assert len(summary.cells) == 4


def test_rows_and_columns_follow_the_plan_and_then_first_appearance() -> None:
    runs = [*finished(), result("new", "storm", 0, 0.5)]
    assert summarise(runs, PLAN).plan.methods == (*PLAN.methods, "new")
    assert summarise(runs, PLAN).plan.faults == (*PLAN.faults, "storm")
    assert summarise(runs).plan.methods == ("SplitNN zeros", "DVFL", "new")


def test_what_is_missing_is_a_dash_and_too_few_seeds_are_counted() -> None:
    grid = summarise(finished(), PLAN).grid()
    assert grid.rows[2] == ("FedVS", "–", "–")
    assert grid.rows[0][1].endswith(" (2/3)")
    assert "(" not in grid.rows[0][2]
    assert "over 3 seeds" in grid.caption
    assert "(n/3): only n of 3 seeds" in grid.caption


def test_figures_read_as_percent_and_the_best_of_each_column_is_bold() -> None:
    accuracies = [("DVFL", (0.9748, 0.9758, 0.9768)), ("SplitNN zeros", (0.96, 0.96, 0.96))]
    runs = [result(m, "none", s, a) for m, found in accuracies for s, a in enumerate(found)]
    grid = summarise(runs).grid()
    assert grid.rows == (("DVFL", "97.58 ± 0.20"), ("SplitNN zeros", "96.00 ± 0.00"))
    assert grid.best == {(0, 1)}
    assert "97.58 ± 0.20" in printed(grid)


def test_equal_figures_are_equally_bold() -> None:
    runs = [result("a", "none", 0, 0.900001), result("b", "none", 0, 0.900002)]
    assert summarise(runs).grid().best == {(0, 1), (1, 1)}


def test_one_seed_has_no_spread() -> None:
    grid = summarise([result("a", "none", 0, 0.5)]).grid()
    assert grid.rows == (("a", "50.00"),)
    assert grid.caption == "Test accuracy (%), one seed."


def test_of_a_loss_the_lowest_is_best() -> None:
    runs = [Result(m, "none", 0, m, {"test_loss": v}, {}) for m, v in (("a", 0.3), ("b", 0.2))]
    summary = summarise(runs, metric="test_loss")
    assert [method for method, _ in summary.ranking("none")] == ["b", "a"]
    assert summary.grid().rows == (("a", "0.3000"), ("b", "0.2000"))


def test_a_run_that_was_repeated_counts_once() -> None:
    runs = [result("a", "none", 0, 0.1), result("a", "none", 0, 0.9)]
    assert summarise(runs).cells["a", "none"].values == (0.9,)


def test_a_run_that_diverged_has_no_figure() -> None:
    runs = [result("a", "none", 0, float("nan")), result("a", "none", 1, 0.5)]
    assert summarise(runs).grid().rows == (("a", "50.00 (1/2)"),)


def compared(*figures: tuple[float, ...]) -> tuple[Certainty, str]:
    """Two methods over the same seeds: how sure the difference is, and what is said about it."""
    pairs = zip(("a", "b"), figures, strict=True)
    runs = [result(m, "none", s, v) for m, values in pairs for s, v in enumerate(values)]
    summary = summarise(runs)
    certainty = summary.certainty(summary.cells["a", "none"], summary.cells["b", "none"])
    return certainty, verdict(summary, "none", PLAIN)


def test_who_loses_at_every_seed_is_not_level_however_much_the_seeds_differ() -> None:
    certainty, said = compared((0.755, 0.80, 0.85), (0.85, 0.89, 0.93))
    assert certainty == "clear"
    assert (
        said == "Without faults, b (89.00\u00a0%) is best, 8.83 points ahead of a (80.17\u00a0%)."
    )


def test_a_lead_at_every_one_of_few_seeds_is_told_with_its_doubt() -> None:
    certainty, said = compared((0.80, 0.80, 0.80), (0.81, 0.83, 0.90))
    assert certainty == "every seed"
    assert said.endswith("; so at each of 3 seeds, too few to rule out chance.")


def test_methods_are_level_when_it_changes_with_the_seed_which_is_ahead() -> None:
    certainty, said = compared((0.90, 0.91, 0.93), (0.91, 0.92, 0.92))
    assert certainty == "chance"
    assert "a (91.33\u00a0%) are level: which is ahead changes with the seed." in said


def test_one_seed_decides_nothing() -> None:
    assert compared((0.9,), (0.1,))[0] == "one seed"
    assert compared((0.9,), (0.1,))[1].endswith("; with one seed this may be chance.")


def test_many_seeds_make_a_lead_clear_even_if_it_is_not_there_at_every_one() -> None:
    worse = tuple(0.80 + 0.001 * (i % 5) for i in range(20))
    better = tuple(v + (0.02 if i else -0.001) for i, v in enumerate(worse))
    assert compared(worse, better)[0] == "clear"


def test_only_seeds_that_both_methods_have_are_compared() -> None:
    runs = [result("a", "none", s, v) for s, v in ((0, 0.1), (1, 0.8), (2, 0.9))]
    runs += [result("b", "none", s, v) for s, v in ((1, 0.81), (2, 0.91))]
    summary = summarise(runs)
    assert summary.certainty(summary.cells["a", "none"], summary.cells["b", "none"]) == "clear"


@pytest.mark.parametrize("seeds", [2, 3, 6, 11, 12, 31, 101])
def test_the_interval_of_a_mean_is_students(seeds: int) -> None:
    values = [0.1 * (i % 7) for i in range(seeds)]
    low, high = stats.t.interval(0.95, seeds - 1, np.mean(values), stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2, rel=1e-3)


def test_a_real_run_has_one_column_of_seconds() -> None:
    runs = [result("a", "as it happened", 0, 0.9, virtual_seconds=5.67, wall_seconds=5.67)]
    assert cost_grid(runs).header == ("method", "seconds")
    simulated = [result("a", "none", 0, 0.9, virtual_seconds=5.67, wall_seconds=0.4)]
    assert cost_grid(simulated).header == ("method", "virtual seconds", "wall seconds")


def test_costs_are_means_and_what_was_never_spent_has_no_column() -> None:
    runs = [
        result("a", "none", 0, 0.9, bytes=1_000_000, rounds=10, virtual_seconds=0.0),
        result("a", "none", 1, 0.9, bytes=2_000_000, rounds=20, virtual_seconds=0.0),
    ]
    grid = cost_grid(runs)
    assert grid.header == ("method", "MB sent", "rounds")
    assert grid.rows == (("a", "1.5", "15"),)


def test_a_target_that_one_run_never_reached_is_averaged_over_the_others() -> None:
    runs = [
        result("a", "none", 0, 0.9, rounds_to_target=40),
        result("a", "none", 1, 0.9, rounds_to_target=None),
        result("b", "none", 0, 0.9, rounds_to_target=None),
    ]
    assert cost_grid(runs).rows == (("a", "40 (1/2)"), ("b", "–"))


def test_names_are_printed_as_written_even_when_they_look_like_markup() -> None:
    runs = [result("[bold]x[/bold]", "[red]", 0, 0.5)]
    text = printed(summarise(runs).grid())
    assert "[bold]x[/bold]" in text
    assert "[red]" in text


def test_the_ledger_names_every_sender_until_they_are_many() -> None:
    def rows(clients: int) -> list[LedgerRow]:
        names = [f"client{number}" for number in range(clients)]
        up = [LedgerRow("training", n, "server", "embedding", 2, 500) for n in names]
        return up + [LedgerRow("training", "server", n, "gradient", 1, 400) for n in names]

    few = ledger_grid(rows(2), "few").rows
    assert few == (
        ("training", "client0", "server", "embedding", "2", "500 B"),
        ("training", "client1", "server", "embedding", "2", "500 B"),
        ("training", "server", "client × 2", "gradient", "2", "800 B"),
    )
    assert ledger_grid(rows(1024), "many").rows == (
        ("training", "client × 1024", "server", "embedding", "2,048", "512 kB"),
        ("training", "server", "client × 1024", "gradient", "1,024", "410 kB"),
    )


def test_parties_are_grouped_by_name_and_a_single_one_keeps_its_own() -> None:
    assert party_labels(["lab-1", "lab-2", "clinic", "hospital7", "3"]) == {
        "lab-1": "lab × 2",
        "lab-2": "lab × 2",
        "clinic": "clinic",
        "hospital7": "hospital7",
        "3": "3",
    }


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_900, "1 MB"), (1_234_567, "1.23 MB"),
     (128_000_000, "128 MB"), (2.5e12, "2,500 GB")],
)  # fmt: skip
def test_sizes_have_three_digits_and_a_unit(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_seconds_have_one_place_and_their_unit_in_a_sentence() -> None:
    seconds = Metric("virtual_seconds")
    assert [seconds.text(x) for x in (0.01234, 70.6646, 1944.78)] == ["0.0123", "70.7", "1,944.8"]
    assert seconds.figure(70.6646) == "70.7\u00a0s"
    assert seconds.distance(30.2991) == "30.3\u00a0s"
