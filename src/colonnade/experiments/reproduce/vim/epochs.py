"""Tables of VIM whose columns are numbers of epochs: a method is trained anew for each."""

from __future__ import annotations

import math

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Part, Place, Sheet
from colonnade.experiments.reproduce.table_file import TableFile


def by_epochs(table: TableFile, size: Size, name: str, title: str) -> tuple[Part, Sheet]:
    """One experiment, and the table's first sheet for it: its rows are all methods."""
    shown = table.shown(size.scale)
    runs = {(method, n): f"{method}, epochs {n}" for method in table.methods for n in shown}
    methods = []
    for (method, n), run in runs.items():
        own = table.method(size, method, epochs=int(n), fixed=["epochs"])
        methods.append({**own, "name": run})
    rows = {method: [Place(name, runs[method, n]) for n in shown] for method in table.methods}
    rounds = math.ceil(size.training_rows / methods[0]["batch"])
    sheet = table.sheet(size, rows, words={"rounds": str(rounds)})
    return size.part(name, title, methods=methods), sheet
