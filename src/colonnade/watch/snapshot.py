"""What the page of `colonnade watch` shows at one moment. The page gets it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from colonnade.common.metric_names import title_of

State = Literal["up", "down", "done", "unknown"]
CURVE_METRICS = ("validation_accuracy", "validation_rmse", "validation_loss", "train_loss")
POINTS = 300  # of a curve, at most


class Party(msgspec.Struct, frozen=True):
    name: str
    state: State
    text: str = ""  # about its state


class Link(msgspec.Struct, frozen=True):
    sender: str
    receiver: str
    bytes: int | None  # None: not known here
    up: float = 1.0  # 0: down, 1: up; between groups of parties, the share of links that are up


class Training(msgspec.Struct, frozen=True):
    """A training under way, or a real federation at any time."""

    title: str
    round: int
    rounds: int  # at most, usually
    rate: float | None  # rounds per second
    parties: list[Party]
    links: list[Link]
    note: str = ""  # what a person should know of its links or parties


class Curve(msgspec.Struct, frozen=True):
    name: str
    x: list[float]
    y: list[float]
    over: bool = False  # of a training that has ended


class Snapshot(msgspec.Struct, frozen=True):
    title: str
    about: str  # what is watched
    said: str  # what happens now, in a sentence
    facts: list[tuple[str, str]]  # name, value
    trainings: list[Training]
    metric: str = ""  # of the curves, for readers
    curves: list[Curve] = []
    messages: list[str] = []  # what is not as it should be


class Source(Protocol):
    """What is watched."""

    def snapshot(self) -> Snapshot: ...


def chosen_metric(decides: str | None, points: Sequence[Sequence[dict[str, Any]]]) -> str:
    """The metric of the curves, by its name in `history/`: the deciding one, if it is there."""
    seen = {key for curve in points for point in curve[-1:] for key in point}
    wanted = [f"validation_{decides}"] if decides else []
    return next((name for name in (*wanted, *CURVE_METRICS) if name in seen), "")


def curve(name: str, points: Sequence[dict[str, Any]], metric: str, over: bool = False) -> Curve:
    """Without values that are not numbers, and with every second point left out while there are
    more than `POINTS`."""
    known = [(p["round"], p[metric]) for p in points if p.get(metric) is not None]
    step = -(-len(known) // POINTS)
    kept = known[:: step or 1]
    if known and kept[-1] != known[-1]:
        kept.append(known[-1])
    return Curve(name, [float(x) for x, _ in kept], [float(y) for _, y in kept], over)


def titled(metric: str) -> str:
    return title_of(metric) if metric else ""


class Pace:
    """Rounds per second, from one look to the next; smoothed over about five looks."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int, float | None]] = {}  # when, round, rate

    def rate(self, name: str, when: float, round: int, since: float | None = None) -> float | None:
        """`since`: when the training began, for the first look."""
        before = self._seen.get(name)
        if before is None or round < before[1]:
            whole = None if since is None or when <= since else round / (when - since)
            self._seen[name] = when, round, whole
            return whole
        earlier, done, rate = before
        if when <= earlier:
            return rate
        newest = (round - done) / (when - earlier)
        rate = newest if rate is None else 0.7 * rate + 0.3 * newest
        self._seen[name] = when, round, rate
        return rate
