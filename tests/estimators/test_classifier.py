"""A federation behind scikit-learn's conventions."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from colonnade.errors import ColonnadeError, InputError
from colonnade.estimators.classifier import VFLClassifier
from colonnade.network.faults import Client

WINE: Any = load_wine()
NAMES: list[str] = list(WINE.feature_names)


def quick(**parameters: Any) -> VFLClassifier:
    return VFLClassifier(**{"epochs": 25, "lr": 3e-3, "random_state": 0, **parameters})


def encoder(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 12), nn.LayerNorm(12), nn.Tanh())


def head(width: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Dropout(0.1), nn.Linear(width, classes))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# None is expected to fail. Without pandas and SCIPY_ARRAY_API two are skipped. The defaults differ
# in more epochs only, which cost minutes here.
@parametrize_with_checks([VFLClassifier(epochs=40)])
def test_scikit_learn_takes_it_for_one_of_its_own(estimator: Any, check: Callable[..., None]):
    check(estimator)


def test_four_parties_read_digits_together():
    digits: Any = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        digits.data, digits.target, stratify=digits.target, random_state=0
    )
    model = quick(parties=4, encoder=[32], head=[]).fit(x_train, y_train)
    assert model.score(x_test, y_test) > 0.93
    assert model.predict_proba(x_test).shape == (len(x_test), 10)


def test_the_metric_that_decides_is_chosen_by_name():
    model = quick(metric="auc", epochs=5).fit(WINE.data, WINE.target)
    assert "validation_auc" in model.history_[-1]
    with pytest.raises(InputError, match=r'metric = "r2": .* accuracy, balanced_accuracy, auc'):
        quick(metric="r2").fit(WINE.data, WINE.target)


def test_balanced_classes_find_more_rows_of_a_rare_class():
    rng = np.random.default_rng(0)
    y = (rng.random(800) < 0.08).astype(int)
    X = rng.normal(size=(800, 4)) + y[:, None]
    plain, balanced = (
        quick(weights=weight, metric="balanced_accuracy", epochs=15).fit(X[:400], y[:400])
        for weight in (None, "balanced")
    )
    found = [model.predict(X[400:])[y[400:] == 1].mean() for model in (plain, balanced)]
    assert found[1] > found[0] + 0.2
    with pytest.raises(InputError, match="weights = 'even': expected None or \"balanced\""):
        quick(weights="even").fit(X, y)


@pytest.mark.parametrize("faults", [None, {"kind": "connection", "down": 0.3, "up": 0.5}])
def test_equal_random_states_give_equal_models(faults: dict[str, Any] | None):
    one, other = (quick(epochs=5, faults=faults).fit(WINE.data, WINE.target) for _ in range(2))
    third = quick(epochs=5, faults=faults, random_state=1).fit(WINE.data, WINE.target)
    expected = one.predict_proba(WINE.data)
    np.testing.assert_array_equal(other.predict_proba(WINE.data), expected)
    assert other.history_ == one.history_
    assert not np.array_equal(third.predict_proba(WINE.data), expected)


def test_a_random_state_object_gives_a_new_model_at_each_fit():
    stream = np.random.RandomState(3)
    model = quick(epochs=2, random_state=stream)
    first = model.fit(WINE.data, WINE.target).predict_proba(WINE.data)
    second = model.fit(WINE.data, WINE.target).predict_proba(WINE.data)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("random_state", [None, 0])
def test_global_random_streams_and_threads_are_left_alone(random_state: int | None):
    torch.set_num_threads(2)
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()
    model = quick(epochs=2, random_state=random_state, encoder=encoder, head=head)
    model.fit(WINE.data, WINE.target).predict(WINE.data)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert all(
        np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_before, strict=True)
    )
    assert torch.get_num_threads() == 2


def test_a_grid_search_chooses_among_options():
    grid = {
        "vfl__options": [{"missing": "zeros"}, {"missing": "stale", "combine": "mean"}],
        "vfl__lr": np.logspace(-8, -2, 2),
    }
    vfl = quick(faults={"kind": "client", "down": 0.2})
    model = Pipeline([("bounded", MinMaxScaler()), ("vfl", vfl)])
    raising: Any = {"error_score": "raise"}
    search = GridSearchCV(model, grid, cv=2, **raising).fit(WINE.data, WINE.target)
    assert search.best_params_["vfl__lr"] == pytest.approx(0.01)
    assert search.best_score_ > 0.85


def test_own_modules_are_built_for_every_party():
    widths: list[int] = []

    def counting(width: int) -> nn.Module:
        widths.append(width)
        return encoder(width)

    model = quick(parties={"lab": range(3), "clinic": range(3, 13)}, encoder=counting, head=head)
    twin: Any = clone(model)
    assert twin.fit(WINE.data, WINE.target).score(WINE.data, WINE.target) > 0.9
    assert set(widths) == {3, 10}


def test_a_fitted_model_survives_pickling_and_copying():
    model = quick(epochs=3, encoder=encoder, options={"dropout": 0.2}).fit(WINE.data, WINE.target)
    expected = model.predict_proba(WINE.data)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(twin.predict_proba(WINE.data), expected)
        assert twin.ledger_ == model.ledger_


def test_a_pickled_model_carries_no_training_rows():
    small = pickle.dumps(quick(epochs=1, validation=0).fit(WINE.data, WINE.target))
    rows, labels = np.tile(WINE.data, (20, 1)), np.tile(WINE.target, 20)
    large = pickle.dumps(quick(epochs=1, validation=0).fit(rows, labels))
    assert len(large) < len(small) + 1000


def test_named_columns_go_to_named_parties():
    table = pl.DataFrame(WINE.data, schema=NAMES)
    model = quick(parties={"lab": NAMES[4:], "clinic": NAMES[:3]}).fit(table, WINE.target)
    assert model.parties_ == ["lab", "clinic"]
    assert list(model.feature_names_in_) == NAMES
    assert {row.sender for row in model.ledger_ if row.kind == "embedding"} == {"lab", "clinic"}
    blind = table.with_columns(pl.col(NAMES[3]) * 100)  # held by nobody
    np.testing.assert_array_equal(model.predict_proba(blind), model.predict_proba(table))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.select(NAMES[::-1]))


def test_columns_by_number_are_those_by_name():
    table = pl.DataFrame(WINE.data, schema=NAMES)
    by_name = quick(epochs=2, parties={"lab": NAMES[:5], "clinic": NAMES[5:]})
    by_number = quick(epochs=2, parties={"lab": range(5), "clinic": list(range(5, 13))})
    expected = by_name.fit(table, WINE.target).predict_proba(table)
    by_number.fit(WINE.data, WINE.target)
    np.testing.assert_array_equal(by_number.predict_proba(WINE.data), expected)


def test_the_ledger_and_the_curve_tell_what_training_cost():
    model = quick(epochs=4, parties=3).fit(WINE.data, WINE.target)
    assert [point["epoch"] for point in model.history_] == [1, 2, 3, 4]
    assert {"train_loss", "validation_accuracy", "bytes"} <= model.history_[-1].keys()
    trained = [row for row in model.ledger_ if row.phase == "training"]
    assert sum(row.bytes for row in trained) >= model.history_[-1]["bytes"] > 0
    assert {row.kind for row in trained} == {"embedding", "gradient", "decision"}


def test_faults_reach_prediction_only_when_they_are_said_to():
    gone = {"down": 1.0, "up": 0.0}
    calm = quick(faults={"kind": "client", "down": 0.1}).fit(WINE.data, WINE.target)
    assert calm.score(WINE.data, WINE.target) > 0.9
    blind = quick(faults=Client(name="gone", when="inference", **gone)).fit(WINE.data, WINE.target)
    answers = blind.predict_proba(WINE.data)
    assert (answers == answers[0]).all()  # nobody sends anything: all rows look alike
    assert blind.history_[-1]["validation_accuracy"] > 0.9


def test_a_class_of_one_row_is_trained_on_and_not_set_aside():
    rows = WINE.target < 2
    y = WINE.target[rows].astype(str)
    y[0] = "rare"
    for seed in range(3):
        model = quick(random_state=seed, epochs=2, validation=0.6).fit(WINE.data[rows], y)
        assert list(model.classes_) == ["0", "1", "rare"]
    two = quick(epochs=60, validation=0.5).fit(WINE.data[[0, 100]], ["red", "white"])
    assert two.history_
    assert not any("validation_accuracy" in point for point in two.history_)
    assert list(two.predict(WINE.data[[100, 0]])) == ["white", "red"]


def test_centralised_training_is_a_parameter_away():
    assert (
        quick(algorithm="centralised").fit(WINE.data, WINE.target).score(WINE.data, WINE.target)
        > 0.9
    )


def test_verbose_prints_a_line_per_epoch(capsys: pytest.CaptureFixture[str]):
    quick(epochs=3, verbose=True).fit(WINE.data, WINE.target)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("epoch 3: train_loss ")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"options": {"mising": "zeros"}}, "mising: unknown key; the nearest is 'missing'"),
        ({"options": {"epochs": 3}}, "options: epochs is a parameter of its own"),
        ({"options": "zeros"}, "options: expected a dict"),
        ({"algorithm": "spiltnn"}, "'spiltnn' is not known; the nearest is 'splitnn'"),
        ({"epochs": 0}, "epochs = 0: expected 1 or more"),
        ({"lr": "fast"}, "lr: expected"),
        ({"validation": 1.5}, "^validation = 1.5: must be a share"),
        ({"encoder": nn.Linear(2, 2)}, "encoder: got a module \\(Linear\\), expected a factory"),
        (
            {"faults": {"kind": "client", "dwn": 0.1}},
            "faults.dwn: unknown key; the nearest is 'down'",
        ),
        ({"faults": {"kind": "client", "down": 3.0}}, "faults.down = 3 is not a probability"),
        ({"faults": Client(name="x", down=3.0)}, "down = 3 is not a probability"),
        ({"faults": 0.3}, "faults: expected a dict"),
        ({"parties": 14}, r"parties = 14: X has 13 feature\(s\), so it takes 1 to 13 parties"),
        ({"parties": 2.5}, "parties: expected a number or a dict of columns, got 2.5"),
        ({"parties": {"a": [0, 1], "b": [1]}}, "given to two parties, 'a' and 'b'"),
        ({"parties": {"a": [0], "b": [13]}}, "'b' gets column 13, but X has columns 0 to 12"),
        ({"parties": {"a": ["alcohol"]}}, "no column 'alcohol', which parties gives to party 'a'"),
        ({"parties": {"a": [0], "b": []}}, "parties.b: has no columns"),
    ],
)
def test_a_mistake_is_named_at_fit(parameters: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        quick(**parameters).fit(WINE.data, WINE.target)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"encoder": lambda width: nn.Linear(width + 1, 3)},
            r"^encoder: fails for width = \d+: RuntimeError: mat1 and mat2 shapes cannot be",
        ),
        (
            {"head": lambda width, classes: nn.Linear(width + 1, classes)},
            r"^head: fails for width = \d+, classes = 3: RuntimeError: mat1 and mat2 shapes",
        ),
        (
            {"head": lambda width, classes: nn.Linear(width, classes + 1)},
            r"^head: for width = \d+, classes = 3, its output is 4 wide, not 3",
        ),
        ({"encoder": lambda width: width}, r"^encoder: gives int, expected a torch.nn.Module"),
    ],
)
def test_a_factory_whose_module_does_not_fit_is_named(parameters: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        quick(**parameters).fit(WINE.data, WINE.target)


def test_a_column_name_given_twice_or_misspelt_is_an_error():
    table = pl.DataFrame(WINE.data, schema=NAMES)
    with pytest.raises(InputError, match="column 'ash' is given to two parties, 'a' and 'b'"):
        quick(parties={"a": ["ash"], "b": ["hue", "ash"]}).fit(table, WINE.target)
    with pytest.raises(InputError, match=r"no column 'alchol', .* the nearest is 'alcohol'"):
        quick(parties={"a": ["alchol"], "b": ["hue"]}).fit(table, WINE.target)


@pytest.mark.parametrize("validation", [0.0, 0.1])
def test_training_that_blows_up_says_so(validation: float):
    model = quick(lr=1e6, optimizer="sgd", validation=validation)
    with pytest.raises(ColonnadeError, match="try a smaller lr"):
        model.fit(WINE.data, WINE.target)


def test_many_whole_numbers_as_labels_are_warned_of_and_ids_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    ages = np.arange(300) % 60 + 18
    with pytest.warns(UserWarning, match="y holds 60 different whole numbers .* take VFLRegressor"):
        VFLClassifier(epochs=1).fit(X, ages)
    with pytest.raises(InputError, match="y holds 300 different values in 300 rows"):
        VFLClassifier(epochs=1).fit(X, [f"id{i}" for i in range(300)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VFLClassifier(epochs=1).fit(X, [f"word{i % 60}" for i in range(300)])
