"""What `colonnade status` prints: a table of the parties, and a sentence for each thing that is not
as it should be."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from colonnade.federation.agreement.federation import Federation
from colonnade.federation.asking.sentences import Told, sentences
from colonnade.federation.asking.statuses import code_in
from colonnade.federation.member.stage import Stage


def show(federation: Federation, found: Mapping[str, Told], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    any_code = any(told.get("code") for told in found.values())
    columns = ("party", "roles", "state", "round", "part of the model")
    for column in (*columns, *(["code of its own"] if any_code else [])):
        table.add_column(column)
    for name in federation.members:
        told, roles = found[name], ", ".join(federation.party(name).roles)
        code = [Text(code_in(told))] if any_code else []
        answers = bool(told) and "invalid" not in told
        cells = map(Text, _cells(told)) if answers else (Text("no answer"), "", "")
        table.add_row(name, roles, *cells, *code, style="" if answers else "dim")
    console.print(table)
    for sentence in sentences(found):
        console.print(Text(sentence))


def _cells(told: Told) -> tuple[str, str, str]:
    """State, round, part of the model."""
    training = told["stage"] == Stage.TRAINING
    round = f"{told.get('round', 0):,} of {told.get('rounds', 0):,}" if training else ""
    part = told.get("model", "")
    return told["stage"], round, "none" if part == "untrained" else part
