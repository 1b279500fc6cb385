"""Figure 17: 4, 16 and 49 devices, while links fail."""

from __future__ import annotations

from colonnade.experiments.reproduce.claims import At, Claim, Fact, ahead, gains_more
from colonnade.experiments.reproduce.mags.setting import (
    ASKED,
    CITATION,
    GOSSIP,
    MASK,
    RATES,
    fault,
    mags,
    rate_columns,
    rate_name,
    rate_rows,
    sized,
    starcraft,
)
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Place, Reproduction, Scale, Sheet, Study, row

COUNTS = (4, 16, 49)
METHODS = ("VFL", "MVFL", "MVFL-G4", "CD-MVFL-G4")
NOTES = (
    "Published as pictures: there are claims, but no figures to compare with. CD-MVFL-G4 is not in "
    "the paper's figure.",
    "Images in 2×2, 4×4 and 7×7 patches; the more devices, the narrower their encodings: 16, 4 and "
    "2 numbers per row.",
    ASKED,
    MASK,
    GOSSIP,
)


def _study(scale: Scale) -> Study:
    smoke = scale == "smoke"
    counts = COUNTS[:2] if smoke else COUNTS  # 8×8 pixels have no 7×7 patches
    rates = (0.0, 0.5) if smoke else (0.0, *RATES)
    images = starcraft()
    sizes = {n: sized(images, scale, devices=n, digits=120) for n in counts}
    parts = tuple(
        size.part(
            _part(n),
            f"{n} devices",
            methods=[mags(size, method) for method in METHODS],
            faults=[fault("communication", rate) for rate in rates],
        )
        for n, size in sizes.items()
    )
    sheets = (*(_sheet(n, size, rates) for n, size in sizes.items()), _side_by_side(sizes))
    return Study(parts, sheets, NOTES)


def _part(devices: int) -> str:
    return f"devices-{devices}"


def _sheet(devices: int, size: Size, rates: tuple[float, ...]) -> Sheet:
    return Sheet(
        f"{devices} devices, complete graph, links that fail",
        size.words,
        rate_columns(size, "communication", rates),
        rate_rows(_part(devices), "communication", METHODS, rates),
        _claims([rate_name(rate) for rate in rates[1:]]),
        settings="fault rates",
        picture="lines",
        axis="share of the links that fail at prediction",
    )


def _claims(faulty: list[str]) -> tuple[Claim, ...]:
    def beats(one: str, *others: str) -> tuple[Fact, ...]:
        return tuple(ahead((one, c), (other, c)) for other in others for c in faulty)

    return (
        Claim(
            "MVFL and MVFL-G4 are ahead of VFL under faults",
            (*beats("MVFL", "VFL"), *beats("MVFL-G4", "VFL")),
        ),
        Claim(
            "With dropout, CD-MVFL-G4 is ahead of all others under faults",
            beats("CD-MVFL-G4", *METHODS[:-1]),
            ours=True,
        ),
    )


def _side_by_side(sizes: dict[int, Size]) -> Sheet:
    """The hardest faults, by number of devices."""
    name = fault("communication", max(RATES))["name"]
    few, *more = map(str, sizes)

    def gain(count: str) -> tuple[At, At]:
        return ("MVFL-G4", count), ("MVFL", count)

    return Sheet(
        f"By number of devices, {max(RATES):.0%} of the links fail",
        next(iter(sizes.values())).words,
        tuple(size.column(str(n), f"With {n} devices") for n, size in sizes.items()),
        tuple(row(m, [Place(_part(n), m, name) for n in sizes]) for m in METHODS),
        (
            Claim(
                "Gossip gains more among 16 or 49 devices than among 4",
                tuple(gains_more(*gain(count), than=gain(few)) for count in more),
            ),
        ),
        settings="numbers of devices",
        picture="lines",
        axis="devices",
    )


REPRODUCTION = Reproduction(
    "mags-devices",
    "4, 16 and 49 devices while links fail",
    "MAGS, figure 17",
    CITATION,
    {"smoke": "10 s", "quick": "4 min", "full": "2 h"},
    _study,
)
