"""What MAGS's experiments have in common: images in patches at three scales, methods by the paper's
names, faults at prediction (appendix F)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Column, Place, Published, Row, Scale, row

CITATION = "Robust Decentralized VFL over Dynamic Device Environment (MAGS, under review)"
DEVICES, EPOCHS, BATCH, VALIDATION = 16, 100, 64, 0.2
RATES = (0.1, 0.2, 0.3, 0.4, 0.5)
WORDS = {"communication": "links", "device": "devices"}

ASKED = (
    "Accuracy is “active rand”: one of the devices that can answer is asked, at random; if none "
    "can, an answer is drawn from the shares of the classes. All figures are expectations over "
    "whom to ask."
)
GOSSIP = (
    "Gossip only when predicting, as in the paper's main text; some figures of its appendix have "
    "it in training as well."
)
MASK = "What fails is drawn anew for every 64 test rows, at prediction only."


@dataclass(frozen=True)
class Images:
    """A data set of the paper, and what stands in for it."""

    title: str
    dataset: str
    rows: int = 60_000
    instead_of: str = ""

    @property
    def words(self) -> str:
        return self.title + (f" as a substitute for {self.instead_of}" if self.instead_of else "")


MNIST, CIFAR10 = Images("MNIST", "mnist"), Images("CIFAR-10", "cifar10", 50_000)
STARCRAFT = Images("StarCraftMNIST", "starcraft_mnist")
FASHION = Images("Fashion-MNIST", "fashion_mnist", instead_of=STARCRAFT.title)
DIGITS = Images("digits, 8×8 pixels,", "digits", 1_438)


def starcraft() -> Images:
    """Where it cannot be had, Fashion-MNIST: images of the same size, and as many."""
    from colonnade.data import present  # with torch; a list of names goes without

    return STARCRAFT if present(STARCRAFT.dataset) else FASHION


def sized(
    images: Images,
    scale: Scale,
    *,
    devices: int = DEVICES,
    rows: int = 12_000,
    share: float = 0.4,
    digits: int = 240,
) -> Size:
    """`rows` and `share` of the epochs are those of scale quick; `digits`: rows at scale smoke."""
    patches = {"parties": devices, "split": "patches", "validation": VALIDATION}
    if scale == "smoke":
        few = replace(DIGITS, instead_of=images.instead_of or images.title)
        words = f"{few.words}, {digits:,} training rows, 5% of the epochs"
        data = {"dataset": few.dataset, "rows": digits, **patches}
        return Size(data, words, 1, 0.05, digits, substitute=True)
    data, other = {"dataset": images.dataset, **patches}, bool(images.instead_of)
    if scale == "quick":
        words = f"{images.words}, {rows:,} of {images.rows:,} training rows"
        words += f", {share:.0%} of the epochs"
        return Size({**data, "rows": rows}, words, 2, share, rows, other)
    return Size(data, f"{images.words}, {_all_rows(images)}", 5, 1, images.rows, other)


def _all_rows(images: Images) -> str:
    from colonnade.data import listing

    note = next(known.note for known in listing() if known.name == images.dataset)
    return note if note.startswith("subset") else f"all {images.rows:,} training rows"


def mags(size: Size, method: str, name: str = "", **more: Any) -> dict[str, Any]:
    """By the paper's name for it, which says what it does; the epoch with the lowest loss on the
    validation rows counts."""
    return {
        "name": name or method,
        "algorithm": "mags",
        "method": method,
        "epochs": size.epochs(EPOCHS),
        "batch": size.batch(BATCH),
        **more,
    }


def fault(kind: str, rate: float, when: str = "inference", **more: Any) -> dict[str, Any]:
    """No faults, if the rate is 0."""
    if not rate:
        return {"name": "none"}
    return {"name": fault_name(kind, rate), "kind": kind, "rate": rate, "when": when, **more}


def fault_name(kind: str, rate: float) -> str:
    return f"{WORDS[kind]} {_short(rate)}" if rate else "none"


def _short(rate: float) -> str:
    return f"{rate:g}".removeprefix("0")


def rate_columns(size: Size, kind: str, rates: Sequence[float]) -> tuple[Column, ...]:
    """A column per fault rate, in per cent."""

    def words(rate: float) -> str:
        return f"With {rate:.0%} of the {WORDS[kind]} failing" if rate else "Without faults"

    return tuple(size.column(rate_name(rate), words(rate)) for rate in rates)


def rate_name(rate: float) -> str:
    return f"{rate:.0%}"


def rate_rows(
    part: str,
    kind: str,
    methods: Iterable[str],
    rates: Sequence[float],
    published: Callable[[str, float], Published | None] = lambda method, rate: None,
) -> tuple[Row, ...]:
    """A row per method, under faults of one kind with each rate."""
    return tuple(
        row(
            method,
            [Place(part, method, fault_name(kind, rate)) for rate in rates],
            [published(method, rate) for rate in rates],
        )
        for method in methods
    )


def beside(figures: Sequence[Published | None]) -> list[Published | None]:
    """The paper's ± is one standard deviation; ours are two."""
    return [f and replace(f, spread=f.spread and 2 * f.spread) for f in figures]
