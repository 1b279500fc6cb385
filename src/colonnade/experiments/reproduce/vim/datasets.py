"""Section 4.1 and table 3: CIFAR-10, NUS-WIDE and ModelNet40."""

from __future__ import annotations

from colonnade.experiments.reproduce.sets import marked, together
from colonnade.experiments.reproduce.size import Size, sized
from colonnade.experiments.reproduce.study import Part, Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
SMOKE = {"parties": 4, "split": "bands"}  # of the substitute


def _study(scale: Scale) -> Study:
    sizes = {name: _size(scale, name) for name in TABLE.shown(scale)}
    parts = [_part(name, size) for name, size in sizes.items()]
    rows = {method: [Place(name, method) for name in sizes] for method in TABLE.methods}
    sheet = TABLE.sheet(together(sizes), rows)
    return TABLE.study(scale, parts, [marked(sheet, sizes)])


def _size(scale: Scale, name: str) -> Size:
    """Without the keys of MNIST."""
    data = {**TABLE.extra[name]["data"], **(SMOKE if scale == "smoke" else {})}
    return sized(scale, TABLE.scales[scale], TABLE.datasets, data)


def _part(name: str, size: Size) -> Part:
    known = TABLE.extra[name]
    methods = []
    for method, rate in known["rates"].items():
        admm = known["admm"] if method.startswith("VIMADMM") else {}
        own = {"lr": rate, "encoder": known["encoder"], **admm}
        methods.append(TABLE.method(size, method, **own))
    return size.part(name, size.title, methods=methods)


REPRODUCTION = TABLE.reproduction(_study)
