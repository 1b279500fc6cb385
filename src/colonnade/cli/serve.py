"""The command `serve`: predictions over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.options import Where, check_party_file
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.federation.agreement.party_file import PartyFile
    from colonnade.federation.serving.settings import Settings


def serve(
    file: Where,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen. Others than this machine need a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")
    ] = 8471,
    token: Annotated[
        Path | None,
        typer.Option(
            "--token",
            metavar="FILE",
            help="The file with the token. Default: serve.token in the party's folder, if there.",
        ),
    ] = None,
    new_token: Annotated[
        bool,
        typer.Option("--new-token", help="Make a new token, say where it is, and end."),
    ] = False,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="Encrypt, and ask for a certificate of the federation's authority."
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="NAME",
            help="With --tls: who may ask, by the name in the certificate, beside this party; may "
            "be given several times.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0.05, max=30, help="For an answer, if the request does not say."
        ),
    ] = 2.0,
) -> None:
    """Answer programs over HTTP: keys in, predictions out, within a deadline.

    Runs beside [bold]colonnade join[/bold] of the same party, at the label holder; where nobody
    leads (mags), at any device; where several hold labels (cvfl), at each of them. For a folder of
    [bold]colonnade up[/bold] whose processes have ended, they are started again.

    POST /predict takes {"keys": ["17", "18"], "seconds": 0.5} and answers with the class, the
    probability of every class, the version of the model, and which parties were absent, and why:
    answers keep coming while parties are away, as far as the method allows. GET /health says
    whether it is ready, GET /status how the party is, GET /schema describes all this as OpenAPI.

    Only this machine is listened to, unless there is a token (made by [bold]--new-token[/bold], and
    shown by clients as [bold]Authorization: Bearer …[/bold]) or [bold]--tls[/bold]. Each
    prediction tells whoever asks something about the columns of all parties: see
    docs/how-to/predict.md.
    """
    check_party_file(file)
    from colonnade.federation.asking.parties import find_party
    from colonnade.federation.serving.settings import Limits, Settings, token_path
    from colonnade.federation.serving.tokens import new_token as make
    from colonnade.federation.serving.tokens import read_token

    party, console = find_party(file), Console(stderr=True)
    path = token or token_path(party)
    if new_token:
        make(path)
        console.print(Text(f"A new token is in {path}; a server that runs must be started again."))
        return
    shown = read_token(path) if token is not None or path.exists() else None
    limits = Limits(seconds=seconds)
    settings = Settings(host, port, shown, tls, tuple(allow or ()), limits)
    settings.check(party)
    _serve(file, party, settings, console)


def _serve(file: Path, party: PartyFile, settings: Settings, console: Console) -> None:
    from colonnade.cli import main
    from colonnade.federation.asking.parties import awake

    try:
        from colonnade.federation.serving import server
    except ImportError as error:
        raise InputError(
            f"serve needs litestar and uvicorn ({error}): pip install 'colonnade[serve]'"
        ) from None

    def ready(address: str) -> None:
        needs = ["a token"] if settings.token else []
        needs += ["a certificate of the federation"] if settings.tls else []
        who = " and ".join(needs) or "nothing: every user of this machine may ask"
        console.print(Text(f"{party.party} answers at {address}; a client needs {who}."))

    try:
        with awake(file, party, main):
            server.serve(party, settings, ready)
    except KeyboardInterrupt:  # uvicorn has ended in good order, and hands the signal on
        pass
    console.print(Text(f"{party.party} is not served any more."))


COMMANDS: tuple[Callable[..., None], ...] = (serve,)
