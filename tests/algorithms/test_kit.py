"""Every algorithm of the package goes through the test kit; a new one does so by itself."""

from __future__ import annotations

from colonnade.algorithms import built_in
from colonnade.learning.settings import Polynomial
from colonnade.testing import AlgorithmKit

# What makes a short run short, beside `epochs`. An algorithm may do without an entry here.
BRIEF: dict[str, dict[str, object]] = {
    "dvfl": {"client_epochs": 2, "aggregator_epochs": 3},
    "fedonce": {"client_epochs": 2},
    "vim": {"batch": 64, "tau": 2},
}

SLOW = {"client1": 0.8, "client3": 0.5}  # client0 goes over its rows more than once in an epoch

# Settings under which an algorithm goes another way or sends something else.
VARIANTS: dict[str, list[dict[str, object]]] = {
    "cvfl": [
        {"single": True, "average": 5},
        {"average": 5, "slow": 0.5, "lr_schedule": "cosine"},
        {"asynchronous": False, "synchronous": "mean"},
        {"q": "auto", "slow": 0.5, "label_split": "classes", "active": 3, "wire": "int8"},
        {"stale": True, "deadline": 0.5, "active": 2, "batch": 8, "slow": SLOW},
    ],
    "dvfl": [
        {"aggregators": 0},
        {"aggregators": 0, "objective": "simclr"},
        {"aggregators": 2, "objective": "barlow", "period": 2, "wire": "float16"},
        {"aggregators": 2, "dropout": 0.3, "imputation": "learnt"},
        {"aggregators": 0, "dropout": 0.3, "imputation": "learnt"},
        {"encoder": "cnn", "aggregator_width": 20, "replay": 2},
    ],
    "fdml": [{"combine": "mean"}],
    "fedvs": [{"missing": "zeros", "degree": 1}, {"partitions": 2, "colluders": 0}],
    "fedonce": [{"objective": "noise"}, {"missing": "retry"}, {"encoder": [0.5], "decoder": [9]}],
    "mags": [
        {"aggregators": 2, "gossip": 2, "dropout": 0.3, "lr_schedule": "cosine"},
        {"depth": 1, "gossip": 1, "wire": "int8"},
        {"depth": 2, "aggregators": 3, "imputation": "mean", "dropout": 0.3},
        {"imputation": "learnt", "dropout": 0.3, "dropout_kind": "party"},
        {"objective": "autoencoder", "encoder_epochs": 1},
    ],
    "splitnn": [
        {"missing": "stale", "encoder": [0.5, 8], "decorrelate": 0.1, "lr_schedule": "cosine"},
        {"missing": "buffer", "encoder": [0.5], "wire": "int8"},
        {"combine": "mean", "encoder": Polynomial(degree=3, width=8), "deadline": 0.5},
        {"combine": "weighted", "encoder": [8], "weighted_start": "mean"},
    ],
    "vim": [
        {"solver": "sgd", "encoder": [0.5, 8]},
        {"solver": "admm-j"},
        {"residual": "new", "lr": {"clients": 0.1, "server": 1e-4}},
        {"residual": "shared", "encoder": [16], "width": 8},
    ],
}

# Settings under which an algorithm learns digits, where the usual ones take long.
LEARNS: dict[str, dict[str, object]] = {"vim": {"epochs": 8}}

for name, kind in built_in().items():
    facts = {
        "algorithm": kind,
        "brief": BRIEF.get(name, {}),
        "variants": tuple(VARIANTS.get(name, [])),
        "learns": LEARNS.get(name, AlgorithmKit.learns),
    }
    globals()[f"Test{name.capitalize()}"] = type(f"Test{name.capitalize()}", (AlgorithmKit,), facts)
