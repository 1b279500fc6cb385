"""Figure 19: links that fail for a while and return, also within one prediction."""

from __future__ import annotations

from colonnade.experiments.reproduce.claims import Claim, Fact, ahead
from colonnade.experiments.reproduce.mags.setting import (
    ASKED,
    CITATION,
    GOSSIP,
    RATES,
    fault,
    mags,
    rate_columns,
    rate_name,
    rate_rows,
    sized,
    starcraft,
)
from colonnade.experiments.reproduce.study import Reproduction, Scale, Sheet, Study

STAY = 0.9
METHODS = (
    "VFL",
    "PD-VFL",
    "MVFL",
    "MVFL-G4",
    "CD-MVFL",
    "CD-MVFL-G4",
    "CD-4-MVFL-G2",
)
NOTES = (
    "Published as a picture: there are claims, but no figures to compare with.",
    "At each communication a link that works goes on working with probability .9, and one that "
    "fails returns so often that at any time the given share of links fails. So the links may "
    "change between two rounds of gossip.",
    ASKED,
    GOSSIP,
)


def _study(scale: Scale) -> Study:
    size = sized(starcraft(), scale, digits=120)
    rates = (0.0, 0.5) if scale == "smoke" else (0.0, *RATES)
    kind = "communication"
    sheet = Sheet(
        "Links that fail and return, complete graph",
        size.words,
        rate_columns(size, kind, rates),
        rate_rows("markov", kind, METHODS, rates),
        _claims([rate_name(rate) for rate in rates[1:]]),
        settings="fault rates",
        picture="lines",
        axis="share of the links that fail at prediction, at any time",
    )
    part = size.part(
        "markov",
        "Links that fail and return",
        methods=[mags(size, method) for method in METHODS],
        faults=[fault(kind, rate, stay=STAY) for rate in rates],
    )
    return Study((part,), (sheet,), NOTES)


def _claims(faulty: list[str]) -> tuple[Claim, ...]:
    def beats(one: str, *others: str) -> tuple[Fact, ...]:
        return tuple(ahead((one, c), (other, c)) for other in others for c in faulty)

    return (
        Claim(
            "CD-MVFL-G4 is ahead of all others under faults",
            beats("CD-MVFL-G4", *(method for method in METHODS if method != "CD-MVFL-G4")),
        ),
        Claim("Many aggregators help: MVFL is ahead of VFL", beats("MVFL", "VFL")),
        Claim("Dropout helps: CD-MVFL is ahead of MVFL", beats("CD-MVFL", "MVFL")),
        Claim("Gossip helps: MVFL-G4 is ahead of MVFL", beats("MVFL-G4", "MVFL")),
    )


REPRODUCTION = Reproduction(
    "mags-temporal",
    "Accuracy while links fail and return",
    "MAGS, figure 19",
    CITATION,
    {"smoke": "10 s", "quick": "2 min", "full": "40 min"},
    _study,
)
