"""The command `watch`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer


def watch(
    path: Annotated[
        Path,
        typer.Argument(
            help="The output folder of [bold]colonnade run[/bold] or [bold]up[/bold], or a party "
            "file.",
            metavar="DIR|PARTY.toml",
        ),
    ],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Default: a free one.")] = 0,
) -> None:
    """Follow a simulation or a real federation on a live page, until you press Ctrl-C.

    Shows which parties and links are up, learning curves, bytes per link and rounds per second.
    The page is for this machine only: it is at 127.0.0.1, under a key that changes every time.

    [dim]With a party file, the other parties are asked how they are, as by [bold]colonnade
    status[/bold]. Watching changes nothing and may begin and end at any time.[/dim]
    """
    from colonnade.watch.finding import source_of
    from colonnade.watch.server import Server

    server = Server(source_of(path), port)
    typer.echo(f"Watching {path} at {server.address} (Ctrl-C ends it)")
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        typer.echo("Stopped watching.")
    finally:
        server.server_close()


COMMANDS: tuple[Callable[..., None], ...] = (watch,)
