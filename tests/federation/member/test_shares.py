"""FedVS among real parties, in virtual time: clients that are late, fall, return, lose their files
or answer with wrong numbers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.federation.member.test_versions import Hall, member
from torch import Tensor

from colonnade.algorithms.fedvs import FedVS
from colonnade.coding import TooFewAnswers
from colonnade.errors import InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.member.status import sentence, status
from colonnade.learning.segments import Segments
from colonnade.network.clock import SECOND
from colonnade.network.wire import decode
from colonnade.testing import Trained, stacked
from colonnade.testing.storm import StormSeat

CLIENTS = tuple(f"client{i}" for i in range(4))  # with K = 1 and T = 1, three must answer


@pytest.fixture(autouse=True)
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Often enough for a training that takes a fraction of a virtual second."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", 0.01)
    monkeypatch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)


def small(path: Path | None = None, **more: Any) -> Federation:
    method = {"algorithm": "fedvs", "epochs": 3, "batch": 16, "encoder": [16], **more}
    digits: dict[str, Any] = {"dataset": "digits", "rows": 120, "test": 0.5}
    own: dict[str, Any] = {"path": str(path)}
    data = {**(digits if path is None else own), "parties": len(CLIENTS)}
    network = {"gather": 5.0, "patience": 0.5, "extra_epochs": 0}
    table = {"name": "test", "data": data, "method": method, "network": network}
    return parse_federation(table, "test")


def undisturbed(fed: Federation) -> Trained:
    return stacked(fed.method, fed.vertical_data(), fed.seed)


def same_weights(hall: Hall, one: Trained) -> bool:
    mine = {party: m.algorithm.tensors(m.net)[party] for party, m in hall.members.items()}
    return all(
        torch.allclose(mine[party][key], value, atol=1e-6, rtol=0)
        for party, tensors in one.weights.items()
        for key, value in tensors.items()
    )


def fedvs(hall: Hall, party: str) -> FedVS:
    found = hall.members[party].algorithm
    assert isinstance(found, FedVS)
    return found


def round_of(hall: Hall) -> int:
    return hall.members["server"].state.round


def on_sending(hall: Hall, party: str, kind: str, act: Callable[[str], bool]) -> None:
    """`act` is told the receiver of every message of a kind, and says whether it is sent."""
    seat = hall.members[party].transport
    assert isinstance(seat, StormSeat)
    publish = seat.publish

    def filtered(to: str, data: bytes, delay: int = 0) -> None:
        if decode(data)[0].kind != kind or act(to):
            publish(to, data, delay)

    seat.publish = filtered


def falls_when_sending(hall: Hall, party: str, kind: str, reached: tuple[str, ...] = ()) -> None:
    """Its next message of a kind is its last one, and reaches these parties only."""
    seat = hall.members[party].transport
    assert isinstance(seat, StormSeat)
    publish, last = seat.publish, []

    def falls(to: str, data: bytes, delay: int = 0) -> None:
        is_last = decode(data)[0].kind == kind
        if is_last and not last:
            last.append(party)
            hall.clock.call_at(hall.clock.now + SECOND // 100, lambda: hall.kill(party))
        if not last or (is_last and to in reached):
            publish(to, data, delay)

    seat.publish = falls


def test_answers_that_are_lost_change_no_weight(tmp_path: Path) -> None:
    """Those of one client of four: as many as may be."""
    fed = small()
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        on_sending(hall, "client2", "coded-embedding", lambda to: False)
        await hall.trained()

    hall.tell(story)
    assert same_weights(hall, undisturbed(fed))


def test_a_client_that_falls_before_it_shared_its_model_costs_no_weight_if_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.federation.member.keeping.PAUSE", 0.0)  # in every round,
    monkeypatch.setattr("colonnade.federation.member.keeping.SHARE", 0.0)  # however long it takes
    fed = small(missing="wait")
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        for party, round in (("client1", 4), ("client3", 12)):
            await hall.until(lambda round=round: round_of(hall) >= round)
            falls_when_sending(hall, party, "model-share")
            await hall.clock.sleep_until(hall.clock.now + SECOND)
            stood = round_of(hall)
            await hall.clock.sleep_until(hall.clock.now + 20 * SECOND)
            assert round_of(hall) == stood, "everybody waits"
            hall.start(party)
        leader = await hall.trained()
        assert leader.state.result is not None
        assert not leader.algorithm.remarks()

    hall.tell(story)
    assert same_weights(hall, undisturbed(fed))


def test_a_client_that_is_away_stays_in_the_sum_with_its_last_model(tmp_path: Path) -> None:
    """The others go on without waiting, and open the mean of all four embeddings."""
    fed = small(epochs=6)
    hall = Hall(fed, tmp_path)
    last: dict[str, Tensor] = {}

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        hall.kill("client1")
        before = round_of(hall)
        await hall.until(lambda: round_of(hall) >= before + 9)
        marks = [fedvs(hall, c).last.newest.value[0, 1, -1, 0] for c in CLIENTS if c != "client1"]
        assert len(set(map(int, marks))) == 1
        last["shares"] = torch.stack(
            [fedvs(hall, c).last.newest.value[0, 1, :-1] for c in CLIENTS if c != "client1"]
        )
        assert not fedvs(hall, "server").remarks(), "no step was left out"
        hall.start("client1")
        await hall.trained()

    hall.tell(story)
    code = fedvs(hall, "server").code  # a share lies on a line: two of three tell the model
    at = code.alphas
    opened = [
        _line(last["shares"], [0, 2, 3], pair, at, code) for pair in combinations(range(3), 2)
    ]
    assert all(torch.equal(opened[0], other) for other in opened[1:])
    assert float(opened[0].abs().max()) > 0


def _line(shares: Tensor, who: list[int], pair: tuple[int, ...], at: Any, code: Any) -> Tensor:
    from colonnade.coding.lagrange import interpolation

    points = tuple(at[who[i]] for i in pair)
    return code.field.matmul(
        interpolation(code.field, points, code.betas[:1]), shares[list(pair)].flatten(1)
    )


def test_a_model_that_reached_some_clients_only_costs_one_step(tmp_path: Path) -> None:
    """A client falls in the middle of sharing its model: the server says which of its models
    counts, and all others use that one until it is back."""
    fed = small(epochs=6)
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 10)
        falls_when_sending(hall, "client1", "model-share", ("client0",))
        await hall.until(lambda: "client1" in hall.members["server"].away())
        before = round_of(hall)
        await hall.until(lambda: round_of(hall) >= before + 12)
        counts = fedvs(hall, "server").opener.counts
        assert counts["without enough answers"] == 1
        hall.start("client1")
        leader = await hall.trained()
        assert counts["without enough answers"] <= 2, "one more when it is back"
        assert leader.state.result is not None
        (note,) = (n for n in leader.state.result.notes if "enough clients answered" in n)
        assert f" of {counts['rounds']:,} rounds" in note

    hall.tell(story)


def test_more_clients_away_than_may_be_stop_the_training_until_one_is_back(tmp_path: Path) -> None:
    fed = small(epochs=6)
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        hall.kill("client1")
        hall.kill("client2")
        await hall.clock.sleep_until(hall.clock.now + SECOND)
        stood = round_of(hall)
        await hall.clock.sleep_until(hall.clock.now + 30 * SECOND)
        assert round_of(hall) == stood
        hall.start("client2")
        await hall.until(lambda: round_of(hall) > stood + 6)
        hall.start("client1")
        leader = await hall.trained()
        assert leader.state.result is not None
        assert leader.state.result.metrics["test_accuracy"] is not None

    hall.tell(story)


def columns_in(hall: Hall, party: int) -> Iterator[Tensor]:
    """What any two clients' shares say that a client's columns are, as elements of the field."""
    one = fedvs(hall, "client0")
    shares = [fedvs(hall, client).of_train.shares.value[0, party] for client in CLIENTS]
    marks = {int(share[-1, 0]) for share in shares}
    assert len(marks) == 1, "one sharing"
    assert marks != {0}
    for pair in combinations(range(len(CLIENTS)), 2):
        stacked_shares = torch.stack([shares[i] for i in pair])[:, :-1]
        yield _line(stacked_shares, list(pair), (0, 1), one.code.alphas, one.code)[0]


def check_shares(hall: Hall) -> None:
    """Every client's columns are what everybody's shares say."""
    for number, client in enumerate(CLIENTS):
        one = fedvs(hall, client)
        segments = Segments(one.data.train.rows, 1)
        wanted = segments.cut(one.field.columns.nearest(one.x))[0, 0].flatten()
        for found in columns_in(hall, number):
            assert torch.equal(found[: len(wanted)], wanted), client


@pytest.mark.parametrize("missing", ["last", "wait"])
def test_a_client_that_lost_its_files_is_sent_its_shares_again(
    missing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="colonnade")
    fed = small(epochs=6, missing=missing)
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        check_shares(hall)
        hall.kill("client1")
        shutil.rmtree(tmp_path / "client1")
        await hall.clock.sleep_until(hall.clock.now + SECOND // 50)
        hall.start("client1")
        leader = await hall.trained()
        check_shares(hall)
        assert leader.state.result is not None
        assert not any("without its part" in note for note in leader.state.result.notes)
        assert (await hall.ask()).absent == {}

    hall.tell(story)
    assert "columns are shared again" in caplog.text


def test_a_client_that_comes_after_the_sharing_takes_part_from_the_next_epoch_on(
    tmp_path: Path,
) -> None:
    fed = small(epochs=10)
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*(party for party in fed.members if party != "client3"))
        await hall.until(lambda: round_of(hall) >= 8, seconds=600)
        hall.start("client3")
        leader = await hall.trained()
        check_shares(hall)
        assert (await hall.ask()).absent == {}
        assert leader.state.result is not None
        assert not any("without its part" in note for note in leader.state.result.notes)

    hall.tell(story)


def test_a_client_that_crashes_has_the_shares_that_it_was_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="colonnade")
    fed = small()
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        before = fedvs(hall, "client1").of_train.shares.value
        hall.kill("client1")
        hall.start("client1")
        await hall.trained()
        assert torch.equal(fedvs(hall, "client1").of_train.shares.value, before)

    hall.tell(story)
    assert "shared again" not in caplog.text
    assert caplog.text.count("client1: the masks of its shares come from the operating") == 2


def lying(hall: Hall, party: str) -> None:
    """One number of every answer is wrong."""
    post = hall.members[party].post
    send = post.post

    def sends(header: Any, value: Any, to: str) -> None:
        if header.kind == "coded-embedding" and value is not None:
            value = value.clone()
            value[0, 0] += 1
        send(header, value, to)

    post.post = sends


def test_a_client_that_answers_with_wrong_numbers_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """K = 1, T = 0 needs one answer of four: three are spare. What is learnt is what would have
    been learnt without the wrong answers."""
    fed = small(colluders=0, spare=3)
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        lying(hall, "client2")
        leader = await hall.trained()
        assert leader.state.result is not None
        notes = " ".join(leader.state.result.notes)
        rounds = fedvs(hall, "server").opener.counts["rounds"]
        assert f"client2 gave wrong answers in {rounds:,} of {rounds:,} rounds" in notes
        assert "client2 gave wrong answers" in " ".join(status(leader)["remarks"])

    hall.tell(story)
    assert "client2: its answer is wrong and is not used" in caplog.text
    assert same_weights(hall, undisturbed(fed))


def test_a_wrong_answer_that_cannot_be_traced_is_not_learnt_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Three of four must answer: with one spare answer the server notices, and cannot tell who."""
    fed = small(spare=1)
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: bool(fedvs(hall, "client0").stacks))
        server = fedvs(hall, "server")
        before = {k: v.clone() for k, v in server.head.member_state(0).items()}
        lying(hall, "client2")
        leader = await hall.trained()
        assert all(torch.equal(v, before[k]) for k, v in server.head.member_state(0).items())
        assert leader.state.result is not None
        notes = " ".join(leader.state.result.notes)
        assert "answers agreed in: 0 of" in notes
        assert "not tested: at least one of the clients client0" in notes

    hall.tell(story)
    assert "too few to tell which" in caplog.text


