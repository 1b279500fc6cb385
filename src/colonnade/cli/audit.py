"""The command `audit`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.experiments import engine_maker, resumable, show_failures, watched
from colonnade.cli.options import Fresh, Jobs, Json, Out, Set, print_json
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.experiments.audit.present import Document
    from colonnade.experiments.audit.run import Audited


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
    seed: Annotated[
        int | None, typer.Option("--seed", help="Default: every seed, of which the worst counts.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option("--attack", help="Its name in the table. May be given twice. Default: all."),
    ] = None,
    every_epoch: Annotated[
        bool,
        typer.Option(
            "--every-epoch",
            help="Attack in every epoch, not only in 1 to 4 and two of each doubling after that. "
            "May take much longer than the training.",
        ),
    ] = False,
    defences: Annotated[
        bool,
        typer.Option(
            "--defences",
            help="Also run each method with each defence that suits it, in a folder that ends in "
            "-defences, and show what it changes. For files only.",
        ),
    ] = False,
    out: Out = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write this file, too: a page of documentation.", metavar="PAGE.md"),
    ] = None,
    jobs: Jobs = None,
    set_: Set = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Measure what each party can infer from what it receives: labels, and columns of others.

    Trains each method with the first faults, records what each party receives, row by row, and
    attacks: labels by the length, the direction and the clusters of gradients, with 100 known
    labels, from all epochs together, and from a party's own trained encoder; columns by ridge
    regression and by a small network, with 1 % of the rows known. Each attack has a control with
    rows out of order, which shows what chance gives, and a baseline: what the attacker has anyway.

    Of a run, writes audit.json, audit.html and a section of report.html into its folder. Of a file,
    the runs are trained and tested in runs/<name>-audit. Interrupted, the same command goes on
    where it stopped. With --defences, or where the file has a method, and the same with a defence,
    named alike, such as "SplitNN" and "SplitNN + hide_labels", it is also shown what the defence
    changes.
    """
    from colonnade.common.results import slug
    from colonnade.experiments.audit.source import read_file, read_run

    for option, given in (("--set", set_), ("--defences", defences)):
        if given and run.is_dir():
            raise InputError(f"{option}: is for an experiment file; a run is audited as it was")
    # Before the rest, which imports torch.
    experiment = read_run(run) if run.is_dir() else read_file(run, set_ or [])

    from colonnade.experiments.audit.findings import Attacks
    from colonnade.experiments.audit.run import Choice, audit_file, audit_folder

    attacks = Attacks(tuple(attack or ()), every_epoch)
    choice, make = Choice(method, seed, attacks), engine_maker(jobs)
    console = Console(stderr=as_json)
    if run.is_dir():
        with watched(out or run, console) as bar:
            facts = {"fresh": fresh, "observer": bar}
            done = audit_folder(run, out or run, choice, make(), **facts)
    else:
        chosen = (method, seed, "defences" if defences else None)
        part = "".join(f"-{slug(str(one))}" for one in chosen if one is not None)
        folder = out or Path("runs") / f"{slug(experiment.name)}-audit{part}"
        with watched(folder, console) as bar:
            facts = {"fresh": fresh, "observer": bar, "source": str(run), "defended": defences}
            done = audit_file(experiment, folder, choice, make(), **facts)
    with resumable(done.folder, console):
        _tell(done, console, as_json)
        if markdown is not None:
            words = (" --every-epoch" if every_epoch else "") + (" --defences" if defences else "")
            _write_page(done, markdown, f"colonnade audit {run}{words}")
    if done.failures:
        raise typer.Exit(1)


def _tell(done: Audited, console: Console, as_json: bool) -> None:
    import msgspec

    from colonnade.common.results import RESULTS
    from colonnade.experiments.report import write_report

    document = _document(done)
    page = document.write(done.folder)
    if (done.folder / RESULTS).is_file() and done.results:
        page = write_report(done.folder)
    if as_json:
        facts = {"report": str(page), "failures": dict(done.failures)}
        print_json({**msgspec.to_builtins(document), **facts})
        return
    _show(document, console)
    show_failures(done.failures, console)
    console.print(Text(f"Report: {page}"), soft_wrap=True)


def _document(done: Audited) -> Document:
    from colonnade.experiments.audit.leakage import changes
    from colonnade.experiments.audit.present import Document
    from colonnade.privacy.attacks import KNOWN_LABELS

    known = f"{KNOWN_LABELS} labels or 1 % of rows known"
    seeds, faults = list(done.experiment.seeds), done.experiment.faults[0].name
    facts = (done.experiment.name, faults, seeds, known)
    table = changes(done)
    changed = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return Document(*facts, done.findings, done.sayings, changed)


def _show(document: Document, console: Console) -> None:
    from colonnade.experiments.audit.leakage import CHANGES
    from colonnade.experiments.audit.present import CAPTION, narrow_changes, narrow_grid
    from colonnade.experiments.table import render

    for name in dict.fromkeys(one.method for one in document.findings):
        console.print(render(narrow_grid(document.findings, name), narrow=True))
    if document.findings:
        console.print(Text(CAPTION, "dim"))
    if document.changes:
        console.print(render(narrow_changes(document.changes, CHANGES), narrow=True))
    for text in document.sentences:
        console.print(Text(text))


def _write_page(done: Audited, path: Path, command: str) -> None:
    from colonnade.experiments.audit.leakage import page
    from colonnade.experiments.markdown import commit

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(done, command, commit()), encoding="utf-8")


COMMANDS: tuple[Callable[..., None], ...] = (audit,)
