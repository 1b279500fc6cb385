"""The command `compare`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.experiments import engine_maker, resumable, show_failures, watched
from colonnade.cli.options import Address, EngineName, Fresh, Jobs, Json, Out, Set, print_json

if TYPE_CHECKING:
    from colonnade.experiments.compare.present import Shown


def compare(
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment file (TOML). Its methods and faults may be left out.",
            metavar="FILE.toml",
        ),
    ],
    out: Out = None,
    epochs: Annotated[
        int,
        typer.Option(
            help="Of the final trainings of most methods; those of the others are in proportion, "
            "trials have a quarter and a half of them."
        ),
    ] = 40,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this method, or this algorithm. May be given several times."),
    ] = None,
    set_: Set = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the page to this file as Markdown, too.")
    ] = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Compare every method that suits your data, and say which one to choose.

    Settings of each method are found on the validation rows, by a small search with the first seed.
    Then all methods are trained with the same seeds, while 0, 30 and 50 % of the parties or links
    are gone, in training or at prediction (or under the faults of the file). One page has the
    figures, what each method costs, what leaves a party, and advice that is made from the figures.

    Interrupted, the same command goes on where it stopped. The output folder holds report.html,
    comparison.json, and an experiment folder for each stage: search-1, search-2, final.
    """
    from colonnade.common.results import slug
    from colonnade.experiments.compare.source import read_source

    # First, because the rest imports torch.
    name = slug(str(read_source(file, set_ or ())["name"]))

    from colonnade.experiments.compare.present import Shown, write_html
    from colonnade.experiments.compare.present import markdown as as_markdown
    from colonnade.experiments.compare.study import compare as work

    where = engine_maker(jobs, engine, address)
    folder = out or Path("runs") / f"{name}-compared"
    console = Console(stderr=as_json)
    with watched(folder, console) as bar:
        done = work(
            file,
            folder,
            epochs=epochs,
            only=only or (),
            overrides=set_ or (),
            engine=where(),
            fresh=fresh,
            observer=bar,
            command=_command(file, epochs, only or (), set_ or ()),
        )
    shown = Shown(done)
    with resumable(folder, console):
        page = write_html(shown)
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        markdown.write_text(as_markdown(shown), encoding="utf-8")
    if as_json:
        print_json(_document(shown, page))
    else:
        _show(shown, page, console)
    if done.outcome.failures:
        raise typer.Exit(1)


def _command(file: Path, epochs: int, only: Sequence[str], overrides: Sequence[str]) -> str:
    """What makes the same figures: without where they are put, and how many runs go at a time."""
    words = [str(file), "--epochs", str(epochs)]
    words += [word for name in only for word in ("--only", name)]
    words += [word for change in overrides for word in ("--set", change)]
    return shlex.join(["colonnade", "compare", *words])


def _show(shown: Shown, page: Path, console: Console) -> None:
    from colonnade.experiments.findings import PLAIN
    from colonnade.experiments.table import render

    for grid in (*shown.means_grids(), shown.cost_grid()):
        console.print(render(grid))
    for sentence in shown.advice(PLAIN):
        console.print(Text(sentence))
    if edge := shown.edge():
        console.print(Text(edge))
    for method, why in shown.done.left_out.items():
        console.print(Text(f"Left out: {method}: {why}"))
    show_failures(shown.done.outcome.failures, console)
    console.print(Text(f"Report: {page}"), soft_wrap=True)


def _document(shown: Shown, page: Path) -> dict[str, object]:
    import msgspec

    from colonnade.experiments.findings import PLAIN

    return {
        "name": shown.done.experiment.name,
        "folder": str(shown.done.folder),
        "report": str(page),
        "advice": shown.advice(PLAIN),
        "notes": shown.notes(),
        "left_out": shown.done.left_out,
        "methods": shown.done.found.tables,
        "results": msgspec.to_builtins(shown.results),
        "failures": shown.done.outcome.failures,
    }


COMMANDS: tuple[Callable[..., None], ...] = (compare,)
