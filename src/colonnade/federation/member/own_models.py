"""Models of a party's own, which its party file names.

models = own_models(party)         # imported, with the widths that the federation file gives
rehearse(party, models, data)      # built once, so that mistakes are told before anyone connects
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from colonnade.algorithms import load_plugins
from colonnade.common.seeds import seeded, torch_stream
from colonnade.common.user_code import Source
from colonnade.data.partition import VerticalData
from colonnade.federation.agreement.party_file import PartyFile, errors_of
from colonnade.models.factories import Factory, find_factory
from colonnade.network import ProjectedNetwork
from colonnade.network.clock import Clock
from colonnade.network.transport.memory import MemoryTransport

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
