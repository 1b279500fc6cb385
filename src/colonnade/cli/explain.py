"""The command `explain`: of runs in an output folder, and of a real federation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.options import Json, print_json
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.common.explanations import Explanation


MapKind = Literal["pca", "tsne", "none"]
RunPath = Annotated[
    Path,
    typer.Argument(
        help="The output folder of [bold]colonnade run[/bold]; or, of a real federation, the "
        "label holder's party file, or the folder of [bold]colonnade up[/bold].",
        metavar="RUN",
    ),
]
Method = Annotated[str | None, typer.Option("--method", help="Its name. Default: every method.")]
Faults = Annotated[
    str | None, typer.Option("--faults", help="Their name. Default: the first in the file.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Default: the first.")]
Sigma = Annotated[
    float,
    typer.Option("--sigma", help="Scale of the noise test, in units of each column's own scale."),
]
Orders = Annotated[
    int,
    typer.Option("--orders", help="Orders of the parties to sample, where there are more than 10."),
]
Map = Annotated[MapKind, typer.Option("--map", help="How embeddings are drawn.")]
Summarise = Annotated[
    float | None,
    typer.Option(
        "--summarise",
        metavar="SHARE",
        help="Also train anew with this share of the parties, those that contribute most, "
        "and with as many that contribute least. E.g. 0.5.",
    ),
]


def explain(
    run: RunPath,
    method: Method = None,
    faults: Faults = None,
    seed: Seed = None,
    sigma: Sigma = 1.0,
    orders: Orders = 64,
    map_: Map = "pca",
    summarise: Summarise = None,
    as_json: Json = False,
) -> None:
    """Which party contributed what to a trained model.

    For each party: its Shapley value (what its columns add to the score on the test rows, averaged
    over all orders in which the parties could come), what is lost without the party, and what is
    lost when its columns are noise. Parties whose embeddings have nothing to do with the labels are
    named. Shapley values are exact for up to 10 parties, which takes 2^n evaluations; with more,
    they are sampled, and have an error bar.

    The explanations are kept in RUN/explanations, and the report shows them.

    [dim]Of a real federation, the label holder asks: parties send what they send for a prediction
    of the test rows, and nothing else. So there is no noise test.[/dim]
    """
    from colonnade.common.private_files import as_private_as
    from colonnade.experiments.report import write_report

    if run.is_file() or (run / "federation.toml").is_file():
        given = {"--method": method, "--faults": faults, "--seed": seed, "--summarise": summarise}
        _refuse([option for option, value in given.items() if value is not None], run)
        found, folder = _of_federation(run, orders)
    else:
        found, folder = _of_folder(run, method, faults, seed, sigma, orders, map_, summarise), run
    with as_private_as(folder):
        page = write_report(folder)
    if as_json:
        import msgspec

        print_json({"folder": str(folder), "explanations": msgspec.to_builtins(found)})
    else:
        _show(found, page, Console())


def _refuse(options: Sequence[str], run: Path) -> None:
    for option in options:
        raise InputError(
            f"{option}: is for output folders of `colonnade run`; {run} is a real federation, "
            "which has one method and one model"
        )


def _of_folder(
    run: Path,
    method: str | None,
    faults: str | None,
    seed: int | None,
    sigma: float,
    orders: int,
    map_: MapKind,
    summarise: float | None,
) -> Sequence[Explanation]:
    from colonnade.experiments.config import read_folder

    read_folder(run)  # before the rest, which imports torch

    from colonnade.experiments.explain import Ask, explain_folder
    from colonnade.experiments.progress import Bar

    ask = Ask(method, faults, seed, sigma, orders, map_, summarise)
    with Bar(Console(stderr=True), "explaining") as bar:
        return explain_folder(run, ask, bar)


def _of_federation(run: Path, orders: int) -> tuple[Sequence[Explanation], Path]:
    """The explanation, and the folder of the party that asked."""
    from colonnade.cli import main
    from colonnade.experiments.progress import Bar
    from colonnade.federation.asking.explaining import explain as ask_parties
    from colonnade.federation.asking.parties import awake, find_party

    party = find_party(run)
    with awake(run, party, main), Bar(Console(stderr=True), "explaining") as bar:
        bar.begin(1, 0)
        return [ask_parties(party, orders, lambda share: bar.advance("", share))], party.folder


def _show(found: Sequence[Explanation], page: Path, console: Console) -> None:
    from colonnade.experiments.explanation_page import grid, sentences
    from colonnade.experiments.table import render

    for one in found:
        console.print(render(grid(one)))
        for sentence in sentences(one):
            console.print(Text(sentence))
    console.print(Text(f"Report: {page}"), soft_wrap=True)


COMMANDS: tuple[Callable[..., None], ...] = (explain,)
