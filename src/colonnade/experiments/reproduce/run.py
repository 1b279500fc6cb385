"""Run a reproduction: its parts one after the other, then the sheets over all of them.

The output folder holds a folder per part (an ordinary experiment's), `reproduction.json` and
`report.html`. Everything after the runs is made from what the folders hold.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from colonnade.common.files import replacing
from colonnade.common.results import CONFIG, read_results
from colonnade.data.datasets import load_raw
from colonnade.errors import InputError
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.explain import Ask, explain_every_run
from colonnade.experiments.exports import write_tables
from colonnade.experiments.markdown import commit_behind
from colonnade.experiments.page import REPORT
from colonnade.experiments.reproduce import DOCUMENT, find, registry
from colonnade.experiments.reproduce.assess import Assessment, Evidence, assess
from colonnade.experiments.reproduce.present import document, figure_grid
from colonnade.experiments.reproduce.study import SCALES, SMOKE, Part, Reproduction, Scale, Study
from colonnade.experiments.runner import Engine, NoObserver, Observer, grid, run_experiment


class DataAbsent(InputError):
    """None of the data sets of a reproduction is here or to be had."""


@dataclass
class Reproduced:
    """What came of a reproduction."""

    reproduction: Reproduction
    scale: Scale
    folder: Path
    study: Study
    absent: Mapping[str, str]  # part → why it could not run
    failures: Mapping[str, str] = field(default_factory=dict)  # title of the run → reason
    commit: str = ""  # of the newest training
    seconds: float = 0.0  # that the trainings took, on this machine, over all interruptions

    @cached_property
    def evidence(self) -> dict[str, Evidence]:
        return {
            part.name: Evidence(
                self.folder / part.name,
                [] if part.name in self.absent else read_results(self.folder / part.name),
                tuple(part.experiment["seeds"]),
                self.absent.get(part.name, ""),
            )
            for part in self.study.parts
        }

    @cached_property
    def assessments(self) -> list[Assessment]:
        judged = self.scale != "smoke"
        return [assess(sheet, self.evidence, judged=judged) for sheet in self.study.sheets]

    @property
    def notes(self) -> list[str]:
        """What a reader must know: what differs from the paper, what is absent, what the data sets
        say of themselves."""
        ran = {name: part.results for name, part in self.evidence.items() if part.results}
        told = {name: {note for r in results for note in r.notes} for name, results in ran.items()}
        everywhere = set.intersection(*told.values()) if told else set()
        of_parts = [
            note if note in everywhere else f"{name}: {note}"
            for name, notes in told.items()
            for note in sorted(notes)
        ]
        absent = [f"{name}: not run. {reason}" for name, reason in self.absent.items()]
        smoke = [SMOKE] if self.scale == "smoke" else []
        return list(dict.fromkeys([*smoke, *absent, *self.study.notes, *of_parts]))

    def document(self) -> dict[str, Any]:
        """`reproduction.json`."""
        return {
            "name": self.reproduction.name,
            "scale": self.scale,
            "commit": self.commit,
            "seconds": self.seconds,
            "title": self.reproduction.title,
            "source": self.reproduction.source,
            "citation": self.reproduction.citation,
            "folder": str(self.folder),
            "report": str(self.folder / REPORT),
            "parts": [
                {"name": part.name, "absent": self.absent.get(part.name)}
                for part in self.study.parts
            ],
            "sheets": [document(assessment) for assessment in self.assessments],
            "notes": self.notes,
            "failures": dict(self.failures),
        }

    def write(self) -> Path:
        """`reproduction.json` and the report over all parts; the path of the report."""
        from colonnade.experiments.reproduce.report import write_report

        _write(self.folder, self.document())
        return write_report(self)

    def export_tables(self, *, as_csv: bool, as_latex: bool) -> list[Path]:
        """Write the tables, ours with the paper's, into `tables/`; returns their paths."""
        grids = [figure_grid(assessment) for assessment in self.assessments]
        return write_tables(self.folder, grids, None, as_csv=as_csv, as_latex=as_latex)


