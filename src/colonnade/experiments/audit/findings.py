"""Findings of an audit: how well an attack did, beside what chance gives and what the attacker has
anyway; and the worst of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from colonnade.common.files import replacing
from colonnade.errors import InputError
from colonnade.privacy.attacks import KNOWN_LABELS

LABELS, COLUMNS = "labels", "columns"
ALL_COLUMNS = "columns of all clients"
FEW = f"{KNOWN_LABELS} known labels"
COMPLETION = "model completion"
AUDITS = "audit"  # the folder with the findings of each run
AUDIT_FILES = DOCUMENT, PAGE = "audit.json", "audit.html"
CHANCE = 0.1  # above what rows out of order give: an attack that tells something
NOISE = 0.03  # above it: an attack that tells anything at all
EXPOSED = {"AUC": 0.9, "accuracy": 0.9, "R²": 0.5}


class Finding(msgspec.Struct, frozen=True):
    """The best that receivers of one group did with one attack, over all of them and all epochs; of
    several seeds, that of the worst one."""

    method: str
    group: str  # of the receiver
    receiver: str
    secret: str  # LABELS, or COLUMNS of somebody
    attack: str
    measure: str  # AUC, accuracy or R²
    success: float
    epoch: int  # 1 is the first
    control: float  # the same with rows out of order: what chance gives
    baseline: float | None = None  # what the attacker has without what it received
    baseline_of: str = ""  # what that is
    untrained: float | None = None  # of columns: by what encoders told before the training
    knows: str = ""  # what of the secret the attacker knows beforehand
    seed: int = 0
    least: float | None = None  # the success at the best of several seeds

    @property
    def about_labels(self) -> bool:
        return self.secret == LABELS

    @property
    def told(self) -> float:
        """Above what chance gives."""
        return self.success - self.control

    @property
    def gain(self) -> float:
        """What the attacker has from what it received."""
        return self.success - max(self.control, self.baseline or 0.0)

    @property
    def exposed(self) -> bool:
        """Whether the secret is as good as told, and the receiver did not have it anyway."""
        return self.success >= EXPOSED[self.measure] and self.gain > CHANCE / 2

    @property
    def rank(self) -> tuple[float, ...]:
        """Higher is worse for whoever holds the secret. What chance gives comes first: an attack
        that is at chance tells nothing, however high its figure is with few rows of one class."""
        certainty = (self.told >= NOISE) + (self.told >= CHANCE)
        return certainty, self.exposed, self.success, self.gain


class Attacks(msgspec.Struct, frozen=True):
    """Which attacks are made, and in which epochs."""

    names: tuple[str, ...] = ()  # (): all
    every_epoch: bool = False  # else those that the recorder keeps

    def __contains__(self, name: str) -> bool:
        return not self.names or name in self.names


ALL = Attacks()


class RunAudit(msgspec.Struct, frozen=True):
    """The findings of one run, in `audit/<run>.json` of an output folder."""

    run: str
    method: str
    faults: str
    seed: int
    seconds: float  # of the attacks alone
    findings: list[Finding]
    sayings: list[str] = []  # why there are no findings of some kind
    attacks: Attacks = ALL

    def write(self, folder: Path) -> None:
        with replacing(folder / AUDITS / f"{self.run}.json") as partial:
            partial.write_bytes(msgspec.json.encode(self))


def read_audits(folder: Path) -> dict[str, RunAudit]:
    """All of an output folder, by run."""
    found = {}
    for path in sorted((folder / AUDITS).glob("*.json")):
        try:
            found[path.stem] = msgspec.json.decode(path.read_bytes(), type=RunAudit)
        except msgspec.DecodeError as error:
            raise InputError(
                f"{path}: damaged ({error}); delete it, and audit the run again"
            ) from error
    return found


def over_seeds(audits: Iterable[RunAudit]) -> list[Finding]:
    """Of each attack by each group: the worst seed, with the highest control of all seeds."""
    alike: dict[tuple[str, ...], list[Finding]] = {}
    for audit in audits:
        for one in audit.findings:
            kind = one.secret if one.secret in (LABELS, ALL_COLUMNS) else COLUMNS
            alike.setdefault((one.method, one.group, kind, one.attack), []).append(one)
    return [_worst(found) for found in alike.values()]


def _worst(found: list[Finding]) -> Finding:
    worst = max(found, key=lambda one: one.success)
    control = max(one.control for one in found)
    least = min(one.success for one in found) if len(found) > 1 else None
    return msgspec.structs.replace(worst, control=control, least=least)


def strongest(findings: Sequence[Finding]) -> list[Finding]:
    """Of each method and secret, the worst by rank: what is above chance, then what is as good as
    told, then what does best, then what the attacker did not have anyway."""
    best: dict[tuple[str, bool], Finding] = {}
    for one in sorted(findings, key=lambda one: one.rank):
        best[one.method, one.about_labels] = one
    order = dict.fromkeys((one.method, one.about_labels) for one in findings)
    return [best[key] for key in order]
