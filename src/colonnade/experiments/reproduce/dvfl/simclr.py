"""Appendix F.3: SimCLR instead of autoencoders, without aggregators; and Barlow Twins, ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from colonnade.experiments.reproduce.claims import Claim, ahead, at_most_behind, close
from colonnade.experiments.reproduce.dvfl import table1
from colonnade.experiments.reproduce.dvfl.setting import (
    CITATION,
    HARDEST,
    STOPPING,
    columns,
    dvfl,
    hardest,
    mnist,
    splitnn,
)
from colonnade.experiments.reproduce.study import (
    Place,
    Reproduction,
    Row,
    Scale,
    Sheet,
    Study,
    printed,
    row,
)

AUTOENCODER, SIMCLR, BARLOW = "DVFL, autoencoder", "DVFL, SimCLR", "DVFL, Barlow Twins"
FAULTS = [fault for fault in table1.FAULTS if fault["kind"] != "aggregator"]
FIGURES = "97.78 97.71 97.63 97.52 97.63 97.64 97.41"  # SimCLR without faults, then FAULTS
CONTRASTIVE: dict[str, Any] = {
    "aggregators": 0,
    "lr": {"clients": 4e-3, "owner": 0.1},
    "momentum": 0.9,
    "client_epochs": 5,
}
NOTES = (
    "SimCLR and Barlow Twins: no aggregators, the owner takes their layers; batches of 600, 5 "
    "client epochs at every scale. Barlow Twins is ours, with SimCLR's rates.",
    "Without aggregators nothing is sent while clients learn, and the owner collects undisturbed, "
    "as in section 6.1: failing links change nothing for us. The paper reports small losses there "
    "and does not say what was lost.",
    "The paper's figures of the autoencoder are those of its table 1.",
)


def _study(scale: Scale) -> Study:
    size, faults = mnist(scale, rows=20_000), hardest(FAULTS, scale)
    names = ["none", *(fault["name"] for fault in faults)]
    learners = [
        dvfl(size, AUTOENCODER),
        dvfl(size, SIMCLR, **CONTRASTIVE, objective="simclr", batch=size.batch(600)),
        dvfl(size, BARLOW, **CONTRASTIVE, objective="barlow", batch=size.batch(600)),
    ]
    sheet = Sheet(
        "What clients learn without labels",
        size.words,
        columns(size, faults),
        _rows(names),
        _claims(names),
        settings="fault settings",
    )
    parts = (
        size.part(
            "no-faults", "Objectives without faults", methods=[*learners, splitnn(size, "SplitNN")]
        ),
        size.part("faults", "Objectives under faults", methods=learners, faults=faults),
    )
    fewer = [] if scale == "full" else [HARDEST]
    return Study(parts, (sheet,), [*fewer, *NOTES, STOPPING])


def _rows(names: Sequence[str]) -> tuple[Row, ...]:
    def places(method: str) -> list[Place]:
        return [Place("no-faults", method), *(Place("faults", method, n) for n in names[1:])]

    every = ["none", *(fault["name"] for fault in FAULTS)]
    simclr = dict(zip(every, printed(FIGURES), strict=True))
    undisturbed = [Place("no-faults", "SplitNN"), *([None] * (len(names) - 1))]
    return (
        row(AUTOENCODER, places(AUTOENCODER), table1.published("DVFL", names)),
        row(SIMCLR, places(SIMCLR), [simclr[name] for name in names]),
        row(BARLOW, places(BARLOW)),
        row("SplitNN", undisturbed, table1.published("SplitNN", names)),
    )


def _claims(names: Sequence[str]) -> tuple[Claim, ...]:
    calm = (SIMCLR, "none")
    return (
        Claim(
            "SimCLR without aggregators comes within a point of the autoencoder and of SplitNN",
            tuple(close(calm, (other, "none"), 0.01) for other in (AUTOENCODER, "SplitNN")),
        ),
        Claim(
            "SimCLR loses less than a point while links or clients fail",
            tuple(at_most_behind((SIMCLR, name), calm, 0.01) for name in names[1:]),
        ),
        Claim(
            "With SimCLR, clients that fail cost more than links that fail",
            (ahead((SIMCLR, "links .3/.1"), (SIMCLR, "clients .3/.1")),),
        ),
        Claim(
            "Barlow Twins comes within a point of SimCLR",
            (close((BARLOW, "none"), calm, 0.01),),
            ours=True,
        ),
    )


REPRODUCTION = Reproduction(
    "dvfl-simclr",
    "Contrastive objectives without aggregators",
    "DVFL, appendix F.3",
    CITATION,
    {"smoke": "10 s", "quick": "6 min", "full": "3 h"},
    _study,
)
