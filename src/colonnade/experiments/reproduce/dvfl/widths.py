"""Table 5: how wide the encodings of clients (W_g, all together) and aggregators (W_h) are."""

from __future__ import annotations

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size, clients = TABLE.size(scale), TABLE.data["parties"]
    columns = {column: _width(column) for column in TABLE.shown(scale)}
    rows = {name: _width(name) for name in TABLE.figures()}
    methods = [
        TABLE.method(
            size, _method(g, h), like="DVFL", encoder=[100, g // clients], aggregator_width=h
        )
        for h in rows.values()
        for g in columns.values()
    ]
    places = {
        name: [Place("widths", _method(g, h)) for g in columns.values()] for name, h in rows.items()
    }
    part = size.part("widths", "Widths of encodings", methods=methods)
    return TABLE.study(scale, [part], [TABLE.sheet(size, places)])


def _width(name: str) -> int:
    """That of "W_g = 200"."""
    return int(name.split(" = ")[1])


def _method(joined: int, code: int) -> str:
    return f"W_g {joined}, W_h {code}"


REPRODUCTION = TABLE.reproduction(_study)
