"""Which party contributed what: measures of the trained models of an output folder.

Every measure asks the trained model about the same rows: without a party's columns, with noise in
their place, or with the columns of some coalition of parties only. See
docs/explanation/explanations.md for what each of them means.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from colonnade.common.explanations import Explanation, PartyExplanation, read_explanations
from colonnade.common.processes import one_thread
from colonnade.common.results import Result, read_results
from colonnade.common.text import nearest
from colonnade.data import load
from colonnade.errors import InputError
from colonnade.experiments.config import Experiment, read_folder
from colonnade.experiments.embedding_map import POINTS, MapKind, points
from colonnade.experiments.fewer_parties import fewer_parties
from colonnade.experiments.runner import NoObserver, Observer, grid
from colonnade.experiments.trained_model import DRAWS, TrainedModel, trained_model
from colonnade.learning.coalitions import ORDERS, Shapley, evaluations, shapley


@dataclass(frozen=True)
class Ask:
    """What is to be explained, and how. None: all methods; the first kind of faults and the first
    seed that have a result."""

    method: str | None = None
    faults: str | None = None
    seed: int | None = None
    sigma: float = 1.0  # of the noise, in units of each column's own standard deviation
    orders: int = ORDERS  # sampled for Shapley values, where the parties are many
    map: MapKind = "pca"
    summarise: float | None = None  # train anew with this share of the parties

    def check(self) -> None:
        if not 0 < self.sigma < float("inf"):
            raise InputError(f"sigma = {self.sigma:g}: expected a number above 0")
        if self.orders < 2:
            raise InputError(f"orders = {self.orders}: expected 2 or more")
        if self.summarise is not None and not 0 < self.summarise < 1:
            raise InputError(
                f"summarise = {self.summarise:g}: expected a share of the parties above 0, below 1"
            )


@one_thread()
def explain_folder(
    folder: Path, ask: Ask | None = None, observer: Observer | None = None
) -> list[Explanation]:
    """Explain runs of an output folder, and keep the explanations there."""
    ask, observer = ask or Ask(), observer or NoObserver()
    ask.check()
    experiment = read_folder(folder)
    chosen = _chosen(experiment, read_results(folder), ask, folder)
    observer.begin(len(chosen) * (1 if ask.summarise is None else 3), 0)
    found = []
    for result in chosen:
        found.append(_explain(folder, experiment, result, ask, observer))
        found[-1].write(folder)
    return found


def explain_every_run(folder: Path, ask: Ask, observer: Observer) -> None:
    """Explain those runs of an output folder that have a result and no explanation yet, whatever
    their faults and their seed, and keep the explanations there."""
    ask.check()
    experiment, told = read_folder(folder), {one.run for one in read_explanations(folder)}
    pooled = _pooled(experiment)
    done = {r.run: r for r in read_results(folder) if r.method not in pooled}
    missing = [result for run, result in done.items() if run not in told]
    observer.begin(len(done), len(done) - len(missing))
    for result in missing:
        _explain(folder, experiment, result, ask, observer).write(folder)


def _chosen(
    experiment: Experiment, results: Sequence[Result], ask: Ask, folder: Path
) -> list[Result]:
    """Runs with a result, in the order of the grid: of each method one."""
    known = {result.key: result for result in results}
    done = [known[key] for run in grid(experiment) if (key := run.key(experiment)) in known]
    if not done:
        raise InputError(f"{folder}: no finished runs yet; `colonnade run` goes on from there")
    for key in ("method", "faults", "seed"):
        wanted, there = getattr(ask, key), list(dict.fromkeys(getattr(r, key) for r in done))
        if wanted is not None and wanted not in there:
            close = nearest(str(wanted), [str(one) for one in there])
            listed = ", ".join(map(str, there))
            raise InputError(f"{key}: no finished run of {wanted!r}{close}; there are {listed}")
        if wanted is not None:
            done = [result for result in done if getattr(result, key) == wanted]
    first = {result.method: result for result in reversed(done)}
    pooled = _pooled(experiment)
    chosen = [first[m.name] for m in experiment.methods if m.name in first and m.name not in pooled]
    if not chosen:
        raise InputError(
            f"{', '.join(first)}: one party holds all columns, so that there is nobody to compare"
        )
    return chosen


def _pooled(experiment: Experiment) -> set[str]:
    """The methods with one party only, which there is nobody to compare with."""
    return {m.name for m in experiment.methods if m.pooled}


def _explain(
    folder: Path, experiment: Experiment, result: Result, ask: Ask, observer: Observer
) -> Explanation:
    started = time.perf_counter()
    spec = next(r for r in grid(experiment) if r.key(experiment) == result.key).spec(experiment)
    data = load(experiment.data, result.seed)
    if result.data and data.fingerprint != result.data:
        raise InputError(
            f"{folder}, {result.run}: the data has changed since this run, and its model cannot be "
            "explained by other rows; restore the data, or run anew with --fresh"
        )
    if not data.test.y.numel():
        raise InputError(f"{folder}: there are no test rows to explain by; set data.test")
    trained = trained_model(folder, experiment, spec, data)
    parties, draws = data.clients, DRAWS * len(data.clients)
    total = evaluations(len(parties), ask.orders) + draws
    trained.watch = lambda done: observer.advance(result.run, min(1.0, done / total))
    with trained.embedded_once():
        shares = shapley(parties, trained.score, orders=ask.orders, seed=result.seed)
    noised = {party: trained.noised(party, ask.sigma) for party in parties}
    observer.finish(result.run)
    found = _put_together(trained, result, shares, noised, ask)
    if not result.data:
        found.notes.append(
            "made before runs kept a fingerprint: whether the data is the same is not known"
        )
    if ask.summarise is not None:
        fewer = fewer_parties(experiment, spec, data, trained, ask.summarise, ask.orders, observer)
        found = msgspec.structs.replace(found, fewer=fewer)
    seconds = round(time.perf_counter() - started, 3)
    return msgspec.structs.replace(found, seconds=seconds, evaluations=trained.asked)


def _put_together(
    trained: TrainedModel,
    result: Result,
    shares: Shapley,
    noised: dict[str, tuple[float, ...]],
    ask: Ask,
) -> Explanation:
    own, told = trained.algorithm.importance(trained.net) or {}, trained.tells() or {}
    places = points(trained, ask.map)
    parties = []
    for party in trained.parties:
        scores = torch.tensor(noised[party], dtype=torch.float64)
        number, verdict = told.get(party, (None, None))
        parties.append(
            PartyExplanation(
                party=party,
                shapley=shares.values[party],
                shapley_error=shares.error(party),
                absent=shares.full - shares.without[party],
                noised=shares.full - float(scores.mean()),
                noised_error=float(scores.std()) / len(scores) ** 0.5,
                importance=own.get(party),
                tells=number,
                verdict=verdict,
                points=places.get(party, []),
            )
        )
    key = trained.algorithm.task.goal.deciding.key
    return Explanation(
        **{name: getattr(result, name) for name in ("method", "faults", "seed", "run")},
        metric=f"test_{key}",
        rows=trained.part.rows,
        full=shares.full,
        empty=shares.empty,
        error=trained.error(),
        sigma=ask.sigma,
        parties=parties,
        evaluations=0,
        seconds=0.0,
        labels=trained.part.y[:POINTS].tolist() if places else [],
        map=ask.map if places else "",
        notes=list[str](),
    )
