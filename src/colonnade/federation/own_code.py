"""A party's own code: the models that its party file names, and what the others run.

models = own_models(party)         # imported, with the widths that the federation file gives
rehearse(party, models, data)      # built once, so that mistakes are told before anyone connects
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from colonnade.algorithms import load_plugins
from colonnade.common.seeds import seeded, torch_stream
from colonnade.common.user_code import Source, changes, shown
from colonnade.data.partition import VerticalData
from colonnade.federation.party import PartyFile, errors_of
from colonnade.models.factories import Factory, find_factory
from colonnade.network import ProjectedNetwork
from colonnade.network.clock import Clock
from colonnade.network.transport.memory import MemoryTransport

log = logging.getLogger(__name__)

Known = dict[str, dict[str, Source]]  # by party and key

CODE = "code.json"
MOST = 20  # changes of one party that are told: a member cannot fill the log with them
TRIED = 256  # random rows that show whether an encoder gives numbers below 0


def own_models(party: PartyFile) -> dict[str, Factory]:
    """The model factories that the party file names, by key."""
    if not party.models:
        return {}
    with errors_of(Path(party.source)):
        models = {key: find_factory(key, name, party.code) for key, name in party.models.items()}
    if "encoder" in models:
        algorithm = party.federation.algorithm()
        widths = algorithm.embedding_widths
        models["encoder"].widths = widths
        models["encoder"].gives = widths[algorithm.task.clients.index(party.party)]
        models["encoder"].why = (
            ", which the others count on: it follows from [method] encoder in the federation file. "
            "Change the last layer, or agree on another [method] encoder"
        )
    return models


def own_code(party: PartyFile, models: Mapping[str, Factory]) -> dict[str, Source]:
    """What others are told: the code of models and plugins, by key."""
    federation = party.federation
    folder = None if federation.code is None else Path(federation.code)
    plugins = load_plugins(federation.plugins or (), folder)
    return {key: factory.source for key, factory in models.items()} | plugins


def rehearse(party: PartyFile, models: Mapping[str, Factory], data: VerticalData) -> None:
    """Build this party's models once, without any network."""
    federation = party.federation
    with errors_of(Path(party.source)):
        algorithm = federation.algorithm(models)
        world = algorithm.world(topology=federation.network.graph)
        algorithm.join(ProjectedNetwork(world, MemoryTransport(Clock()).seat(party.party)), data)
        for factory in models.values():
            if not factory.calls:
                raise factory.wrong("this method, as it is set, has no use for it; leave it out")
        if "encoder" in models and algorithm.rectified:
            width = algorithm.task.widths[algorithm.task.clients.index(party.party)]
            _check_rectified(models["encoder"], width)


def _check_rectified(encoder: Factory, width: int) -> None:
    module = seeded(0, encoder, width).eval()
    with torch.no_grad():
        lowest = float(module(torch.randn(TRIED, width, generator=torch_stream(0, "tried"))).min())
    if lowest < 0:
        raise encoder.wrong(
            f"gives numbers below 0 ({lowest:.2g}), but the aggregators of this method rebuild "
            "encodings through a ReLU and count on 0 or more; end it with nn.ReLU()"
        )


class CodeBook:
    """Which code of their own the parties run, as they told. A file keeps it, so that a change is
    noticed after a restart, too."""

    def __init__(self, folder: Path, mine: Mapping[str, Source]) -> None:
        self.path, self.mine = folder / CODE, mine
        self.changes: Counter[str] = Counter()
        self.known: Known = {}
        with suppress(OSError, msgspec.MsgspecError):  # nothing is known yet
            self.known = msgspec.json.decode(self.path.read_bytes(), type=Known)

    def hear(self, party: str, code: Mapping[str, Source]) -> None:
        before = self.known.get(party, {})
        if before == code or self.changes[party] == MOST:
            return
        self.changes[party] += 1
        if before:
            log.warning(
                "%s runs other code than before: %s", party, "; ".join(changes(before, code))
            )
        else:
            told = ", ".join(shown(key, source) for key, source in code.items())
            log.info("%s runs code of its own: %s", party, told)
        for key in self.mine.keys() & code.keys():
            if key.startswith("plugin ") and self.mine[key] != code[key]:
                log.warning("%s: %s has %s, we have %s", key, party, code[key], self.mine[key])
        self.known[party] = dict(code)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(msgspec.to_builtins(self.known), indent=1), "utf-8")
        except OSError as error:
            log.error("%s: cannot be written (%s)", self.path, error)
