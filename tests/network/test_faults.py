"""Fault models: the rates the papers mean, and the same faults everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import InputError
from colonnade.network.faults import (
    Aggregator,
    Catastrophe,
    Client,
    Communication,
    Connection,
    Device,
    Fault,
    Trace,
)
from colonnade.network.samplers import Recorder
from colonnade.network.topology import Group, Topology, links_between

CLIENTS = Group("clients", tuple(f"client{i}" for i in range(4)), "client")
SERVER = Group("server", ("server",), "aggregator")
FORWARD = links_between(CLIENTS, SERVER, CLIENTS.parties, Topology())
BACK = links_between(SERVER, CLIENTS, CLIENTS.parties, Topology())
ROUNDS = 20_000


def arrivals(fault: Fault, rounds: int = ROUNDS, seed: int = 0) -> np.ndarray:
    """[rounds, 2, clients]: what arrived forward and backward."""
    sampler = fault.sampler(seed, (CLIENTS, SERVER))
    seen = np.ones((rounds, 2, 4), dtype=bool)
    for round in range(rounds):
        for step, links in enumerate((FORWARD, BACK)):
            arrived = sampler.exchange(links, round).arrived
            if arrived is not None:
                seen[round, step] = arrived.reshape(-1)
    return seen


@pytest.mark.parametrize("kind", [Connection, Client])
@pytest.mark.parametrize(
    ("up", "share", "all_up"), [(1.0, 0.77, 0.35), (0.5, 0.625, 0.15), (0.1, 0.25, 0.004)]
)
def test_down_and_up_rates_give_the_shares_of_the_notes(
    kind: type[Fault], up: float, share: float, all_up: float
) -> None:
    """DVFL with R_down .3: up 77 %, 62.5 %, 25 % of the time; all four up in 35 %, 15 %, 0.4 %."""
    seen = arrivals(kind(name="f", down=0.3, up=up))  # pyright: ignore[reportCallIssue]
    assert seen.mean() == pytest.approx(share, abs=0.01)
    assert seen[:, 0].all(1).mean() == pytest.approx(all_up, abs=0.01)


def test_client_and_connection_faults_move_between_forward_and_backward() -> None:
    for fault in (Client(name="f", down=0.3, up=0.5), Connection(name="f", down=0.3, up=0.5)):
        seen = arrivals(fault, 4000)
        forward, backward = seen[:, 0], seen[:, 1]
        died = (forward & ~backward).sum() / forward.sum()
        returned = (~forward & backward).sum() / (~forward).sum()
        assert died == pytest.approx(0.3, abs=0.02)
        assert returned == pytest.approx(0.5, abs=0.03)


def test_an_aggregator_is_drawn_once_a_round_and_its_embeddings_were_sent_all_the_same() -> None:
    sampler = Aggregator(name="f", down=0.3, up=0.5).sampler(0, (CLIENTS, SERVER))
    for round in range(200):
        forward = sampler.exchange(FORWARD, round)
        alive = sampler.alive(SERVER, round)
        assert alive is not None
        if not alive[0]:
            assert forward.sent is not None
            assert forward.sent.all()
            assert forward.arrived is not None
            assert not forward.arrived.any()
            back = sampler.exchange(BACK, round)
            assert back.sent is not None
            assert not back.sent.any()


def test_independent_device_faults_hold_for_the_whole_round_and_no_longer() -> None:
    seen = arrivals(Device(name="f", rate=0.3))
    assert (seen[:, 0] == seen[:, 1]).all()
    assert seen.mean() == pytest.approx(0.7, abs=0.01)
    first, then = seen[:-1, 0].astype(float), seen[1:, 0].astype(float)
    assert abs(np.corrcoef(first.ravel(), then.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_markov_links_keep_the_fault_rate_and_stay_up_with_the_given_probability(
    rate: float,
) -> None:
    """MAGS, appendix G.2: stay up with p = .9, return with (1-p)(1-r)/r."""
    seen = arrivals(Communication(name="f", rate=rate, stay=0.9), 8000)[:, 0]
    assert seen.mean() == pytest.approx(1 - rate, abs=0.02)
    sampler = Communication(name="f", rate=rate, stay=0.9).sampler(1, (CLIENTS, SERVER))
    states = np.array([sampler.exchange(FORWARD, 0).arrived for _ in range(8000)]).reshape(-1, 4)
    stayed = (states[:-1] & states[1:]).sum() / states[:-1].sum()
    assert stayed == pytest.approx(0.9, abs=0.01)


def test_a_fault_rate_of_zero_with_stay_never_fails() -> None:
    assert arrivals(Communication(name="f", rate=0.0, stay=0.9), 500).all()


def test_a_party_is_never_cut_off_from_itself_by_its_links() -> None:
    aggregators = Group("aggregators", CLIENTS.parties, "aggregator")
    links = links_between(CLIENTS, aggregators, CLIENTS.parties, Topology())
    sampler = Communication(name="f", rate=1.0).sampler(0, (CLIENTS, aggregators))
    arrived = sampler.exchange(links, 0).arrived
    assert arrived is not None
    assert (arrived == np.eye(4, dtype=bool)).all()


def test_a_catastrophe_takes_its_share_at_its_time_and_the_lost_return_one_by_one() -> None:
    many = Group("clients", tuple(f"c{i}" for i in range(400)), "client")
    sampler = Catastrophe(name="f", at=10, rate=0.5, recovery=100).sampler(0, (many,))
    up = [sampler.alive(many, round) for round in range(120)]
    shares = np.array([1.0 if mask is None else mask.mean() for mask in up])
    assert (shares[:10] == 1).all()
    assert shares[10] == pytest.approx(0.5, abs=0.07)
    assert (np.diff(shares[10:]) >= 0).all()
    assert shares[60] == pytest.approx(0.75, abs=0.07)
    assert shares[110] == 1


def test_without_recovery_the_lost_stay_away() -> None:
    sampler = Catastrophe(name="f", at=0, rate=1.0).sampler(0, (CLIENTS,))
    mask = sampler.alive(CLIENTS, 10**6)
    assert mask is not None
    assert not mask.any()


@pytest.mark.parametrize(
    "fault",
    [
        Connection(name="f", down=0.3, up=0.1),
        Client(name="f", down=0.3, up=0.1),
        Communication(name="f", rate=0.5),
        Device(name="f", rate=0.5, stay=0.9),
    ],
)
def test_equal_seeds_meet_equal_faults_and_other_seeds_others(fault: Fault) -> None:
    assert (arrivals(fault, 200) == arrivals(fault, 200)).all()
    assert (arrivals(fault, 200) != arrivals(fault, 200, seed=1)).any()


def test_a_recorded_trace_replays_exchange_by_exchange(tmp_path: Path) -> None:
    recorder = Recorder(Client(name="f", down=0.3, up=0.5).sampler(7, (CLIENTS, SERVER)))
    drawn = [recorder.exchange(links, round) for round in range(50) for links in (FORWARD, BACK)]
    recorder.save(tmp_path / "trace.npz")
    replay = Trace(name="t", path=str(tmp_path / "trace.npz")).sampler(0, (CLIENTS, SERVER))
    for k, passage in enumerate(drawn):
        again = replay.exchange((FORWARD, BACK)[k % 2], k // 2).arrived
        expected = np.ones(again.shape, bool) if passage.arrived is None else passage.arrived  # pyright: ignore[reportOptionalMemberAccess]
        assert (again == expected).all()


def test_an_unreadable_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"garbage")
    with pytest.raises(InputError, match=r"bad\.npz"):
        Trace(name="t", path=str(tmp_path / "bad.npz")).sampler(0, ())


def test_validation_is_never_disturbed_and_when_is_respected() -> None:
    training = Client(name="f", down=0.3)
    always = Client(name="f", down=0.3, when="always")
    assert [training.strikes(p) for p in ("training", "validation", "inference")] == [
        True,
        False,
        False,
    ]
    assert [always.strikes(p) for p in ("training", "validation", "inference")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("fault", [Client(name="f", down=1.5), Device(name="f", rate=-0.1)])
def test_a_rate_that_is_no_probability_is_refused(fault: Fault) -> None:
    with pytest.raises(InputError, match="0 to 1"):
        fault.check()
