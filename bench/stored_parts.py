"""The models that real parties have stored, put together in one process and tested once more.

A federation whose parties were killed may end with a lower accuracy, because steps were missed. It
must not end with parts of different models. The stored parts tell the two apart: if, in one
process where nobody is away, they have the accuracy that the results tell, then what was tested is
one model, and the low accuracy is its accuracy.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from colonnade.common.results import read_results
from colonnade.experiments.run import drive
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.network import StackedNetwork

COMPARED = ("test_accuracy", "test_loss")


def disagreement(folder: Path) -> float:
    """The largest difference between an accuracy or loss in a party's results and that of the
    stored parts. `folder`: of `colonnade up`, with all parties in the test."""
    again = tested_again(folder, read_federation(folder / "federation.toml"))
    parties = sorted(path.parent.name for path in folder.glob("*/status.json"))
    told = {party: one.metrics for party in parties for one in read_results(folder / party)}
    apart = [
        abs((metrics[key] or 0.0) - again[party][key])
        for party, metrics in told.items()
        for key in COMPARED
    ]
    return max(apart)


def tested_again(folder: Path, federation: Federation) -> dict[str, dict[str, float]]:
    """Metrics of the stored parts on the test rows, at each party that has a result."""
    algorithm: Any = federation.algorithm()
    net = StackedNetwork(algorithm.world())
    algorithm.join(net, federation.vertical_data())
    algorithm.load(_together(folder), net)
    part, asking = algorithm.data.test, net.within("inference")
    if federation.leader is not None:
        found = {federation.speaker: drive(algorithm.predict(asking, part))}
    else:
        opinions = torch.cat([one.opinions for one in drive(algorithm.ask(asking, part))], 1)
        found = dict(zip(algorithm.aggregators.parties, opinions, strict=True))
    return {party: algorithm.measure(z, part.y, "test") for party, z in found.items()}


def _together(folder: Path) -> Path:
    """All parties' parts in one folder, as a simulation writes them."""
    place = folder / "together"
    place.mkdir(exist_ok=True)
    for stored in folder.glob("*/models/*/*.safetensors"):
        shutil.copy(stored, place)
    return place
