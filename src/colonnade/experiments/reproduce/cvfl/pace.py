"""Figure 2: test loss over time, asynchronous and synchronous, with three parties at half the
speed."""

from __future__ import annotations

from colonnade.common.toml import Table
from colonnade.experiments.reproduce.sets import marked, together
from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    sizes = {name: TABLE.size(scale, dataset=name) for name in TABLE.shown(scale)}
    parts = [
        size.part(
            name,
            size.title,
            methods=[_slower(method, name) for method in TABLE.runs(size)],
            data={"metric": "log_loss"},
            target=TABLE.extra[scale][name],
        )
        for name, size in sizes.items()
    ]
    rows = {method: [Place(name, method) for name in sizes] for method in TABLE.methods}
    sheets = [TABLE.sheet(together(sizes), rows, sheet) for sheet in TABLE.sheets]
    return TABLE.study(scale, parts, [marked(sheet, sizes) for sheet in sheets])


def _slower(method: Table, dataset: str) -> Table:
    """A method with a rate for the data set."""
    return {**method, "lr": round(method["lr"] * TABLE.extra["rates"].get(dataset, 1.0), 4)}


REPRODUCTION = TABLE.reproduction(_study)
