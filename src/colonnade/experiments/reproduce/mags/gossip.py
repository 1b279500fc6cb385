"""Figure 12: rounds of gossip, and how far devices are from each other after them (proposition
3)."""

from __future__ import annotations

from itertools import pairwise

from colonnade.experiments.reproduce.claims import (
    Claim,
    Fact,
    ahead,
    at_most_behind,
    equals,
    gains_more,
)
from colonnade.experiments.reproduce.mags.setting import (
    ASKED,
    CITATION,
    MASK,
    WORDS,
    fault,
    mags,
    sized,
    starcraft,
)
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import (
    Place,
    Reproduction,
    Scale,
    Sheet,
    Study,
    row,
)
from colonnade.experiments.table import ACCURACY

ROUNDS = (0, 1, 2, 4, 8)
METHODS = ("MVFL", "CD-MVFL")
KINDS = {"complete": ("communication", "device"), "grid": ("communication",)}  # of faults
SETTINGS = [(graph, kind) for graph, kinds in KINDS.items() for kind in kinds]
NOTES = (
    "Published as a picture: there are claims, but no figures to compare with. The paper's figure "
    "12 has gossip in training as well; ours only at prediction, as in its main text.",
    "Spread between devices: the share of rows that some device gets right, less the share that "
    "all get right (active best − active worst), in points.",
    ASKED,
    MASK,
)


def _study(scale: Scale) -> Study:
    size = sized(starcraft(), scale, digits=120)
    rates = (0.5,) if scale == "smoke" else (0.3, 0.5)
    parts = tuple(
        size.part(
            graph,
            f"Rounds of gossip, {graph}",
            network={"topology": graph},
            methods=[mags(size, _method(m, rounds)) for m in METHODS for rounds in ROUNDS],
            faults=[fault(kind, rate) for kind in kinds for rate in rates],
        )
        for graph, kinds in KINDS.items()
    )
    accuracy = [
        _sheet(size, rate, "Accuracy by rounds of gossip", ACCURACY, _gains()) for rate in rates
    ]
    spread = [
        _sheet(size, rate, "Spread between devices", "spread", _agreement()) for rate in rates
    ]
    return Study(parts, (*accuracy, *spread), NOTES)


def _method(method: str, rounds: int) -> str:
    return f"{method}-G{rounds}"


def _line(method: str, graph: str, kind: str) -> str:
    return f"{method}, {graph}, {WORDS[kind]}"


def _sheet(size: Size, rate: float, title: str, metric: str, claims: tuple[Claim, ...]) -> Sheet:
    def places(method: str, graph: str, kind: str) -> list[Place]:
        name = fault(kind, rate)["name"]
        return [Place(graph, _method(method, rounds), name) for rounds in ROUNDS]

    return Sheet(
        f"{title}, {rate:.0%} fail",
        size.words,
        tuple(size.column(str(rounds), f"After {rounds} rounds") for rounds in ROUNDS),
        tuple(row(_line(m, *s), places(m, *s)) for m in METHODS for s in SETTINGS),
        claims,
        metric=metric,
        ranked=False,
        picture="lines",
        axis="rounds of gossip, at prediction",
    )


def _gains() -> tuple[Claim, ...]:
    links, devices, grid = ([_line(method, *setting) for method in METHODS] for setting in SETTINGS)
    none, four = "0", "4"

    def useless(lines: list[str]) -> tuple[Fact, ...]:
        return tuple(at_most_behind((line, none), (line, four), 0.01) for line in lines)

    return (
        Claim(
            "Links, complete graph: four rounds are ahead of none",
            tuple(ahead((line, four), (line, none)) for line in links),
        ),
        Claim(
            "Gossip helps most against failing links on the complete graph",
            tuple(
                gains_more((one, four), (one, none), than=((other, four), (other, none)))
                for others in (devices, grid)
                for one, other in zip(links, others, strict=True)
            ),
        ),
        Claim("Devices: four rounds gain less than a point", useless(devices)),
        Claim("Links, grid: four rounds gain less than a point", useless(grid)),
    )


def _agreement() -> tuple[Claim, ...]:
    links, devices, grid = ([_line(method, *setting) for method in METHODS] for setting in SETTINGS)
    nearer = [
        Claim(
            f"{line}: devices are nearer to each other after more rounds",
            tuple(ahead((line, str(few)), (line, str(more))) for few, more in pairwise(ROUNDS)),
        )
        for line in (*links, *grid)
    ]
    at_once = Claim(
        "Devices, complete graph: after one round all that work agree, within .1 points",
        tuple(equals((line, "1"), 0, 0.001) for line in devices),
    )
    return (*nearer, at_once)


REPRODUCTION = Reproduction(
    "mags-gossip",
    "Accuracy and spread between devices by rounds of gossip",
    "MAGS, figure 12",
    CITATION,
    {"smoke": "10 s", "quick": "2 min", "full": "40 min"},
    _study,
)
