"""Federated methods beside the same network in one place and beside scikit-learn, seed by seed.

python examples/goals/compare.py examples/goals/diabetes.toml [--seeds 10] [--set KEY=VALUE]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import colonnade as cn
from colonnade.algorithms.splitnn import SplitNN
from colonnade.data import Rows, VerticalData, load
from colonnade.experiments.config import read_experiment
from colonnade.experiments.run import build
from colonnade.learning.goal import goal_of
from colonnade.learning.models import make_encoder, make_head

ONE_PLACE = "SplitNN's network, one place"
Figures = dict[str, dict[int, dict[str, float]]]  # by method, then by seed


def one_place(experiment: cn.Experiment, data: VerticalData, seed: int) -> dict[str, float]:
    """The network of split learning, from the same initial weights, trained on the same batches in
    one place by torch alone; the best epoch is chosen as a federation does."""
    settings = next(m for m in experiment.methods if m.algorithm == "splitnn")
    algorithm, _ = build(settings, data, seed)
    assert isinstance(algorithm, SplitNN)
    encoders, head = _modules(algorithm)
    assert isinstance(settings.lr, float)
    optimizer = torch.optim.Adam([*encoders.parameters(), *head.parameters()], settings.lr)

    def forward(rows: Rows, chosen: Tensor | slice = slice(None)) -> Tensor:
        return head(torch.cat([e(x[chosen]) for e, x in zip(encoders, rows.x, strict=True)], 1))

    training, best, kept = algorithm.training, (-np.inf, 0.0), None
    y = algorithm.scaled(data.train.y)
    for batch in (training.batches[round] for round in range(len(training.batches))):
        optimizer.zero_grad()
        algorithm.loss(forward(data.train, batch.rows)[None], y[batch.rows]).sum().backward()
        optimizer.step()
        if batch.last:
            with torch.no_grad():
                found = training.measure(forward(data.validation), data.validation.y)
            score = (found.score, -found.metrics["validation_loss"])
            training.count_patience(-score[1], better=score > best)
            if score > best:
                best = score
                with torch.no_grad():
                    kept = forward(data.test)
            if training.progress["waited"] >= training.patience:
                break
    assert kept is not None
    return algorithm.measure(kept, data.test.y, "test")


def _modules(algorithm: SplitNN) -> tuple[nn.ModuleList, nn.Module]:
    """Plain modules with the initial weights of an algorithm."""
    task, s = algorithm.task, algorithm.set
    pairs = zip(task.widths, task.shapes, strict=True)
    encoders = nn.ModuleList(make_encoder(s.encoder, *pair) for pair in pairs)
    head = make_head(s.head, sum(algorithm.embedding_widths), task.outputs)
    for i, encoder in enumerate(encoders):
        encoder.load_state_dict(algorithm.stacks["encoder"][1].member_state(i))
    head.load_state_dict(algorithm.stacks["head"][1].member_state(0))
    return encoders, head


def scikit_learn(data: VerticalData, seed: int) -> dict[str, dict[str, float]]:
    """Logistic or ridge regression, and a multi-layer perceptron, on the same training and
    validation rows."""
    parts = (data.train, data.validation)
    x = np.concatenate([torch.cat(part.x, 1).numpy() for part in parts])
    y = np.concatenate([part.y.numpy() for part in parts])
    test = torch.cat(data.test.x, 1).numpy()
    goal = goal_of(data.classes, data.metric)
    facts: dict[str, Any] = {"early_stopping": True, "max_iter": 500, "random_state": seed}
    facts |= {"hidden_layer_sizes": (64,), "n_iter_no_change": 50}
    if data.classes:
        models = (LogisticRegression(max_iter=1000), MLPClassifier(**facts))
        likely = [np.asarray(m.fit(x, y).predict_proba(test)) for m in models]
        said = [np.log(p.clip(1e-12)) for p in likely]
    else:
        standardised = TransformedTargetRegressor(
            MLPRegressor(**facts), transformer=StandardScaler()
        )
        models = (Ridge(), standardised)
        said = [m.fit(x, y).predict(test)[:, None] for m in models]
    names = ["scikit-learn's linear model", "scikit-learn's MLP"]
    tensors = [torch.from_numpy(one.astype(np.float64)) for one in said]
    measured = [goal.measure(t, data.test.y, "test", everything=True) for t in tensors]
    return dict(zip(names, measured, strict=True))


def measure(path: Path, seeds: int, overrides: Sequence[str]) -> tuple[Figures, tuple[str, ...]]:
    """All figures, and which metrics to show."""
    chosen = [*overrides, f"seeds={list(range(seeds))}"]
    experiment = read_experiment(path, chosen)
    figures: Figures = {}
    for result in cn.run(experiment).results:
        found = {k: v for k, v in result.metrics.items() if v is not None}
        figures.setdefault(result.method, {})[result.seed] = found
    for seed in experiment.seeds:
        data = load(experiment.data, seed)
        alone = {ONE_PLACE: one_place(experiment, data, seed), **scikit_learn(data, seed)}
        for name, found in alone.items():
            figures.setdefault(name, {})[seed] = found
    classes = load(experiment.data, 0).classes
    return figures, ("test_auc", "test_accuracy") if classes else ("test_r2", "test_rmse")


def table(figures: Figures, metric: str, beside: str = ONE_PLACE) -> Table:
    """Mean of each method, and its difference to another one at the same seeds."""
    shown = Table(title=f"{metric} over {len(figures[beside])} seeds")
    for title in ("method", "mean", f"mean − {beside}", "worst difference"):
        shown.add_column(title, justify="left" if title == "method" else "right")
    for name, found in figures.items():
        differences = [found[seed][metric] - figures[beside][seed][metric] for seed in found]
        worst = (max if metric.endswith("rmse") else min)(differences)
        mean = fmean(one[metric] for one in found.values())
        shown.add_row(name, f"{mean:.4f}", f"{fmean(differences):+.4f}", f"{worst:+.4f}")
    return shown


def main(arguments: Sequence[str] | None = None) -> Figures:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    figures, metrics = measure(given.file, given.seeds, given.set)
    for metric in metrics:
        Console(width=110).print(table(figures, metric))
    return figures


if __name__ == "__main__":
    main()
