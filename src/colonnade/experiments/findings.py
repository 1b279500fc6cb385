"""Results in words: which method is best where, and when that may be chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from colonnade.experiments.paired import Certainty
from colonnade.experiments.table import NOT_MEASURED, Cell, Summary


@dataclass(frozen=True)
class Voice:
    """How texts of the user are written in a sentence: for a page, or for a terminal."""

    strong: Callable[[str], str]  # the name of a method
    plain: Callable[[str], str]  # any other text


BEHIND: dict[Certainty, str] = {
    "clear": "clearly behind",
    "every seed": "behind at every seed, though chance is not ruled out",
    "one seed": "behind, with one seed",
}
HTML = Voice(lambda name: f"<strong>{escape(name)}</strong>", escape)
PLAIN = Voice(str, str)


def _leaders(summary: Summary, fault: str) -> list[str]:
    """The best method and those level with it."""
    ranking = summary.ranking(fault)
    return [method for method, cell in ranking if summary.level(cell, ranking[0][1])]


def lead(summary: Summary, voice: Voice = HTML, settings: str = "fault settings") -> str:
    """Which method is ahead, over all settings."""
    unsure = len(summary.plan.seeds) == 1 and len(summary.plan.methods) > 1
    return _lead(summary, voice, settings) + (
        " With one seed, that may be chance." if unsure else ""
    )


def _lead(summary: Summary, voice: Voice, settings: str) -> str:
    least = min(2, len(summary.plan.methods))  # a method that is measured alone has won nothing
    contested = [f for f in summary.plan.faults if len(summary.ranking(f)) >= least]
    leaders = [_leaders(summary, fault) for fault in contested]
    alone = [found[0] for found in leaders if len(found) == 1]
    if not leaders:
        return NOT_MEASURED
    if len(summary.plan.methods) == 1:
        return f"{voice.strong(leaders[0][0])} under {len(leaders)} {settings}."
    if not alone:
        return f"In all {settings} the best are level{_furthest_behind(summary, voice)}."
    if len(set(alone)) == 1 and len(alone) == len(leaders):
        return f"{voice.strong(alone[0])} is best in all {settings}."
    first, *others = dict.fromkeys(alone)
    text = f"{voice.strong(first)} is best in {alone.count(first)} of {len(leaders)} {settings}"
    text += "".join(f", {voice.strong(method)} in {alone.count(method)}" for method in others)
    level = len(leaders) - len(alone)
    rest = f"; in the other{f' {level}' if level > 1 else ''} the best are level" if level else ""
    return f"{text}{rest}."


def _furthest_behind(summary: Summary, voice: Voice) -> str:
    """The largest clear distance from the best of a setting."""
    gaps = []
    for fault in summary.plan.faults:
        if ranking := summary.ranking(fault):
            (_, best), (method, last) = ranking[0], ranking[-1]
            if not summary.level(best, last):
                gaps.append((abs(best.mean - last.mean), method, fault, last.mean))
    if not gaps:
        return ""
    _, method, fault, mean = max(gaps)
    figure = summary.metric.figure(mean)
    place = f"under “{voice.plain(fault)}”"
    return f"; {voice.strong(method)} falls behind most, to {figure} {place}"


def verdict(summary: Summary, fault: str, voice: Voice = HTML, place: str = "") -> str:
    """Which method is best in one setting, and by how much. `place`: the setting in words."""
    ranking = summary.ranking(fault)
    if not ranking:
        return ""
    where = "Without faults" if fault.lower() == "none" else f"Under “{fault}”"
    place = voice.plain(place or where)
    figures = {m: f"{voice.strong(m)} ({summary.metric.figure(c.mean)})" for m, c in ranking}
    leaders = _leaders(summary, fault)
    if len(ranking) == 1:
        return f"{place}: {figures[leaders[0]]}."
    if len(leaders) > 1:
        text = f"{place}, {listed([figures[m] for m in leaders])} are level"
        seeds = "" if len(ranking[0][1].seeds) == 1 else ": which is ahead changes with the seed"
        return text + seeds + _behind(summary, ranking, figures) + "."
    (best, first), (second, other) = ranking[:2]
    ahead = summary.metric.distance(abs(first.mean - other.mean))
    text = f"{place}, {figures[best]} is best, {ahead} ahead of {figures[second]}"
    return text + _doubt(summary, first, other) + "."


def _behind(
    summary: Summary, ranking: Sequence[tuple[str, Cell]], figures: Mapping[str, str]
) -> str:
    """The methods that are behind the best one, by how certain that is."""
    text, best = "", ranking[0][1]
    for found, words in BEHIND.items():
        names = [figures[m] for m, cell in ranking if summary.certainty(best, cell) == found]
        text += f"; {words}: {listed(names)}" if names else ""
    return text


def _doubt(summary: Summary, best: Cell, other: Cell) -> str:
    """What to add about a lead that the seeds do not make certain."""
    match summary.certainty(best, other):
        case "one seed":
            return "; with one seed this may be chance"
        case "every seed":
            return f"; so at each of {_common(best, other)} seeds, too few to rule out chance"
        case _:
            return ""


def _common(one: Cell, other: Cell) -> int:
    return len(set(one.seeds) & set(other.seeds))


def listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
