"""The same method trained anew with some of its parties: those that contribute most, and, to
compare, as many of those that contribute least."""

from __future__ import annotations

from colonnade.common.explanations import Fewer
from colonnade.data import VerticalData
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import RunSpec, build, drive
from colonnade.experiments.runner import Observer
from colonnade.experiments.trained_model import TrainedModel
from colonnade.learning.coalitions import shapley
from colonnade.network import Fault


def fewer_parties(
    experiment: Experiment,
    spec: RunSpec,
    data: VerticalData,
    trained: TrainedModel,
    share: float,
    orders: int,
    observer: Observer,
) -> Fewer:
    """Parties are ranked on validation rows, if there are any: test rows must not choose."""
    everyone, test, held_back = trained.parties, trained.part, trained.algorithm.data.validation
    ranked_on = "validation" if held_back.rows else "test"
    all_score = trained.score(frozenset(everyone))
    if held_back.rows:
        trained.look_at(held_back)
    with trained.embedded_once():
        values = shapley(everyone, trained.score, orders=orders, seed=spec.seed).values
    trained.look_at(test)
    ranked = sorted(everyone, key=lambda party: -values[party])
    kept = min(len(everyone) - 1, max(1, round(share * len(everyone))))
    chosen = {"best": ranked[:kept], "worst": ranked[-kept:]}
    scores = {}
    for name, parties in chosen.items():
        ordered = [party for party in everyone if party in parties]
        scores[name] = _score(experiment, spec, data.only(ordered), observer, f"{spec.run} {name}")
        observer.finish(f"{spec.run} {name}")
    return Fewer(
        share=share,
        ranked_on=ranked_on,
        **chosen,
        all_score=all_score,
        best_score=scores["best"],
        worst_score=scores["worst"],
    )


def _score(
    experiment: Experiment, spec: RunSpec, data: VerticalData, observer: Observer, name: str
) -> float:
    """Of a model trained on this data as the spec says, on the test rows, without faults."""
    facts = {"topology": experiment.network.graph, "delays": experiment.network.delays}
    algorithm, net = build(spec.settings, data, spec.seed, fault=spec.fault, **facts)
    rounds = algorithm.total_rounds
    net.watch = lambda round: observer.advance(name, min(1.0, round / rounds))
    drive(algorithm.train(net))
    calm = net.facing(Fault(name="none")).within("inference")
    return algorithm.task.goal.deciding.score(drive(algorithm.score(calm)))
