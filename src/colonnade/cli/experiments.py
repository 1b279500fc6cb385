"""The commands of experiments: `demo`, `run`, `reproduce`, `report`, `datasets`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.options import Address, EngineName, Fresh, Jobs, Json, Out, print_json

if TYPE_CHECKING:
    from colonnade.experiments.engine import Engine
    from colonnade.experiments.progress import Bar
    from colonnade.experiments.reproduce.run import Reproduced


def demo(out: Out = None, jobs: Jobs = None, fresh: Fresh = False, as_json: Json = False) -> None:
    """Compare ways to train while links and clients fail, on built-in data, in about a minute.

    Prints a table and writes a report. [dim]The experiment file is config.toml in the output
    folder: copy it, change it, and give it to [bold]colonnade run[/bold].[/dim]
    """
    from colonnade.experiments.config import read_experiment

    with resources.as_file(resources.files("colonnade.experiments") / "demo.toml") as path:
        experiment = read_experiment(path)
    _run(experiment, out or Path("colonnade-demo"), _engine(jobs), fresh, as_json, "demo")


def run(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).", metavar="FILE.toml")],
    out: Out = None,
    jobs: Jobs = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override, e.g. --set data.parties=8 --set 'methods.*.epochs=5'.",
        ),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Run an experiment file: every method × every kind of faults × every seed.

    Interrupted, the same command goes on where it stopped. The output folder holds config.toml,
    results.jsonl, history/, ledger/, models/ and report.html.

    [dim]A file that names plugins, or models as "module:name", runs the code of these
    modules.[/dim]
    """
    from colonnade.common.results import slug
    from colonnade.experiments.config import read_experiment

    where = _engine(jobs, engine, address)
    experiment = read_experiment(file, set_ or [])
    _run(experiment, out or Path("runs") / slug(experiment.name), where, fresh, as_json, str(file))


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which one; without it, the list.", metavar="NAME")
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
    from colonnade.experiments.reproduce import find

    find(name)
    from colonnade.experiments.reproduce.run import reproduce as work

    folder = out or Path("runs") / f"{name}-{scale}"
    console = Console(stderr=as_json)
    if scale == "smoke" and engine == "local":
        jobs = jobs or 1  # runs of a tenth of a second are over before a worker process has begun
    where = _engine(jobs, engine, address)
    with _watched(folder, console) as bar:
        done = work(name, scale, folder, engine=where(), fresh=fresh, observer=bar)
    if as_json:
        print_json(done.document())
    else:
        _show_reproduction(done, console)
    if done.failures:
        raise typer.Exit(1)


def report(
    folder: Annotated[
        Path, typer.Argument(help="The output folder of a run or a reproduction.", metavar="DIR")
    ],
) -> None:
    """Write DIR/report.html: one self-contained page with tables and pictures, readable offline."""
    from colonnade.common.private_files import as_private_as
    from colonnade.experiments.report import write_report
    from colonnade.experiments.reproduce import DOCUMENT

    with as_private_as(folder):
        if (folder / DOCUMENT).exists():
            from colonnade.experiments.reproduce.run import read_reproduction

            page = read_reproduction(folder).write()
        else:
            page = write_report(folder)
    typer.echo(f"Report: {page}")


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
) -> None:
    from colonnade.experiments.runner import run_experiment

    console = Console(stderr=as_json)
    with _watched(folder, console) as bar:
        outcome = run_experiment(
            experiment, folder, engine=engine(), fresh=fresh, observer=bar, source=source
        )
    page = outcome.report() if outcome.results else None
    if as_json:
        print_json(_document(outcome, page))
    else:
        _show(outcome, page, console)
    if outcome.failures:
        raise typer.Exit(1)


@contextmanager
def _watched(folder: Path, console: Console) -> Iterator[Bar]:
    """Shows a progress bar while the block runs. After Ctrl-C it prints how to go on, and exits
    with 1."""
    from colonnade.experiments.progress import Bar

    try:
        with Bar(Console(stderr=True)) as bar:
            yield bar
    except KeyboardInterrupt:
        kept = f"Stopped; finished runs are kept in {folder}. The same command goes on."
        console.print(Text(kept))
        raise typer.Exit(1) from None


def _engine(
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
    _show_failures(outcome.failures, console)
    if page is not None:
        console.print(Text(f"Report: {page}"), soft_wrap=True)


def _show_failures(failures: Mapping[str, str], console: Console) -> None:
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
    _show_failures(done.failures, console)
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
