"""CVFL: labels at several parties, each of which leads at its own pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.algorithms.cvfl import CVFL, CVFLSettings, _scale
from colonnade.algorithms.cvfl_stored import Stored
from colonnade.algorithms.cvfl_time import lagging
from colonnade.common.processes import one_thread
from colonnade.errors import InputError
from colonnade.learning.label_split import neighbouring, split_labels
from colonnade.learning.side_by_side import PACE, Epoch, Turn
from colonnade.network import Delays, Inbox, Register
from colonnade.network.faults import Communication
from colonnade.privacy.spec import Noise
from colonnade.testing.engines import Trained, difference, live, over_zenoh, projected, stacked
from colonnade.testing.kit import DELAYS, digits, same_run


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def settings(**keys: Any) -> CVFLSettings:
    return CVFLSettings(**{"name": "cvfl", "algorithm": "cvfl", "epochs": 1, **keys})


def rounds_of(trained: Trained) -> list[int]:
    progress, algorithm = trained.algorithm.training.progress, trained.algorithm
    return [int(progress[f"{PACE}{k}"]) for k in range(len(algorithm.labels))]


def test_the_collaborator_sees_the_top_net_and_its_gradients_and_nothing_else() -> None:
    trained = stacked(settings(q=3, slow=0.5), digits(300))
    received = {row[3] for row in trained.net.ledger.rows() if row[2] == "collaborator"}
    assert received == {"top-gradient", "decision"}
    algorithm = trained.algorithm
    assert isinstance(algorithm, CVFL)
    assert not trained.net.world.columns.parties.count("collaborator")
    for _, _, receiver, kind, messages, size in trained.net.ledger.rows():
        if receiver == "collaborator" and kind == "top-gradient":
            assert size == messages * algorithm.top_size * 4, (
                "as long as the top net, whatever rows"
            )


def steps_of(trained: Trained) -> dict[str, int]:
    """That the optimisers have taken, by party."""
    found = {}
    for name, parties in (
        ("top", ["collaborator"]),
        ("encoder", trained.algorithm.columns.parties),
    ):
        stack = trained.algorithm.stacks[name][1]
        found |= {p: int(stack.optimizer_state(i)["steps"]) for i, p in enumerate(parties)}
    return found


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The gradients that came, by receiver, as the inboxes of the rounds have them."""
    send, found = Turn.send, Counter[str]()

    async def counted(turn: Turn, value: Any, channel: Any, *more: Any, **how: Any) -> Inbox:
        inbox = await send(turn, value, channel, *more, **how)
        if channel.kind in ("top-gradient", "gradient"):
            came = inbox.arrived.sum(1).tolist()
            found.update(dict(zip(channel.dst.parties, came, strict=True)))
        return inbox

    monkeypatch.setattr(Turn, "send", counted)
    return found


@pytest.mark.parametrize("asynchronous", [True, False])
def test_every_gradient_that_arrives_is_applied_once(
    asynchronous: bool, arrived: Counter[str]
) -> None:
    """The optimisers' step counts are those of the messages that came, also if links fail."""
    method = settings(asynchronous=asynchronous, batch=16)
    trained = stacked(method, digits(300))
    sent: Counter[tuple[str, str]] = Counter()
    for phase, _, receiver, kind, messages, _ in trained.net.ledger.rows():
        sent[receiver, kind] += messages if phase == "training" else 0
    own = rounds_of(trained)
    assert sent["collaborator", "top-gradient"] == sum(own)
    for client, led in zip(trained.algorithm.columns.parties, own, strict=True):
        assert sent[client, "gradient"] + led == sum(own), "what it sends to itself is in no ledger"
    assert steps_of(trained) == arrived == dict.fromkeys(arrived, sum(own))
    arrived.clear()
    fault = Communication(name="links", rate=0.3)
    lossy = stacked(method, digits(300), fault=fault, delays=DELAYS)
    assert steps_of(lossy) == arrived
    assert all(0 < steps < sum(rounds_of(lossy)) for steps in arrived.values())


def test_the_mean_over_rounds_is_asked_and_does_not_disturb_what_learns() -> None:
    newest, mean, one = (
        stacked(settings(batch=16, slow=0.5, average=rounds), digits(300))
        for rounds in (None, 8, 1)
    )
    assert one.metrics == newest.metrics != mean.metrics
    for party, tensors in newest.weights.items():
        for name, value in tensors.items():
            assert torch.equal(one.weights[party][name], value)
            if not name.startswith("head."):  # copies of the top net
                assert torch.equal(mean.weights[party][f"learning {name}"], value)
                assert not torch.equal(mean.weights[party][name], value)


@pytest.mark.parametrize("seed", range(3))
def test_with_nothing_but_its_name_it_learns_from_the_first_epochs_on(seed: int) -> None:
    accuracy = stacked(settings(epochs=4), digits(), seed=seed).metrics["test_accuracy"]
    assert accuracy > 0.4  # the paper's rate for SGD: 0.1, which is a guess


