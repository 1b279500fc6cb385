"""The command `colonnade look`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from colonnade.cli.options import Json, check_party_file, print_json
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.data.looking import Look, Looked, Wanted
    from colonnade.data.preprocessing import Preprocessing
    from colonnade.federation.agreement.party_file import PartyFile

HEADERS = ("column", "holds", "gaps", "values", "treatment", "numbers")
FIGURES = ("gaps", "values", "numbers")
NAME = 18  # characters of a column's name


def look(
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Parquet or .npz file; with --query a database. Or a party file, for the "
            "table that it names.",
            metavar="TABLE|PARTY.toml",
        ),
    ],
    label: Annotated[
        str | None, typer.Option("--label", "-l", help="The column to predict.", metavar="COLUMN")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", help="The column that names the rows.", metavar="COLUMN"),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", help="SQL whose result is the table.", metavar="SQL"),
    ] = None,
    attach: Annotated[
        list[str] | None,
        typer.Option(
            "--attach", help="A database for the query, by a name of yours.", metavar="NAME=FILE"
        ),
    ] = None,
    prepare: Annotated[
        list[str] | None,
        typer.Option(
            "--prepare", "-p", help="Try a treatment. Several may be given.", metavar="COLUMN=HOW"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what would be done with each column of a table, and how many numbers it becomes.

    Numbers are standardised, or ranked if they have a heavy tail (quantile). Words become one
    number for each of up to 64 levels, rare levels one together (onehot); more levels are ranked by
    frequency (ordinal). Dates become days, time of year and day of week. Gaps take the median, and
    a number more says where they were. Ids, free text and columns that are empty are left out.

    Say otherwise in \\[data] of an experiment file or party file: prepare = { city = "ordinal",
    note = "drop" }. Treatments: standard, standard:comma, quantile, boolean, onehot, ordinal,
    ordinal:low|mid|high, date, date:%d/%m/%Y, drop.

    All rows count, or of a table of more than 256 MB a sample of 100,000. A training looks at its
    training rows only, so that a level may be rare there, or a gap be missing. Of a party that has
    begun to train, its party file shows what was fitted.

    Example: [bold]colonnade look patients.csv --label outcome --key patient[/bold]
    """
    from colonnade.data.looking import Wanted
    from colonnade.data.looking import look as look_at
    from colonnade.data.sql import Query

    path, fitted = table.expanduser(), None
    declared = dict(_pair(text) for text in prepare or [])
    if path.suffix.lower() == ".toml":
        if any((label, key, query, attach, prepare)):
            raise InputError(f"{path}: a party file says all of this; give options with a table")
        wanted, fitted = _of_party(path)
    else:
        sql = Query.of(query, dict(_attached(text) for text in attach or []))
        wanted = Wanted(path=path, query=sql, label=label, key=key, declared=declared)
    found = look_at(wanted, fitted)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
        return
    show(found, Console())


def _of_party(path: Path) -> tuple[Wanted, Preprocessing | None]:
    """The table of a party, and what its training has fitted, if one has begun."""
    check_party_file(path)
    from colonnade.data.looking import Wanted
    from colonnade.data.preprocessing import load_preprocessing
    from colonnade.federation.agreement.party_file import read_party
    from colonnade.federation.member.own_features import FITTED

    party = read_party(path, aligned=False)
    data, rows = party.data, party.federation.rows
    if data is None:
        raise InputError(f"{path}: {party.party} has no table of its own")
    by = rows and rows.split_by
    wanted = Wanted(
        path=Path(data.path),
        query=data.sql,
        label=data.label,
        key=data.id,
        divider=by.name if by and by.party == party.party else None,
        only=data.columns if party.holds_columns else [],
        declared=data.prepare,
        labelled=_labelled(party),
        elsewhere=party.federation.roles.several,
    )
    before = party.folder / FITTED
    return wanted, load_preprocessing(before) if before.exists() else None


def _labelled(party: PartyFile) -> int | None:
    """How many rows of a party's file, from the first, need a label; None: all."""
    rows = party.federation.rows
    if party.matches or party.federation.roles.several:
        return 0
    return rows.aligned if rows else None


def _pair(text: str) -> tuple[str, str]:
    from colonnade.data.preprocessing import check_treatment

    column, equals, treatment = text.partition("=")
    if not equals:
        raise InputError(f"--prepare {text}: expected COLUMN=HOW, e.g. city=ordinal")
    check_treatment(treatment, f"--prepare {column}")
    return column, treatment


def _attached(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not equals:
        raise InputError(f"--attach {text}: expected NAME=FILE, e.g. registry=registry.duckdb")
    return name, file


def _cells(one: Look) -> tuple[str, ...]:
    gaps = f"{one.gaps:,}" if one.gaps else ""
    return one.name, one.kind, gaps, f"{one.values:,}", one.treatment, f"{one.width}"


def show(found: Looked, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rows = [_cells(one) for one in found.columns]
    for i, header in enumerate(HEADERS):
        longest = max(len(header), *(len(row[i]) for row in rows))
        width = min(longest, NAME) if i == 0 else longest  # a long name goes on in the next line
        right = "right" if header in FIGURES else "left"
        table.add_column(header, justify=right, min_width=width, max_width=width, overflow="fold")
    table.add_column("", overflow="fold", style="dim")
    for one, cells in zip(found.columns, rows, strict=True):
        style = "red" if one.treatment == "refused" else "" if one.width else "dim"
        detail = "" if one.treatment == "refused" else one.detail
        table.add_row(*map(Text, cells), Text(detail), style=style)
    console.print(table)
    for one in found.columns:
        if one.treatment == "refused":
            console.print(Text(one.detail, "red"), soft_wrap=True)
    used = sum(one.width > 0 for one in found.columns)
    told = f"{found.rows:,} rows; {used} columns become {found.width:,} numbers"
    how = "as fitted in the training" if found.fitted else "if all rows are training rows"
    console.print(Text(f"{told}, {how}."))
    if found.sample is not None:
        console.print(
            Text(
                f"A large table: {found.sample:,} of its rows were looked at, drawn at random; the "
                "numbers of gaps and values are those of this sample, and keys that repeat may not "
                "show."
            )
        )


COMMANDS: tuple[Callable[..., None], ...] = (look,)
