"""An assessed sheet as tables of text, which the terminal and the report draw, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from colonnade.experiments.findings import PLAIN
from colonnade.experiments.reproduce.assess import Assessment
from colonnade.experiments.reproduce.claims import At, Judgement
from colonnade.experiments.reproduce.study import Column, Published
from colonnade.experiments.table import NOTHING, Grid, Metric

CLEARLY = "Clearly: seed by seed, the 95 % interval of the mean leaves out the opposite."
UNJUDGED = "At scale smoke claims are not judged; quick and full judge them."
BEYOND = "Where ours differs by more than the paper's spread (by more than ours, where it has none)"
UNEXPLAINED = "We have no explanation."
FEW_FIGURES = 6  # more of them are better read in the table


def figure_grid(assessment: Assessment, columns: Sequence[Column] | None = None) -> Grid:
    """Ours, and under it the paper's and the difference, for all or some columns."""
    columns = columns or assessment.sheet.columns
    metric = assessment.ours.metric
    rows: list[tuple[str, ...]] = []
    best: set[tuple[int, int]] = set()
    faint: set[int] = set()

    def accompany(name: str, texts: Sequence[str]) -> None:
        if any(text != NOTHING for text in texts):
            faint.add(len(rows))
            rows.append((f"  {name}", *texts))

    for row in assessment.sheet.rows:
        places = [(row.name, column.name) for column in columns]
        for number, (_, column) in enumerate(places, 1):
            if row.name in assessment.ours.winners(column):
                best.add((len(rows), number))
        rows.append((row.name, *(_ours(assessment, at) for at in places)))
        published = [assessment.entries[at].published for at in places]
        accompany("paper", [_published(metric, figure) for figure in published])
        accompany("difference", [_difference(assessment, at) for at in places])
    header = ("", *(column.name for column in columns))
    caption = f"{assessment.ours.caption()} Data: {assessment.sheet.data}."
    return Grid(header, tuple(rows), caption, best=frozenset(best), faint=frozenset(faint))


def narrow_grids(assessment: Assessment, width: int) -> list[Grid]:
    """The same in pieces that fit a terminal so wide."""
    columns = assessment.sheet.columns
    cell = 3 + max(len(text) for row in figure_grid(assessment).rows for text in row[1:])
    names = 4 + max(len(row.name) for row in assessment.sheet.rows)
    most = max(1, (width - names) // cell)
    grids = [figure_grid(assessment, columns[i : i + most]) for i in range(0, len(columns), most)]
    return [*(replace(grid, caption="") for grid in grids[:-1]), grids[-1]]


def _ours(assessment: Assessment, at: At) -> str:
    if at in assessment.ours.cells:
        return assessment.ours.text(assessment.ours.cells[at])
    return assessment.reasons[at] or NOTHING


def _published(metric: Metric, figure: Published | None) -> str:
    if figure is None:
        return NOTHING
    spread = "" if figure.spread is None else f" ± {metric.text(figure.spread)}"
    return metric.text(figure.value) + spread


def _difference(assessment: Assessment, at: At) -> str:
    difference = assessment.difference(at)
    return NOTHING if difference is None else assessment.ours.metric.change(difference)


def explained(assessment: Assessment) -> list[str]:
    """The differences beyond the paper's spread, by explanation and row, in sentences."""
    found: dict[str, dict[str, list[str]]] = {}
    for at in assessment.entries:
        if assessment.beyond_spread(at):
            why = assessment.explanation(at) or UNEXPLAINED
            by_row = found.setdefault(why, {})
            by_row.setdefault(at[0], []).append(f"{at[1]} {_difference(assessment, at)}")

    def told(rows: Mapping[str, Sequence[str]]) -> str:
        return "; ".join(f"{row}: {', '.join(cells)}" for row, cells in rows.items())

    return [f"{told(rows)}. {why}" for why, rows in found.items()]


def claim_grid(assessment: Assessment) -> Grid:
    rows = tuple(
        (j.claim.text, verdict_text(j), _figures(assessment, j)) for j in assessment.judgements
    )
    unjudged = any(judgement.verdict == "not judged" for judgement in assessment.judgements)
    caption = f"{UNJUDGED if unjudged else CLEARLY} Data: {assessment.sheet.data}."
    return Grid(("claim", "verdict", "our figures"), rows, caption, words=3)


def verdict_text(judgement: Judgement) -> str:
    match judgement.certainty:
        case "":
            return judgement.verdict
        case "clearly":
            return f"clearly {judgement.verdict}"
        case "may be chance":
            return f"{judgement.verdict}, which may be chance"
        case certainty:
            return f"{judgement.verdict}, {certainty}"


def _figures(assessment: Assessment, judgement: Judgement) -> str:
    if len(judgement.figures) > FEW_FIGURES:
        return "in the table"
    return "; ".join(
        f"{row}, {column}: {assessment.ours.text(cell)}"
        for (row, column), cell in judgement.figures.items()
    )


def document(assessment: Assessment) -> dict[str, Any]:
    """A sheet for machines. Accuracies are fractions."""
    sheet = assessment.sheet
    return {
        "title": sheet.title,
        "metric": sheet.metric,
        "data": sheet.data,
        "cells": [
            _cell(assessment, row.name, column) for row in sheet.rows for column in sheet.columns
        ],
        "claims": [
            {
                "claim": j.claim.text,
                "of": "us" if j.claim.ours else "the paper",
                "verdict": j.verdict,
                "certainty": j.certainty or None,
                "figures": [
                    {"row": row, "column": column, "ours": cell.mean, "spread": cell.spread}
                    for (row, column), cell in j.figures.items()
                ],
            }
            for j in assessment.judgements
        ],
        "findings": assessment.findings(PLAIN),
        "differences": explained(assessment),
    }


def _cell(assessment: Assessment, row: str, column: Column) -> dict[str, Any]:
    at = (row, column.name)
    entry, cell = assessment.entries[at], assessment.ours.cells.get(at)
    place, paper = entry.ours, entry.published
    return {
        "row": row,
        "column": column.name,
        "metric": column.metric or assessment.sheet.metric,
        "part": place and place.part,
        "method": place and place.method,
        "faults": place and place.faults,
        "ours": cell and cell.mean,
        "spread": cell and cell.spread,
        "seeds": len(cell.values) if cell else 0,
        "paper": paper and paper.value,
        "paper_spread": paper and paper.spread,
        "difference": assessment.difference(at),
        "explanation": assessment.explanation(at) or None if assessment.beyond_spread(at) else None,
        "substitute": column.substitute,
        "reason": assessment.reasons.get(at) or None,
    }
