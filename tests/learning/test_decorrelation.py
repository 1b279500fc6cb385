"""Encoders that learn to tell less of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from colonnade.algorithms import registry
from colonnade.data import DataSpec, load
from colonnade.errors import InputError
from colonnade.experiments.run import build
from colonnade.learning.settings import Settings
from colonnade.network.faults import Client
from colonnade.privacy.distance_correlation import distance_correlation
from colonnade.testing import Trained, difference, projected, stacked
from colonnade.testing.kit import digits

BRIEF: dict[str, dict[str, Any]] = {
    "splitnn": {},
    "vfb2": {},
    "vafl": {},
    "cvfl": {"active": 2},
    "fdml": {},
    "vim": {"batch": 64, "tau": 2},
    "mags": {},
}


@pytest.fixture
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def settings(name: str, weight: float | None, **keys: Any) -> Settings:
    given = {"epochs": 2, **BRIEF.get(name, {}), **keys, "decorrelate": weight}
    return registry()[name].settings(name=name, algorithm=name, **given)


def told(trained: Trained) -> float:
    """The mean correlation between columns and encodings, over the clients."""
    part = trained.algorithm.data.train
    encodings = trained.algorithm.embed(part)
    assert encodings is not None
    return float(distance_correlation(part.x[:, :200], encodings[:, :200]).mean())


@pytest.mark.parametrize("name", BRIEF)
@pytest.mark.usefixtures("double_precision")
def test_encodings_tell_less_of_columns_and_both_engines_train_the_same(name: str) -> None:
    fault = Client(name="client", down=0.3, up=0.5)
    one = stacked(settings(name, 5.0), digits(300), fault=fault)
    each = projected(settings(name, 5.0), digits(300), fault=fault)
    assert difference(one, each) < 1e-6
    plain = stacked(settings(name, None), digits(300), fault=fault)
    assert told(one) < told(plain)
    assert sorted(one.net.ledger.rows()) == sorted(plain.net.ledger.rows())  # nothing more is sent


def test_steps_that_get_compiled_have_the_penalty_as_well() -> None:
    for name in ("splitnn", "vim"):  # a gradient that comes back; a loss of its own
        eager = stacked(settings(name, 1.0), digits(200))
        with torch.compiler.set_stance("force_eager"):
            compiled = stacked(settings(name, 1.0, compile=True), digits(200))
        for party, tensors in eager.weights.items():
            for key, value in tensors.items():
                assert torch.allclose(value, compiled.weights[party][key], atol=1e-5), key


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("centralised", {}, "nobody is told the encodings"),
        ("fedvs", {}, "nobody is told the encodings"),
        ("dvfl", {}, "learn alone"),
        ("fedonce", {}, "learn alone"),
        ("mags", {"objective": "simclr"}, "learn alone"),
        ("vim", {"solver": "admm-j"}, "sends no embeddings"),
    ],
)
def test_it_is_refused_where_it_has_no_meaning(name: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"decorrelate: .*{said}"):
        build(settings(name, 1.0, **keys), load(DataSpec(dataset="digits", rows=60), seed=0), 0)
