"""Table 2: all labels in one place, the labels of one party only, and CVFL."""

from __future__ import annotations

from colonnade.experiments.reproduce.sets import marked, together
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Part, Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
QUARTER = "a quarter"


def _study(scale: Scale) -> Study:
    sizes = {name: TABLE.size(scale, dataset=name) for name in TABLE.shown(scale)}
    parts = [part for name, size in sizes.items() for part in _parts(name, size)]
    rows = {
        method: [Place(f"{name}-quarter" if method == QUARTER else name, method) for name in sizes]
        for method in TABLE.methods
    }
    sheet = TABLE.sheet(together(sizes), rows)
    return TABLE.study(scale, parts, [marked(sheet, sizes)])


def _parts(name: str, size: Size) -> list[Part]:
    """With all labels, and with a quarter of them."""
    whole = [method for method in TABLE.methods if method != QUARTER]
    fewer = {"labelled": size.training_rows // 4}
    return [
        size.part(name, size.title, methods=TABLE.runs(size, whole)),
        size.part(
            f"{name}-quarter",
            f"{size.title}, a quarter of the labels",
            methods=TABLE.runs(size, [QUARTER]),
            data=fewer,
        ),
    ]


REPRODUCTION = TABLE.reproduction(_study)
