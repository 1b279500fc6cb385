"""What the recorder keeps: which epochs of a long training, and only what arrived."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from colonnade.data import load
from colonnade.experiments.audit.recorder import Recorder, about_rows, kept
from colonnade.experiments.config import parse_experiment
from colonnade.experiments.grid import grid
from colonnade.experiments.run import build, drive
from colonnade.network import Inbox, Network
from colonnade.network.channel import Channel


def test_every_epoch_at_first_and_two_of_each_doubling() -> None:
    epochs = [epoch for epoch in range(1, 65) if kept(epoch)]
    assert epochs == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


@pytest.mark.parametrize("every", [True, False])
def test_all_epochs_are_kept_if_that_is_wanted(every: bool) -> None:
    table = {"name": "t", "data": {"dataset": "breast_cancer", "parties": 2}}
    method = {"algorithm": "splitnn", "epochs": 6, "patience": 6, "batch": 256}
    experiment = parse_experiment({**table, "methods": [method]}, "test")
    algorithm, net = build(experiment.methods[0], load(experiment.data, 0), 0)
    facts = {"remembers": lambda one: False, "every_epoch": every}
    net.recorder = recorder = Recorder(algorithm.data.train.rows, 0, lambda one: True, **facts)
    drive(algorithm.train(net))
    assert recorder.epochs("client0") == [0, 1, 2, 3, *([4] if every else []), 5]


def test_numbers_in_several_blocks_of_rows_stand_side_by_side() -> None:
    """Two numbers about each of three rows, a block of rows for each, and a head behind them."""
    value = torch.tensor([0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 99.0]).view(1, 1, 7, 1)
    assert about_rows(value, 3, np.array([0, 2])).tolist() == [[[[0.0, 10.0], [2.0, 12.0]]]]


def test_what_was_lost_on_the_way_is_not_recorded_and_the_rest_is_as_it_was_sent() -> None:
    """Against a list of every message, of a training whose links fail."""
    method = {"algorithm": "mags", "epochs": 2, "aggregators": "all"}
    fault = {"name": "links", "kind": "connection", "down": 0.4, "up": 0.4}
    table = {"name": "t", "data": {"dataset": "digits", "parties": 6, "rows": 300}}
    experiment = parse_experiment({**table, "methods": [method], "faults": [fault]}, "test")
    spec = grid(experiment)[0].spec(experiment)
    algorithm, net = build(spec.settings, load(experiment.data, 0), 0, fault=spec.fault)
    few = ("client0", "client3")
    recorder = Recorder(
        algorithm.data.train.rows, 0, lambda one: one in few, remembers=lambda one: False
    )
    place = {int(row): k for k, row in enumerate(recorder.sample)}
    sent: dict[tuple[Any, ...], list[float]] = {}

    def both(net: Network, channel: Channel, inbox: Inbox) -> None:
        recorder(net, channel, inbox)
        links = net.links(channel.src, channel.dst)
        if net.phase != "training" or channel.kind not in ("encoding", "gradient"):
            return
        for r, j in np.argwhere(inbox.arrived.numpy() & links.real):
            sender = channel.src.parties[links.senders[r, j]]
            stream = (net.item.epoch, channel.dst.parties[r], sender, channel.kind)
            for k, row in enumerate(net.item.rows.tolist()):
                sent[*stream, place[row]] = inbox.value[r, j, k].tolist()

    net.recorder = both
    drive(algorithm.train(net))
    mine = {key: value for key, value in sent.items() if key[1] in few}
    found = {
        (s.epoch, s.receiver, s.sender, s.kind, int(k)): seen.values[k].tolist()
        for s, seen in recorder.streams.items()
        for k in np.nonzero(seen.there)[0]
    }
    assert found == mine
    assert len(mine) < 0.9 * len(few) * 6 * 2 * 2 * len(recorder.sample), "nothing was lost"
    assert all(not seen.values[~seen.there].any() for seen in recorder.streams.values())
