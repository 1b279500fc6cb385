"""Appendix F.1: encodings are sent in every K-th client epoch only."""

from __future__ import annotations

from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Place, Published, Scale, Sheet, Study
from colonnade.experiments.reproduce.table_file import read_table

TABLE = read_table(__file__)
NUMBER = 4  # bytes


def _study(scale: Scale) -> Study:
    size = TABLE.size(scale)
    encoder = [32, 16] if size.substitute else [100, 80]
    part = size.part("period", "Communication period", methods=TABLE.runs(size, encoder=encoder))
    places = [Place("period", name) for name in TABLE.methods]
    sheets = (TABLE.sheet(size, {"DVFL": places}), _bytes(size, encoder[-1], places))
    return TABLE.study(scale, [part], sheets)


def _bytes(size: Size, width: int, places: list[Place]) -> Sheet:
    """Beside what the paper's formula gives for our rows, and what it printed for its own."""
    paper, formula = TABLE.settings["DVFL"], f"formula, {size.training_rows:,} rows"
    once = paper["aggregators"] * size.training_rows * width * NUMBER
    sent = {
        name: Published(once * (paper["client_epochs"] // method["period"]))
        for name, method in TABLE.methods.items()
    }
    rows = {formula: places, "published, 60,000 rows": places}
    return TABLE.sheet(size, rows, "bytes", words={"formula": formula}, more={formula: sent})


REPRODUCTION = TABLE.reproduction(_study)
