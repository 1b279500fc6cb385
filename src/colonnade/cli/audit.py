"""The command `audit`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.experiments import watched
from colonnade.cli.options import Json, Out, Set, print_json

if TYPE_CHECKING:
    from colonnade.experiments.config import Experiment


def audit(
    run: Annotated[
        Path,
        typer.Argument(
            help="The output folder of [bold]colonnade run[/bold], or an experiment file.",
            metavar="RUN|FILE.toml",
        ),
    ],
    method: Annotated[
        str | None, typer.Option("--method", help="Its name. Default: every method.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Default: the first.")] = None,
    out: Out = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Measure what each party can infer from what it receives: labels, and columns of others.

    Trains each method once more, with the first faults and one seed, records what each party
    receives, row by row, and attacks: labels by the length, the direction and the clusters of
    gradients, with 100 known labels, and from a party's own trained encoder; columns by regression
    with 1 % of the rows known. Each attack has a control with rows out of order, which shows what
    chance gives, and a baseline: what the attacker has anyway.

    Writes audit.html and audit.json into the folder of the run, or into runs/<name>-audit.
    """
    import msgspec

    from colonnade.common.results import slug
    from colonnade.experiments.audit.measure import audit_run, specs
    from colonnade.experiments.audit.present import CAPTION, grid, sentence, strongest, write
    from colonnade.experiments.table import render
    from colonnade.privacy.attacks import KNOWN_LABELS

    experiment = _experiment(run, set_ or [])
    folder = out or (run if run.is_dir() else Path("runs") / f"{slug(experiment.name)}-audit")
    wanted = specs(experiment, method, seed)
    console = Console(stderr=as_json)
    found = []
    with watched(folder, console) as bar:
        bar.begin(len(wanted), 0)
        for spec in wanted:
            found += audit_run(experiment, spec)
            bar.finish(spec.settings.name)
    facts = {"name": experiment.name, "faults": experiment.faults[0].name}
    facts |= {"seed": str(wanted[0].seed), "known": f"{KNOWN_LABELS} labels or 1 % of rows known"}
    page = write(folder, found, facts)
    if as_json:
        print_json({**facts, "report": str(page), "findings": msgspec.to_builtins(found)})
        return
    for name in dict.fromkeys(one.method for one in found):
        console.print(render(grid(found, name)))
    console.print(Text(CAPTION, "dim"))
    for one in strongest(found):
        console.print(Text(sentence(one)))
    console.print(Text(f"Report: {page}"), soft_wrap=True)


def _experiment(run: Path, overrides: list[str]) -> Experiment:
    from colonnade.errors import InputError
    from colonnade.experiments.config import read_experiment
    from colonnade.experiments.explain import read_folder

    if run.is_dir() and overrides:
        raise InputError("--set: is for an experiment file; a run is audited as it was")
    return read_folder(run) if run.is_dir() else read_experiment(run, overrides)


COMMANDS: tuple[Callable[..., None], ...] = (audit,)
