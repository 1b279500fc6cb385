"""Figures 3 to 6: the exponent q, by how slow parties are and how the labels are spread."""

from __future__ import annotations

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Part, Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    names = list(TABLE.sheets)[: 1 if scale == "smoke" else None]
    sizes = {name: TABLE.size(scale, dataset=name) for name in names}
    parts = {name: _parts(name, size) for name, size in sizes.items()}
    sheets = [
        TABLE.sheet(
            sizes[name],
            {q: [Place(part.name, q) for part in parts[name].values()] for q in TABLE.methods},
            name,
        )
        for name in names
    ]
    return TABLE.study(scale, [part for one in parts.values() for part in one.values()], sheets)


def _parts(name: str, size: Size) -> dict[str, Part]:
    """An experiment for each column at this scale."""
    found, shown = {}, TABLE.shown(size.scale, name)
    for spread, split in {"even": "iid", "by class": TABLE.extra["split"][name]}.items():
        for words, slow in TABLE.extra["slow"].items():
            if (column := f"{spread}, {words}") not in shown:
                continue
            found[column] = size.part(
                f"{name}-{spread.replace(' ', '-')}-{round(100 * slow)}",
                f"{size.title}, labels {column} slower",
                methods=TABLE.runs(size, label_split=split, slow=slow),
                data={"metric": "log_loss"},
            )
    return found


REPRODUCTION = TABLE.reproduction(_study)
