"""A comparison as tables, pictures and pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import numpy as np

from colonnade.algorithms import registry
from colonnade.common.metric_names import key_of, metrics_of
from colonnade.common.results import Result
from colonnade.experiments import plots
from colonnade.experiments.compare.advice import Field, advice
from colonnade.experiments.compare.contenders import pooled
from colonnade.experiments.compare.search import at_the_edge, described
from colonnade.experiments.compare.study import FINAL, Comparison
from colonnade.experiments.config import Experiment
from colonnade.experiments.findings import HTML, PLAIN, Voice
from colonnade.experiments.markdown import made_by, section, table
from colonnade.experiments.page import write_page
from colonnade.experiments.paired import half_width
from colonnade.experiments.privacy_grid import spent
from colonnade.experiments.table import (
    NOTHING,
    Grid,
    Metric,
    Plan,
    short,
    summarise,
)
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.declare import Columns

NUMBER = re.compile(r"\d[\d,.]*")
SHARE = re.compile(r"^(\d+) % of (\w+), (\w+)$")  # a fault of `usual_faults`


class Shown:
    """What the pages and the terminal show of a comparison."""

    def __init__(self, done: Comparison) -> None:
        self.done = done
        self.results: Sequence[Result] = done.outcome.results
        self.plan = Plan.of(done.experiment.table())
        self.summary = summarise(self.results, self.plan)
        choices = [m for m in self.plan.methods if not pooled(m, done.experiment)]
        reveals = {m: reveals_rows(m, done.experiment) for m in choices}
        untimed = [m for m in choices if learns_alone(m, done.experiment)]
        self.field = Field(self.summary, self.results, reveals, untimed)

    def advice(self, voice: Voice) -> list[str]:
        return advice(self.field, voice)

    def edge(self) -> str:
        """The settings beyond which nothing was tried; empty if there are none."""
        found = at_the_edge(self.done.found.trials)
        if not found:
            return ""
        named = "; ".join(f"{method}: {described(values)}" for method, values in found.items())
        return f"Best at the edge of what was tried, beyond which may be better ones: {named}."

    def notes(self) -> list[str]:
        """The edge of the search, and what runs note. Notes that differ in their numbers only are
        shown once."""
        alike: dict[str, list[str]] = {}
        for note in dict.fromkeys(note for r in self.results for note in r.notes):
            alike.setdefault(NUMBER.sub("#", note), []).append(note)
        edge = [edge] if (edge := self.edge()) else []
        return edge + [
            notes[0] + (f" ({len(notes) - 1} more like it)" if notes[1:] else "")
            for notes in alike.values()
        ]

    def means_grids(self) -> list[Grid]:
        """For a terminal: means only; what is gone in training, and at prediction."""
        series = self.series()
        if not series:
            return [self._means({fault: fault for fault in self.plan.faults}, "")]
        grids = []
        for moment in dict.fromkeys(moment for _, moment in series):
            faults = {self.plan.faults[0]: "none"}
            for (what, when), found in series.items():
                if when == moment:
                    faults |= {fault: f"{share:.0f} % {what}" for share, fault in found.items()}
            grids.append(self._means(faults, f", gone {_moment(moment)}"))
        return grids

    def _means(self, faults: dict[str, str], which: str) -> Grid:
        text, cells = self.summary.metric.text, self.summary.cells
        rows = [
            (m, *(text(cells[m, f].mean) if (m, f) in cells else NOTHING for f in faults))
            for m in self.plan.methods
        ]
        best = frozenset(
            (self.plan.methods.index(method), column)
            for column, fault in enumerate(faults, 1)
            for method in self.summary.winners(fault)
        )
        title, seeds = self.summary.metric.title, len(self.plan.seeds)
        over = "one seed" if seeds == 1 else f"mean over {seeds} seeds"
        caption = f"{title[:1].upper()}{title[1:]}, {over}{which}."
        return Grid(("method", *faults.values()), tuple(rows), caption, best=best)

    def paired_grid(self) -> Grid:
        """The distance from the best method that may be advised, seed by seed, in each setting."""
        methods, faults = self.plan.methods, self.plan.faults
        rows = tuple((m, *(self._difference(m, fault) for fault in faults)) for m in methods)
        as_good = frozenset(
            (methods.index(method), column)
            for column, fault in enumerate(faults, 1)
            if self.field.ranking(fault)
            for method in (self.field.ranking(fault)[0][0], *self._unclear(fault))
        )
        caption = (
            "The mean difference from the best method that may be advised, seed by seed, with its "
            "95 % interval; in bold the best one, and those that are behind it by what may be "
            "chance: the interval holds 0."
        )
        return Grid(("method", *faults), rows, caption, best=as_good)

    def _unclear(self, fault: str) -> list[str]:
        return [m for m, how in self.field.compared(fault).items() if how != "clear"]

    def cost_grid(self) -> Grid:
        """Without faults: the distance from the best, seed by seed, and what a training costs."""
        calm = self.plan.faults[0]
        rows = [(m, self._difference(m, calm), *self._costs(m)) for m in self.plan.methods]
        header = ("method", "from the best", "MB", "messages", "virtual s", "wall s", "ε")
        columns = [k for k in range(len(header)) if k < 2 or any(r[k] != NOTHING for r in rows)]
        kept = tuple(tuple(row[k] for k in columns) for row in rows)
        caption = (
            "Without faults: the mean difference from the best method that may be advised, seed by "
            "seed, with its 95 % interval; then the mean costs of a training over all settings."
        )
        if self.field.untimed and header.index("virtual s") in columns:
            alone = " and ".join(self.field.untimed)
            caption += (
                f" What parties learn alone takes no virtual time: none is shown for {alone}."
            )
        if header.index("ε") in columns:
            caption += " ε: with noise."
        return Grid(tuple(header[k] for k in columns), kept, caption)

    def _difference(self, method: str, fault: str) -> str:
        ranking, cell = self.field.ranking(fault), self.summary.cells.get((method, fault))
        if cell is None or not ranking:
            return NOTHING
        if ranking[0][0] == method:
            return "best"
        best, mine = ranking[0][1].by_seed, cell.by_seed
        differences = [mine[seed] - best[seed] for seed in mine if seed in best]
        if not differences:
            return NOTHING
        text = self.summary.metric.change(fmean(differences))
        half = half_width(differences)
        return text if half is None else f"{text} ± {self.summary.metric.text(half)}"

    def _costs(self, method: str) -> tuple[str, ...]:
        found = []
        scales = (("bytes", 1e-6), ("messages", 1), ("virtual_seconds", 1), ("wall_seconds", 1))
        for key, scale in scales:
            value = self.field.cost(method, key)
            found.append(NOTHING if not value else short(scale * value))
        mine = [r.privacy for r in self.results if r.method == method]
        return (*found, spent(mine) or NOTHING)

    def what_leaves(self) -> Grid:
        """What column holders send, and what they are told."""
        rows = []
        for method in self.plan.methods:
            sent, told = exchanged(method, self.done.experiment)
            rows.append((method, "; ".join(sent) or "nothing", "; ".join(told) or "nothing"))
        caption = "What a column holder sends, and what it is told: as the methods declare it."
        return Grid(("method", "a column holder sends", "and is told"), tuple(rows), caption, 3)

    def search_grid(self) -> Grid | None:
        """The trials, best first, by method and stage."""
        trials = self.done.found.trials
        if not trials:
            return None
        metric = Metric(f"validation_{key_of(self._metric())}")
        rows = [
            (
                trial.method,
                f"{trial.stage + 1}",
                described(trial.values),
                "failed" if trial.figure is None else metric.text(trial.figure),
            )
            for trial in trials
        ]
        caption = (
            f"{metric.title[:1].upper()}{metric.title[1:]}, first seed, no faults: all trials with "
            "a quarter of the epochs, the better half with half of them. The first of stage 2 is "
            "taken."
        )
        return Grid(("method", "stage", "setting", metric.title), tuple(rows), caption, 3)

    def _metric(self) -> str:
        chosen = self.done.experiment.data.metric
        numbers = self.summary.metric.name in (f"test_{m}" for m in metrics_of(0))
        return chosen or metrics_of(0 if numbers else 2)[0]

    def pictures(self) -> list[plots.Picture]:
        """The figure over the share of parties, or links, that are gone."""
        drawn = enumerate(self.series().items())
        return [self._falling(k, *where, faults) for k, (where, faults) in drawn]

    def series(self) -> dict[tuple[str, str], dict[float, str]]:
        """What is gone, and when → share in % → fault."""
        series: dict[tuple[str, str], dict[float, str]] = {}
        for fault in self.plan.faults:
            if found := SHARE.match(fault):
                share, what, moment = found.groups()
                series.setdefault((what, moment), {})[float(share)] = fault
        return series

    def _falling(
        self, number: int, what: str, moment: str, faults: dict[float, str]
    ) -> plots.Picture:
        metric, styles = self.summary.metric, plots.method_styles(self.plan.methods)
        points = {0.0: self.plan.faults[0], **faults}
        where = _moment(moment)
        with matplotlib.rc_context(plots.RC):
            figure, axes = plots.new_panel(3.1)
            for method in self.plan.methods:
                known = [(x, self.summary.cells.get((method, f))) for x, f in points.items()]
                x = np.array([at for at, cell in known if cell is not None])
                y = np.array([metric.scale * cell.mean for _, cell in known if cell is not None])
                if len(x):
                    style = styles[method]
                    line = axes.plot(x, y, color=style.colour, marker=style.marker, lw=1.7, ms=4)
                    if style.dashes:
                        line[0].set_dashes(style.dashes)
            axes.set(xlabel=f"% of {what} gone {where}", ylabel=metric.title)
            axes.set_xticks(list(points))
            svg = plots.to_svg(figure, f"falling-{number}")
        title = f"{what.capitalize()} gone {where}"
        return plots.Picture(svg, title, f"{metric.title} over the share of {what} gone {where}.")


def _moment(moment: str) -> str:
    return "in training" if moment == "training" else "at prediction"


def _algorithm(method: str, experiment: Experiment) -> Any:
    return registry()[next(m.algorithm for m in experiment.methods if m.name == method)]


def _holds_columns(kind: Any, group: str) -> bool:
    return isinstance(getattr(kind, group, None), Columns)


def exchanged(method: str, experiment: Experiment) -> tuple[list[str], list[str]]:
    """What column holders send, and what they are told, as declared."""
    kind = _algorithm(method, experiment)
    ends = [(e, *e.ends) for e in kind.exchanges]
    sent = [e.what for e, _, source, _ in ends if _holds_columns(kind, source)]
    told = [e.what for e, _, _, target in ends if _holds_columns(kind, target)]
    return list(dict.fromkeys(sent)), list(dict.fromkeys(told))


def reveals_rows(method: str, experiment: Experiment) -> bool:
    """Whether an encoding of single rows leaves a column holder in the clear."""
    kind = _algorithm(method, experiment)
    sent = [e for e in kind.exchanges if _holds_columns(kind, e.ends[1])]
    return any(e.encodes for e in sent)


def learns_alone(method: str, experiment: Experiment) -> bool:
    """Whether column holders learn by themselves at first. Nothing is sent then, so that virtual
    time, which is that of messages, does not count it."""
    return _algorithm(method, experiment).epochs_alone is not Algorithm.epochs_alone


def write_html(shown: Shown) -> Path:
    done = shown.done
    return write_page(
        done.folder,
        "comparison.html",
        name=str(done.experiment.name),
        command=done.command,
        data=done.data,
        advice=[_marked(text) for text in shown.advice(HTML)],
        figures=shown.summary.grid(),
        differences=shown.paired_grid(),
        costs=shown.cost_grid(),
        leaves=shown.what_leaves(),
        pictures=shown.pictures(),
        finals=plots.final_figures(shown.summary) if shown.results else [],
        styles=plots.method_styles(shown.plan.methods),
        search=shown.search_grid(),
        left_out=done.left_out,
        failures=done.outcome.failures,
        notes=shown.notes(),
        seeds=shown.plan.seeds,
        link=f"{FINAL}/report.html",
    )


def _marked(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def markdown(shown: Shown) -> str:
    """The comparison as a page of documentation."""
    done = shown.done
    lines = [f"# {done.experiment.name}", "", made_by(done.command, done.commit)]
    lines += ["", f"Data: {done.data}. Seeds: {', '.join(map(str, shown.plan.seeds))}."]
    lines += section("Which one to choose", shown.advice(PLAIN))
    tables = {
        "Figures": shown.summary.grid(),
        "Differences": shown.paired_grid(),
        "Costs": shown.cost_grid(),
        "What leaves": shown.what_leaves(),
    }
    for title, grid in tables.items():
        lines += ["", f"## {title}", "", *table(grid)]
    if (search := shown.search_grid()) is not None:
        lines += ["", "## How the settings were found", "", *table(search)]
    lines += section("Left out", (f"{method}: {why}" for method, why in done.left_out.items()))
    failed = done.outcome.failures.items()
    lines += section("Runs that failed", (f"{run}: {why}" for run, why in failed))
    lines += section("To know", shown.notes())
    return "\n".join(lines) + "\n"
