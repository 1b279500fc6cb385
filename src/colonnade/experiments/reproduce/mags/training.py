"""Beyond the paper: links that fail in training as well, and encoders that learn alone."""

from __future__ import annotations

from typing import Any

from colonnade.experiments.reproduce.claims import At, Claim, ahead, at_most_behind, gains_more
from colonnade.experiments.reproduce.mags.setting import (
    ASKED,
    CITATION,
    GOSSIP,
    MNIST,
    fault,
    mags,
    sized,
)
from colonnade.experiments.reproduce.study import (
    Place,
    Reproduction,
    Scale,
    Sheet,
    Study,
    row,
)

ENCODER_EPOCHS = 20
KIND = "communication"
WHEN = {"inference": "at prediction", "always": "always"}
WIDE = [16, 8]
VARIANTS: dict[str, dict[str, Any]] = {
    "MVFL-G4": {"method": "MVFL-G4"},
    "CD-MVFL-G4": {"method": "CD-MVFL-G4"},
    "MVFL-G4 alone": {"method": "MVFL-G4", "objective": "autoencoder"},
    "CD-MVFL-G4 alone": {"method": "CD-MVFL-G4", "objective": "autoencoder"},
    "CD-MVFL-G4 wide": {"method": "CD-MVFL-G4", "encoder": WIDE},
    "CD-MVFL-G4 wide alone": {
        "method": "CD-MVFL-G4",
        "encoder": WIDE,
        "objective": "autoencoder",
    },
}
NOTES = (
    "Beyond the paper, which leaves faults in training open and expects that synchronised "
    "backpropagation may break down there and learning in each place may help.",
    "alone: each device first learns an autoencoder of its own patch, as in DVFL, for a fifth of "
    "the epochs; aggregators then learn from encodings that no longer change, and no gradients go "
    "back. wide: 8 numbers per device and row in place of 4.",
    "Always: in training and, at the same rate, at prediction. What fails is drawn anew for every "
    "batch; a lost encoding or gradient counts as zeros.",
    ASKED,
    GOSSIP,
)


def _study(scale: Scale) -> Study:
    size = sized(MNIST, scale, digits=120)
    rates = (0.5,) if scale == "smoke" else (0.3, 0.5)
    settings = [(when, rate) for when in WHEN for rate in rates]
    alone = {"encoder_epochs": size.epochs(ENCODER_EPOCHS)}
    names = ["none", *(_column(*setting) for setting in settings)]
    sheet = Sheet(
        "Links that fail in training as well, complete graph",
        size.words,
        (
            size.column("none", "Without faults"),
            *(size.column(_column(*s), _words(*s)) for s in settings),
        ),
        tuple(row(v, [Place("training", v, name) for name in names]) for v in VARIANTS),
        _claims(),
        settings="fault settings",
    )
    part = size.part(
        "training",
        "Links that fail in training as well",
        methods=[
            mags(size, name=name, **({**alone, **v} if "objective" in v else v))
            for name, v in VARIANTS.items()
        ],
        faults=[
            {"name": "none"},
            *(fault(KIND, rate, when, name=_column(when, rate)) for when, rate in settings),
        ],
    )
    return Study((part,), (sheet,), NOTES)


def _column(when: str, rate: float) -> str:
    return f"{rate:.0%} {WHEN[when]}"


def _words(when: str, rate: float) -> str:
    return f"With {rate:.0%} of the links failing {WHEN[when]}"


def _claims() -> tuple[Claim, ...]:
    together, alone = "CD-MVFL-G4", "CD-MVFL-G4 alone"
    wide, wide_alone = "CD-MVFL-G4 wide", "CD-MVFL-G4 wide alone"
    predicting, always = _column("inference", 0.5), _column("always", 0.5)

    def loss(method: str) -> tuple[At, At]:
        return (method, predicting), (method, always)

    return (
        Claim(
            "Faults in training do what dropout does: MVFL-G4 gains by them, at 50%",
            (ahead(("MVFL-G4", always), ("MVFL-G4", predicting)),),
            ours=True,
        ),
        Claim(
            "CD-MVFL-G4 loses less than 2 points by faults in training, at 50%",
            (at_most_behind((together, always), (together, predicting), 0.02),),
            ours=True,
        ),
        Claim(
            "Encoders that learn alone lose less by faults in training, at 50%",
            (gains_more(*loss(together), than=loss(alone)),),
            ours=True,
        ),
        Claim(
            "At 50% always, encoders that learn alone are ahead",
            (ahead((alone, always), (together, always)),),
            ours=True,
        ),
        Claim(
            "At 50% always, wide encoders that learn alone are ahead",
            (ahead((wide_alone, always), (wide, always)),),
            ours=True,
        ),
    )


REPRODUCTION = Reproduction(
    "mags-training-faults",
    "Links that fail in training, and encoders that learn alone",
    "beyond MAGS",
    CITATION,
    {"smoke": "10 s", "quick": "7 min", "full": "3 h"},
    _study,
)
