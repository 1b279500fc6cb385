"""`report.html`: one self-contained page about an output folder; it opens offline."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata, resources
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from colonnade.errors import InputError
from colonnade.experiments import plots
from colonnade.experiments.findings import lead, verdict
from colonnade.experiments.results import (
    CONFIG,
    Result,
    read_history,
    read_ledger,
    read_results,
)
from colonnade.experiments.table import (
    ACCURACY,
    Grid,
    Metric,
    Plan,
    Summary,
    cost_grid,
    ledger_grid,
    summarise,
)

REPORT = "report.html"
CURVE_METRICS = ("validation_accuracy", "validation_loss", "train_loss")
AXES = (
    ("round", "rounds", 1.0, "Over rounds"),
    ("bytes", "megabytes sent", 1e-6, "Over megabytes sent"),
    ("virtual_seconds", "virtual seconds", 1.0, "Over virtual time"),
)


@dataclass(frozen=True)
class Folder:
    """What a report is made of."""

    path: Path
    config: dict[str, Any]
    config_text: str
    results: list[Result]
    summary: Summary

    @property
    def plan(self) -> Plan:
        return self.summary.plan


def write_report(folder: Path) -> Path:
    """Write `report.html` into an output folder, whole or not at all, and return its path."""
    page = _page(_read(folder))
    path = folder / REPORT
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
    return path


def _read(path: Path) -> Folder:
    if not path.is_dir():
        raise InputError(f"{path}: there is no such folder; give the --out folder of a run")
    if not (path / CONFIG).is_file():
        raise InputError(
            f"{path}: not an output folder (no {CONFIG}); give the --out folder of a run"
        )
    try:
        text = (path / CONFIG).read_text(encoding="utf-8")
        config = tomllib.loads(text)
        plan = Plan.of(config)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path / CONFIG}: not a resolved experiment file: {error}") from None
    results = list({result.key: result for result in read_results(path)}.values())
    if not results:
        raise InputError(
            f"{path}: no finished runs yet; the same `colonnade run` goes on from there"
        )
    return Folder(path, config, text, results, summarise(results, plan, _main_metric(results)))


def _main_metric(results: Iterable[Result]) -> str:
    names = _metric_names(results)
    return ACCURACY if ACCURACY in names or not names else names[0]


def _metric_names(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def _page(folder: Folder) -> str:
    here = resources.files(__package__ or "")
    template = Template(here.joinpath("report_page.html").read_text(encoding="utf-8"))
    return template.substitute(
        style=here.joinpath("report.css").read_text(encoding="utf-8"),
        name=escape(str(folder.config.get("name", folder.path.name))),
        about=_about(folder),
        findings=_findings(folder),
        results=_results(folder),
        curves=_curves(folder),
        links=_links(folder),
        config=escape(folder.config_text),
        version=escape(metadata.version("colonnade")),
        runs=f"{len(folder.results)} of {folder.plan.runs}",
        seeds=escape(", ".join(map(str, folder.plan.seeds))),
    )


def _about(folder: Folder) -> str:
    """The data in one line, and the notes that came with them."""
    data = dict(folder.config.get("data", {}))
    notes = dict.fromkeys(note for result in folder.results for note in result.notes)
    title = data.pop("dataset", None) or data.pop("path", None)
    parts = [f"<strong>{escape(str(title))}</strong>"] if title else []
    parts += [f"{escape(key)} {escape(_plain(value))}" for key, value in data.items()]
    about = f'<p class="about">{" · ".join(parts)}</p>' if parts else ""
    return about + "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return str(len(value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _findings(folder: Folder) -> str:
    summary, plan = folder.summary, folder.plan
    verdicts = [text for fault in plan.faults if (text := verdict(summary, fault))]
    if len(verdicts) == 1:
        found = f'<p class="lead">{verdicts[0]}</p>'
    else:
        items = "".join(f"<li>{verdict}</li>" for verdict in verdicts)
        found = f'<p class="lead">{lead(summary)}</p><ul class="verdicts">{items}</ul>'
    if len(folder.results) < plan.runs:
        found += (
            f'<p class="note">Unfinished: {len(folder.results)} of {plan.runs} planned runs. '
            "The same command goes on from there.</p>"
        )
    return found


def _results(folder: Folder) -> str:
    summary, plan = folder.summary, folder.plan
    others = [
        _table(summarise(folder.results, plan, name).grid())
        for name in _metric_names(folder.results)
        if name != summary.metric.name
    ]
    more = _details("Other metrics", "".join(others)) if others else ""
    caption = "Mark: mean over seeds; bar: ± 2 sd; ticks: single seeds."
    return (
        f"{_pictures(plots.final_figures(summary), caption)}"
        f"{_table(summary.grid())}{_table(cost_grid(folder.results, plan))}{more}"
    )


def _curves(folder: Folder) -> str:
    """Curves over every axis on which something happened."""
    histories = {r.key: read_history(folder.path, r.run) for r in folder.results}
    seen = {key for rows in histories.values() for row in rows for key in row}
    metric = next((name for name in CURVE_METRICS if name in seen), None)
    if metric is None:
        return ""
    styles = plots.method_styles(folder.plan.methods)
    parts = []
    for key, axis, scale, title in AXES:
        curves = plots.curves_over(folder.plan, histories, key, scale, metric)
        if any(curve.x[-1] > 0 for panel in curves.values() for curve in panel.values()):
            drawn = plots.learning_curves(curves, styles, Metric(metric), axis, f"over-{key}")
            parts.append(f"<h3>{title}</h3>{_pictures(drawn, legend=_legend(styles))}")
    note = "Line: mean over seeds; band: lowest to highest seed; last mark: end of training."
    return _section("Learning curves", note, parts)


def _links(folder: Folder) -> str:
    """What left each party, in the first finished run of each method."""
    plan = folder.plan
    order = {key: i for i, key in enumerate(product(plan.methods, plan.faults, plan.seeds))}
    runs: dict[str, Result] = {}
    for run in sorted(folder.results, key=lambda run: order[run.key]):
        runs.setdefault(run.method, run)
    ledgers = {method: read_ledger(folder.path, run.run) for method, run in runs.items()}
    ledgers = {method: rows for method, rows in ledgers.items() if rows}
    parts = []
    for method, drawn in plots.link_pictures(ledgers).items():
        run = runs[method]
        grid = ledger_grid(ledgers[method], f"{method}, faults {run.faults}, seed {run.seed}.")
        table = _details("Messages and bytes in every phase", _table(grid))
        parts.append(f"<h3>{escape(method)}</h3>{_pictures(drawn) if drawn else ''}{table}")
    note = "Bytes over each link in training, by kind of content, in one run of each method."
    return _section("What left each party", note, parts)


def _section(title: str, note: str, parts: Sequence[str]) -> str:
    if not parts:
        return ""
    return f"<section><h2>{title}</h2><p>{note}</p>{''.join(parts)}</section>"


def _details(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def _pictures(pictures: Sequence[plots.Picture], caption: str = "", legend: str = "") -> str:
    panels = ""
    for picture in pictures:
        named = f'<svg role="img" aria-label="{escape(picture.description)}" '
        svg = picture.svg.replace("<svg ", named, 1)
        panels += f"<figure><figcaption>{escape(picture.caption)}</figcaption>{svg}</figure>"
    note = f'<p class="caption">{caption}</p>' if caption else ""
    return f'<div class="card">{legend}<div class="panels">{panels}</div>{note}</div>'


def _legend(styles: Mapping[str, plots.Style]) -> str:
    items = ""
    for method, style in styles.items():
        dashes = " ".join(f"{1.7 * length:g}" for length in style.dashes)
        line = f'stroke="{style.colour}" stroke-width="2.4" stroke-dasharray="{dashes or "none"}"'
        key = f'<svg aria-hidden="true" viewBox="0 0 34 8"><path d="M0 4H34" {line}/></svg>'
        items += f"<li>{key}{escape(method)}</li>"
    return f'<ul class="legend">{items}</ul>'


def _table(grid: Grid) -> str:
    kinds = ["word" if column < grid.words else "figure" for column in range(len(grid.header))]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(title)}</th>'
        for kind, title in zip(kinds, grid.header, strict=True)
    )
    body = ""
    for number, (name, *cells) in enumerate(grid.rows):
        body += f'<tr><th scope="row">{escape(name)}</th>'
        for column, text in enumerate(cells, start=1):
            shown = escape(text)
            if (number, column) in grid.best:
                shown = f"<strong>{shown}</strong>"
            body += f'<td class="{kinds[column]}">{shown}</td>'
        body += "</tr>"
    caption = escape(grid.caption)
    # Focusable, so that a wide table can be scrolled without a mouse.
    return (
        f'<div class="table"><div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="caption">{caption}</p></div>'
    )
