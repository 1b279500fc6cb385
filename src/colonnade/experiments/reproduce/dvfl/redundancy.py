"""Figure 3(b): one to four aggregators, while links fail."""

from __future__ import annotations

from itertools import pairwise

from colonnade.experiments.reproduce.claims import Claim, ahead, gains_more
from colonnade.experiments.reproduce.dvfl.setting import (
    CITATION,
    STOPPING,
    columns,
    dvfl,
    fault,
    mnist,
)
from colonnade.experiments.reproduce.study import Place, Reproduction, Scale, Sheet, Study, row

COUNTS = {"1 aggregator": 1, "2 aggregators": 2, "3 aggregators": 3, "4 aggregators": 4}
FAULTS = [fault("connection", down, 0.1) for down in (0.3, 0.6)]
NOTES = (
    "Published as a picture: there are claims, but no figures to compare with.",
    "Links die with 0, .3 and .6; how they return the paper does not say here. We take .1, the "
    "rate that its section 6.2 names for faults.",
)


def _study(scale: Scale) -> Study:
    size = mnist(scale, seeds=3)
    names = ["none", *(fault["name"] for fault in FAULTS)]
    sheet = Sheet(
        "One to four aggregators, while links fail",
        size.words,
        columns(size, FAULTS),
        tuple(row(m, [Place("redundancy", m, name) for name in names]) for m in COUNTS),
        _claims(names),
        picture="lines",
        axis="faults: links die with / return with",
        settings="fault settings",
    )
    part = size.part(
        "redundancy",
        "Redundant aggregators",
        methods=[dvfl(size, name, aggregators=n) for name, n in COUNTS.items()],
        faults=[{"name": "none"}, *FAULTS],
    )
    return Study((part,), (sheet,), [*NOTES, STOPPING])


def _claims(names: list[str]) -> tuple[Claim, ...]:
    one, *_, four = COUNTS
    worst = names[-1]
    return (
        Claim(
            "Four aggregators are ahead of one, also without faults",
            tuple(ahead((four, name), (one, name)) for name in names),
        ),
        Claim(
            "Every further aggregator helps, in every setting",
            tuple(
                ahead((more, name), (less, name))
                for name in names
                for less, more in pairwise(COUNTS)
            ),
        ),
        Claim(
            "Redundancy helps most when links fail most",
            (gains_more((four, worst), (one, worst), than=((four, "none"), (one, "none"))),),
        ),
    )


REPRODUCTION = Reproduction(
    "dvfl-redundancy",
    "Redundant aggregators while links fail",
    "DVFL, figure 3(b)",
    CITATION,
    {"smoke": "10 s", "quick": "5 min", "full": "3 h"},
    _study,
)
