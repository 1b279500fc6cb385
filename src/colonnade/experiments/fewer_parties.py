"""The same method trained anew with some of its parties: those that contribute most, and, to
compare, as many of those that contribute least."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.explanations import Fewer
from colonnade.data import VerticalData
from colonnade.experiments.config import Experiment
from colonnade.experiments.run import RunSpec, build, drive
from colonnade.experiments.runner import NoObserver, Observer
from colonnade.experiments.trained_model import TrainedModel
from colonnade.learning.algorithm import Algorithm
from colonnade.learning.coalitions import ORDERS, shapley
from colonnade.network import Fault, StackedNetwork

CALM = Fault(name="none")


def fewer_parties(
    experiment: Experiment,
    spec: RunSpec,
    data: VerticalData,
    trained: TrainedModel,
    share: float,
    orders: int,
    observer: Observer,
) -> Fewer:
    """With the parties that contribute most, and with as many that contribute least."""
    all_score = trained.score(frozenset(trained.parties))
    ranked, ranked_by = ranking(trained, orders)
    chosen = _ends(ranked, share)
    scores = {}
    for end, parties in chosen.items():
        name = f"{spec.run} {end}"
        scores[end] = _score(experiment, spec, data.only(parties), observer, name)
        observer.finish(name)
    return Fewer(
        share=share,
        ranked_by=ranked_by,
        **chosen,
        all_score=all_score,
        best_score=scores["best"],
        worst_score=scores["worst"],
    )


def summaries(
    experiment: Experiment,
    spec: RunSpec,
    data: VerticalData,
    algorithm: Algorithm,
    net: StackedNetwork,
) -> dict[str, float]:
    """For each share of the experiment's `summarise`: the deciding metric with the parties that
    contribute most and with those that contribute least."""
    held = algorithm.data
    ranked, _ = ranking(TrainedModel(algorithm, net.facing(CALM), held.test), ORDERS)
    algorithm.data = held
    deciding, found = algorithm.task.goal.deciding, {}
    for share in experiment.summarise or ():
        for end, parties in _ends(ranked, share).items():
            score = _score(experiment, spec, data.only(parties), NoObserver(), spec.run)
            found[f"{end}_{share:g}_{deciding.key}"] = deciding.score(score)  # its own inverse
    return found


def ranking(trained: TrainedModel, orders: int) -> tuple[list[str], str]:
    """Who contributes most comes first, and by what that was found: what the model itself says of
    its parties, where it does; else Shapley values on validation rows, if there are any, because
    test rows must not choose."""
    algorithm, everyone = trained.algorithm, trained.parties
    values, ranked_by = algorithm.importance(trained.net), "the weights of the model"
    if values is None:
        test, held_back = trained.part, algorithm.data.validation
        ranked_by = f"Shapley values on {'validation' if held_back.rows else 'test'} rows"
        trained.look_at(held_back if held_back.rows else test)
        with trained.embedded_once():
            seed = algorithm.task.seed
            values = shapley(everyone, trained.score, orders=orders, seed=seed).values
        trained.look_at(test)
    return sorted(everyone, key=lambda party: -values[party]), ranked_by


def _ends(ranked: Sequence[str], share: float) -> dict[str, list[str]]:
    """The first and the last parties of a ranking: this share of all, at least one, never all."""
    kept = min(len(ranked) - 1, max(1, round(share * len(ranked))))
    return {"best": list(ranked[:kept]), "worst": list(ranked[-kept:])}


def _score(
    experiment: Experiment, spec: RunSpec, data: VerticalData, observer: Observer, name: str
) -> float:
    """Of a model trained on this data as the spec says, on the test rows, without faults."""
    facts = {"topology": experiment.network.graph, "delays": experiment.network.delays}
    algorithm, net = build(spec.settings, data, spec.seed, fault=spec.fault, **facts)
    rounds = algorithm.total_rounds
    net.watch = lambda round: observer.advance(name, min(1.0, round / rounds))
    drive(algorithm.train(net))
    calm = net.facing(CALM).within("inference")
    return algorithm.task.goal.deciding.score(drive(algorithm.score(calm)))
