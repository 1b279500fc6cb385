"""Checkpoints of programs that run side by side."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.data import DataSpec, load
from colonnade.experiments.run import build, drive
from colonnade.learning.checkpoint import Checkpoint
from colonnade.network import Channel, Network


class Crash(Exception):
    pass


def rounds_done(folder: Path, crash_after: int | None = None) -> list[list[int]]:
    """Two programs with unequal numbers of rounds share the state of one algorithm, which is kept
    whenever one of them begins a round. The process may crash after so many rounds of both."""
    data = load(DataSpec(dataset="digits", rows=100), seed=0)
    algorithm, net = build(SplitNNSettings(name="s", algorithm="splitnn"), data, 0)
    clients, server = algorithm.groups[:2]
    kept, done = Checkpoint(algorithm, folder), [list[int](), list[int]()]
    kept.resume(net)

    def keep(child: Network) -> None:
        kept.keep(child, 0, {})
        if crash_after is not None and sum(map(len, done)) >= crash_after:
            raise Crash

    def loop(k: int, rounds: int) -> Callable[[Network], Coroutine[Any, Any, None]]:
        async def program(child: Network) -> None:
            async for round in child.rounds(range(rounds)):
                channel = Channel(clients, server, "number", 1)
                await child.send(torch.zeros(len(clients), 1, 1), channel, 1)
                done[k].append(round)

        return program

    net.watch_side_by_side = keep
    drive(net.concurrently(loop(0, 4), loop(1, 7)))
    return done


def test_after_a_crash_each_program_takes_up_its_own_round(tmp_path: Path) -> None:
    assert rounds_done(tmp_path / "whole") == [list(range(4)), list(range(7))]
    with pytest.raises(Crash):
        rounds_done(tmp_path / "crash", crash_after=5)
    after = rounds_done(tmp_path / "crash")
    assert after[0][-1] == 3
    assert after[1][-1] == 6
    assert sum(map(len, after)) == 4 + 7 - 5, "no round is done twice, and none is left out"
    assert rounds_done(tmp_path / "whole") == [[], []], "programs that have ended stay ended"
