"""A member that misbehaves, and strangers' bytes: refused, and the training is bit by bit what it
would have been. What TLS and access rules keep out is in tests/network/test_zenoh.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
import torch
from tests.federation.member.test_member import federation, member

from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.member import Member
from colonnade.network.clock import Clock
from colonnade.network.live.generations import UNREAD
from colonnade.network.live.messages import CALL, HEARTBEAT
from colonnade.network.live.network import Live
from colonnade.network.live.post import DAY
from colonnade.network.transport.memory import MemoryTransport, Seat
from colonnade.network.wire import Header, decode, encode
from colonnade.testing import stacked

ATTACKER = "client3"

Attack = Callable[[Random, bytes, str, Federation], bytes]  # from a message to somebody, another


def random_bytes(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    return random.randbytes(random.randrange(400))


def mutated(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 8)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def truncated(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    return data[: random.randrange(len(data))]


def other_federation(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """As the attacker may speak, with numbers of its choice, but for another federation."""
    header, value = decode(_own(fed, (2, 1), torch.full((64, 16), 1e3)))
    return encode(msgspec.structs.replace(header, federation="f" * 32), value)


def in_anothers_name(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """Valid in every respect, but sent by somebody else, and with other numbers."""
    header, value = decode(data)
    return encode(header, None if value is None else value + 1)


def of_the_past(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """The attacker's own embedding of a round that is over, with other numbers."""
    return _own(fed, (1, 1), torch.full((64, 16), 1e3))


