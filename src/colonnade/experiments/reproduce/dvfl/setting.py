"""What DVFL's experiments have in common: MNIST at three scales, methods, faults (appendix D)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Column, Scale

CITATION = (
    "Amalanshu, Sirvi, Inouye: Decoupled Vertical Federated Learning for Practical Training on "
    "Vertically Partitioned Data"
)
AGGREGATORS, CLIENT_EPOCHS, AGGREGATOR_EPOCHS, EPOCHS = 4, 20, 40, 60
BATCH, MNIST_ROWS = 64, 60_000
GROUPS = {"connection": "links", "client": "clients", "aggregator": "aggregators"}
UPS = (1, 0.5, 0.1)

HARDEST = (
    "At this scale only the hardest faults run, those that return with probability .1; "
    "scale full runs all."
)
STOPPING = (
    "A tenth of the training rows is set aside to choose the best epoch; all epochs are run. The "
    "paper stops early and does not say what it watched."
)
SERVER_RATE = (
    "SplitNN, SGD: clients 1e-2 with momentum 0.5, as the paper says; it leaves the server's rate "
    "open, and we use the owner's, 8e-2, which came nearest to its figures. The rows with Adam "
    "(1e-3 on both sides) are ours: a tuned baseline."
)


def mnist(
    scale: Scale, *, rows: int = 6_000, share: float = 0.5, seeds: int = 2, digits: int = 120
) -> Size:
    """`rows`, `share` of the epochs and `seeds` are those of scale quick; `digits`: rows at scale
    smoke."""
    bands = {"parties": 4, "split": "bands"}
    if scale == "smoke":
        data = {"dataset": "digits", "rows": digits, **bands}
        words = f"digits, 8×8 pixels, as a substitute for MNIST, {digits:,} training rows"
        return Size(data, f"{words}, 10% of the epochs", 1, 0.1, digits, substitute=True)
    if scale == "quick":
        data = {"dataset": "mnist", "rows": rows, **bands}
        words = f"MNIST, {rows:,} of {MNIST_ROWS:,} training rows"
        fewer = "" if share == 1 else f", {share:.0%} of the epochs"
        return Size(data, words + fewer, seeds, share, rows)
    return Size(
        {"dataset": "mnist", **bands},
        f"MNIST, all {MNIST_ROWS:,} training rows",
        5,
        1,
        MNIST_ROWS,
    )


def method(size: Size, name: str, algorithm: str, **more: Any) -> dict[str, Any]:
    """With all its epochs: the best one counts, not the first after which nothing gets better."""
    common = {"epochs": size.epochs(EPOCHS), "batch": size.batch(BATCH), **more}
    return {"name": name, "algorithm": algorithm, "patience": common["epochs"], **common}


def dvfl(size: Size, name: str = "DVFL", **more: Any) -> dict[str, Any]:
    """As published: the owner takes encodings as they come."""
    published = {
        "aggregators": AGGREGATORS,
        "client_epochs": size.epochs(CLIENT_EPOCHS),
        "aggregator_epochs": size.epochs(AGGREGATOR_EPOCHS),
        "replay": "all",
        "centre": False,
    }
    return method(size, name, "dvfl", **{**published, **more})


def splitnn(
    size: Size, name: str, missing: str = "wait", *, tuned: bool = False, **more: Any
) -> dict[str, Any]:
    """With the paper's SGD, or tuned."""
    sgd = {"optimizer": "sgd", "momentum": 0.5, "lr": {"clients": 1e-2, "server": 8e-2}}
    rule = {"optimizer": "adam", "lr": 1e-3} if tuned else sgd
    return method(size, name, "splitnn", missing=missing, **{**rule, **more})


def fault(kind: str, down: float, up: float, **more: Any) -> dict[str, Any]:
    name = f"{GROUPS[kind]} {_short(down)}/{_short(up)}"
    return {"name": name, "kind": kind, "down": down, "up": up, **more}


def _short(probability: float) -> str:
    return f"{probability:g}".lstrip("0") or "0"


def hardest(faults: Iterable[Mapping[str, Any]], scale: Scale) -> list[Mapping[str, Any]]:
    """All of them, or, at smaller scales, only the hardest."""
    return [fault for fault in faults if scale == "full" or fault["up"] == min(UPS)]


def columns(size: Size, faults: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Without faults, then under each of them."""
    named = [size.column(f["name"], f"Under “{f['name']}”") for f in faults]
    return (size.column("none", "Without faults"), *named)
