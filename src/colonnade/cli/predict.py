"""The command `predict`: a file of keys in, a file of answers out. For programs: serve.py."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from colonnade.cli.options import Fresh, Json, Where, check_party_file
from colonnade.common.text import first_of, printable
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.federation.agreement.party_file import PartyFile
    from colonnade.federation.asking.prediction_tables import Keys
    from colonnade.federation.asking.predictions import Asker
    from colonnade.federation.member.prediction_requests import Predicted

LINE = 2000  # characters of a note


def predict(
    file: Where,
    rows: Annotated[
        Path | None,
        typer.Argument(
            help="The rows, by key: a CSV or Parquet file. Default: the rows that no party trained "
            "on, in the file of the party that is asked; of a built-in data set, all test rows.",
            metavar="ROWS.csv|ROWS.parquet",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="COLUMN",
            help="The key column of ROWS. Default: that of the party's own data, or the only one.",
        ),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            "--ids",
            help="The rows by themselves: 17,18,19, or @FILE with one in each line. Without an id "
            "column, and for the test rows of a built-in data set, the key is the number of the "
            "row from 1.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where the answers go: a CSV or Parquet file, by the end of its name. Default: "
            "CSV on the standard output.",
        ),
    ] = None,
    fresh: Fresh = False,
    as_json: Json = False,
) -> None:
    """Ask the parties for predictions: a file of keys in, a file of answers out.

    Each answer holds the key, the predicted class, the probability of every class (or the number
    that is predicted), the truth where it is known, and which parties were absent, with the reason.
    Keys that the party does not have, and rows without a key, are counted and named; the others are
    answered.

    Ask at the label holder, while it runs [bold]colonnade join[/bold]; where nobody leads (mags),
    at any device; where several hold labels (cvfl), at each of them. For a folder of
    [bold]colonnade up[/bold] whose processes have ended, they are started again from what they
    saved; of devices that run, the first that answers is asked.

    Interrupted, the same command with [bold]--out[/bold] goes on after the last 1,024 rows that
    were answered. For one prediction at a time, as a program needs them, see [bold]colonnade
    serve[/bold].
    """
    check_party_file(file)
    if rows is not None and ids is not None:
        raise InputError("--ids: give the rows in a file or by --ids, not both")
    from colonnade.cli import main
    from colonnade.federation.asking.parties import awake, find_party
    from colonnade.federation.asking.prediction_tables import check_out

    if out is not None:
        check_out(out)
    party = find_party(file)
    asked = _keys(party, rows, key, ids)
    console = Console(stderr=True)
    with awake(file, party, main):
        found = _asked(party, asked.keys, out, asked.column, fresh, console)
    if as_json:
        import msgspec

        document = msgspec.to_builtins(found) | {"rows_without_key": asked.nameless}
        typer.echo(msgspec.json.encode(document).decode())
    elif out is None:
        from colonnade.federation.asking.prediction_tables import write_csv

        write_csv(found, sys.stdout, asked.column)
    for note in (*notes(found, matched=party.matches), *nameless_note(asked.nameless)):
        console.print(Text(printable(note, LINE)), soft_wrap=True)


def _keys(party: PartyFile, rows: Path | None, key: str | None, ids: str | None) -> Keys:
    from colonnade.federation.asking.prediction_tables import ID, Keys, read_keys

    usual = party.data.id if party.data is not None else None
    if rows is not None:
        return read_keys(rows, key, usual)
    return Keys(key or ID, _ids(ids))


def _asked(
    party: PartyFile,
    keys: list[str] | None,
    out: Path | None,
    name: str,
    fresh: bool,
    console: Console,
) -> Predicted:
    """Ask in batches; with `out`, keep each of them, and write the table in the end."""
    from colonnade.experiments.progress import Bar
    from colonnade.federation.asking.batches import Journal, about, answered, journal_of
    from colonnade.federation.asking.prediction_tables import write_table
    from colonnade.federation.asking.predictions import Asker, check_known

    with Asker(party) as asker:
        keys = _new_rows(asker) if keys is None else keys
        kept = None if out is None else journal_of(out)
        journal = Journal(kept, about(party.party, keys), fresh)
        try:
            with Bar(console, "predicting", "rows") as bar:
                total = len(set(keys))
                found = answered(asker.ask, keys, journal, lambda done: bar.begin(total, done))
        except KeyboardInterrupt:
            done = sum(len(part.ids) for part in journal.found)
            where = "" if kept is None else f" are kept in {kept}. The same command goes on."
            console.print(Text(f"Stopped; {done:,} answers{where or ' are lost without --out.'}"))
            raise typer.Exit(1) from None
    known = bool(found.ids or found.failed or not keys)
    if out is not None and known:
        write_table(found, out, name)
    journal.remove()
    check_known(found, party.party, matched=party.matches)
    return found


def _new_rows(asker: Asker) -> list[str]:
    from colonnade.federation.member.prediction_requests import Asked

    return asker.ask(Asked(listing=True)).ids


def _ids(text: str | None) -> list[str] | None:
    if text is None:
        return None
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            words = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--ids {text}: {path} cannot be read ({error})") from error
    else:
        words = [word.strip() for word in text.split(",")]
    if not any(words):
        raise InputError(f"--ids {text}: names no row")
    return [word for word in words if word]


def notes(found: Predicted, *, matched: bool = False) -> list[str]:
    """What must be said about these answers. `matched`: rows were, and only those can be asked
    for."""
    total = len(found.ids)
    what = "prediction" if total == 1 else "predictions"
    missed = Counter((party, why) for absent in found.absent for party, why in absent.items())
    everywhere = [f"{party} ({why})" for (party, why), rows in missed.items() if rows == total]
    who = f"without {', '.join(everywhere)}" if everywhere else "with every party"
    some = [(party, why, rows) for (party, why), rows in missed.items() if rows < total]
    if some and not everywhere:
        who = "most with every party" if 2 * max(rows for *_, rows in some) < total else "in part"
    said = [f"{total:,} {what}, {who}."]
    said += [f"{rows:,} of them without {party}: {why}." for party, why, rows in some]
    if unknown := found.unknown:
        are = "key is" if len(unknown) == 1 else "keys are"
        where = "among the matched rows" if matched else "known"
        said.append(f"{len(unknown):,} {are} not {where}, without an answer: {first_of(unknown)}.")
    for why, rows in Counter(found.failed.values()).items():
        failed = [one for one, reason in found.failed.items() if reason == why]
        said.append(f"No answer to {rows:,} of the keys ({first_of(failed)}): {why}.")
    return said


def nameless_note(rows: Sequence[int]) -> list[str]:
    """Of rows of the file that name nothing to predict."""
    if not rows:
        return []
    have, places = ("row has", "row") if len(rows) == 1 else ("rows have", "rows")
    return [
        f"{len(rows):,} {have} no key and no answer: data {places} {first_of([*map(str, rows)])} "
        "(data rows count from 1)."
    ]


COMMANDS: tuple[Callable[..., None], ...] = (predict,)