def test_a_slow_party_leads_less_often_and_nobody_waits_for_it() -> None:
    slow = settings(slow={"client3": 0.75}, batch=8, epochs=2)
    *fast, last = rounds_of(together := stacked(slow, digits(400)))
    assert last / (sum(fast) / 3) == pytest.approx(0.25, abs=0.08)
    waiting = stacked(settings(**{**_keys(slow), "asynchronous": False}), digits(400))
    assert len(set(rounds_of(waiting))) == 1
    # In a round an active party sends two messages, each of which takes a second, or four.
    rounds = max(rounds_of(waiting))
    assert waiting.seconds == pytest.approx(8.0 * rounds)
    assert together.seconds < 0.5 * waiting.seconds


def test_a_slow_passive_party_holds_up_rounds_unless_stored_embeddings_may_stand_in() -> None:
    """client3 needs 5 s for an embedding, the active parties 1 s for a message of theirs."""
    keys = {"active": 2, "slow": {"client1": 0.1, "client3": 0.8}, "epochs": 6, "batch": 16}
    quick = stacked(settings(**{**keys, "slow": {"client1": 0.1}}), digits(600))
    held_up = stacked(settings(**keys), digits(600))
    stale = stacked(settings(**keys, stale=True, deadline=0.5), digits(600))
    assert held_up.seconds > 3 * quick.seconds
    assert stale.seconds < 1.5 * quick.seconds
    assert stale.metrics["test_accuracy"] > quick.metrics["test_accuracy"] - 0.1
    before = stacked(settings(**{**keys, "epochs": 1}, stale=True, deadline=0.5), digits(600))
    learnt, first = (t.weights["client3"]["encoder.0.weight"] for t in (stale, before))
    assert not torch.allclose(learnt, first), "it learns by the gradients of stored embeddings"


def test_an_embedding_that_nobody_has_heard_yet_counts_as_zeros() -> None:
    inbox = Inbox(torch.ones(1, 2, 3, 4), torch.tensor([[True, False]]), False)
    stored = Stored(Register(5), torch.tensor([1, 4, 6, 7, 9]))
    used = stored.filled(inbox, torch.tensor([4, 9, 1]))
    assert used.arrived.tolist() == [[True, False]]
    assert used.value[0, 1].abs().sum() == 0
    again = stored.filled(inbox.only(torch.zeros(1, 2, dtype=torch.bool)), torch.tensor([9, 4]))
    assert again.arrived.tolist() == [[True, False]]
    assert again.value[0, 0].tolist() == [[1.0] * 4] * 2


def test_what_passive_parties_compute_is_the_lag_of_their_embeddings() -> None:
    given = Delays(compute={"exponential": 2.0}, speed={"c": 0.5})
    found = lagging(given, ["c"], ["a", "c", "collaborator"])
    assert found.lag == {"c": {"exponential": 4.0}}
    assert found.compute == {
        "a": {"exponential": 2.0},
        "c": 0.0,
        "collaborator": {"exponential": 2.0},
    }
    with pytest.raises(InputError, match="leave lag out"):
        lagging(Delays(compute=1.0, lag=1.0), ["c"], ["a", "c"])


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({"single": True, "label_split": "classes"}, "client0 has no row of class 3, 4, 5, 6, 7"),
        ({"single": True}, None),
        ({"q": 3}, "q = 3 had no effect: no active party is slow"),
        ({"q": 3, "slow": 0.5}, None),
    ],
    ids=str,
)
def test_what_a_setting_could_not_do_is_noted(keys: dict[str, Any], note: str | None) -> None:
    remarks = stacked(settings(**keys), digits(200)).algorithm.remarks()
    assert remarks == [] if note is None else note in remarks[0]


def _keys(method: CVFLSettings) -> dict[str, Any]:
    return {"slow": method.slow, "batch": method.batch, "epochs": method.epochs}


def test_with_one_active_party_all_engines_train_the_very_same_model(tmp_path: Path) -> None:
    method, data = settings(active=1, epochs=2), digits(300)
    one, each = stacked(method, data), projected(method, data)
    assert difference(one, each) < 1e-6
    same_run(one, live(method, data))
    same_run(one, over_zenoh(method, data, tmp_path))


def test_a_slow_party_never_counts_for_less_and_is_clipped() -> None:
    algorithm = stacked(settings(q=3, slow=0.5, label_split="classes"), digits(300)).algorithm
    assert isinstance(algorithm, CVFL)
    losses = torch.tensor([0.01, 3 ** (1 / (1 - 3)), 2.0])
    factors = algorithm.factor(_epoch(algorithm), 1, losses)
    assert factors.tolist() == pytest.approx([1.0, 1.0, 12.0])
    fast = algorithm.factor(_epoch(algorithm), 0, losses)
    assert fast.tolist() == [1.0, 1.0, 1.0]


