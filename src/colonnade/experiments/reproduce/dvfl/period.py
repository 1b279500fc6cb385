"""Appendix F.1: encodings are sent in every K-th client epoch only."""

from __future__ import annotations

from itertools import pairwise

from colonnade.experiments.reproduce.assess import CLIENT_BYTES
from colonnade.experiments.reproduce.claims import Claim, ahead, equals
from colonnade.experiments.reproduce.dvfl.setting import (
    AGGREGATORS,
    CITATION,
    CLIENT_EPOCHS,
    STOPPING,
    dvfl,
    mnist,
)
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import (
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

PERIODS = (1, 5, 10, 20)
ACCURACIES = "97.30 97.14 97.08 96.84"
GIGABYTES = (1.536, 0.307, 0.154, 0.077)
NUMBER = 4  # bytes
NOTES = (
    "The clients train 20 epochs at every scale: the period is counted in them.",
    "What a client sends in training, by the paper's formula: aggregators × ⌊20/K⌋ × rows × width "
    "of an encoding × 4 bytes. Rows that are set aside for validation are not sent in training.",
)


def _study(scale: Scale) -> Study:
    size = mnist(scale, seeds=3, digits=200)
    encoder = [32, 16] if size.substitute else [100, 80]
    methods = [
        dvfl(size, _name(k), period=k, client_epochs=CLIENT_EPOCHS, encoder=encoder)
        for k in PERIODS
    ]
    part = size.part("period", "Communication period", methods=methods)
    sheets = (_accuracy(size), _bytes(size, encoder[-1]))
    return Study((part,), sheets, [*NOTES, STOPPING])


def _name(period: int) -> str:
    return f"K = {period}"


def _accuracy(size: Size) -> Sheet:
    places = [Place("period", _name(k)) for k in PERIODS]
    claim = Claim(
        "The rarer the communication, the lower the accuracy",
        tuple(ahead(("DVFL", _name(k)), ("DVFL", _name(rarer))) for k, rarer in pairwise(PERIODS)),
    )
    return Sheet(
        "Accuracy by communication period",
        size.words,
        tuple(size.column(_name(k), f"With K = {k}") for k in PERIODS),
        (row("DVFL", places, printed(ACCURACIES)),),
        (claim,),
        picture="lines",
        axis="period: one client epoch in K is sent",
    )


def _bytes(size: Size, width: int) -> Sheet:
    def formula(period: int) -> int:
        epochs = CLIENT_EPOCHS // period
        return AGGREGATORS * epochs * size.training_rows * width * NUMBER

    ours, whole = f"formula, {size.training_rows:,} rows", "published, 60,000 rows"
    claim = Claim(
        "A client sends what the formula says, to the byte",
        tuple(equals((ours, _name(k)), formula(k)) for k in PERIODS),
        any_scale=True,
    )
    return Sheet(
        "Bytes that one client sends in training",
        size.words,
        tuple(size.column(_name(k), f"With K = {k}") for k in PERIODS),
        (
            _sent(ours, [formula(k) for k in PERIODS]),
            _sent(whole, [1e9 * gigabytes for gigabytes in GIGABYTES]),
        ),
        (claim,),
        metric=CLIENT_BYTES,
        picture=None,
    )


def _sent(name: str, figures: list[int] | list[float]) -> Row:
    places = [Place("period", _name(k)) for k in PERIODS]
    return row(name, places, [Published(figure) for figure in figures])


REPRODUCTION = Reproduction(
    "dvfl-period",
    "Accuracy and bytes by communication period",
    "DVFL, appendix F.1",
    CITATION,
    {"smoke": "10 s", "quick": "3 min", "full": "1 h"},
    _study,
)
