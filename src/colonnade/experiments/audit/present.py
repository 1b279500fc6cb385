"""Findings of an audit as a table, as sentences, and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from colonnade.common.files import replacing
from colonnade.experiments.audit.measure import COMPLETION, Finding
from colonnade.experiments.page import write_page
from colonnade.experiments.table import NOTHING, Grid

DOCUMENT, PAGE = "audit.json", "audit.html"
CHANCE = 0.1  # above what rows out of order give: an attack that tells something
EXPOSED = {"AUC": 0.9, "accuracy": 0.9, "R²": 0.5}
CAPTION = (
    "The best attack of each kind, over all receivers of a group and all recorded epochs. Chance: "
    "the same attack on rows out of order. Without: what the attacker has without what it received."
)


def grid(findings: Sequence[Finding], method: str | None = None) -> Grid:
    """Of all methods, or of one, without its name."""
    chosen = [one for one in findings if method in (None, one.method)]
    first = 0 if method is None else 1
    header = ("method", "receiver", "secret", "attack", "", "success", "epoch", "chance", "without")
    rows = tuple(_row(one)[first:] for one in chosen)
    exposed = frozenset((k, 5 - first) for k, one in enumerate(chosen) if is_exposed(one))
    caption = CAPTION if method is None else method
    return Grid(header[first:], rows, caption, words=5 - first, best=exposed)


def _row(one: Finding) -> tuple[str, ...]:
    base = NOTHING if one.baseline is None else f"{one.baseline:.2f}"
    figures = (f"{one.success:.2f}", str(one.epoch), f"{one.control:.2f}", base)
    return (one.method, one.receiver, one.secret, one.attack, one.measure, *figures)


def is_exposed(one: Finding) -> bool:
    """Whether the secret is as good as told, and the receiver did not have it anyway."""
    return one.success >= EXPOSED[one.measure] and gain(one) > CHANCE / 2


def gain(one: Finding) -> float:
    """What the attacker has from what it received."""
    return one.success - max(one.control, one.baseline or 0.0)


def sentence(one: Finding) -> str:
    """For a reader who knows no statistics."""
    told = one.success - one.control
    who, secret = one.receiver, "the labels" if one.about_labels else f"the {one.secret}"
    if told < CHANCE:
        return f"{one.method}: {who} learns nothing of {secret} ({one.attack})."
    measure = {
        "AUC": f"told which of two rows has the rarer label in {one.success:.0%} of all pairs",
        "accuracy": f"named the label of {one.success:.0%} of the rows",
        "R²": f"reconstructed {one.success:.0%} of what makes rows differ",
    }[one.measure]
    if one.baseline is None:
        base = ""
    elif one.baseline >= one.success - CHANCE / 2:
        base = f"; with {one.baseline_of} it would do as well, {one.baseline:.0%}"
    else:
        base = f"; with {one.baseline_of} it would be {one.baseline:.0%}"
    strength = "can read" if is_exposed(one) else "can guess"
    source = "its own trained encoder" if one.attack == COMPLETION else "what it receives"
    return (
        f"{one.method}: {who} {strength} {secret} from {source}. It {measure} "
        f"({one.attack}, epoch {one.epoch}){base}."
    )


def strongest(findings: Sequence[Finding]) -> list[Finding]:
    """Of each method and secret, the attack that does best."""
    best: dict[tuple[str, bool], Finding] = {}
    for one in findings:
        key = (one.method, one.about_labels)
        if key not in best or gain(one) > gain(best[key]):
            best[key] = one
    return list(best.values())


def write(folder: Path, findings: Sequence[Finding], facts: Mapping[str, str]) -> Path:
    """`audit.json` and `audit.html` in a folder; the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {**facts, "findings": msgspec.to_builtins(list(findings))}
    with replacing(folder / DOCUMENT) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    return write_page(
        folder,
        "audit.html",
        page=PAGE,
        name=facts["name"],
        facts=facts,
        sentences=[sentence(one) for one in strongest(findings)],
        grid=grid(findings),
    )
