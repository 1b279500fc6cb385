"""`VFLClassifier`: classes from columns that several parties hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import nn

from colonnade.data.raw import class_cautions
from colonnade.errors import InputError
from colonnade.estimators.base import Columns, VFLEstimator
from colonnade.network import Fault


class VFLClassifier(ClassifierMixin, VFLEstimator):
    """Vertical federated learning with scikit-learn's conventions.

    `parties`: a number (neighbouring columns, evenly), or the columns of each party by name or
    number. `encoder`, `head`: layer widths, or factories `width → Module` and `(width, classes) →
    Module`. `faults`: a `[[faults]]` table. `options`: further keys of the algorithm's
    `[[methods]]` table. `metric`: decides on validation rows which epoch is the best.
    `weights`: None or "balanced". The other parameters are as in a `[[methods]]` table.

    After `fit`: `classes_`, `n_features_in_`, `feature_names_in_`, `parties_` (names), `ledger_`
    (what left each party) and `history_` (the training curve).
    """

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
        weights: Literal["balanced"] | None = None,
    ) -> None:
        super().__init__(
            algorithm=algorithm,
            parties=parties,
            encoder=encoder,
            head=head,
            epochs=epochs,
            batch=batch,
            lr=lr,
            optimizer=optimizer,
            validation=validation,
            faults=faults,
            options=options,
            random_state=random_state,
            verbose=verbose,
            metric=metric,
        )
        self.weights: Literal["balanced"] | None = weights

    def fit(self, X: Any, y: Any) -> Self:
        """Train over the parties. Bad parameters and bad data raise InputError, a ValueError."""
        self._check_parameters()
        if self.weights not in (None, "balanced"):
            raise InputError(f'weights = {self.weights!r}: expected None or "balanced"')
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y holds one class only ({classes[0]}); at least two are needed")
        for caution in class_cautions(classes, len(y), "y", "take VFLRegressor."):
            warnings.warn(caution, UserWarning, stacklevel=2)
        self._train(X, codes, self.weights)
        self.classes_ = classes
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Class probabilities [rows, classes], in the order of `classes_`."""
        return torch.softmax(torch.from_numpy(self._answers(X)), 1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]
