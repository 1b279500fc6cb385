"""`report.html`: one self-contained page about an output folder; it opens offline."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from colonnade.common.results import (
    CONFIG,
    RESULTS,
    Result,
    read_course,
    read_history,
    read_ledger,
    read_results,
    real,
)
from colonnade.errors import InputError
from colonnade.experiments import page, plots
from colonnade.experiments.findings import lead, verdict
from colonnade.experiments.table import (
    ACCURACY,
    Metric,
    Plan,
    Summary,
    cost_grid,
    ledger_grid,
    summarise,
)

CATASTROPHE = "catastrophe"
CURVE_METRICS = ("validation_accuracy", "validation_loss", "train_loss")
AXES = (
    ("round", "rounds", 1.0, "Over rounds"),
    ("bytes", "megabytes sent", 1e-6, "Over megabytes sent"),
    ("virtual_seconds", "virtual seconds", 1.0, "Over virtual time"),
)
REAL_TIME = ("virtual_seconds", "seconds", 1.0, "Over time")  # what a real run has there


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
    read = _read(folder)
    return page.write_page(
        folder,
        name=str(read.config.get("name", folder.name)),
        about=_about(read),
        main=_main(read),
        footer=f"{len(read.results)} of {read.plan.runs} runs · "
        f"seeds {escape(', '.join(map(str, read.plan.seeds)))}. "
        "The same version, configuration and seeds give the same figures, apart from wall time.",
    )


def _for_example(path: Path) -> str:
    """A party's folder in that of `up`."""
    found = sorted(path.glob(f"*/{RESULTS}"))
    return f": {found[0].parent}" if found else ""


def _read(path: Path) -> Folder:
    if not path.is_dir():
        raise InputError(f"{path}: there is no such folder; give the --out folder of a run")
    if not (path / CONFIG).is_file():
        raise InputError(
            f"{path}: not an output folder (no {CONFIG}); give the --out folder of a run, or that "
            f"of a party{_for_example(path)}"
        )
    try:
        text = (path / CONFIG).read_text(encoding="utf-8")
        config = tomllib.loads(text)
        plan = Plan.of(config)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path / CONFIG}: not a resolved experiment file: {error}") from None
    results = list({result.key: result for result in read_results(path)}.values())
    if not results:
        raise InputError(f"{path}: {_unfinished(config)}")
    return Folder(path, config, text, results, summarise(results, plan, _main_metric(results)))


def _unfinished(config: dict[str, Any]) -> str:
    if "method" not in config:
        return "no finished runs yet; the same `colonnade run` goes on from there"
    return (
        "no result of this party. Those who hold labels have one when training and test are over; "
        "the same `colonnade join` (or `up`) goes on from there"
    )


def _main_metric(results: Iterable[Result]) -> str:
    names = _metric_names(results)
    return ACCURACY if ACCURACY in names or not names else names[0]


def _metric_names(results: Iterable[Result]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result.metrics))


def _main(folder: Folder) -> str:
    config = (
        "<details><summary>config.toml, as resolved</summary>"
        f'<pre tabindex="0"><code>{escape(folder.config_text)}</code></pre></details>'
    )
    return (
        f'<section aria-label="Findings">{_findings(folder)}</section>'
        f"{page.section('Results', '', [_results(folder)])}"
        f"{_course(folder)}{_curves(folder)}{_links(folder)}"
        f"{page.section('Configuration', '', [config])}"
    )


def _about(folder: Folder) -> str:
    """The data in one line, and the notes that came with them."""
    data = dict(folder.config.get("data", {}))
    notes = dict.fromkeys(note for result in folder.results for note in result.notes)
    title = data.pop("dataset", None) or data.pop("path", None)
    parts = [f"<strong>{escape(str(title))}</strong>"] if title else []
    parts += [f"{escape(key)} {escape(_plain(value))}" for key, value in data.items()]
    about = f'<p class="about">{" · ".join(parts)}</p>' if parts else ""
    return about + "".join(page.note(note) for note in notes)


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
        page.table(summarise(folder.results, plan, name).grid())
        for name in _metric_names(folder.results)
        if name != summary.metric.name
    ]
    more = page.details("Other metrics", "".join(others)) if others else ""
    caption = "Mark: mean over seeds; bar: ± 2 sd; ticks: single seeds."
    measured = any(summary.ranking(fault) for fault in plan.faults)  # there may be no test rows
    return (
        f"{page.pictures(plots.final_figures(summary), caption) if measured else ''}"
        f"{page.table(summary.grid())}{page.table(cost_grid(folder.results, plan))}{more}"
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
    axes = (*AXES[:-1], REAL_TIME) if real(folder.results) else AXES
    for key, axis, scale, title in axes:
        curves = plots.curves_over(folder.plan, histories, key, scale, metric)
        if any(curve.x[-1] > 0 for panel in curves.values() for curve in panel.values()):
            drawn = plots.learning_curves(curves, styles, Metric(metric), axis, f"over-{key}")
            parts.append(f"<h3>{title}</h3>{page.pictures(drawn, legend=page.legend(styles))}")
    note = "Line: mean over seeds; band: lowest to highest seed; last mark: end of training."
    return page.section("Learning curves", note, parts)


def _course(folder: Folder) -> str:
    """Where something befalls the parties while the test rows are predicted: how that goes."""
    told = {f["name"]: f for f in folder.config.get("faults", [])}
    befallen = [
        name
        for name, f in told.items()
        if f.get("kind") == CATASTROPHE and f.get("when") != "training"
    ]
    courses = {
        r.key: read_course(folder.path, r.run) for r in folder.results if r.faults in befallen
    }
    curves = plots.curves_over(folder.plan, courses, "batch", 1.0, ACCURACY)
    if not curves:
        return ""
    styles = plots.method_styles(folder.plan.methods)
    drawn = plots.learning_curves(curves, styles, Metric(ACCURACY), "batches", "course")
    note = "Accuracy batch by batch. Line: mean over seeds; band: lowest to highest seed."
    shown = page.pictures(drawn, legend=page.legend(styles))
    return page.section("While predicting", note, [shown])


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
        table = page.details("Messages and bytes in every phase", page.table(grid))
        parts.append(f"<h3>{escape(method)}</h3>{page.pictures(drawn) if drawn else ''}{table}")
    note = "Bytes over each link in training, by kind of content, in one run of each method."
    return page.section("What left each party", note, parts)
