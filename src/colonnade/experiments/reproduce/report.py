"""`report.html` of a reproduction: sentences, pictures, tables and claims over all its parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from colonnade.experiments.findings import HTML
from colonnade.experiments.page import REPORT, write_page
from colonnade.experiments.reproduce import pictures
from colonnade.experiments.reproduce.assess import Assessment
from colonnade.experiments.reproduce.present import BEYOND, claim_grid, explained, figure_grid
from colonnade.experiments.reproduce.study import SMOKE, Part

if TYPE_CHECKING:
    from colonnade.experiments.reproduce.run import Reproduced

FILLED = "Filled: ours, mean ± 2 sd over seeds."
BANDS = "Lines: ours, mean over seeds; bands: ± 2 sd."
HOLLOW = "Hollow: the paper’s."
OUTSIDE = "A figure far from all others stands at the edge, with an arrow."


def write_report(done: Reproduced) -> Path:
    return write_page(
        done.folder,
        "reproduction.html",
        name=done.reproduction.title,
        about=done.reproduction,
        scale=done.scale,
        data=_data(done),
        beyond=BEYOND,
        sheets=[_sheet(a, f"sheet{i}") for i, a in enumerate(done.assessments)],
        to_know=done.notes,
        parts=[_part(done, part) for part in done.study.parts],
    )


def _data(done: Reproduced) -> list[str]:
    """Said first and for all: on what the figures were made."""
    data = [f"Data: {sheet.data}." for sheet in done.study.sheets]
    return list(dict.fromkeys([*data, *([SMOKE] if done.scale == "smoke" else [])]))


def _sheet(assessment: Assessment, name: str) -> dict[str, Any]:
    lead, *others = map(Markup, assessment.findings(HTML) or [""])
    claims, lines = claim_grid(assessment), assessment.sheet.picture == "lines"
    styles = pictures.line_styles(assessment)
    return {
        "title": assessment.sheet.title,
        "lead": lead,
        "verdicts": others,
        "grid": figure_grid(assessment),
        # Of the paper first; then what we ask beyond it.
        "claims": list(zip(assessment.judgements, claims.rows, strict=True)),
        "claims_caption": claims.caption,
        "differences": explained(assessment),
        "drawn": pictures.draw(assessment, name),
        "lines": lines,
        "styles": styles if lines and len(styles) > 1 else {},
        "caption": _caption(assessment, lines),
    }


def _caption(assessment: Assessment, lines: bool) -> str:
    caption = [BANDS if lines else FILLED]
    caption += [HOLLOW] if any(e.published for e in assessment.entries.values()) else []
    caption += [] if lines else [OUTSIDE]
    return " ".join([*caption, f"Data: {assessment.sheet.data}."])


def _part(done: Reproduced, part: Part) -> tuple[str, str, str]:
    """Title, link to its ordinary report (curves, ledgers, configuration), or why there is none."""
    title, link = str(part.experiment["name"]), f"{part.name}/{REPORT}"
    if part.name in done.absent:
        return title, "", "not run, its data set is absent"
    return title, link if (done.folder / link).exists() else "", "no finished runs"