def test_a_value_far_out_in_one_test_row_does_not_make_a_client_absent(tmp_path: Path) -> None:
    """The row is clipped, before the first prediction and after all processes started again."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(160, 8)).astype("float32"), np.arange(160) % 2
    x[121, 5] = 500.0  # the second column of client2
    parts = {"x_train": x[:120], "y_train": y[:120], "x_test": x[120:], "y_test": y[120:]}
    np.savez(tmp_path / "far.npz", **parts)
    hall = Hall(small(tmp_path / "far.npz", data_bits=5, model_bits=11), tmp_path / "out")
    said = "client2: 1 of 40 rows that were predicted last hold values far beyond"

    async def story() -> None:
        hall.start(*hall.fed.members)
        leader = await hall.trained()
        assert leader.state.result is not None
        (note,) = leader.state.result.notes
        assert note.startswith(said)
        for party in hall.fed.members:
            hall.kill(party)
        hall.start(*hall.fed.members)
        again = await hall.trained()
        assert (await hall.ask()).absent == {}
        assert "client2: 1 of 3 rows" in "".join(again.remarks())

    hall.tell(story)


def with_one_client_more() -> Federation:
    table = {"name": "test", "method": {"algorithm": "fedvs", "epochs": 6, "encoder": [16]}}
    data = {"dataset": "digits", "rows": 120, "test": 0.5, "parties": len(CLIENTS) + 1}
    return parse_federation(table | {"data": data}, "test")


def test_a_client_that_the_federation_does_not_name_is_refused_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes after the sharing, and nobody sends it a share."""
    fed = small()
    hall, sent = Hall(fed, tmp_path), []

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        for party in fed.members:
            for kind in ("data-share", "model-share", "gradient"):
                on_sending(hall, party, kind, lambda to: sent.append(to) or True)
        newcomer = with_one_client_more()
        late = member(newcomer, hall.storm.seat("client4"), tmp_path, hall.clock.now // 1000 + 1)
        hall.clock.spawn(late.live(), "client4")
        await hall.trained()

    hall.tell(story)
    assert "client4: refused a message: it is no member: our federation file does" in caplog.text
    assert "client0" in sent
    assert "client4" not in sent
    assert same_weights(hall, undisturbed(fed))


def test_a_client_that_is_added_after_the_sharing_needs_a_new_training(tmp_path: Path) -> None:
    """Shares are made for so many clients: state of the old ones is not mixed with the new."""
    hall = Hall(small(), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        for party in hall.fed.members:
            hall.kill(party)
        hall.fed = with_one_client_more()
        hall.start(*hall.fed.members)
        await hall.trained()

    with pytest.raises(InputError, match="checkpoints: holds the state of another training"):
        hall.tell(story)


def test_fewer_answers_than_are_needed_end_the_training_if_that_is_asked_for(
    tmp_path: Path,
) -> None:
    fed = small(missing="error")
    hall = Hall(fed, tmp_path)

    async def story() -> None:
        hall.start(*fed.members)
        await hall.until(lambda: round_of(hall) >= 8)
        hall.kill("client1")
        hall.kill("client2")
        await hall.trained()

    with pytest.raises(TooFewAnswers, match=r"K=1, T=1 need 3 of 4 clients, [0-2] answered"):
        hall.tell(story)


def test_the_status_line_shows_how_far_the_sharing_of_columns_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.algorithms.fedvs.CHUNK", 32)
    fed, lines = small(epochs=1), []
    hall = Hall(fed, tmp_path)

    def look(to: str) -> bool:
        lines.append(sentence(hall.members["client0"]))
        return True

    async def story() -> None:
        hall.start(*fed.members)
        on_sending(hall, "client0", "data-share", look)
        await hall.trained()

    hall.tell(story)
    shown = [line for line in lines if "client0: training · sharing columns" in line]
    assert len(set(shown)) > 2
    assert all("MB" in line for line in shown)
    assert "sharing" not in sentence(hall.members["client0"])
