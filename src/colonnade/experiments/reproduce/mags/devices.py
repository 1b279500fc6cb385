"""Figure 17: 4, 16 and 49 devices, while links fail."""

from __future__ import annotations

from colonnade.experiments.reproduce.mags.rates import faults_at
from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)


def _study(scale: Scale) -> Study:
    faults = faults_at("links", TABLE.shown(scale))
    sizes = {n: TABLE.size(scale, parties=int(n)) for n in TABLE.shown(scale, "devices")}
    parts, sheets = zip(
        *(
            TABLE.by_faults(size, f"devices-{n}", f"{n} devices", faults, things="links", devices=n)
            for n, size in sizes.items()
        ),
        strict=True,
    )
    rows = {name: [Place(part.name, name, faults[-1]) for part in parts] for name in TABLE.methods}
    side_by_side = TABLE.sheet(next(iter(sizes.values())), rows, "devices")
    return TABLE.study(scale, parts, [*sheets, side_by_side])


REPRODUCTION = TABLE.reproduction(_study)