def test_auto_amplifies_who_is_behind_while_the_loss_is_high() -> None:
    algorithm = stacked(settings(q="auto", slow=0.5), digits(300)).algorithm
    assert isinstance(algorithm, CVFL)
    algorithm.training.progress |= {f"{PACE}{k}": float(n) for k, n in enumerate((80, 10, 80, 80))}
    losses = torch.tensor([5.0, 10.0, 0.05])
    assert algorithm.factor(_epoch(algorithm), 1, losses).tolist() == pytest.approx([2.0, 2.0, 1.0])
    assert algorithm.factor(_epoch(algorithm), 0, losses).tolist() == [1.0] * 3


def test_one_factor_for_all_nets_makes_the_top_nets_gradient_no_longer_than_the_clip() -> None:
    top = torch.tensor([[3.0, 4.0]])
    scale = _scale(lambda objective: objective, torch.tensor([2.0]), top, 8.0)
    assert scale.tolist() == pytest.approx([1.6])
    short = _scale(lambda objective: objective, torch.tensor([1.2]), top, 8.0)
    assert short.tolist() == pytest.approx([1.2])
    long = _scale(lambda objective: objective, torch.tensor([9.0]), 4 * top, 8.0)
    assert long.tolist() == [1.0], "a gradient is never shrunk here"


def _epoch(algorithm: CVFL) -> Any:
    return Epoch(torch.zeros(0), programs=algorithm.programs, training=algorithm.training)


@pytest.mark.parametrize(("q", "rate", "batch"), [(3, 1.0, 8), (10, 0.1, 64)])
def test_with_labels_by_class_and_slow_parties_q_diverges_unless_clipped(
    q: float, rate: float, batch: int
) -> None:
    keys = {"q": q, "lr": rate, "batch": batch, "epochs": 3, "optimizer": "sgd"}
    keys |= {"slow": 0.95, "label_split": "classes"}
    clipped = stacked(settings(**keys), digits(300))
    unclipped = stacked(settings(**keys, clip=1e9), digits(300))
    assert clipped.metrics["test_loss"] < 3.5  # of a guess: 2.3
    assert all(value.isfinite().all() for t in clipped.weights.values() for value in t.values())
    assert not unclipped.metrics["test_loss"] < 1e6


# -- who has which labels --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["iid", "classes", [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9, 0], [1]]])
def test_every_row_has_one_label_holder(how: Any) -> None:
    y = torch.arange(1000) % 10
    parts = split_labels(y, 10, ["a", "b", "c", "d"], how, 3)
    assert sorted(torch.cat(parts).tolist()) == list(range(1000))
    if how == "iid":
        assert [len(part) for part in parts] == [250] * 4
    else:
        owned = neighbouring(10, 4) if how == "classes" else how
        assert [sorted(set(y[part].tolist())) for part in parts] == [sorted(o) for o in owned]


def test_neighbouring_classes_are_those_of_the_paper() -> None:
    found = neighbouring(10, 4)
    assert found == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [7, 8, 9]]
    pairs = [set(a) & set(b) for i, a in enumerate(found) for b in found[:i]]
    assert max(map(len, pairs)) <= 1


WRONG = [
    ({"active": 0}, "active = 0: expected 1 to 4"),
    ({"active": []}, "at least one party with labels"),
    ({"active": ["bank"]}, "no party 'bank'; expected some of client0"),
    ({"q": 0.5}, "q = 0.5: expected 1 or more"),
    ({"active": ["client0", "client1", "client0"]}, "'client0' stands there twice"),
    ({"synchronous": "mean"}, "set asynchronous = false"),
    ({"deadline": 2.0}, "with stale = true only"),
    ({"stale": True, "asynchronous": False}, "waits for everybody"),
    ({"stale": True, "noise": Noise(clip=1.0, sigma=1.0)}, "leave noise out"),
    ({"slow": {"client9": 0.5}}, "slow.client9: expected a party: client0"),
    ({"slow": 1.0}, "slow.client1 = 1: expected a share"),
    ({"label_split": [[0], [1], [2], [3]]}, "no active party has class 4"),
    ({"label_split": [[0, 1]]}, "classes for 1 parties, but 4 are active"),
    ({"label_split": [list(range(10)), [10], [1], [2]]}, "there is no class 10"),
    ({"label_split": [list(range(10)), [], [1], [2]]}, "client1 has no labelled rows"),
    ({"average": 0}, "average = 0: expected 1 or more"),
    ({"clip": 0.0}, "clip = 0: expected a length above 0"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG, ids=str)
def test_a_setting_that_cannot_work_is_told(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stacked(settings(**keys), digits(200))
