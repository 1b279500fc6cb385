"""The commands of a real federation: `join`, `up`, `status`. Asking it is in predict.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.options import Fresh, Json, Track, Where, check_party_file, print_json
from colonnade.common.metric_names import decisive
from colonnade.common.processes import stop_afterwards
from colonnade.federation.member.stage import Stage

if TYPE_CHECKING:
    from colonnade.common.results import Result
    from colonnade.federation.agreement.federation import Federation

PartyToml = Annotated[
    Path, typer.Argument(help="The party file: its name, its data, its keys.", metavar="PARTY.toml")
]


def join(
    file: PartyToml,
    once: Annotated[
        bool,
        typer.Option("--once", help="Leave when training and test are over; do not answer."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what this party kept, and start over.")
    ] = False,
    track: Track = None,
) -> None:
    """Run one party of a real federation, until it is over or you press Ctrl-C.

    Start the parties in any order. A party that comes late or comes back, also after a crash, takes
    up its own last checkpoint and joins the round that the others are in. When the training is over
    it goes on answering [bold]colonnade predict[/bold].

    [dim]The party file names the federation file, which is the same at every party; [bold]colonnade
    keys[/bold] makes the certificates. Results are in the party's folder, for [bold]colonnade
    report[/bold]. Models as "module:name" in the party file, and plugins of the federation file,
    are imported from this machine.[/dim]
    """
    who, console = str(file), Console(stderr=True)
    try:
        with stop_afterwards():
            check_party_file(file)
            from colonnade.federation.agreement.party_file import read_party
        party = read_party(file)  # before the rest, which imports torch
        who = party.party
        with stop_afterwards():
            from colonnade.federation.member import process
            from colonnade.federation.member.folder import clear
            from colonnade.federation.member.folder_lock import only_one
            from colonnade.federation.member.status import set_up_log
        if fresh:
            with only_one(party.folder, party.party):
                clear(party.folder)
        set_up_log(console)
        member = process.join(party, console, once=once, track=track or ())
    except KeyboardInterrupt:
        kept = f"{who} has left. The same command goes on from its last checkpoint."
        console.print(Text(kept))
        raise typer.Exit(0) from None
    if member.state.result is not None:
        show_result(member.state.result, party.folder, Console())


def up(
    file: Annotated[Path, typer.Argument(help="The federation file.", metavar="FEDERATION.toml")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder. Default: runs/<name>-up.")
    ] = None,
    kill_every: Annotated[
        float | None,
        typer.Option(
            "--kill-every",
            metavar="SECONDS",
            min=0.1,
            help="Chaos: kill a random process about so often; it returns 1 to 3 s later.",
        ),
    ] = None,
    chaos_seed: Annotated[
        int | None,
        typer.Option(
            "--chaos-seed",
            help="Which processes are killed, and when. Default: drawn, and printed.",
        ),
    ] = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Try a federation on this machine: every party as a process of its own, with certificates.

    Makes keys and party files in the output folder and runs [bold]colonnade join[/bold] for each
    party. With \\[rows] in the federation file, each party's data is that of the party file beside
    it, and so are models of its own (encoder, head, decoder).

    Interrupted, the same command goes on from the parties' checkpoints.
    """
    from colonnade.common.file_kinds import FEDERATION, check_kind
    from colonnade.common.results import slug

    check_kind(file, FEDERATION)
    from colonnade.federation.agreement.federation_file import read_federation

    federation = read_federation(file)
    from colonnade.federation.member.local_files import clear_all

    folder = out or Path("runs") / f"{slug(federation.name)}-up"
    if fresh:
        clear_all(folder, federation.members)
    party, result = _up(federation, file, folder, kill_every, chaos_seed)
    from colonnade.federation.member.local_processes import notes_of

    notes = notes_of(folder, federation.members)
    if as_json:
        print_json(_document(result, folder / party) | {"notes": notes})
    else:
        show_result(result, folder / party, Console(), notes)


def _up(
    federation: Federation, file: Path, folder: Path, kill_every: float | None, seed: int | None
) -> tuple[str, Result]:
    """Run all processes to the end, with a line that says how far they are."""
    from colonnade.cli import main
    from colonnade.federation.member import local_processes

    console = Console(stderr=True)
    if federation.data is not None:
        for caution in federation.vertical_data().cautions:
            console.print(Text(f"Note: {caution}"))
    try:
        with console.status(f"starting {len(federation.members)} processes") as line:
            return local_processes.up(
                federation,
                file,
                folder,
                main,
                kill_every=kill_every,
                seed=seed,
                watch=lambda status: line.update(Text(_progress(status))),
                say=lambda text: console.print(Text(text)),
            )
    except KeyboardInterrupt:
        console.print(Text(f"Stopped; the state is kept in {folder}. The same command goes on."))
        raise typer.Exit(1) from None


def status(file: Where, as_json: Json = False) -> None:
    """Ask every party of a federation how it is.

    Of a party that does not answer and whose folder is on this machine, it says how and when its
    process ended.
    """
    check_party_file(file)
    from colonnade.federation.asking.parties import find_party
    from colonnade.federation.asking.statuses import ends, statuses

    party = find_party(file)
    ended = ends(file, party)
    found = {name: told or ended.get(name, {}) for name, told in statuses(party).items()}
    if as_json:
        print_json(found)
        return
    from colonnade.cli.status_table import show

    show(party.federation, found, Console())


def show_result(result: Result, folder: Path, console: Console, notes: Sequence[str] = ()) -> None:
    from colonnade.common.private_files import as_private_as
    from colonnade.experiments.privacy_grid import privacy_grid
    from colonnade.experiments.report import write_report
    from colonnade.experiments.table import cost_grid, planned, render, summarise

    plan = planned(folder)
    console.print(render(summarise([result], plan).grid()))
    console.print(render(cost_grid([result], plan)))
    if (noised := privacy_grid([result], plan)) is not None:
        console.print(render(noised))
    for note in dict.fromkeys([*result.notes, *notes]):
        console.print(Text(f"Note: {note}"))
    with as_private_as(folder):
        page = write_report(folder)
    console.print(Text(f"Report: {page}"), soft_wrap=True)


def _progress(status: dict[str, Any]) -> str:
    if not status:
        return Stage.STARTING
    parts = [f"{status['party']}: {status['stage']}"]
    if status["stage"] == Stage.TRAINING:
        rounds = f"round {status['round']:,} of at most {status['rounds']:,}"
        parts.append(status.get("activity") or rounds)
    parts += decisive(status.get("metrics", {}), status.get("metric", ""))
    if away := status.get("away"):
        parts.append("away: " + ", ".join(f"{p} {s:.0f} s" for p, s in away.items()))
    return " · ".join(parts)


def _document(result: Result, folder: Path) -> dict[str, Any]:
    import msgspec

    return {"folder": str(folder), "result": msgspec.to_builtins(result)}


COMMANDS: tuple[Callable[..., None], ...] = (join, up, status)
