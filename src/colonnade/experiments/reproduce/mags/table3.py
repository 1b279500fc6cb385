"""Tables 3 and 8: the devices that can answer at their worst, at random and at their best, on three
data sets, while half or 30 % of the links fail."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import TableFile, read_table

TABLE3 = read_table(__file__)
TABLE8 = read_table(Path(__file__).with_name("table8"))


def _study(table: TableFile, scale: Scale) -> Study:
    datasets = ["mnist"] if scale == "smoke" else list(table.sheets)
    rate, faults = table.extra["rate"], table.extra["faults"]
    parts, sheets = [], []
    for dataset in datasets:
        size = table.size(scale, dataset=dataset)
        methods, named = table.runs(size), table.fault_list([faults])
        title = f"{rate} of the links fail"
        parts.append(size.part(size.name, title, methods=methods, faults=named))
        columns = table.shown(scale, dataset)  # metrics of the same runs
        rows = {name: [Place(size.name, name, faults) for _ in columns] for name in table.methods}
        words = {"images": size.title, "rate": rate}
        sheets.append(table.sheet(size, rows, dataset, words=words))
    return table.study(scale, parts, sheets)


REPRODUCTION = TABLE3.reproduction(partial(_study, TABLE3))
REPRODUCTION8 = TABLE8.reproduction(partial(_study, TABLE8))
