"""The command `colonnade`. torch, which takes seconds to import, is imported by what computes."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli import (
    align,
    audit,
    compare,
    experiments,
    explain,
    federation,
    look,
    predict,
    serve,
    watch,
)
from colonnade.cli.keys import keys_app
from colonnade.common.processes import LOST
from colonnade.common.text import paragraphs
from colonnade.errors import ColonnadeError, InputError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=paragraphs("""Vertical federated learning that keeps standing when columns fall.

    Parties hold different columns of the same rows. Colonnade trains one model over all of
    them without moving the columns, and compares methods under crashes, lost links and delays.

    Start with [bold]colonnade demo[/bold]. For a real federation, one process per party, start with
    [bold]colonnade up --help[/bold]."""),
)


def _version(asked: bool) -> None:
    if asked:
        from colonnade import __version__

        typer.echo(f"colonnade {__version__}")
        raise typer.Exit


@app.callback()
def top_level(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say which version."),
    ] = False,
) -> None:
    """What the command takes before the name of a subcommand."""


_MODULES = (experiments, compare, explain, audit, look, align, federation, predict, serve, watch)
for _command in (one for module in _MODULES for one in module.COMMANDS):
    app.command(help=paragraphs(_command.__doc__))(_command)
app.add_typer(keys_app, name="keys")


def main() -> None:
    """Exit codes: 0 done, 2 bad input, 1 failure."""
    for lost in LOST:
        signal.signal(lost, _stop)
    try:
        app(standalone_mode=True)
    except InputError as error:
        _complain(error)
        sys.exit(2)
    except ColonnadeError as error:
        _complain(error)
        sys.exit(1)
    finally:
        _leave_quietly()


def _leave_quietly() -> None:
    """Everything is done and told: Ctrl-C ends the process while Python shuts down, which would
    print a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(1))


def _stop(*_: Any) -> None:
    """As by Ctrl-C; not by its signal, which scripts have switched off for what runs beside
    them."""
    raise KeyboardInterrupt


def _complain(error: ColonnadeError) -> None:
    text = Text.assemble(("Error ", "bold red"), str(error))
    Console(stderr=True).print(text, soft_wrap=True)
