"""Table 2: four other data sets, one aggregator, no faults."""

from __future__ import annotations

from dataclasses import replace

from colonnade.common.toml import Table
from colonnade.experiments.reproduce.size import Size
from colonnade.experiments.reproduce.study import Place, Scale, Study
from colonnade.experiments.reproduce.table_file import merged, read_table

TABLE = read_table(__file__)
METHODS = ("DVFL", "DVFL, owner 1e-3 by Adam", "SplitNN", "SplitNN 1e-3 by Adam")


def _study(scale: Scale) -> Study:
    sets = {part: _at(scale, known) for part, known in TABLE.extra.items()}
    seeds = TABLE.scales[scale].seeds
    parts = [
        Size(scale, known["data"], known["words"], seeds).part(
            part, known["title"], methods=_methods(scale, known)
        )
        for part, known in sets.items()
    ]
    words = "; ".join(f"{known['title']}: {known['words']}" for known in sets.values())
    names = {
        part: f"{known['title']} (substitute)" if _substitute(part, known) else known["title"]
        for part, known in sets.items()
    }
    rows = {method: [Place(part, method) for part in sets] for method in METHODS}
    sheet = TABLE.sheet(Size(scale, {}, words, seeds), rows, words=names)
    columns = [
        replace(column, substitute=_substitute(part, known))
        for column, (part, known) in zip(sheet.columns, sets.items(), strict=True)
    ]
    return TABLE.study(scale, parts, [replace(sheet, columns=tuple(columns))])


def _substitute(part: str, known: Table) -> bool:
    return known["data"]["dataset"] != TABLE.extra[part]["data"]["dataset"]


def _at(scale: Scale, known: Table) -> Table:
    """A data set as it is at this scale, with the words for it."""
    from colonnade.data import CATALOGUE, present  # with torch; a list of names goes without

    dataset = known["data"]["dataset"]
    here = present(dataset)
    if scale == "smoke" and "smoke" in known:
        return merged(known, known["smoke"])
    if "absent" in known and not here:
        return merged(known, known["absent"])
    obtainable = here or CATALOGUE[dataset].openml
    whole = {"words": "all rows" if obtainable else "absent", **known}
    return merged(whole, known.get(scale, {}))


def _methods(scale: Scale, known: Table) -> list[Table]:
    smoke, paper, code = scale == "smoke", TABLE.settings["DVFL"], known["code"]
    shared = {"encoder": known["encoder"], **({"epochs": 12, "batch": 16} if smoke else {})}
    dvfl = {
        **shared,
        "algorithm": "dvfl",
        "aggregators": 1,
        "aggregator_width": code,
        "client_epochs": 2 if smoke else paper["client_epochs"],
        "aggregator_epochs": 4 if smoke else paper["aggregator_epochs"],
    }
    # The aggregator's layers and the owner's.
    head = [(known["joined"] + 3 * code) // 4, code, code, 40]
    splitnn = {**shared, "algorithm": "splitnn", "head": head}
    adam = {"optimizer": "adam", "lr": {**known["rates"], "owner": 1e-3}}
    settings = (
        {**dvfl, "centre": False, "momentum": 0.5, "lr": known["rates"]},
        {**dvfl, **adam},
        {**splitnn, "lr": known["splitnn"]},
        {**splitnn, "lr": 1e-3},
    )
    return [{"name": name, **own} for name, own in zip(METHODS, settings, strict=True)]


REPRODUCTION = TABLE.reproduction(_study)
