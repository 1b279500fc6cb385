"""`report.html` of a reproduction: sentences, pictures, tables and claims over all its parts."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.experiments import page
from colonnade.experiments.findings import HTML
from colonnade.experiments.reproduce import pictures
from colonnade.experiments.reproduce.assess import Assessment
from colonnade.experiments.reproduce.claims import Judgement
from colonnade.experiments.reproduce.present import claim_grid, figure_grid
from colonnade.experiments.reproduce.study import SMOKE

if TYPE_CHECKING:
    from colonnade.experiments.reproduce.run import Reproduced

FILLED = "Filled: ours, mean ± 2 sd over seeds."
BANDS = "Lines: ours, mean over seeds; bands: ± 2 sd."
HOLLOW = "Hollow: the paper’s."
OUTSIDE = "A figure far from all others stands at the edge, with an arrow."


def write_report(done: Reproduced) -> Path:
    about = (
        f'<p class="about"><strong>{escape(done.reproduction.source)}</strong> · '
        f"{escape(done.reproduction.name)}, scale {done.scale}<br>"
        f"{escape(done.reproduction.citation)}</p>"
    )
    about += "".join(page.note(data) for data in _data(done))
    sheets = [_sheet(a, f"sheet{i}") for i, a in enumerate(done.assessments)]
    return page.write_page(
        done.folder,
        name=done.reproduction.title,
        about=about,
        main=f"{''.join(sheets)}{_notes(done)}{_parts(done)}",
        footer="The same version, scale and seeds give the same figures on the same machine.",
    )


def _data(done: Reproduced) -> list[str]:
    """Said first and for all: on what the figures were made."""
    data = [f"Data: {sheet.data}." for sheet in done.study.sheets]
    return list(dict.fromkeys([*data, *([SMOKE] if done.scale == "smoke" else [])]))


def _sheet(assessment: Assessment, name: str) -> str:
    lead, *others = assessment.findings(HTML) or [""]
    findings = f'<p class="lead">{lead}</p>' if lead else ""
    items = "".join(f"<li>{sentence}</li>" for sentence in others)
    where = f'<h3>Who is ahead where</h3><ul class="verdicts">{items}</ul>' if items else ""
    claims = f"<h3>Claims</h3>{_claims(assessment)}" if assessment.judgements else ""
    return (
        f"<section><h2>{escape(assessment.sheet.title)}</h2>{findings}"
        f"{page.table(figure_grid(assessment))}{claims}{_card(assessment, name)}{where}</section>"
    )


def _card(assessment: Assessment, name: str) -> str:
    drawn = pictures.draw(assessment, name)
    if not drawn:
        return ""
    lines = assessment.sheet.picture == "lines"
    styles = pictures.line_styles(assessment)
    legend = page.legend(styles) if lines and len(styles) > 1 else ""
    caption = [BANDS if lines else FILLED]
    caption += [HOLLOW] if any(e.published for e in assessment.entries.values()) else []
    caption += [] if lines else [OUTSIDE]
    caption += [f"Data: {escape(assessment.sheet.data)}."]
    return f"<h3>In pictures</h3>{page.pictures(drawn, ' '.join(caption), legend, wide=lines)}"


def _claims(assessment: Assessment) -> str:
    """Of the paper first; then what we ask beyond it."""
    grid = claim_grid(assessment)
    items = "".join(
        f'<li class="{judgement.verdict.replace(" ", "-")}">'
        f'<span class="verdict">{escape(verdict)}</span>'
        f"<div>{escape(text)}{_asked(judgement)}"
        f'<span class="figures">{escape(figures)}</span></div></li>'
        for judgement, (text, verdict, figures) in zip(
            assessment.judgements, grid.rows, strict=True
        )
    )
    return f'<ul class="claims">{items}</ul><p class="caption">{escape(grid.caption)}</p>'


def _asked(judgement: Judgement) -> str:
    return ' <span class="ours">(our question)</span>' if judgement.claim.ours else ""


def _notes(done: Reproduced) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in done.notes)
    parts = [f'<ul class="verdicts">{items}</ul>'] if items else []
    return page.section("What to know", "", parts)


def _parts(done: Reproduced) -> str:
    """Links to the ordinary reports: curves, ledgers, configuration."""
    items = ""
    for part in done.study.parts:
        title = escape(str(part.experiment["name"]))
        if part.name in done.absent:
            items += f"<li>{title}: not run, its data set is absent</li>"
        elif (done.folder / part.name / page.REPORT).exists():
            items += f'<li><a href="{escape(part.name)}/{page.REPORT}">{title}</a></li>'
        else:
            items += f"<li>{title}: no finished runs</li>"
    note = "Each with its learning curves, costs, what left each party, and its configuration."
    return page.section("The experiments behind it", note, [f'<ul class="verdicts">{items}</ul>'])
