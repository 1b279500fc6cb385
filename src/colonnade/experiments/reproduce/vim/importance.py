"""Figure 3: which clients matter, by the norms of their heads and by noise in their columns."""

from __future__ import annotations

from dataclasses import replace

from colonnade.experiments.reproduce.study import Place, Scale, Sheet, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
[METHOD] = TABLE.methods
ROWS = {"no noise": "clean", "client 7 noisy": "noisy"}  # row → part


def _study(scale: Scale) -> Study:
    size, noisy = TABLE.size(scale), {"noisy": TABLE.extra["noisy"]}
    parts = [
        size.part(
            part,
            f"{METHOD}, {row}",
            explain=TABLE.extra["explain"],
            methods=TABLE.runs(size),
            data=noisy if part == "noisy" else {},
        )
        for row, part in ROWS.items()
    ]
    clients = TABLE.columns["clients"]
    rows = {row: [Place(part, METHOD)] * len(clients) for row, part in ROWS.items()}
    sheets = [_by_client(TABLE.sheet(size, rows, measure), measure) for measure in TABLE.sheets]
    return TABLE.study(scale, parts, sheets)


def _by_client(sheet: Sheet, measure: str) -> Sheet:
    """Each column shows what the explanations of the runs say of its client."""
    columns = (replace(c, metric=f"{measure}:client{int(c.name) - 1}") for c in sheet.columns)
    return replace(sheet, columns=tuple(columns))


REPRODUCTION = TABLE.reproduction(_study)
