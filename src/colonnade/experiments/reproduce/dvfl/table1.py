"""Table 1: MNIST while links, clients and aggregators fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colonnade.experiments.reproduce.claims import At, Claim, Fact, ahead, at_most_behind
from colonnade.experiments.reproduce.dvfl.setting import (
    CITATION,
    CLIENT_EPOCHS,
    HARDEST,
    SERVER_RATE,
    STOPPING,
    UPS,
    columns,
    dvfl,
    fault,
    hardest,
    method,
    mnist,
    splitnn,
)
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import (
    NOT_BUILT,
    Place,
    Published,
    Reproduction,
    Row,
    Scale,
    Sheet,
    Study,
    printed,
    row,
)

FAULTS = [fault(kind, 0.3, up) for kind in ("connection", "client", "aggregator") for up in UPS]
# In the order of the paper: without faults, then FAULTS.
FIGURES = {
    "DVFL": "97.80±0.12 97.78±0.11 97.78±0.14 97.72±0.17 97.77±0.11 97.74±0.16 97.58±0.20 "
    "97.81±0.12 97.79±0.14 97.60±0.33",
    "SplitNN": "97.85±0.17 – – – – – – – – –",
    "SplitNN skip": "97.86±0.16 97.50±0.54 96.60±0.51 77.21±5.34 97.44±0.57 96.65±0.45 80.22±4.31 "
    "97.65±0.41 97.59±0.50 97.29±0.89",
    "SplitNN zeros": "97.84±0.15 97.64±0.38 97.53±0.40 97.44±0.36 97.68±0.40 97.59±0.40 "
    "96.95±0.50 97.68±0.30 97.65±0.37 97.31±0.93",
    "SplitNN buffer": "97.85±0.17 97.66±0.38 96.85±0.74 93.45±2.10 97.59±0.58 96.76±0.70 "
    "91.78±1.70 97.81±0.32 97.71±0.40 97.69±0.51",
    "FedOnce zeros": "97.76±0.20 96.89±0.29 96.41±0.30 92.80±0.75 97.47±0.37 97.45±0.31 97.50±0.31 "
    "97.28±0.35 97.34±0.37 96.93±0.51",
    "VAFL": "97.57±0.30 97.17±0.46 96.88±0.36 96.46±0.44 97.18±0.42 96.99±0.44 96.45±0.51 "
    "97.17±0.48 96.89±0.36 96.42±0.52",
    "VFB²": "97.72±0.16 97.43±0.38 97.33±0.41 96.09±0.47 97.36±0.45 97.24±0.41 96.29±0.42 "
    "97.43±0.49 97.20±0.61 96.79±0.90",
}
SPLITNN: dict[str, dict[str, Any]] = {
    "SplitNN skip": {"missing": "skip"},
    "SplitNN zeros": {"missing": "zeros"},
    "SplitNN buffer": {"missing": "buffer"},
    "SplitNN stale": {"missing": "stale"},
    "SplitNN skip, Adam": {"missing": "skip", "tuned": True},
    "SplitNN zeros, Adam": {"missing": "zeros", "tuned": True},
}
CENTRED = "DVFL, centred"
FEDONCE = {"FedOnce zeros": "zeros", "FedOnce retry": "retry"}
# Measured on 6,000 rows, clients .3/.1: 11 % after 2,550 rounds, 56 % after 5,100; on 12,000 rows
# 92 % after 10,140.
PLATEAU = " (too few rounds here: under faults SGD has not left its starting plateau)"
NOTES = (
    "Without faults the policies of SplitNN are one and the same program, and so are those of "
    "FedOnce: one run stands for all of them.",
    SERVER_RATE,
    "DVFL, centred, is ours: the owner brings the encodings it collected to mean 0 and a common "
    "scale before it learns. All else is as published.",
    "SplitNN stale (a client's newest message for the same rows) and FedOnce retry are ours. The "
    "rates of FedOnce are not published: we take DVFL's.",
    "The paper leaves out outliers before it averages; our means are over all seeds.",
)


def published(method: str, names: Sequence[str]) -> list[Published | None]:
    every = ["none", *(fault["name"] for fault in FAULTS)]
    known = dict(zip(every, printed(FIGURES[method]), strict=True))
    return [known[name] for name in names]


def _study(scale: Scale) -> Study:
    size, faults = mnist(scale), hardest(FAULTS, scale)
    calm = [
        dvfl(size),
        dvfl(size, CENTRED, centre=True),
        splitnn(size, "SplitNN"),
        splitnn(size, "SplitNN, Adam", tuned=True),
        _fedonce(size, "FedOnce"),
    ]
    disturbed = [
        dvfl(size),
        dvfl(size, CENTRED, centre=True),
        *(splitnn(size, name, **settings) for name, settings in SPLITNN.items()),
        *(_fedonce(size, name, missing=missing) for name, missing in FEDONCE.items()),
    ]
    sheet = Sheet(
        "MNIST in four bands, while parties and links fail",
        size.words,
        columns(size, faults),
        _rows(["none", *(fault["name"] for fault in faults)]),
        _claims(scale),
        settings="fault settings",
    )
    parts = (
        size.part("no-faults", "Table 1 without faults", methods=calm),
        size.part("faults", "Table 1 under faults", methods=disturbed, faults=faults),
    )
    fewer = [] if scale == "full" else [HARDEST]
    return Study(parts, (sheet,), [*fewer, *NOTES, STOPPING])


def _fedonce(size: Size, name: str, **more: Any) -> dict[str, Any]:
    return method(size, name, "fedonce", client_epochs=size.epochs(CLIENT_EPOCHS), **more)


def _rows(names: Sequence[str]) -> tuple[Row, ...]:
    def shown(method: str, calm: str) -> Row:
        places = [Place("no-faults", calm), *(Place("faults", method, n) for n in names[1:])]
        return row(method, places, published(method, names) if method in FIGURES else ())

    undisturbed = [Place("no-faults", "SplitNN"), *([None] * (len(names) - 1))]
    absent = [None] * len(names)
    return (
        shown("DVFL", "DVFL"),
        shown(CENTRED, CENTRED),
        row("SplitNN", undisturbed, published("SplitNN", names)),
        *(shown(m, "SplitNN, Adam" if "tuned" in s else "SplitNN") for m, s in SPLITNN.items()),
        *(shown(method, "FedOnce") for method in FEDONCE),
        *(row(m, absent, published(m, names), NOT_BUILT) for m in ("VAFL", "VFB²")),
    )


def _claims(scale: Scale) -> tuple[Claim, ...]:
    plateau = "" if scale == "full" else PLATEAU
    links, clients, aggregators = (
        fault(kind, 0.3, 0.1)["name"] for kind in ("connection", "client", "aggregator")
    )

    def beats(one: str, other: str, *places: str) -> tuple[Fact, ...]:
        return tuple(ahead((one, place), (other, place)) for place in places)

    def calm(method: str) -> At:
        return method, "none"

    return (
        Claim("Without faults SplitNN is slightly ahead of DVFL", beats("SplitNN", "DVFL", "none")),
        Claim(
            "DVFL loses less than a point under any fault that returns with .1",
            tuple(
                at_most_behind(("DVFL", place), calm("DVFL"), 0.01)
                for place in (links, clients, aggregators)
            ),
        ),
        Claim(
            f"SplitNN skip loses more than 10 points while links or clients fail{plateau}",
            tuple(
                ahead(calm("SplitNN skip"), ("SplitNN skip", place), 0.1)
                for place in (links, clients)
            ),
        ),
        Claim(
            f"SplitNN buffer loses more than SplitNN zeros while links or clients fail{plateau}",
            beats("SplitNN zeros", "SplitNN buffer", links, clients),
        ),
        Claim(
            f"DVFL is ahead of SplitNN zeros while clients fail{plateau}",
            beats("DVFL", "SplitNN zeros", clients),
        ),
        Claim(
            "DVFL is ahead of FedOnce zeros while links fail",
            beats("DVFL", "FedOnce zeros", links),
        ),
        Claim(
            "DVFL is ahead of a tuned SplitNN zeros (Adam), too, while clients fail",
            beats("DVFL", "SplitNN zeros, Adam", clients),
            ours=True,
        ),
    )


REPRODUCTION = Reproduction(
    "dvfl-table1",
    "MNIST while links, clients and aggregators fail",
    "DVFL, table 1",
    CITATION,
    {"smoke": "15 s", "quick": "6 min", "full": "13 h"},
    _study,
)
