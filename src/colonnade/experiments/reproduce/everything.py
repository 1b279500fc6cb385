"""All reproductions one after the other, and each as a page of documentation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.errors import ColonnadeError
from colonnade.experiments.engine import Engine, Observer
from colonnade.experiments.findings import PLAIN
from colonnade.experiments.markdown import made_by, section, table
from colonnade.experiments.reproduce import registry
from colonnade.experiments.reproduce.present import BEYOND, claim_grid, explained, figure_grid
from colonnade.experiments.reproduce.run import Reproduced, reproduce
from colonnade.experiments.reproduce.study import Scale
from colonnade.experiments.table import NOTHING


@dataclass(frozen=True)
class Done:
    """What came of one reproduction: its sheets, or why it could not run."""

    name: str
    minutes: float
    reproduced: Reproduced | None
    reason: str = ""

    def row(self) -> tuple[str, ...]:
        if self.reproduced is None:
            return (self.name, NOTHING, NOTHING, f"{self.minutes:.1f}", self.reason)
        judged = [j for a in self.reproduced.assessments for j in a.judgements]
        held = sum(judgement.verdict == "holds" for judgement in judged)
        failed = len(self.reproduced.failures)
        said = f"{failed} runs failed" if failed else ""
        return (self.name, str(held), str(len(judged)), f"{self.minutes:.1f}", said)


def reproduce_all(
    scale: Scale,
    folder: Path,
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    fresh: bool = False,
    observer: Observer | None = None,
    names: Sequence[str] = (),
    tell: Callable[[Done], None] = lambda done: None,
) -> list[Done]:
    """Each in a folder of its own; one that fails does not end the others. `tell` is called after
    each one."""
    found = []
    for name in names or registry():
        began, outcome, reason = time.monotonic(), None, ""
        try:
            outcome = reproduce(
                name,
                scale,
                folder / name,
                jobs=jobs,
                engine=engine,
                fresh=fresh,
                observer=observer,
            )
        except ColonnadeError as error:
            reason = str(error)
        found.append(Done(name, (time.monotonic() - began) / 60, outcome, reason))
        tell(found[-1])
    return found


def write_markdown(done: Reproduced, folder: Path) -> Path:
    """NAME.md in a folder; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{done.reproduction.name}.md"
    path.write_text(markdown(done), encoding="utf-8")
    return path


def markdown(done: Reproduced) -> str:
    """A reproduction as a page of documentation."""
    about = done.reproduction
    command = f"colonnade reproduce {about.name} --scale {done.scale}"
    lines = [f"# {about.title}", "", f"{about.source}. {about.citation}", ""]
    lines += [made_by(command, done.commit)]
    for assessment in done.assessments:
        lines += ["", f"## {assessment.sheet.title}", "", *table(figure_grid(assessment))]
        lines += ["", *(f"- {text}" for text in assessment.findings(PLAIN))]
        if differences := explained(assessment):
            lines += ["", f"{BEYOND}:", "", *(f"- {text}" for text in differences)]
        if assessment.judgements:
            lines += ["", *table(claim_grid(assessment))]
    lines += section("What to know", done.notes)
    lines += section("Runs that failed", _told(done.failures))
    return "\n".join(lines) + "\n"


def _told(failures: Mapping[str, str]) -> list[str]:
    return [f"{run}: {reason}" for run, reason in failures.items()]
