"""The command `align`: which rows the parties of a real federation have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.federation import PartyToml
from colonnade.cli.options import Json, print_json
from colonnade.common.processes import stop_afterwards

if TYPE_CHECKING:
    from colonnade.federation.agreement.party_file import PartyFile
    from colonnade.federation.member.aligning.process import Outcome


def align(
    file: PartyToml,
    add: Annotated[
        bool,
        typer.Option(
            "--add",
            help="Add new rows to those that were matched, to be predicted, not trained on.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the rows that all parties have, without showing anybody the others.

    Type it at every party, in any order; it ends when all have found their common rows. The
    federation file says [bold]match = "private"[/bold] in \\[rows], in place of
    [bold]aligned[/bold], and each party file names the column of keys, [bold]id[/bold] in
    \\[data]. Then [bold]colonnade join[/bold] uses what was found. If you leave this command out,
    [bold]join[/bold] begins with it.

    The label holder learns which of its rows each party has; every party learns which of its own
    rows all parties have, and how many keys the label holder has. Nobody is told a key. What is
    found is kept in the party's folder as row numbers; the same command again finds it anew.

    Later, [bold]--add[/bold] at every party, while none runs [bold]join[/bold], matches the rows
    that are not common ones yet. Those that are new come behind the others: [bold]join[/bold] goes
    on with the trained model, and [bold]predict[/bold] answers about them.

    [dim]Keys are compared after the normalisation that the federation file declares. Rows without a
    key are left out and counted; two rows with one key are an error. Needs openmined-psi: pip
    install colonnade\\[psi].[/dim]
    """
    console = Console(stderr=True)
    try:
        with stop_afterwards():
            from colonnade.common.file_kinds import PARTY, check_kind

            check_kind(file, PARTY)
            from colonnade.federation.agreement.party_file import read_party
        party = read_party(file, aligned=False)  # before the rest, which imports torch
        with stop_afterwards():
            from colonnade.federation.member.aligning import process
            from colonnade.federation.member.status import set_up_log
        set_up_log(console)
        outcome = process.align(party, console, add=add)
    except KeyboardInterrupt:
        console.print(Text(f"{file}: left before the rows were matched; nothing has changed."))
        raise typer.Exit(1) from None
    if as_json:
        print_json(document(party, outcome))
        return
    out = Console()
    out.print(Text(f"{process.sentence(party, outcome)}."))
    if outcome.addition is None or outcome.addition.rows:
        out.print(Text(f"Kept in {party.folder}, for colonnade join {file}."), soft_wrap=True)


def document(party: PartyFile, outcome: Outcome) -> dict[str, Any]:
    facts, common = outcome.alignment.facts, len(outcome.alignment.rows)
    told = outcome.addition or facts
    new = {} if outcome.addition is None else {"new": outcome.addition.rows}
    return {
        "party": party.party,
        "alignment": facts.name,
        "rows": facts.file,
        "without_key": facts.empty,
        "common": common if party.data is not None else None,
        "aligned": facts.aligned,
        "added": outcome.alignment.added,
        "beside": facts.extra,
        **new,
        "matched": told.matched,
        "keys_of_others": told.sizes,
        "seconds": round(outcome.seconds, 3),
        "bytes_sent": outcome.bytes,
    }


COMMANDS: tuple[Callable[..., None], ...] = (align,)
