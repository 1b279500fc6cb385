"""Numbers from columns that several parties hold, behind scikit-learn's conventions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from colonnade.errors import InputError
from colonnade.estimators.regressor import VFLRegressor

DIABETES: Any = load_diabetes()
SPLIT: Any = train_test_split(DIABETES.data, DIABETES.target, random_state=0)
X_TRAIN, X_TEST, Y_TRAIN, Y_TEST = SPLIT


def quick(**parameters: Any) -> VFLRegressor:
    return VFLRegressor(**{"epochs": 30, "lr": 3e-3, "random_state": 0, **parameters})


# None is expected to fail. The defaults differ in more epochs only, which cost minutes here.
@parametrize_with_checks([VFLRegressor(epochs=40)])
def test_scikit_learn_takes_it_for_one_of_its_own(estimator: Any, check: Callable[..., None]):
    check(estimator)


# dvfl and fedonce learn by SGD, with a rate for each group.
BY_SGD = {
    "dvfl": {"clients": 2e-3, "aggregators": 2e-3, "owner": 8e-2},
    "fedonce": {"clients": 2e-3, "server": 8e-2},
}


@pytest.mark.parametrize("algorithm", ["splitnn", "mags", "centralised", *BY_SGD])
def test_every_algorithm_is_as_good_as_ridge_regression(algorithm: str):
    own = {"lr": BY_SGD[algorithm], "optimizer": "sgd"} if algorithm in BY_SGD else {}
    model = quick(algorithm=algorithm, parties=3, epochs=60, **own).fit(X_TRAIN, Y_TRAIN)
    ridge = Ridge().fit(X_TRAIN, Y_TRAIN)
    assert model.score(X_TEST, Y_TEST) > ridge.score(X_TEST, Y_TEST) - 0.1


def test_predictions_are_in_the_unit_of_the_label():
    """Other units of the label are other units of the predictions, and nothing else."""
    plain = quick().fit(X_TRAIN, Y_TRAIN)
    other = quick().fit(X_TRAIN, 1e6 + 1e-3 * Y_TRAIN)
    expected = plain.predict(X_TEST)
    np.testing.assert_allclose((other.predict(X_TEST) - 1e6) * 1e3, expected, rtol=1e-3)
    assert 25 < expected.min() < expected.max() < 350
    assert plain.score(X_TEST, Y_TEST) == pytest.approx(
        other.score(X_TEST, 1e6 + 1e-3 * Y_TEST), abs=1e-4
    )


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_predicts_the_same(how: Callable[[VFLRegressor], VFLRegressor]):
    model = quick(epochs=3).fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_array_equal(how(model).predict(X_TEST), model.predict(X_TEST))


def test_the_history_tells_the_error_in_the_unit_of_the_label():
    model = quick(metric="mae").fit(X_TRAIN, Y_TRAIN)
    last = model.history_[-1]
    assert {"train_loss", "validation_loss", "validation_rmse", "validation_mae"} <= set(last)
    assert 30 < last["validation_mae"] < last["validation_rmse"] < 90


def test_whole_numbers_are_numbers_here():
    model = quick(epochs=3).fit(X_TRAIN, Y_TRAIN.astype(int))
    assert len(np.unique(model.predict(X_TEST))) > 100


def test_a_metric_of_classes_is_refused():
    with pytest.raises(InputError, match=r'metric = "auc": .* expected one of rmse, mae, r2'):
        quick(metric="auc").fit(X_TRAIN, Y_TRAIN)


def test_a_grid_search_finds_its_way():
    search = GridSearchCV(quick(epochs=5), {"lr": [1e-5, 1e-2]}, cv=2).fit(X_TRAIN, Y_TRAIN)
    assert search.best_params_ == {"lr": 1e-2}


def test_a_label_that_is_the_same_in_all_rows_is_told():
    with pytest.warns(UserWarning, match="all labels are 3; there is nothing to learn"):
        model = quick(epochs=1).fit(X_TRAIN, np.full(len(X_TRAIN), 3.0))
    np.testing.assert_allclose(model.predict(X_TEST), 3, atol=1)
