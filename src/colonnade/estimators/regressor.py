"""`VFLRegressor`: numbers from columns that several parties hold."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from colonnade.estimators.base import VFLEstimator


class VFLRegressor(RegressorMixin, VFLEstimator):
    """Like `VFLClassifier`, for labels that are numbers. `head` may be a factory `(width, 1) →
    Module`; `metric` is rmse (usual), mae or r2. The label holder standardises the labels, and
    predictions are in the unit of y.

    After `fit`: `n_features_in_`, `feature_names_in_`, `parties_` (names), `ledger_` (what left
    each party) and `history_` (the training curve).
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train over the parties. Bad parameters and bad data raise InputError, a ValueError."""
        self._check_parameters()
        X, y = validate_data(self, X, y, y_numeric=True)
        if len(y) and (y == y[0]).all():
            told = f"y: all labels are {y[0]:g}; there is nothing to learn"
            warnings.warn(told, UserWarning, stacklevel=2)
        self._train(X, np.asarray(y, dtype=np.float64))
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The number of each row."""
        return self._answers(X)[:, 0]
