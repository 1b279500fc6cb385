"""What leaks in each method, with and without defences, as a page of documentation.

A method whose name is that of another one, " + " and a few words is that other one with a defence:
the second table shows what the defence changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean

from colonnade.experiments import markdown
from colonnade.experiments.audit.defences import DEFENCE
from colonnade.experiments.audit.findings import ALL_COLUMNS, FEW, Finding
from colonnade.experiments.audit.present import CONTROLS, grid, success_text
from colonnade.experiments.audit.run import Audited
from colonnade.experiments.privacy_grid import spent
from colonnade.experiments.table import NOTHING, Grid, Summary, measured, short, summarise

BOTH = ("test_accuracy", "test_auc")
LEAKS = (
    "Of each kind the best attack, over all receivers and all epochs: the range over the seeds, "
    "then what chance gives (the same attack on rows out of order, the highest of all seeds), what "
    "the attacker has without what it received, and what encoders told before the training. "
    "Figures: of labels {measure}, of the columns of one client R². Bold: as good as told, and not "
    "known anyway. MB: sent in one training. ε: of the row that left most often; of labels, of "
    "label_privacy. The number after a defence is its strength. What each attack and defence is: "
    "[what a receiver can infer](../explanation/audit.md). Labels without gradients, as in DVFL: "
    "what encodings of columns tell of them."
)
CHANGES = (
    "Before → after. Figures on test rows: mean over seeds, and in brackets the change at the seed "
    "where it is worst. Attacks: the best one, at the seed where it is best. MB: sent in one "
    "training. ε: of the row that left most often; of labels, of label_privacy."
)

Kind = Callable[[Finding], bool]
KINDS: Mapping[str, Kind] = {
    "labels, none known": lambda one: one.about_labels and not one.knows,
    f"labels, {FEW}": lambda one: one.about_labels and bool(one.knows),
    "columns": lambda one: not one.about_labels and one.secret != ALL_COLUMNS,
}


def page(done: Audited, command: str, at: str) -> str:
    """The whole page. `at`: the commit, if there is one."""
    findings = done.findings
    lines = [f"# {done.experiment.name}", "", markdown.made_by(command, at), "", *_facts(done), ""]
    lines += [*markdown.table(leaks(done)), ""]
    if (changed := changes(done)).rows:
        lines += ["## What defences change", "", *markdown.table(changed), ""]
    lines += markdown.section("What could not be attacked", done.sayings)[1:]
    lines += ["", "## All attacks", "", *markdown.table(grid(findings))]
    return "\n".join(lines) + "\n"


def _facts(done: Audited) -> list[str]:
    notes = list(dict.fromkeys(note for result in done.results for note in result.notes))
    data, seeds = done.experiment.data, ", ".join(map(str, done.experiment.seeds))
    rows = "" if data.rows is None else f", {data.rows:,} rows for training and validation"
    parties = "" if data.parties is None else f", {data.parties} parties"
    parts = [f"Data: {data.dataset or data.path}{rows}{parties}", f"seeds {seeds}"]
    parts.append(f"faults: {done.experiment.faults[0].name}")
    return ["; ".join(parts) + ".", *(["", *(f"- {note}" for note in notes)] if notes else [])]


def strongest_of(findings: Iterable[Finding], method: str, kind: Kind) -> Finding | None:
    mine = [one for one in findings if one.method == method and kind(one)]
    return max(mine, key=lambda one: one.rank, default=None)


def summaries(done: Audited) -> list[Summary]:
    """Of the metric that decides; where there are two classes, of accuracy and AUC in any case."""
    decides = summarise(done.results, done.plan)
    binary = any(one.measure == "AUC" for one in done.findings)
    known = measured(done.results) if binary else []
    others = [name for name in BOTH if name in known and name != decides.metric.name]
    return [decides, *(summarise(done.results, done.plan, name) for name in others)]


def leaks(done: Audited) -> Grid:
    """One row per method."""
    findings, told, rows, bold = done.findings, summaries(done), [], set()
    for number, method in enumerate(done.plan.methods):
        cells = [one.text(one.cells.get((method, done.plan.faults[0]))) for one in told]
        cells += [_megabytes(done, method), _epsilon(done, method)]
        for column, kind in enumerate(KINDS.values(), start=1 + len(cells)):
            one = strongest_of(findings, method, kind)
            cells.append(NOTHING if one is None else _figures(one))
            bold |= {(number, column)} if one is not None and one.exposed else set()
        rows.append((method, *cells))
    header = ("method", *(one.metric.title for one in told), "MB", "ε", *KINDS)
    measures = {one.measure for one in findings if one.about_labels}
    caption = LEAKS.format(measure=" or ".join(sorted(measures)) or NOTHING)
    return Grid(header, tuple(rows), caption, best=frozenset(bold))


def _figures(one: Finding) -> str:
    values = (one.control, one.baseline, one.untrained)
    known = [(name, x) for name, x in zip(CONTROLS, values, strict=True) if x is not None]
    text = f"{one.attack}: {success_text(one)}"
    return ", ".join([text, *(f"{name} {value:.2f}" for name, value in known)])


def _megabytes(done: Audited, method: str) -> str:
    sent = [one.cost.get("bytes") for one in done.results if one.method == method]
    known = [one for one in sent if one is not None]
    return short(fmean(known) / 1e6) if known else NOTHING


def _epsilon(done: Audited, method: str) -> str:
    runs = [one.privacy for one in done.results if one.method == method and one.privacy]
    return spent(runs) or NOTHING


def changes(done: Audited) -> Grid:
    """One row per method with a defence. ε: where any of them has one."""
    methods = done.plan.methods
    pairs = [(one.partition(DEFENCE)[0], one) for one in methods if DEFENCE in one]
    pairs = [(base, method) for base, method in pairs if base in methods]
    rows, told = [], summaries(done) if pairs and done.results else []
    costs = {"MB": _megabytes}
    if any(_epsilon(done, one) != NOTHING for pair in pairs for one in pair):
        costs["ε"] = _epsilon
    for base, method in pairs:
        measures = [_moved(done, one, base, method) for one in told]
        attacks = [_success(done, base, method, kind) for kind in KINDS.values()]
        paid = [_before_after(cost(done, base), cost(done, method)) for cost in costs.values()]
        rows.append((base, method.partition(DEFENCE)[2], *measures, *attacks, *paid))
    header = ("method", "defence", *(one.metric.title for one in told), *KINDS, *costs)
    return Grid(header, tuple(rows), CHANGES, words=2)


def _before_after(before: str, after: str) -> str:
    return NOTHING if before == after == NOTHING else f"{before} → {after}"


def _moved(done: Audited, summary: Summary, base: str, method: str) -> str:
    """The mean over seeds before and after, and the change at the seed where it is worst."""
    fault, metric = done.plan.faults[0], summary.metric
    before, after = summary.cells.get((base, fault)), summary.cells.get((method, fault))
    if before is None or after is None:
        return NOTHING
    common = before.by_seed.keys() & after.by_seed.keys()
    changed = [after.by_seed[seed] - before.by_seed[seed] for seed in common]
    worst = min(changed) if metric.higher_is_better else max(changed)
    return f"{metric.text(before.mean)} → {metric.text(after.mean)} ({metric.change(worst)})"


def _success(done: Audited, base: str, method: str, kind: Kind) -> str:
    found = [strongest_of(done.findings, one, kind) for one in (base, method)]
    return _before_after(*(NOTHING if one is None else f"{one.success:.2f}" for one in found))
