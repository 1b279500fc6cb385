"""A comparison from a file: search, final trainings, page. What is done is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from colonnade.common.files import replacing
from colonnade.common.metric_names import metrics_of
from colonnade.common.results import read_results
from colonnade.data import VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.compare.contenders import (
    EPOCHS,
    Contender,
    contenders,
    scaled,
)
from colonnade.experiments.compare.search import Found, search
from colonnade.experiments.compare.source import experiment_of, read_source
from colonnade.experiments.config import Experiment
from colonnade.experiments.engine import Engine, NoObserver, Observer
from colonnade.experiments.markdown import commit_behind
from colonnade.experiments.run import reason_against
from colonnade.experiments.runner import Outcome, run_experiment

DOCUMENT = "comparison.json"
FINAL = "final"


@dataclass(frozen=True)
class Comparison:
    """What was compared, in the folder `folder`; the final experiment is in `folder / FINAL`."""

    folder: Path
    outcome: Outcome
    found: Found
    left_out: dict[str, str]  # method → why it does not suit the data
    command: str
    commit: str  # of the newest training
    data: str  # in words

    @property
    def experiment(self) -> Experiment:
        return self.outcome.experiment


def compare(
    file: Path,
    folder: Path,
    *,
    epochs: int = EPOCHS,
    only: Sequence[str] = (),
    overrides: Sequence[str] = (),
    jobs: int = 1,
    engine: Engine | None = None,
    fresh: bool = False,
    observer: Observer | None = None,
    command: str = "",
) -> Comparison:
    """Run the comparison that a file describes: an experiment file, with or without methods and
    faults. `epochs`: of the final trainings of most methods; `overrides`: `key=value`; `engine`:
    where; without it, on this machine, `jobs` runs at a time."""
    if epochs < 1:
        raise InputError(f"--epochs {epochs}: expected 1 or more")
    source = read_source(file, overrides)
    make = lambda name, methods: experiment_of(source, file, name, methods)  # noqa: E731
    entrants = contenders(source.get("methods"), only)
    own = [one.name for one in contenders(source["methods"])] if "methods" in source else []
    suited, left_out, metric, data = _suited(entrants, make, str(file), own)
    trained = False

    def run(experiment: Experiment, place: Path) -> Outcome:
        nonlocal trained
        before = len(read_results(place))
        outcome = run_experiment(
            experiment,
            place,
            jobs=jobs,
            engine=engine,
            fresh=fresh,
            observer=observer or NoObserver(),
            source=str(file),
        )
        trained |= fresh or len(outcome.results) > before
        return outcome

    calm = {**source, "faults": [{"name": "none"}], "seeds": source["seeds"][:1]}
    quiet = lambda name, methods: experiment_of(calm, file, name, methods)  # noqa: E731
    share = epochs / EPOCHS
    found = search(suited, quiet, run, folder, share, metric)
    outcome = run(make(str(source["name"]), found.tables), folder / FINAL)
    outcome.report()
    commit = commit_behind(folder / DOCUMENT, trained)
    done = Comparison(folder, outcome, found, left_out, command, commit, data)
    write_document(done)
    return done


def _suited(
    entrants: Sequence[Contender], make: Any, source: str, own: Sequence[str]
) -> tuple[list[Contender], dict[str, str], str, str]:
    """The methods that can learn from the data, why others cannot, the deciding metric, and the
    data in words. `own`: the methods of the file, if it has any; one of them that cannot learn is
    an error."""
    first: Experiment = make("check", [scaled(entrants[0].trials()[0], 1.0)])
    data = load(first.data, first.seeds[0])
    if not len(data.validation):
        raise InputError(
            f"{source}: data.validation: there are no validation rows, on which settings are found"
        )
    left_out: dict[str, str] = {}
    for one in entrants:
        checked: Experiment = make("check", [scaled(one.trials()[0], 1.0)])
        delays = checked.network.delays
        if why := reason_against(checked.methods[0], data, checked.seeds[0], delays):
            if one.name in own:
                where = f"{source}: methods[{own.index(one.name)}] ({one.name})"
                raise InputError(f"{where}: {why}")
            left_out[one.name] = why
    suited = [one for one in entrants if one.name not in left_out]
    if not suited:
        raise InputError(f"{source}: no method suits the data: {'; '.join(left_out.values())}")
    metric = first.data.metric or metrics_of(data.classes)[0]
    return suited, left_out, metric, _in_words(data, first.data.rows)


def _in_words(data: VerticalData, most: int | None) -> str:
    """What the figures were made on. `most`: the cap on training rows."""
    parts = {"training": data.train, "validation": data.validation, "test": data.test}
    rows = ", ".join(f"{len(part):,} {name}" for name, part in parts.items())
    capped = f" (a cap: `data.rows = {most}`)" if most is not None else ""
    widths = [f"{width:,}" for width in data.widths]
    columns = widths[0] if len(set(widths)) == 1 else f"{', '.join(widths[:-1])} and {widths[-1]}"
    return f"{data.name}: {len(data.clients)} parties with {columns} columns; {rows} rows{capped}"


def write_document(done: Comparison) -> None:
    """What is not in the folder of the final experiment, for programs and for `report`."""
    facts = {
        "command": done.command,
        "commit": done.commit,
        "data": done.data,
        "left_out": done.left_out,
        "trials": [msgspec.to_builtins(trial) for trial in done.found.trials],
        "methods": done.found.tables,
    }
    with replacing(done.folder / DOCUMENT) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(facts)) + b"\n")
