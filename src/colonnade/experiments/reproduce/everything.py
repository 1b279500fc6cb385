"""All reproductions one after the other, and each as a page of documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError
from colonnade.experiments.engine import Engine, Observer
from colonnade.experiments.findings import PLAIN
from colonnade.experiments.markdown import made_by, section, table
from colonnade.experiments.reproduce import registry
from colonnade.experiments.reproduce.present import BEYOND, claim_grid, explained, figure_grid
from colonnade.experiments.reproduce.run import DataAbsent, Reproduced, reproduce
from colonnade.experiments.reproduce.study import Scale


@dataclass(frozen=True)
class Done:
    """What came of one reproduction: its sheets, or why it could not run."""

    name: str
    reproduced: Reproduced | None
    reason: str = ""
    data_absent: bool = False  # that is the reason

    @property
    def failed(self) -> bool:
        """Whether something went wrong, apart from data that are not here."""
        return not self.data_absent if self.reproduced is None else bool(self.reproduced.failures)

    def __str__(self) -> str:
        if self.reproduced is None:
            return f"{self.name}: not run. {self.reason.removeprefix(f'{self.name}: ')}"
        found = [j.verdict for a in self.reproduced.assessments for j in a.judgements]
        held, judged = found.count("holds"), found.count("holds") + found.count("does not hold")
        claims = f"{held} of {judged} judged claims hold" if judged else "no claim was judged"
        runs = len(self.reproduced.failures)
        failed = f", {runs} {'run' if runs == 1 else 'runs'} failed" if runs else ""
        return f"{self.name}: {claims}, {duration(self.reproduced.seconds)}{failed}"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def total(found: Sequence[Done]) -> float:
    """The seconds of all."""
    return sum(done.reproduced.seconds for done in found if done.reproduced is not None)


def all_documents(found: Sequence[Done]) -> dict[str, Any]:
    """For programs."""
    return {
        "seconds": total(found),
        "reproductions": [one.reproduced.document() for one in found if one.reproduced is not None],
        "not_run": {one.name: one.reason for one in found if one.reproduced is None},
    }


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
            found.append(Done(name, outcome))
        except ColonnadeError as error:
            found.append(Done(name, None, str(error), isinstance(error, DataAbsent)))
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
