"""Rows that some column holders lack: what they contribute, and what they learn."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.algorithms import registry
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build, drive
from colonnade.learning.models import make_encoder, make_head
from colonnade.learning.settings import Settings
from colonnade.network import Network
from colonnade.network.channel import Channel
from colonnade.network.faults import Client
from colonnade.network.inbox import Inbox
from colonnade.testing import difference, live, projected, stacked
from colonnade.testing.kit import same_run

SHAKY = Client(name="clients", down=0.3, up=0.3, when="always")
WAYS = ["concat", "mean", "sum", "max", "weighted"]
METHODS: list[dict[str, Any]] = [
    *({"algorithm": "splitnn", "combine": how, "dropout": 0.2} for how in WAYS),
    *({"algorithm": "splitnn", "missing": m, "combine": "mean"} for m in ("buffer", "stale")),
    {"algorithm": "splitnn", "noise": {"clip": 1.0, "sigma": 0.1}, "wire": "int8"},
    {"algorithm": "splitnn", "encoder": [8]},
    {"algorithm": "vfb2"},
    {"algorithm": "fdml", "combine": "mean"},
    {"algorithm": "vim", "solver": "sgd"},
    {"algorithm": "vafl", "combine": "mean"},
]


def partly(seed: int = 0, **more: Any) -> VerticalData:
    keys = {"rows": 200, "overlap": 0.6, "test_overlap": 0.6, "partial": True, **more}
    return load(DataSpec(dataset="digits", **keys), seed)


def method(**more: Any) -> Settings:
    kind = registry()[more["algorithm"]].settings
    return msgspec.convert({"name": "m", "epochs": 2, **more}, kind)


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_every_engine_trains_the_same_model_on_rows_that_some_party_lacks(
    keys: dict[str, Any],
) -> None:
    data = partly()
    one = stacked(method(**keys), data, fault=SHAKY)
    each = projected(method(**keys), data, fault=SHAKY)
    assert difference(one, each) < 1e-6
    # Real parties of vafl come in any order, and draw noise that nobody can draw again.
    if keys["algorithm"] != "vafl" and "noise" not in keys:
        same_run(stacked(method(**keys), data), live(method(**keys), data))


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_a_row_that_a_party_lacks_is_answered_as_if_its_message_had_not_come(
    keys: dict[str, Any],
) -> None:
    keys = {k: v for k, v in keys.items() if k != "noise"}  # it would be another draw
    data = partly(overlap=1.0, test_overlap=None, partial=False)
    held = torch.rand(4, len(data.test), generator=torch.Generator().manual_seed(1)) < 0.7
    data = replace(data, test=data.test.only_held(held))
    algorithm, net = build(method(**keys), data, 0)
    for tensors in algorithm.tensors(net).values():  # biases that would show
        for value in tensors.values():
            value.add_(0.1)
    found = _answers(algorithm, net, without=())
    for absent in ((0,), (1, 3), ()):
        alike = torch.tensor([i not in absent for i in range(4)])
        rows = (held == alike[:, None]).all(0)
        assert rows.any()
        algorithm.data = replace(algorithm.data, test=replace(algorithm.data.test, held=None))
        other = _answers(algorithm, net, without=tuple(data.clients[i] for i in absent))
        assert torch.allclose(found[rows], other[rows], atol=1e-6)


def _answers(algorithm: Any, net: Network, without: tuple[str, ...]) -> Tensor:
    within = net.within("inference")
    within.without = frozenset(without)
    return drive(algorithm.predict(within, algorithm.data.test))


@pytest.mark.parametrize("combine", ["concat", "mean", "sum", "max"])
def test_a_party_learns_as_if_its_gradient_of_rows_that_it_lacks_were_zero(combine: str) -> None:
    """Against one autograd graph in which a row that a client lacks takes no part."""
    data = partly()
    keys = {"epochs": 1, "optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "batch": 20}
    algorithm, net = build(method(algorithm="splitnn", combine=combine, **keys), data, 0)
    encoders = [make_encoder(None, w, s) for w, s in zip(data.widths, data.shapes, strict=True)]
    head = make_head(None, 16 * (4 if combine == "concat" else 1), data.classes)
    for i, (name, module) in enumerate([*(("encoder", e) for e in encoders), ("head", head)]):
        state = algorithm.stacks[name][1].member_state(i if name == "encoder" else 0)
        module.load_state_dict(copy.deepcopy(state))
    optimizer = torch.optim.SGD(nn.ModuleList([*encoders, head]).parameters(), lr=0.1)
    held = data.train.held
    assert held is not None
    for round in range(len(algorithm.training.batches)):
        rows = algorithm.training.batches[round].rows
        told = torch.stack([e(x[rows]) for e, x in zip(encoders, data.train.x, strict=True)])
        optimizer.zero_grad()
        joined = textbook(told, held[:, rows, None], combine)
        F.cross_entropy(head(joined), data.train.y[rows]).backward()
        optimizer.step()
    drive(algorithm.train(net))
    for i, module in enumerate([*encoders, head]):
        stack = algorithm.stacks["encoder" if i < 4 else "head"][1]
        for key, value in module.state_dict().items():
            assert torch.allclose(stack.member_state(i % 4)[key], value, atol=1e-5), key


def textbook(told: Tensor, held: Tensor, combine: str) -> Tensor:
    """[clients, rows, width], [clients, rows, 1] → one input of the head."""
    kept = told * held
    if combine == "concat":
        return torch.cat(list(kept), 1)
    if combine == "max":
        return told.masked_fill(~held, -torch.inf).amax(0)
    return kept.sum(0) / (held.sum(0) if combine == "mean" else 1)


@pytest.mark.parametrize("keys", [METHODS[0], METHODS[7], {"algorithm": "vafl"}], ids=str)
def test_nothing_is_said_of_a_row_to_or_by_a_party_that_lacks_it(keys: dict[str, Any]) -> None:
    data, seen = partly(), Counter[str]()
    algorithm, net = build(method(**keys), data, 0)

    def watch(net: Network, channel: Channel, inbox: Inbox) -> None:
        if channel.kind not in ("embedding", "gradient"):
            return
        party = channel.src if channel.kind == "embedding" else channel.dst
        places = [data.clients.index(one) for one in party.parties]
        told = inbox.raw[0] if channel.kind == "embedding" else inbox.raw[:, 0]
        lacked = ~net.item.held[places]  # [parties, rows]
        assert not told[lacked].any()
        assert told[~lacked].any()
        seen[channel.kind] += int(lacked.sum())

    net.recorder = watch
    drive(algorithm.train(net))
    assert min(seen["embedding"], seen["gradient"]) > 100


def test_a_method_that_needs_whole_rows_says_so() -> None:
    with pytest.raises(InputError, match='algorithm = "dvfl": needs whole rows'):
        build(method(algorithm="dvfl"), partly(), 0)
    with pytest.raises(InputError, match='solver = "admm": tells clients'):
        build(method(algorithm="vim", solver="admm"), partly(), 0)
    with pytest.raises(InputError, match="decorrelate: compares the rows of a batch"):
        build(method(algorithm="splitnn", decorrelate=0.1), partly(), 0)
