"""`report.html`: one self-contained page about an output folder; it opens offline."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from markupsafe import Markup

from colonnade.common.curves import Curves, read_curves
from colonnade.common.explanations import read_explanations
from colonnade.common.results import (
    CONFIG,
    RESULTS,
    Result,
    read_accuracy_by_batch,
    read_failures,
    read_history,
    read_leads,
    read_ledger,
    read_results,
    read_turns,
    real,
)
from colonnade.errors import InputError
from colonnade.experiments import explanation_page, plots
from colonnade.experiments.answer_plots import ALONE, OVERLAID
from colonnade.experiments.audit.present import grid as audit_grid
from colonnade.experiments.audit.present import read_document
from colonnade.experiments.exports import runs_csv, write_tables
from colonnade.experiments.findings import lead, verdict
from colonnade.experiments.leads import leads_grid, time_line
from colonnade.experiments.link_plots import link_pictures
from colonnade.experiments.page import write_page
from colonnade.experiments.privacy_grid import privacy_grid
from colonnade.experiments.table import (
    Grid,
    Metric,
    Plan,
    Summary,
    cost_grid,
    ledger_grid,
    measured,
    summarise,
)

CATASTROPHE = "catastrophe"
CURVE_METRICS = ("validation_accuracy", "validation_rmse", "validation_loss", "train_loss")
AXES = (
    ("round", "rounds", 1.0, "Over rounds"),
    ("bytes", "megabytes sent", 1e-6, "Over megabytes sent"),
    ("virtual_seconds", "virtual seconds", 1.0, "Over virtual time"),
)
SEEN = (  # of who led when, in a real run
    "As this party saw it: a round ends when the party that counts rounds has told of it. Rounds "
    "that ended while this party was away are missing."
)
REAL_TIME = ("virtual_seconds", "seconds", 1.0, "Over time")  # what a real run has there


@dataclass(frozen=True)
class Folder:
    """The content of an output folder that a report needs."""

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
    summary, plan, results = read.summary, read.plan, read.results
    verdicts = [Markup(text) for fault in plan.faults if (text := verdict(summary, fault))]
    tested = any(summary.ranking(fault) for fault in plan.faults)  # there may be no test rows
    grids, other_metrics = _grids(read)
    audit = read_document(folder)
    return write_page(
        folder,
        "report.html",
        name=str(read.config.get("name", folder.name)),
        facts=_facts(read.config),
        notes=list(dict.fromkeys(note for result in results for note in result.notes)),
        lead=verdicts[0] if len(verdicts) == 1 else Markup(lead(summary)),
        verdicts=verdicts if len(verdicts) > 1 else [],
        failures=[f"{failed.run}: {failed.reason}" for failed in read_failures(folder)],
        done=len(results),
        planned=plan.runs,
        seeds=plan.seeds,
        results=plots.final_figures(summary) if tested else [],
        grids=grids,
        other_metrics=other_metrics,
        styles=plots.method_styles(plan.methods),
        numbers={method: number for number, method in enumerate(plan.methods)},
        answers=_answers(read),
        while_predicting=_while_predicting(read),
        curves=_curves(read),
        leads=_leads(read),
        links=_links(read),
        explanations=_explanations(folder),
        audit=audit,
        audit_grid=None if audit is None else audit_grid(audit.findings),
        config=read.config_text,
    )


def export_tables(folder: Path, *, as_csv: bool, as_latex: bool) -> list[Path]:
    """Write the tables of the report, and with `as_csv` every run, into `tables/`."""
    read = _read(folder)
    grids, others = _grids(read)
    runs = runs_csv(read.results)
    return write_tables(folder, [*grids, *others], runs, as_csv=as_csv, as_latex=as_latex)


def _grids(folder: Folder) -> tuple[list[Grid], list[Grid]]:
    """The tables of the results, and those of the metrics that do not decide."""
    results, plan, decides = folder.results, folder.plan, folder.summary.metric.name
    grids = [folder.summary.grid(), cost_grid(results, plan), privacy_grid(results, plan)]
    others = [name for name in measured(results) if name != decides]
    found = [summarise(results, plan, name).grid() for name in others]
    return [grid for grid in grids if grid is not None], found


def _for_example(path: Path) -> str:
    """For an error: the folder of a party in the output folder of `up`, if there is one."""
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
    return Folder(path, config, text, results, summarise(results, plan))


def _unfinished(config: dict[str, Any]) -> str:
    if "method" not in config:
        return "no finished runs yet; the same `colonnade run` goes on from there"
    return (
        "no result of this party. Those who hold labels have one when training and test are over; "
        "the same `colonnade join` (or `up`) goes on from there"
    )


def _facts(config: dict[str, Any]) -> list[str]:
    """The facts about the data, one text each."""
    data = dict(config.get("data", {}))
    title = data.pop("dataset", None) or data.pop("path", None)
    parts = [Markup("<strong>{}</strong>").format(title)] if title else []
    return [*parts, *(f"{key} {_plain(value)}" for key, value in data.items() if value != {})]


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return str(len(value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _curves(folder: Folder) -> dict[str, list[plots.Picture]]:
    """Learning curves over every axis that has values above 0, by title."""
    histories = {r.key: read_history(folder.path, r.run) for r in folder.results}
    seen = {key for rows in histories.values() for row in rows for key in row}
    decides = folder.summary.metric.name.replace("test_", "validation_")
    metric = next((name for name in (decides, *CURVE_METRICS) if name in seen), None)
    if metric is None:
        return {}
    styles = plots.method_styles(folder.plan.methods)
    found = {}
    axes = (*AXES[:-1], REAL_TIME) if real(folder.results) else AXES
    for key, axis, scale, title in axes:
        curves = plots.curves_over(folder.plan, histories, key, scale, metric)
        if any(curve.x[-1] > 0 for panel in curves.values() for curve in panel.values()):
            name = f"over-{key}"
            found[title] = plots.learning_curves(curves, styles, Metric(metric), axis, name)
    return found


def _answers(folder: Folder) -> list[tuple[str, str, bool, Any]]:
    """Title, caption, whether methods share a picture, and the pictures: a list, one per kind of
    faults; or by kind of faults, one per method."""
    plan, styles = folder.plan, plots.method_styles(folder.plan.methods)
    runs: dict[str, dict[str, list[Curves]]] = {fault: {} for fault in plan.faults}
    by_key = {result.key: result.run for result in folder.results}
    for fault, method, seed in product(plan.faults, plan.methods, plan.seeds):
        if (run := by_key.get((method, fault, seed))) and (one := read_curves(folder.path, run)):
            runs[fault].setdefault(method, []).append(one)
    sections: list[tuple[str, str, bool, Any]] = []
    for i, (title, caption, draw) in enumerate(OVERLAID):
        drawn = [draw(runs[f], styles, f, f"over{i}-{n}") for n, f in enumerate(plan.faults)]
        sections.append((title, caption, True, [one for one in drawn if one]))
    for i, (title, caption, draw) in enumerate(ALONE):
        panels = {
            f: [
                draw(m, found, f, f"alone{i}-{n}-{styles[m].number}")
                for m, found in runs[f].items()
            ]
            for n, f in enumerate(plan.faults)
        }
        some = {f: [one for one in drawn if one] for f, drawn in panels.items()}
        sections.append((title, caption, False, {f: drawn for f, drawn in some.items() if drawn}))
    return [section for section in sections if section[3]]


def _while_predicting(folder: Folder) -> list[plots.Picture]:
    """Curves over the batches of the test, for catastrophes that strike while rows are
    predicted."""
    faults = {f["name"]: f for f in folder.config.get("faults", [])}
    struck = [
        name
        for name, f in faults.items()
        if f.get("kind") == CATASTROPHE and f.get("when") != "training"
    ]
    batches = {
        r.key: read_accuracy_by_batch(folder.path, r.run)
        for r in folder.results
        if r.faults in struck
    }
    told = {key for rows in batches.values() for row in rows for key in row if key != "batch"}
    if not told:
        return []
    [metric] = told  # that of `Goal.by_row`
    curves = plots.curves_over(folder.plan, batches, "batch", 1.0, metric)
    styles = plots.method_styles(folder.plan.methods)
    return plots.learning_curves(curves, styles, Metric(metric), "batches", "course")


def _explanations(folder: Path) -> dict[str, tuple[list[str], list[plots.Picture], Grid]]:
    """Which party contributed what, in the runs that were explained."""
    found = enumerate(read_explanations(folder))
    return {
        explanation_page.title(one): (
            explanation_page.sentences(one),
            explanation_page.pictures(one, f"explained-{number}"),
            explanation_page.grid(one),
        )
        for number, one in found
    }


def _links(folder: Folder) -> dict[str, tuple[list[plots.Picture], Grid]]:
    """What left each party, in the first finished run of each method."""
    runs = _first_runs(folder)
    ledgers = {method: read_ledger(folder.path, run.run) for method, run in runs.items()}
    ledgers = {method: rows for method, rows in ledgers.items() if rows}
    drawn = link_pictures(ledgers)
    return {m: (drawn[m], ledger_grid(ledgers[m], _caption(runs[m]))) for m in ledgers}


def _leads(folder: Folder) -> dict[str, tuple[list[plots.Picture], Grid]]:
    """Who led when, in the first finished run of each method in which several parties lead."""
    found, is_real = {}, real(folder.results)
    axis, said = ("seconds", f" {SEEN}") if is_real else ("virtual seconds", "")
    for method, run in _first_runs(folder).items():
        rows = read_leads(folder.path, run.run)
        if len({row.party for row in rows}) > 1:
            line = time_line(read_turns(folder.path, run.run), f"leads-{len(found)}", axis)
            found[method] = ([line], leads_grid(rows, _caption(run) + said))
    return found


def _first_runs(folder: Folder) -> dict[str, Result]:
    """The first finished run of each method."""
    plan = folder.plan
    order = {key: i for i, key in enumerate(product(plan.methods, plan.faults, plan.seeds))}
    runs: dict[str, Result] = {}
    for run in sorted(folder.results, key=lambda run: order[run.key]):
        runs.setdefault(run.method, run)
    return runs


def _caption(run: Result) -> str:
    return f"{run.method}, faults {run.faults}, seed {run.seed}."