def old_generation(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """The attacker's own, from before the label holder last began."""
    own = decode(_own(fed, (3, 1), torch.full((64, 16), 1e3)))
    return encode(msgspec.structs.replace(own[0], generation=0), own[1])


def decision(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """Only the label holder decides when to stop."""
    header = Header((5, 4), "server", 0, "everyone", fed.members.index(to), "decision")
    return encode(_signed(header, fed), torch.tensor([0.0, 1.0]))


def call(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """Only the label holder calls."""
    return _told(fed, to, CALL, '{"number": 1, "over": true}')


def nonsense_call(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    return _told(fed, to, CALL, "{" * random.randrange(1, 2000))


def nested_call(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """JSON that a decoder follows until its stack is used up."""
    return _told(fed, to, CALL, '{"rows": [{"x": ' + "[" * 100_000)


def nested_greeting(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    return _told(fed, to, HEARTBEAT, '{"digests": {}, "x": ' + '{"x": ' * 100_000)


def account_without_bounds(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """Of an embedding that it may have sent, but so many bytes that their sum fits no integer."""
    number = random.choice(["-1", "1e3", str(2**62), str(2**64), "9" * 5000])
    row = f'{{"phase": "training", "sender": "{ATTACKER}", "receiver": "server"'
    row += f', "kind": "embedding", "messages": 1, "bytes": {number}}}'
    return _told(fed, to, CALL, f'{{"rows": [{row}]}}')


def account_of_others(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """What it says of its own is believed; not that others sent it, nor words for the report."""
    row = {"phase": "training", "sender": ATTACKER, "receiver": "server", "kind": "embedding"}
    key = random.choice(list(row))
    row[key] = random.choice(["client1", "\x1b[2J", "[bold]x[/bold]", "<script>"])
    if key == "receiver" and row[key] == "client1":
        row[key] = "nobody"
    note = msgspec.json.encode({"rows": [{**row, "messages": 1, "bytes": 1}]}).decode()
    return _told(fed, to, CALL, note)


def generation_to_come(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """A leader that believed it would begin a generation without a successor, or one that cannot be
    told."""
    told = _told(fed, to, HEARTBEAT, "")
    number = random.choice(["9" * 4300, str(2**62), str(2**61), str(10 * DAY), "-1"])
    return _with_header(told, f'"generation":{NOW["generation"]}', f'"generation":{number}')


def program_counter_without_bounds(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    number = random.choice(["9" * 4300, str(-(2**70)), str(2**63), "1.5", "null"])
    return _with_header(_told(fed, to, HEARTBEAT, ""), '"at":[0,0]', f'"at":[0,{number}]')


def nonsense_greeting(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    return _told(fed, to, HEARTBEAT, '{"digests": {"seed": "0"}, "rows": "' + "x" * 500 + '"}')


def far_ahead(random: Random, data: bytes, to: str, fed: Federation) -> bytes:
    """Letters for rounds that will never be, to fill the memory."""
    place = (random.randrange(10**6, 10**9), 1)
    return _own(fed, place, torch.ones(64, 16))


def _own(fed: Federation, place: tuple[int, ...], value: torch.Tensor) -> bytes:
    number = fed.clients.index(ATTACKER)
    header = Header(place, "clients", number, "server", 0, "embedding")
    return encode(_signed(header, fed), value)


def _told(fed: Federation, to: str, kind: str, note: str) -> bytes:
    ends = ("everyone", fed.members.index(ATTACKER), "everyone", fed.members.index(to))
    header = Header((0, 0), *ends, kind, nothing=True, note=note)
    return encode(_signed(header, fed), None)


def _with_header(data: bytes, before: str, after: str) -> bytes:
    """The same message with another text in its header, which our own types would not let pass."""
    file = json.loads(data[8:])
    header = file["__metadata__"]["header"]
    assert before in header
    file["__metadata__"]["header"] = header.replace(before, after)
    head = json.dumps(file).encode()
    return len(head).to_bytes(8, "little") + head


def _signed(header: Header, fed: Federation) -> Header:
    return msgspec.structs.replace(
        header, federation=fed.hash, generation=NOW["generation"], life=1
    )


NOW = {"generation": 0}
ATTACKS: dict[Attack, int] = {  # and how often, for each message of the training
    random_bytes: 40,
    mutated: 40,
    truncated: 20,
    other_federation: 1,
    in_anothers_name: 1,
    of_the_past: 1,
    decision: 1,
    call: 1,
    nonsense_call: 1,
    nested_call: 1,
    nested_greeting: 1,
    account_without_bounds: 2,
    account_of_others: 2,
    generation_to_come: 5,
    program_counter_without_bounds: 5,
    nonsense_greeting: 1,
    old_generation: 1,
    far_ahead: 30,
}
REASONS: dict[Attack, str] = {  # in the log; what is merely late is dropped without a word
    random_bytes: "not a message",
    mutated: "not",
    truncated: "not",
    other_federation: "federation file differs",
    in_anothers_name: "not between",
    decision: "not between",
    call: "unknown field",
    nonsense_call: "malformed",
    nested_call: "not a valid Account",
    nested_greeting: "not a valid Greeting",
    account_without_bounds: "not a valid Account",
    account_of_others: "an account of",
    generation_to_come: "not a message",
    program_counter_without_bounds: "not a message",
}


class Misbehaving(MemoryTransport):
    """For every message between honest parties, the attacker sends something to its receiver."""

    def __init__(self, clock: Clock, fed: Federation, attack: Attack) -> None:
        super().__init__(clock)
        self.fed, self.attack, self.random, self.attempts = fed, attack, Random(7), 0

    def seat(self, party: str) -> Seat:
        return Overheard(self, party)

    def strike(self, to: str, data: bytes) -> None:
        NOW["generation"] = decode(data)[0].generation
        for _ in range(ATTACKS[self.attack]):
            self.attempts += 1
            bad = self.attack(self.random, data, to, self.fed)
            self.seats[to].deliver(ATTACKER, bad)


class Overheard(Seat):
    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        assert isinstance(self.room, Misbehaving)
        if ATTACKER not in (self.party, to) and to in self.room.seats:
            self.room.strike(to, data)
        super().publish(to, data, delay)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_changes_no_weight(
    attack: Attack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fed, clock = federation("splitnn"), Clock()
    room = Misbehaving(clock, fed, attack)
    members: dict[str, Member] = {p: member(fed, room.seat(p), tmp_path) for p in fed.members}
    clock.run(*[(party, one.live()) for party, one in members.items()])
    one = stacked(fed.method, fed.vertical_data(), fed.seed)
    for party, tensors in one.weights.items():
        if attack is far_ahead:  # who claims to be elsewhere is not waited for: its own loss
            break
        mine = members[party].algorithm.tensors(members[party].net)[party]
        assert all(torch.equal(mine[key], value) for key, value in tensors.items()), party
    assert members[fed.speaker].state.result is not None
    assert room.attempts >= 100
    assert len(members[fed.speaker].post.main.mail.letters) <= 2 * UNREAD
    refused = sum(one.post.refused for one in members.values())
    if attack in (random_bytes, mutated):
        assert room.attempts > 5_000  # of each kind
    by_attacker = [r for r in caplog.records if r.getMessage().startswith(f"{ATTACKER}: refused")]
    assert len(by_attacker) <= 60, "the log is not the attacker's to fill"
    if attack in REASONS:
        assert refused >= room.attempts - 20  # a mutation may be harmless
        assert REASONS[attack] in caplog.text


class Spoilt(Seat):
    """A member whose embeddings are not what they should be."""

    spoil: Callable[[torch.Tensor], torch.Tensor]

    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        header, value = decode(data)
        if value is not None and header.kind == "embedding":
            data = encode(header, self.spoil(value))
        super().publish(to, data, delay)


@pytest.mark.parametrize(
    "spoil",
    [lambda x: x[:-1], lambda x: x.double(), lambda x: x * torch.nan, lambda x: x[None]],
    ids=["too few rows", "another type", "not numbers", "another shape"],
)
def test_what_does_not_fit_counts_as_not_arrived(
    spoil: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path
) -> None:
    fed, clock = federation("splitnn"), Clock()
    room = MemoryTransport(clock)
    spoilt = Spoilt(room, ATTACKER)
    spoilt.spoil = spoil
    seats = {party: spoilt if party == ATTACKER else room.seat(party) for party in fed.members}
    members = {party: member(fed, seat, tmp_path) for party, seat in seats.items()}
    clock.run(*[(party, one.live()) for party, one in members.items()])
    leader = members[fed.speaker]
    assert leader.post.refused > 10
    assert leader.state.result is not None
    assert leader.state.result.notes == (f"tested without {ATTACKER} (did not answer in time)",)
    for party in fed.members:
        tensors = members[party].algorithm.tensors(members[party].net)[party]
        assert all(bool(value.isfinite().all()) for value in tensors.values())
    first = members[ATTACKER].algorithm.tensors(members[ATTACKER].net)[ATTACKER]
    fresh = member(fed, MemoryTransport(Clock()).seat(ATTACKER), tmp_path / "fresh")
    fresh.algorithm.join(Live(fresh.post), fresh.own.data)
    untouched = fresh.algorithm.tensors(Live(fresh.post))[ATTACKER]
    assert all(torch.equal(first[key], value) for key, value in untouched.items()), "it learnt"
