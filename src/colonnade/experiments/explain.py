"""Which party contributed what: measures of the trained models of an output folder.

Every measure asks the trained model about the same rows: without a party's columns, with noise in
their place, or with the columns of some coalition of parties only. See
docs/explanation/explanations.md for what each of them means.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from colonnade.algorithms import registry
from colonnade.common.explanations import Explanation, PartyExplanation, Verdict
from colonnade.common.processes import one_thread
from colonnade.common.results import CONFIG, Result, read_results
from colonnade.common.seeds import torch_stream
from colonnade.common.text import nearest
from colonnade.data import VerticalData, load
from colonnade.errors import InputError, Unanswerable
from colonnade.experiments.config import Experiment, parse_experiment
from colonnade.experiments.fewer_parties import fewer_parties
from colonnade.experiments.run import Cell, build, drive
from colonnade.experiments.runner import Observer, Silence, grid
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.coalitions import ORDERS, Shapley, evaluations, shapley
from colonnade.learning.readout import LEAST, tells
from colonnade.learning.task import Part
from colonnade.models.stack import Stack
from colonnade.network import StackedNetwork

DRAWS = 3  # of the noise, for each party
POINTS = 150  # rows on a map
TO_FIT = 4000  # training rows that embeddings are read by, at most

MapKind = Literal["pca", "tsne", "none"]


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
    ask, observer = ask or Ask(), observer or Silence()
    ask.check()
    experiment = read_folder(folder)
    chosen = _chosen(experiment, read_results(folder), ask, folder)
    observer.begin(len(chosen) * (1 if ask.summarise is None else 3), 0)
    found = []
    for result in chosen:
        found.append(_explain(folder, experiment, result, ask, observer))
        found[-1].write(folder)
    return found


def read_folder(folder: Path) -> Experiment:
    """The experiment of an output folder, whose own code is what it was."""
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder}: not an output folder (no {CONFIG}); give that of a run")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a resolved experiment file: {error}") from None
    if "method" in table:
        raise InputError(
            f"{folder}: the folder of a real party; give its party file (its label holder's, where "
            "there is one) while the parties run, or the folder of `colonnade up`"
        )
    experiment = parse_experiment(table, str(path))
    for name, digest in (experiment.sha256 or {}).items():
        if table.get("sha256", {}).get(name) != digest:
            raise InputError(f"{folder}: the code of {name} has changed since; run anew")
    return experiment


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
    pooled = {m.name for m in experiment.methods if registry()[m.algorithm].pooled}
    chosen = [first[m.name] for m in experiment.methods if m.name in first and m.name not in pooled]
    if not chosen:
        raise InputError(
            f"{', '.join(first)}: one party holds all columns, so that there is nobody to compare"
        )
    return chosen


def _explain(
    folder: Path, experiment: Experiment, result: Result, ask: Ask, observer: Observer
) -> Explanation:
    started = time.perf_counter()
    cell = next(r for r in grid(experiment) if r.key(experiment) == result.key).cell(experiment)
    data = load(experiment.data, result.seed)
    if result.data and data.fingerprint() != result.data:
        raise InputError(
            f"{folder}, {result.run}: the data has changed since this run, and its model cannot be "
            "explained by other rows; restore the data, or run anew with --fresh"
        )
    if not data.test.y.numel():
        raise InputError(f"{folder}: there are no test rows to explain by; set data.test")
    trained = trained_model(folder, experiment, cell, data)
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
        fewer = fewer_parties(experiment, cell, data, trained, ask.summarise, ask.orders, observer)
        found = msgspec.structs.replace(found, fewer=fewer)
    seconds = round(time.perf_counter() - started, 3)
    return msgspec.structs.replace(found, seconds=seconds, evaluations=trained.asked)


class TrainedModel:
    """A trained model with all its parties in this process, to ask it about some rows."""

    def __init__(self, algorithm: Algorithm, net: StackedNetwork, part: Part) -> None:
        self.algorithm, self.net = algorithm, net
        self.asked = 0  # evaluations on all rows
        self.watch: Callable[[int], None] = lambda asked: None
        self._memory: Memory | None = None
        self.look_at(part)

    @property
    def parties(self) -> tuple[str, ...]:
        return self.algorithm.task.clients

    @property
    def part(self) -> Part:
        return self.algorithm.data.test

    def look_at(self, part: Part) -> None:
        """Ask about these rows from now on. They are a part of their own: an algorithm may know
        others from the training."""
        self.algorithm.data = replace(self.algorithm.data, test=replace(part))

    def score(self, heard: frozenset[str]) -> float:
        """Of the model that hears of these parties' columns only; higher is better. Where too few
        of them are heard for an answer, the prior of the training labels answers."""
        algorithm, apart = self.algorithm, self.net.within("inference")
        apart.without = frozenset(self.parties) - heard
        if self._memory is not None:
            self._memory.next = 0
        try:
            value = drive(algorithm.score(apart))
        except Unanswerable:
            value = algorithm.blind_score()
        self.asked += 1
        self.watch(self.asked)
        return algorithm.task.goal.deciding.score(value)

    @contextmanager
    def embedded_once(self) -> Iterator[None]:
        """Coalitions differ in who is heard, not in what is said: within the block, encoders
        compute each batch once."""
        known = self.algorithm.stacks.get("encoder")
        if known is None:
            yield
            return
        self._memory = Memory(known[1])
        vars(known[1])["predict"] = self._memory
        try:
            yield
        finally:
            del vars(known[1])["predict"]
            self._memory = None

    def noised(self, party: str, sigma: float) -> tuple[float, ...]:
        """Scores when Gaussian noise takes the place of a party's columns: each with the mean of
        the column, and `sigma` times its standard deviation."""
        part, i = self.part, self.parties.index(party)
        own = part.x[i, :, : self.algorithm.task.widths[i]]
        mean, spread = own.mean(0), own.std(0, correction=0)
        scores = []
        for draw in range(DRAWS):
            stream = torch_stream(self.algorithm.task.seed, party, "noised", draw)
            x = part.x.clone()
            normal = torch.randn(own.shape, generator=stream)
            x[i, :, : own.shape[1]] = mean + sigma * spread * normal
            self.look_at(replace(part, x=x))
            scores.append(self.score(frozenset(self.parties)))
        self.look_at(part)
        return tuple(scores)

    def error(self) -> float:
        """The standard error of the score with all parties, from the choice of rows."""
        outputs = drive(self.algorithm.predict(self.net.within("inference"), self.part))
        return self.algorithm.task.goal.deciding.error(
            self.algorithm.unscaled(outputs), self.part.y
        )

    def tells(self) -> dict[str, tuple[float | None, Verdict]] | None:
        """Whether each party's embeddings have anything to do with the labels; None where nobody
        sees them."""
        train = self.algorithm.data.train
        few = replace(
            train, x=train.x[:, :TO_FIT], y=train.y[:TO_FIT], rows=min(TO_FIT, train.rows)
        )
        known, new = self.algorithm.embed(few), self.algorithm.embed(self.part)
        if known is None or new is None:
            return None
        found = {}
        for i, party in enumerate(self.parties):
            pair = (known[i], few.y), (new[i], self.part.y)
            told = tells(*pair, self.algorithm.task.classes)
            noise = told is not None and told < LEAST
            verdict = "the same for every row" if told is None else "looks like noise" * noise
            found[party] = told, verdict
        return found


class Memory:
    """What a stack gave for each batch, to be given again in the same order."""

    def __init__(self, stack: Stack) -> None:
        self.compute, self.known, self.next = stack.predict, list[Tensor](), 0

    def __call__(self, x: Tensor) -> Tensor:
        if self.next == len(self.known):
            self.known.append(self.compute(x))
        self.next += 1
        return self.known[self.next - 1]


def trained_model(
    folder: Path, experiment: Experiment, cell: Cell, data: VerticalData
) -> TrainedModel:
    """The model of a run, as it was saved. Nothing fails and nothing takes time while it is
    asked."""
    models = folder / "models" / cell.run
    algorithm, net = build(cell.settings, data, cell.seed, topology=experiment.network.graph)
    try:
        algorithm.load(models, net)
    except (OSError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{models}: the models of this run cannot be read ({error}); run it anew with --fresh"
        ) from error
    return TrainedModel(algorithm, net, algorithm.data.test)


def _put_together(
    trained: TrainedModel,
    result: Result,
    shares: Shapley,
    noised: dict[str, tuple[float, ...]],
    ask: Ask,
) -> Explanation:
    own, told = trained.algorithm.importance() or {}, trained.tells() or {}
    places = points(trained, ask.map)
    parties = []
    for party in trained.parties:
        scores = torch.tensor(noised[party], dtype=torch.float64)
        number, verdict = told.get(party, (None, None))
        parties.append(
            PartyExplanation(
                party=party,
                shapley=shares.values[party],
                shapley_error=shares.errors and shares.errors[party],
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


def points(trained: TrainedModel, how: MapKind) -> dict[str, list[tuple[float, float]]]:
    """By party: the places of its embeddings of some rows on a map."""
    part = trained.part
    few = min(POINTS, part.rows)
    embedded = trained.algorithm.embed(replace(part, x=part.x[:, :few], y=part.y[:few], rows=few))
    if embedded is None or how == "none" or few < 4:
        return {}
    flat = _principal if how == "pca" else _neighbourly
    found = {}
    for party, h in zip(trained.parties, embedded.double(), strict=True):
        places = flat(h - h.mean(0))
        found[party] = [(round(x, 4), round(y, 4)) for x, y in places.tolist()]
    return found


def _principal(h: Tensor) -> Tensor:
    """The two directions in which the embeddings differ most. [rows, 2]"""
    _, _, directions = torch.linalg.svd(h, full_matrices=False)
    two = torch.zeros(2, h.shape[1], dtype=h.dtype)
    two[: len(directions[:2])] = directions[:2]
    strongest = two.gather(1, two.abs().argmax(1, keepdim=True))
    return h @ (two * strongest.sign()).T  # the sign of a direction is anybody's choice


def _neighbourly(h: Tensor) -> Tensor:
    """By t-SNE, which keeps neighbours near each other, and nothing else. [rows, 2]"""
    from sklearn.manifold import TSNE

    if float(h.abs().max()) == 0:
        return torch.zeros(len(h), 2)
    likely = min(30.0, (len(h) - 1) / 3)
    made: Any = TSNE(perplexity=likely, init="pca", random_state=0).fit_transform(h.numpy())
    return torch.from_numpy(made)
