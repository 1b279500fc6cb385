"""Algorithms of Colonnade as scikit-learn estimators.

The parties are simulated in this process. Each holds some columns of X and scales them by itself;
the labels are where the algorithm has them. Prediction runs the algorithm's own choreography.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from colonnade.algorithms.method_table import parse_method
from colonnade.common.devices import computing_on
from colonnade.common.metric_names import Weights
from colonnade.common.processes import one_thread
from colonnade.data import VerticalData, from_arrays
from colonnade.data.mapping import check as check_columns
from colonnade.data.partition import columns_by_name
from colonnade.errors import InputError
from colonnade.estimators.trained import Trained
from colonnade.experiments.config import parse_fault
from colonnade.experiments.run import Curve, build, drive
from colonnade.learning.settings import Settings
from colonnade.learning.training import Point
from colonnade.network import Fault
from colonnade.network.ledger_rows import ledger_rows

OWN = ("algorithm", "encoder", "head", "epochs", "batch", "lr", "optimizer")

Columns = Sequence[str] | Sequence[int]


class VFLEstimator(BaseEstimator):
    """What a classifier and a regressor have in common: parameters, parties, training."""

    feature_names_in_: NDArray[np.str_]  # only where X has names

    def __init__(
        self,
        algorithm: str = "splitnn",
        parties: int | Mapping[str, Columns] = 2,
        encoder: Sequence[int] | Callable[[int], nn.Module] | None = None,
        head: Sequence[int] | Callable[[int, int], nn.Module] | None = None,
        epochs: int | None = None,
        batch: int = 64,
        lr: float | dict[str, float] = 1e-3,
        optimizer: str = "adam",
        validation: float = 0.1,
        faults: Mapping[str, Any] | Fault | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        metric: str | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.parties = parties
        self.encoder = encoder
        self.head = head
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.optimizer = optimizer
        self.validation = validation
        self.faults = faults
        self.options = options
        self.random_state = random_state
        self.verbose = verbose
        self.metric = metric

    def _train(self, X: NDArray[Any], y: NDArray[Any], weights: Weights | None = None) -> None:
        """Train over the parties; whole numbers in y are classes."""
        settings, fault, seed = self._settings(), self._fault(), self._seed()
        data = self._deal(X, y, seed, weights)
        with one_thread(), computing_on(settings.device):
            algorithm, net = build(settings, data, seed, fault=fault)
            curve = Curve(net)
            algorithm.training.watch = self._watch(curve)
            drive(algorithm.train(net))
        self.model_ = Trained.of(algorithm, data, fault)
        self.parties_ = list(data.clients)
        self.ledger_ = ledger_rows(net.ledger)
        self.history_ = curve.points

    def _check_parameters(self) -> None:
        """Bad ones are told before the data is looked at."""
        self._settings()
        self._fault()

    def _answers(self, X: Any) -> NDArray[Any]:
        """Logits, or numbers in the unit of y. [rows, outputs]"""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, reset=False)
        with one_thread():
            return self.model_.answers(X).numpy()

    # -- parameters into the terms of an experiment -----------------------------------------------

    def _settings(self) -> Settings:
        """Checked as a `[[methods]]` table is."""
        options = _table(self.options or {}, "options", '{"missing": "stale"}')
        given = _table({key: getattr(self, key) for key in OWN}, "", "")
        for key in options:
            if key in given:
                raise InputError(f"options: {key} is a parameter of its own; pass {key}=…")
        return parse_method(given | options, type(self).__name__)

    def _fault(self) -> Fault:
        if isinstance(self.faults, Fault):
            self.faults.check()
            return self.faults
        table = _table(self.faults or {}, "faults", '{"kind": "connection", "down": 0.3}')
        return parse_fault({"name": "faults", **table}, "faults")

    def _seed(self) -> int:
        """A number is the seed itself, as in an experiment; None leaves numpy's global stream
        alone."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        if self.random_state is None:
            return int(np.random.default_rng().integers(2**31))
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _deal(
        self, X: NDArray[Any], y: NDArray[Any], seed: int, weights: Weights | None
    ) -> VerticalData:
        """The columns to their holders; no validation rows where they would cost a whole class."""
        with _naming_parameters():
            facts = {**self._held(X.shape[1]), "metric": self.metric, "weights": weights}
            facts |= {"seed": seed, "name": "X"}
            data = from_arrays(X, y, **facts, validation=self.validation)
            if not data.classes or len(data.train.y.unique()) == data.classes:
                return data
            return from_arrays(X, y, **facts, validation=0.0)

    def _held(self, width: int) -> dict[str, Any]:
        """Who holds which columns, as `from_arrays` takes it."""
        parties = self.parties
        if isinstance(parties, Mapping):
            names = [str(name) for name in getattr(self, "feature_names_in_", range(width))]
            named = {
                str(party): [_name(column, names, str(party)) for column in columns]
                for party, columns in parties.items()
            }
            check_columns(named, names, "X")
            parts = columns_by_name(names, named).parts
            return {"columns": [part.columns for part in parts], "clients": list(named)}
        if isinstance(parties, bool) or not isinstance(parties, Integral):
            raise InputError(f"parties: expected a number or a dict of columns, got {parties!r}")
        if not 1 <= parties <= width:
            raise InputError(
                f"parties = {parties}: X has {width} feature(s), so it takes 1 to {width} parties"
            )
        return {"parties": int(parties)}

    def _watch(self, curve: Curve) -> Callable[[Point], None]:
        def watch(point: Point) -> None:
            curve.add(point)
            if self.verbose:
                figures = ", ".join(f"{key} {value:.4g}" for key, value in point.metrics.items())
                print(f"epoch {point.epoch}: {figures}")

        return watch


@contextmanager
def _naming_parameters() -> Iterator[None]:
    """The data layer names keys of the experiment file; here they are parameters."""
    try:
        yield
    except InputError as error:
        text = str(error).replace("data.columns", "parties")
        raise InputError(text.replace("data.validation", "validation")) from None


def _name(column: Any, names: Sequence[str], party: str) -> str:
    if not isinstance(column, Integral):
        return str(column)
    if not 0 <= int(column) < len(names):
        raise InputError(
            f"parties: {party!r} gets column {column}, but X has columns 0 to {len(names) - 1}"
        )
    return names[int(column)]


def _table(given: Any, parameter: str, example: str) -> dict[str, Any]:
    """A dict with plain values: those of a parameter grid are often numpy's."""
    if not isinstance(given, Mapping):
        raise InputError(f"{parameter}: expected a dict such as {example}, got {given!r}")
    numpys = (np.generic, np.ndarray)
    return {k: v.tolist() if isinstance(v, numpys) else v for k, v in given.items()}
