"""The commands of experiments: `demo`, `run`, `reproduce`, `report`, `datasets`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.options import (
    Address,
    EngineName,
    Fresh,
    Jobs,
    Json,
    Out,
    Set,
    Track,
    print_json,
)

if TYPE_CHECKING:
    from colonnade.experiments.engine import Engine
    from colonnade.experiments.progress import Bar
    from colonnade.experiments.reproduce.everything import Done
    from colonnade.experiments.reproduce.run import Reproduced


def demo(out: Out = None, jobs: Jobs = None, fresh: Fresh = False, as_json: Json = False) -> None:
    """Compare ways to train while links and clients fail, on built-in data, in about a minute.

    Prints a table and writes a report. [dim]The experiment file is config.toml in the output
    folder: copy it, change it, and give it to [bold]colonnade run[/bold].[/dim]
    """
    from colonnade.experiments.config import read_experiment

    with resources.as_file(resources.files("colonnade.experiments") / "demo.toml") as path:
        experiment = read_experiment(path)
    _run(experiment, out or Path("colonnade-demo"), engine_maker(jobs), fresh, as_json, "demo")


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).", metavar="FILE.toml")],
    out: Out = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    set_: Set = None,
    track: Track = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run an experiment file: every method × every kind of faults × every seed.

    Interrupted, the same command goes on where it stopped. The output folder holds config.toml,
    results.jsonl, history/, ledger/, models/ and report.html.

    [bold]colonnade watch DIR[/bold] shows a page that follows the runs.

    [dim]A file that names plugins, or models as "module:name", runs the code of these
    modules.[/dim]
    """
    from colonnade.common.results import slug
    from colonnade.experiments.config import read_experiment

    where = engine_maker(jobs, engine, address)
    experiment = read_experiment(file, set_ or [])
    folder = out or Path("runs") / slug(experiment.name)
    _run(experiment, folder, where, fresh, as_json, str(file), track or ())


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="Which one, or all; without it, the list.", metavar="NAME|all"),
    ] = None,
    scale: Annotated[
        Literal["smoke", "quick", "full"],
        typer.Option(
            "--scale",
            help="smoke: seconds, on built-in data; quick: minutes, fewer rows and epochs; "
            "full: as in the paper.",
        ),
    ] = "quick",
    out: Out = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write NAME.md to this folder, too: a page of documentation."),
    ] = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Make a published table or figure anew, with our figures beside the paper's.

    Prints ours, the paper's and the difference, which method is ahead where, and which of the
    paper's claims hold. Interrupted, the same command goes on where it stopped. The output folder
    holds an experiment folder per part, reproduction.json and report.html.
    """
    if name is None:
        _list_reproductions(as_json)
        return
    from colonnade.experiments.reproduce import ALL, find

    names = [] if name == ALL else [find(name).name]
    folder = out or Path("runs") / f"{'reproductions' if name == ALL else name}-{scale}"
    console = Console(stderr=as_json)
    if scale == "smoke" and engine == "local":
        jobs = jobs or 1  # runs of a tenth of a second are over before a worker process has begun
    where = engine_maker(jobs, engine, address)
    from colonnade.experiments.reproduce.everything import (
        Done,
        all_documents,
        duration,
        reproduce_all,
        total,
        write_markdown,
    )

    with watched(folder, console) as bar:
        options: Any = {"engine": where(), "fresh": fresh, "observer": bar}
        if names:
            from colonnade.experiments.reproduce.run import reproduce as work

            found = [Done(names[0], work(names[0], scale, folder, **options))]
        else:
            tell = lambda one: _tell_end(one, console, markdown)  # noqa: E731
            found = reproduce_all(scale, folder, tell=tell, **options)
    known = [one.reproduced for one in found if one.reproduced is not None]
    if markdown is not None and names:
        write_markdown(known[0], markdown)
    if as_json:
        print_json(known[0].document() if names else all_documents(found))
    elif names:
        _show_reproduction(known[0], console)
    else:
        console.print(Text(f"All of them took {duration(total(found))}."))
    if any(one.failed for one in found):
        raise typer.Exit(1)


def _tell_end(done: Done, console: Console, pages: Path | None) -> None:
    from colonnade.experiments.reproduce.everything import write_markdown

    if pages is not None and done.reproduced is not None:
        write_markdown(done.reproduced, pages)
    console.print(Text(str(done)))


def report(
    folder: Annotated[
        Path, typer.Argument(help="The output folder of a run or a reproduction.", metavar="DIR")
    ],
    as_csv: Annotated[
        bool,
        typer.Option("--csv", help="Also write the tables as CSV, and every run, into DIR/tables."),
    ] = False,
    as_latex: Annotated[
        bool, typer.Option("--latex", help="Also write the tables as LaTeX into DIR/tables.")
    ] = False,
) -> None:
    """Write DIR/report.html: one self-contained page with tables and pictures, readable offline.

    Pictures tell their values under the pointer, methods can be hidden, and the buttons under a
    table save it as CSV or LaTeX.
    """
    from colonnade.common.private_files import as_private_as
    from colonnade.experiments.report import export_tables, write_report
    from colonnade.experiments.reproduce import DOCUMENT

    with as_private_as(folder):
        if (folder / DOCUMENT).exists():
            from colonnade.experiments.reproduce.run import read_reproduction

            reproduced = read_reproduction(folder)
            page, export = reproduced.write(), reproduced.export_tables
        else:
            page, export = write_report(folder), partial(export_tables, folder)
        typer.echo(f"Report: {page}")
        for path in export(as_csv=as_csv, as_latex=as_latex) if as_csv or as_latex else ():
            typer.echo(f"Table: {path}")


def datasets(as_json: Json = False) -> None:
    """List the data sets: where they come from and which are present."""
    import msgspec

    from colonnade.data import data_folder, listing

    entries = listing()
    if as_json:
        print_json({"folder": str(data_folder()), "datasets": msgspec.to_builtins(entries)})
        return
    from colonnade.cli.lists import show_datasets

    show_datasets(entries, data_folder(), Console())


def _run(
    experiment: Any,
    folder: Path,
    engine: Callable[[], Engine],
    fresh: bool,
    as_json: bool,
    source: str,
    track: Sequence[str] = (),
) -> None:
    from colonnade.experiments.runner import run_experiment

    console = Console(stderr=as_json)
    with watched(folder, console) as bar:
        outcome = run_experiment(
            experiment,
            folder,
            engine=engine(),
            fresh=fresh,
            observer=bar,
            source=source,
            track=track,
        )
    with resumable(folder, console):
        page = outcome.report() if outcome.results else None
        if as_json:
            print_json(_document(outcome, page))
        else:
            _show(outcome, page, console)
    if outcome.failures:
        raise typer.Exit(1)


@contextmanager
def watched(folder: Path, console: Console) -> Iterator[Bar]:
    """Shows a progress bar while the block runs. After Ctrl-C it prints how to go on, and exits
    with 1."""
    from colonnade.experiments.progress import Bar

    with resumable(folder, console), Bar(Console(stderr=True)) as bar:
        yield bar


@contextmanager
def resumable(folder: Path, console: Console) -> Iterator[None]:
    """After Ctrl-C within the block, prints how to go on, and exits with 1. The folder is private,
    unless its owner has opened it."""
    from colonnade.common.private_files import as_private_as

    try:
        with as_private_as(folder):
            yield
    except KeyboardInterrupt:
        kept = f"Stopped; finished runs are kept in {folder}. The same command goes on."
        console.print(Text(kept))
        raise typer.Exit(1) from None


def engine_maker(
    jobs: int | None, name: Literal["local", "ray"] = "local", address: str | None = None
) -> Callable[[], Engine]:
    """Makes the engine that the options ask for. The address of a cluster is checked at once:
    before torch is imported and data are read."""
    if name == "ray":
        from colonnade.experiments.ray_address import check_address

        check_address(address)
    elif jobs is None:
        jobs = os.cpu_count() or 1

    def make() -> Engine:
        from colonnade.experiments.engine import engine_of

        return engine_of(name, address, jobs)

    return make


def _show(outcome: Any, page: Path | None, console: Console) -> None:
    from colonnade.experiments.privacy_grid import privacy_grid
    from colonnade.experiments.table import Plan, cost_grid, render, summarise

    plan = Plan.of(outcome.experiment.table())
    if outcome.results:
        console.print(render(summarise(outcome.results, plan).grid()))
        console.print(render(cost_grid(outcome.results, plan)))
        if (noised := privacy_grid(outcome.results, plan)) is not None:
            console.print(render(noised))
    for note in dict.fromkeys(note for result in outcome.results for note in result.notes):
        console.print(Text(f"Note: {note}"))
    show_failures(outcome.failures, console)
    if page is not None:
        console.print(Text(f"Report: {page}"), soft_wrap=True)


def show_failures(failures: Mapping[str, str], console: Console) -> None:
    for title, reason in failures.items():
        console.print(Text.assemble(("failed ", "bold red"), f"{title}: {reason}"))


def _list_reproductions(as_json: bool) -> None:
    from colonnade.experiments.reproduce import registry

    entries = registry().values()
    if as_json:
        keys = ("name", "title", "source", "citation", "takes")
        print_json({"reproductions": [{key: getattr(e, key) for key in keys} for e in entries]})
        return
    from colonnade.cli.lists import show_reproductions

    show_reproductions(entries, Console())


def _show_reproduction(done: Reproduced, console: Console) -> None:
    from colonnade.experiments.findings import PLAIN
    from colonnade.experiments.page import REPORT
    from colonnade.experiments.reproduce.present import claim_grid, narrow_grids
    from colonnade.experiments.table import render

    about = done.reproduction
    console.print(Text(f"{about.title} · {about.source} · scale {done.scale}", "bold"))
    for assessment in done.assessments:
        for grid in narrow_grids(assessment, console.width):
            console.print(render(grid))
        for sentence in assessment.findings(PLAIN):
            console.print(Text(sentence))
        if assessment.judgements:
            console.print(render(claim_grid(assessment)))
    for note in done.notes:
        console.print(Text(f"Note: {note}"))
    show_failures(done.failures, console)
    console.print(Text(f"Report: {done.folder / REPORT}"), soft_wrap=True)


def _document(outcome: Any, page: Path | None) -> dict[str, Any]:
    import msgspec

    return {
        "name": outcome.experiment.name,
        "folder": str(outcome.folder),
        "report": None if page is None else str(page),
        "results": msgspec.to_builtins(outcome.results),
        "failures": outcome.failures,
    }


COMMANDS: tuple[Callable[..., None], ...] = (demo, run, reproduce, report, datasets)
