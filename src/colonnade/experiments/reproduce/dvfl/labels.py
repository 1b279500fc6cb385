"""Table 3: few labelled rows that all clients share, many rows that each has for itself."""

from __future__ import annotations

from colonnade.experiments.reproduce.claims import Claim, Fact, ahead, gains_more
from colonnade.experiments.reproduce.dvfl.setting import (
    BATCH,
    CITATION,
    SERVER_RATE,
    STOPPING,
    dvfl,
    mnist,
    splitnn,
)
from colonnade.experiments.reproduce.study import (
    Place,
    Reproduction,
    Scale,
    Sheet,
    Study,
    printed,
    row,
)

LABELLED = (128, 256, 512, 1024)
EPOCHS = 160  # of the owner and of SplitNN
FIGURES = {"DVFL": "76.45 82.51 85.18 88.90", "SplitNN": "65.07 77.51 83.09 87.26"}
NOTES = (
    "The rows that are not labelled are dealt out to the clients, each row to one; DVFL's clients "
    "train on them, SplitNN cannot.",
    SERVER_RATE,
    "128 rows in batches of 64 are two rounds an epoch, 320 in all: in our runs too few for this "
    "SGD to leave its starting plateau.",
    "The rows set aside for early stopping have labels, more than the labelled rows themselves; "
    "both methods use them alike.",
)


def _study(scale: Scale) -> Study:
    size = mnist(scale, rows=20_000, share=1, seeds=3, digits=1_438)
    epochs = size.epochs(EPOCHS)
    methods = [
        dvfl(size, epochs=epochs, batch=BATCH),
        splitnn(size, "SplitNN", epochs=epochs, batch=BATCH),
        splitnn(size, "SplitNN, Adam", tuned=True, epochs=epochs, batch=BATCH),
    ]
    rows = tuple(
        row(
            method["name"],
            [Place(_part(count), method["name"]) for count in LABELLED],
            printed(FIGURES[method["name"]]) if method["name"] in FIGURES else (),
        )
        for method in methods
    )
    sheet = Sheet(
        "Few labelled rows",
        size.words,
        tuple(size.column(str(n), f"With {n:,} labelled rows") for n in LABELLED),
        rows,
        _claims(),
        picture="lines",
        axis="labelled rows",
    )
    parts = tuple(
        size.part(
            _part(count), f"{count:,} labelled rows", methods=methods, data={"labelled": count}
        )
        for count in LABELLED
    )
    return Study(parts, (sheet,), [*NOTES, STOPPING])


def _part(count: int) -> str:
    return f"labelled-{count}"


def _claims() -> tuple[Claim, ...]:
    few, *_, many = map(str, LABELLED)

    def always_ahead(other: str) -> tuple[Fact, ...]:
        return tuple(ahead(("DVFL", str(n)), (other, str(n))) for n in LABELLED)

    return (
        Claim("With few labelled rows DVFL is ahead of SplitNN", always_ahead("SplitNN")),
        Claim(
            "The fewer labelled rows, the greater DVFL's lead",
            (
                gains_more(
                    ("DVFL", few), ("SplitNN", few), than=(("DVFL", many), ("SplitNN", many))
                ),
            ),
        ),
        Claim(
            "DVFL is ahead of a tuned SplitNN (Adam), too",
            always_ahead("SplitNN, Adam"),
            ours=True,
        ),
    )


REPRODUCTION = Reproduction(
    "dvfl-limited-labels",
    "Few labelled rows, many others",
    "DVFL, table 3",
    CITATION,
    {"smoke": "15 s", "quick": "4 min", "full": "20 min"},
    _study,
)
