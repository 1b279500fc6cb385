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

from colonnade.cli.options import Json, print_json
from colonnade.errors import InputError

if TYPE_CHECKING:
    from colonnade.data.looking import Look, Looked

HEADERS = ("column", "holds", "gaps", "values", "treatment", "numbers")
FIGURES = ("gaps", "values", "numbers")
NAME = 18  # characters of a column's name


def look(
    table: Annotated[
        Path,
        typer.Argument(
            help="A CSV, Parquet or .npz file; with --query a database.", metavar="TABLE"
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
    note = "drop" }. Treatments: standard, quantile, boolean, onehot, ordinal, date,
    date:%d/%m/%Y, drop.

    Example: [bold]colonnade look patients.csv --label outcome --key patient[/bold]
    """
    from colonnade.data.looking import look as look_at

    declared = dict(_pair(text) for text in prepare or [])
    found = look_at(table.expanduser(), query, label=label, key=key, declared=declared)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
        return
    show(found, Console())


def _pair(text: str) -> tuple[str, str]:
    from colonnade.data.preprocessing import check_treatment

    column, equals, treatment = text.partition("=")
    if not equals:
        raise InputError(f"--prepare {text}: expected COLUMN=HOW, e.g. city=ordinal")
    check_treatment(treatment, f"--prepare {column}")
    return column, treatment


def _cells(one: Look) -> tuple[str, ...]:
    gaps = f"{one.gaps:,}" if one.gaps else ""
    return one.name, one.kind, gaps, f"{one.values:,}", one.treatment, f"{one.width}"


def show(found: Looked, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rows = [_cells(one) for one in found.columns]
    for i, header in enumerate(HEADERS):
        longest = max(len(header), *(len(row[i]) for row in rows))
        width = min(longest, NAME) if i == 0 else longest  # figures are never cut
        right = "right" if header in FIGURES else "left"
        table.add_column(header, justify=right, min_width=width, max_width=width, no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, style="dim")
    for one, cells in zip(found.columns, rows, strict=True):
        style = "red" if one.treatment == "refused" else "" if one.width else "dim"
        detail = "" if one.treatment == "refused" else one.detail
        table.add_row(*map(Text, cells), Text(detail, overflow="ellipsis"), style=style)
    console.print(table)
    for one in found.columns:
        if one.treatment == "refused":
            console.print(Text(one.detail, "red"), soft_wrap=True)
    used = sum(one.width > 0 for one in found.columns)
    told = f"{found.rows:,} rows; {used} columns become {found.width:,} numbers."
    console.print(Text(f"{told} In a training only training rows are looked at."))


COMMANDS: tuple[Callable[..., None], ...] = (look,)
