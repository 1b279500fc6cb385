"""Table 2: bytes of a round, and bytes until a target is reached."""

from __future__ import annotations

from dataclasses import replace

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import filled, read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    size, target = TABLE.size(scale), TABLE.extra["target"][scale]
    part = size.part(
        "target",
        "Bytes until a target is reached",
        methods=TABLE.runs(size, epochs=TABLE.extra["epochs"]),
        target=target,
        stop_at_target=True,
    )
    rows = {name: [Place(part.name, name)] for name in TABLE.methods}
    sheets = [TABLE.sheet(size, rows, sheet) for sheet in TABLE.sheets]
    study = TABLE.study(scale, [part], sheets)
    words = {"target": f"{target:g}", "epochs": str(TABLE.extra["epochs"])}
    return replace(study, notes=filled(list(study.notes), words))


REPRODUCTION = TABLE.reproduction(_study)
