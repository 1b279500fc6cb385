"""Beyond the paper: aggregators that are away when a prediction is asked for."""

from __future__ import annotations

from typing import Any

from colonnade.experiments.reproduce.claims import Claim, Fact, ahead, at_most_behind
from colonnade.experiments.reproduce.dvfl.setting import (
    CITATION,
    STOPPING,
    columns,
    dvfl,
    fault,
    mnist,
)
from colonnade.experiments.reproduce.study import Place, Reproduction, Scale, Sheet, Study, row

FAULTS = [
    fault("aggregator", down, up, when="inference")
    for down, up in ((0.3, 0.5), (0.3, 0.1), (0.6, 0.1))
]
VARIANTS: dict[str, dict[str, Any]] = {
    "zeros": {},
    "centred": {"centre": True},
    "dropout, centred": {"centre": True, "dropout": 0.25},
    "dropout, learnt": {"centre": True, "dropout": 0.25, "imputation": "learnt"},
    "1 aggregator": {"aggregators": 1},
}
NOTES = (
    "Beyond the paper, which lets nothing fail at prediction. Here training is undisturbed, and "
    "aggregators fail while the test rows are predicted; there are four unless said otherwise.",
    "zeros: the owner takes zeros for an aggregator that does not answer. centred: it takes the "
    "mean of what that aggregator sent. dropout: it learns while each aggregator is left out with "
    "probability .25. learnt: a placeholder that is learnt with the owner's model takes the place "
    "of the mean.",
    "Die with / return with: an aggregator is away 37 %, 75 % and 86 % of the time.",
)


def _study(scale: Scale) -> Study:
    size = mnist(scale)
    names = ["none", *(fault["name"] for fault in FAULTS)]
    sheet = Sheet(
        "Aggregators that are away at prediction",
        size.words,
        columns(size, FAULTS),
        tuple(row(m, [Place("prediction", m, name) for name in names]) for m in VARIANTS),
        _claims(names[1:]),
        picture="lines",
        axis="faults at prediction: aggregators die with / return with",
        settings="fault settings",
    )
    part = size.part(
        "prediction",
        "Faults at prediction",
        methods=[dvfl(size, name, **settings) for name, settings in VARIANTS.items()],
        faults=[{"name": "none"}, *FAULTS],
    )
    return Study((part,), (sheet,), [*NOTES, STOPPING])


def _claims(names: list[str]) -> tuple[Claim, ...]:
    def beats(one: str, other: str) -> tuple[Fact, ...]:
        return tuple(ahead((one, name), (other, name)) for name in names)

    return (
        Claim(
            "While aggregators are away, four predict better than one",
            beats("zeros", "1 aggregator"),
            ours=True,
        ),
        Claim(
            "While aggregators are away, the mean in their place is better than zeros",
            beats("centred", "zeros"),
            ours=True,
        ),
        Claim(
            "While aggregators are away, dropout in training helps",
            beats("dropout, centred", "centred"),
            ours=True,
        ),
        Claim(
            "Dropout costs less than a point when all are there",
            (at_most_behind(("dropout, centred", "none"), ("centred", "none"), 0.01),),
            ours=True,
        ),
        Claim(
            "While aggregators are away, a learnt placeholder is better than the mean",
            beats("dropout, learnt", "dropout, centred"),
            ours=True,
        ),
    )


REPRODUCTION = Reproduction(
    "dvfl-prediction",
    "Predictions while aggregators are away",
    "beyond DVFL",
    CITATION,
    {"smoke": "10 s", "quick": "6 min", "full": "4 h"},
    _study,
)
