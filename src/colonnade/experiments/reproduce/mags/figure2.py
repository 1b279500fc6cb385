"""Figure 2: accuracy by fault rate, for failing devices and links, on the complete graph and the
grid."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.experiments.reproduce.claims import Claim, Fact, ahead
from colonnade.experiments.reproduce.mags import metrics
from colonnade.experiments.reproduce.mags.setting import (
    ASKED,
    CITATION,
    GOSSIP,
    MASK,
    RATES,
    WORDS,
    fault,
    mags,
    rate_columns,
    rate_name,
    rate_rows,
    sized,
    starcraft,
)
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Published, Reproduction, Scale, Sheet, Study

GRAPHS = {"complete": "complete graph", "grid": "grid"}
METHODS = (
    "VFL",
    "PD-VFL",
    "MVFL",
    "MVFL-G4",
    "PD-MVFL",
    "PD-MVFL-G4",
    "CD-MVFL",
    "CD-MVFL-G4",
    "CD-4-MVFL-G2",
)
NOTES = (
    "Published as pictures. The paper's figures shown here, on the complete graph with failing "
    "links, are those of its tables 3 and 8.",
    ASKED,
    MASK,
    GOSSIP,
)


def _study(scale: Scale) -> Study:
    size = sized(starcraft(), scale, digits=120)
    smoke = scale == "smoke"
    rates = (0.0, 0.5) if smoke else (0.0, *RATES)
    kinds = ("communication",) if smoke else tuple(WORDS)
    faults = [{"name": "none"}, *(fault(kind, rate) for kind in kinds for rate in rates[1:])]
    parts = tuple(
        size.part(
            graph,
            f"Accuracy by fault rate, {words}",
            network={"topology": graph},
            methods=[mags(size, method) for method in METHODS],
            faults=faults,
        )
        for graph, words in GRAPHS.items()
    )
    sheets = tuple(_sheet(size, graph, kind, rates) for kind in kinds for graph in GRAPHS)
    return Study(parts, sheets, NOTES)


def _sheet(size: Size, graph: str, kind: str, rates: Sequence[float]) -> Sheet:
    def published(method: str, rate: float) -> Published | None:
        tabled = (graph, kind) == ("complete", "communication")
        _, rand, *_ = metrics.published(rate, method, 1)
        return rand if tabled else None

    return Sheet(
        f"{WORDS[kind].capitalize()} that fail, {GRAPHS[graph]}",
        size.words,
        rate_columns(size, kind, rates),
        rate_rows(graph, kind, METHODS, rates, published),
        _claims(graph, kind, [rate_name(rate) for rate in rates]),
        settings="fault rates",
        picture="lines",
        axis=f"share of the {WORDS[kind]} that fail at prediction",
    )


def _claims(graph: str, kind: str, columns: list[str]) -> tuple[Claim, ...]:
    calm, *faulty = columns
    worst = faulty[-1]
    own, other = "CD-MVFL-G4", "PD-MVFL-G4"  # dropout of what fails, and of something else
    if kind == "device":
        own, other = other, own

    def beats(one: str, *others: str) -> tuple[Fact, ...]:
        return tuple(ahead((one, c), (other, c)) for other in others for c in faulty)

    def on_average(one: str, *others: str) -> tuple[Fact, ...]:
        """Over all fault rates."""
        at = {method: tuple((method, column) for column in columns) for method in METHODS}
        return tuple(Fact(at[one], at[other]) for other in others)

    sparse = Claim(
        f"On the grid, gossip does not help MVFL at {worst}",
        (ahead(("MVFL", worst), ("MVFL-G4", worst)),),
    )
    return (
        Claim(
            f"{own} has the highest mean over all fault rates, {other} aside",
            on_average(own, "VFL", "PD-VFL", "MVFL", "MVFL-G4", "CD-4-MVFL-G2"),
        ),
        Claim(
            f"VFL loses more than 40 points at {worst}",
            (ahead(("VFL", calm), ("VFL", worst), 0.4),),
        ),
        Claim("Many aggregators help: MVFL is ahead of VFL under faults", beats("MVFL", "VFL")),
        Claim(
            "Dropout helps: PD-MVFL and CD-MVFL are ahead of MVFL under faults",
            (*beats("PD-MVFL", "MVFL"), *beats("CD-MVFL", "MVFL")),
        ),
        Claim(
            "Gossip helps after dropout: PD- and CD-MVFL-G4 are ahead of PD- and CD-MVFL",
            (*beats("PD-MVFL-G4", "PD-MVFL"), *beats("CD-MVFL-G4", "CD-MVFL")),
        ),
        Claim(
            "Four aggregators with dropout and gossip are ahead of VFL under faults",
            beats("CD-4-MVFL-G2", "VFL"),
        ),
        *([sparse] if graph == "grid" else []),
    )


REPRODUCTION = Reproduction(
    "mags-figure2",
    "Accuracy by fault rate: devices and links, complete graph and grid",
    "MAGS, figure 2",
    CITATION,
    {"smoke": "10 s", "quick": "4 min", "full": "2 h"},
    _study,
)
