"""Findings of an audit as a table, as sentences, as a document and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from colonnade.common.files import replacing
from colonnade.errors import InputError
from colonnade.experiments.audit.findings import (
    CHANCE,
    COMPLETION,
    DOCUMENT,
    EXPOSED,
    NOISE,
    PAGE,
    Finding,
    strongest,
)
from colonnade.experiments.page import write_page
from colonnade.experiments.table import NOTHING, Grid

CAPTION = (
    "The best attack of each kind, over all receivers of a group and all recorded epochs; over "
    "several seeds the range, of which the highest counts. Chance: the same attack on rows out of "
    "order. Without: what the attacker has without what it received. Untrained: the same attack on "
    "what encoders told before the training."
)
CONTROLS = ("chance", "without", "untrained")


class Document(msgspec.Struct, frozen=True):
    """`audit.json`."""

    name: str
    faults: str
    seeds: list[int]
    known: str
    findings: list[Finding]
    sayings: list[str] = []  # why there are no findings of some kind
    changes: list[dict[str, str]] = []  # what each defence changes, by column of the table

    @property
    def sentences(self) -> list[str]:
        return [*(sentence(one) for one in strongest(self.findings)), *self.sayings]

    def write(self, folder: Path) -> Path:
        """With its page in a folder; the path of the page."""
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / DOCUMENT) as partial:
            partial.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        facts: dict[str, Any] = {"sentences": self.sentences, "grid": grid(self.findings)}
        return write_page(folder, "audit.html", page=PAGE, name=self.name, facts=self, **facts)


def read_document(folder: Path) -> Document | None:
    """None: the folder was not audited."""
    path = folder / DOCUMENT
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Document)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: damaged ({error}); audit the run again") from error


def grid(findings: Sequence[Finding]) -> Grid:
    """Of all methods."""
    header = ("method", "receiver", "secret", "attack", "", "success", "epoch", *CONTROLS)
    rows = tuple(
        (one.method, one.receiver, one.secret, one.attack, one.measure, *_figures(one))
        for one in findings
    )
    exposed = frozenset((k, 5) for k, one in enumerate(findings) if one.exposed)
    return Grid(header, rows, CAPTION, words=5, best=exposed)


def narrow_grid(findings: Sequence[Finding], method: str) -> Grid:
    """Of one method, for a terminal of 80 columns: attacks below receiver and secret."""
    by_secret: dict[str, list[Finding]] = {}
    for one in findings:
        if one.method == method:
            title = f"{one.receiver}: {one.secret}, {one.measure}"
            by_secret.setdefault(title, []).append(one)
    header = ("attack", "success", "epoch", *CONTROLS)
    rows: list[tuple[str, ...]] = []
    exposed: set[tuple[int, int]] = set()
    for title, found in by_secret.items():
        rows.append((title, *[""] * (len(header) - 1)))
        for one in found:
            exposed |= {(len(rows), 1)} if one.exposed else set()
            rows.append((f"  {one.attack}", *_figures(one)))
    return Grid(header, tuple(rows), method, words=1, best=frozenset(exposed))


def narrow_changes(changes: Sequence[Mapping[str, str]], caption: str) -> Grid:
    """What defences change, for a terminal of 80 columns: figures below method and defence, as far
    as there are any."""
    rows: list[tuple[str, str]] = []
    for one in changes:
        figures = dict(one)
        rows.append((f"{figures.pop('method')} + {figures.pop('defence')}", ""))
        rows += [(f"  {name}", text) for name, text in figures.items() if text != NOTHING]
    return Grid(("what the defence changes", "before → after"), tuple(rows), caption)


def _figures(one: Finding) -> tuple[str, ...]:
    controls = (one.control, one.baseline, one.untrained)
    told = (NOTHING if value is None else f"{value:.2f}" for value in controls)
    return (success_text(one), str(one.epoch), *told)


def success_text(one: Finding) -> str:
    """The range over seeds, if there are several that differ."""
    worst, least = f"{one.success:.2f}", f"{one.success if one.least is None else one.least:.2f}"
    return worst if least == worst else f"{least}–{worst}"


def sentence(one: Finding) -> str:
    """For a reader who knows no statistics."""
    who, secret = one.receiver, "the labels" if one.about_labels else f"the {one.secret}"
    if one.told < NOISE:
        return f"{one.method}: {who} learns nothing of {secret} ({one.attack})."
    if one.told < CHANCE:
        figures = f"{one.measure} {one.success:.2f}, by chance {one.control:.2f}"
        return f"{one.method}: {who} learns little of {secret} ({one.attack}: {figures})."
    differ = "labels differ" if one.about_labels else "rows differ"
    measure = {
        "AUC": f"told which of two rows has the rarer label in {one.success:.0%} of all pairs",
        "accuracy": f"named the label of {one.success:.0%} of the rows",
        "R²": f"reconstructed {one.success:.0%} of what makes {differ}",
    }[one.measure]
    if one.baseline is None:
        base = ""
    elif one.baseline >= one.success - CHANCE / 2:
        base = f"; with {one.baseline_of} it would do as well, {one.baseline:.0%}"
    else:
        base = f"; with {one.baseline_of} it would be {one.baseline:.0%}"
    if one.untrained is not None:
        base += f", and an encoder that has learnt nothing would tell {one.untrained:.0%}"
    strength = "can read" if one.success >= EXPOSED[one.measure] else "can guess"
    source = "its own trained encoder" if one.attack == COMPLETION else "what it receives"
    return (
        f"{one.method}: {who} {strength} {secret} from {source}. It {measure} "
        f"({one.attack}, epoch {one.epoch}){base}."
    )