def reproduce(
    name: str,
    scale: Scale,
    folder: Path,
    *,
    jobs: int = 1,
    engine: Engine | None = None,
    fresh: bool = False,
    observer: Observer | None = None,
) -> Reproduced:
    """Run what is not done yet, and write the sheets. Finished runs are safe at any moment.
    `engine`: where; without it, on this machine, `jobs` runs at a time."""
    reproduction = find(name)
    study = reproduction.study(scale)
    absent = _absent(study.parts)
    if len(absent) == len(study.parts):
        raise DataAbsent(f"{name}: no part can run. {next(iter(absent.values()))}")
    _occupy(folder, name, scale)
    present = [part for part in study.parts if part.name not in absent]
    experiments = {part.name: parse_experiment(part.experiment, name) for part in present}
    work = [len(grid(experiments[p.name])) * (1 if p.explain is None else 2) for p in present]
    clock = Clock(folder, fresh)
    whole = Whole(observer or NoObserver(), sum(work), clock)
    failures: dict[str, str] = {}
    trained = fresh
    for part in present:
        before = len(read_results(folder / part.name))
        outcome = run_experiment(
            experiments[part.name],
            folder / part.name,
            jobs=jobs,
            engine=engine,
            fresh=fresh,
            observer=whole,
            source=f"{name}, {part.name}",
        )
        trained |= len(outcome.results) > before
        failures |= {f"{part.name} · {title}": why for title, why in outcome.failures.items()}
        if outcome.results:
            if part.explain is not None:
                explain_every_run(folder / part.name, Ask(**part.explain), whole)
            outcome.report()
    commit = commit_behind(folder / DOCUMENT, trained)
    done = Reproduced(reproduction, scale, folder, study, absent, failures, commit, clock.seconds)
    done.write()
    return done


class Clock:
    """The seconds until the last run that ended, kept in the folder after each, so that a command
    that goes on adds to them. A command that runs nothing adds nothing."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        self.folder, self.noted = folder, _read(folder)
        self.before = self.seconds = 0.0 if fresh else float(self.noted.get("seconds", 0.0))
        self.began = time.monotonic()

    def tick(self) -> None:
        self.seconds = self.before + time.monotonic() - self.began
        _write(self.folder, {**self.noted, "seconds": self.seconds})


class Whole:
    """One count over all parts, for an observer that knows of one experiment."""

    def __init__(self, observer: Observer, total: int, clock: Clock) -> None:
        self.observer, self.total, self.before, self.clock = observer, total, 0, clock

    def begin(self, total: int, done: int) -> None:
        self.observer.begin(self.total, self.before + done)
        self.before += total

    def advance(self, run: str, share: float) -> None:
        self.observer.advance(run, share)

    def finish(self, run: str) -> None:
        self.clock.tick()
        self.observer.finish(run)


def read_reproduction(folder: Path) -> Reproduced:
    """What a folder holds, to write its report anew."""
    told = _read(folder)
    name, scale = told.get("name"), told.get("scale")
    if name not in registry() or scale not in SCALES or "parts" not in told:
        raise InputError(f"{folder}: not finished; the same `colonnade reproduce` goes on")
    reproduction = registry()[name]
    absent = {part["name"]: part["absent"] for part in told["parts"] if part["absent"]}
    study = reproduction.study(scale)
    facts = (told["failures"], told.get("commit", ""), told.get("seconds", 0.0))
    return Reproduced(reproduction, scale, folder, study, absent, *facts)


def _absent(parts: Sequence[Part]) -> dict[str, str]:
    """Parts whose data are neither here nor to be had; each data set is asked for once."""
    reasons: dict[str, str] = {}
    for dataset in dict.fromkeys(part.dataset for part in parts):
        try:
            load_raw(dataset)
        except InputError as error:
            reasons[dataset] = str(error)
    return {part.name: reasons[part.dataset] for part in parts if part.dataset in reasons}


def _occupy(folder: Path, name: str, scale: Scale) -> None:
    """An output folder for this reproduction at this scale, and for nothing else."""
    if (folder / DOCUMENT).exists():
        told = _read(folder)
        if (told.get("name"), told.get("scale")) != (name, scale):
            raise InputError(
                f"{folder}: holds {told.get('name')} at scale {told.get('scale')}; "
                "choose another folder with --out"
            )
        return
    if (folder / CONFIG).exists() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(
            f"{folder}: is not empty and holds no reproduction; choose another with --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, {"name": name, "scale": scale})
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error


def _read(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / DOCUMENT}: cannot be read ({error})") from error
    return told if isinstance(told, dict) else {}


def _write(folder: Path, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    with replacing(folder / DOCUMENT) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
