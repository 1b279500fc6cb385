"""A hostile member with a valid certificate: messages of every kind with any content, memory, log
and terminal. It can spoil its own contribution and nothing else."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from tests.federation.member.test_leaderless import IDS, Field
from tests.federation.member.test_leaderless import federation as devices
from tests.federation.member.test_member import FEDERATED, federation, member
from typer.testing import CliRunner

from colonnade.cli import app
from colonnade.common.text import printable
from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.asking import predictions
from colonnade.federation.member.led import LedMember
from colonnade.federation.member.member import Member
from colonnade.federation.member.messages import Account, Call, Greeting, text
from colonnade.federation.member.status import set_up_log, told
from colonnade.learning.gossip import Witness
from colonnade.network.clock import SECOND, Clock
from colonnade.network.live.messages import CALL, GONE, HEARTBEAT, NACK, PARTS, START
from colonnade.network.live.post import DAY, Post
from colonnade.network.parts import Parts
from colonnade.network.program_counter import END, MAIN
from colonnade.network.quota import ENTRY, Quota, Store, weight
from colonnade.network.tally import Tally
from colonnade.network.transport.memory import MemoryTransport, Seat
from colonnade.network.wire import VERSION, Header, WireError, decode, encode, read_note
from colonnade.testing.storm import Crew, StormSeat

ATTACKER = "client3"

# -- any content -----------------------------------------------------------------------------------

ODD: list[Any] = [
    None, True, 0, 1, -1, 3, 2**53, 2**60, 2**61, 2**62, -(2**62), 2**63, 2**70, -(2**70), 1.5,
    1e308, "", "x", "client1", "server", "everyone", "\x1b[2J\x1b]0;owned\x07", "[red]x[/red]",
    "\ud800", "\u202e", "x" * 300, [], [0], [0, 0], [1, 1], [2**60, 0], [-1] * 32, [0] * 33, {},
    {"x": 1}, [[[[]]]], [None], ["1", "2"],
]  # fmt: skip
KINDS = [HEARTBEAT, NACK, GONE, START, CALL, PARTS]
KINDS += ["embedding", "decision", "encoding", "validation"]


class Fuzz:
    """Messages of every kind that are right in most respects."""

    def __init__(self, fed: Federation, seed: int) -> None:
        self.fed, self.random = fed, Random(seed)
        self.parties = {group.name: group.parties for group in fed.algorithm().groups}
        self.parties["everyone"] = fed.members

    def message(self, to: str, now: int, life: int) -> bytes:
        random = self.random
        header = self.header(to, now, life)
        for _ in range(random.choice([0, 0, 1, 1, 2])):
            header[random.choice(list(header))] = random.choice(ODD)
        shape = random.choice([None, None, [3], [64, 16], [0], [1, 1, 1], [8, 4]])
        numbers = b"" if shape is None else random.randbytes(4 * int(torch.Size(shape).numel()))
        if random.random() < 0.9:
            header["nothing"] = shape is None
        file: dict[str, Any] = {
            "__metadata__": {"colonnade": VERSION, "header": json.dumps(header)},
            "value": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(numbers)]},
        }
        if shape is None:
            del file["value"]
        head = json.dumps(file).encode()
        return len(head).to_bytes(8, "little") + head + numbers

    def header(self, to: str, now: int, life: int) -> dict[str, Any]:
        random = self.random
        src, dst = random.choice(list(self.parties)), random.choice(list(self.parties))
        numbers = [self.number(src, ATTACKER), self.number(dst, to)]
        rounds = [random.choice([0, 1, 2, 3, 5, 50, END]), random.choice([0, 1, 2, 3, 4, END])]
        return {
            "at": random.choice([rounds, [END, -1, 1, 0, *rounds], [1, 2, -1, *rounds]]),
            "src": src,
            "sender": numbers[0],
            "dst": dst,
            "receiver": numbers[1],
            "kind": random.choice(KINDS),
            "register": random.random() < 0.2,
            "federation": self.fed.hash if random.random() < 0.95 else "f" * 32,
            "generation": now if random.random() < 0.9 else random.choice([0, now + 1, 3 * DAY]),
            "program": random.choice([0, 0, 0, 1, 2, 3]),
            "life": life,
            "note": self.note(),
        }

    def number(self, group: str, party: str) -> int:
        parties = self.parties[group]
        return parties.index(party) if party in parties else 0

    def note(self) -> str:
        """Mostly a greeting, a call or an account with something odd in it."""
        random = self.random
        row = {"phase": "training", "sender": ATTACKER, "receiver": self.fed.members[0]}
        row |= {"kind": "embedding", "messages": 1, "bytes": 1}
        notes: list[dict[str, Any]] = [
            {"digests": {"seed": "0", "x\x1b[2J": "1"}, "rows": ""},
            {"number": random.choice([0, 1, 2, DAY]), "ids": ["1"], "caller": "client1"},
            {"number": 1, "account": True},
            {"rows": [row], "number": 0, "silent": []},
            {"number": random.randrange(5), "silent": ["client1", "nobody"]},
            {"kept": [[[1, 5], True, False]], "missed": ["client1", "\x1b[2J"], "committed": 1},
        ]
        chosen = random.choice(notes)
        holder = row if "rows" in chosen and random.random() < 0.5 else chosen
        if random.random() < 0.7:
            holder[random.choice([*holder, "x"])] = random.choice(ODD)
        whole = json.dumps(chosen)
        nested = '{"digests": {}, "rows": [{"x": ' + "[" * 50_000
        return random.choice([whole, whole, whole, whole, "", "{", nested, whole[:-5]])


class Fuzzed(MemoryTransport):
    """For every message of an honest party to another one, the attacker sends that one several."""

    def __init__(self, clock: Clock, fuzz: Fuzz, often: int) -> None:
        super().__init__(clock)
        self.fuzz, self.often, self.sent = fuzz, often, 0

    def seat(self, party: str) -> Seat:
        return Beside(self, party)


class Beside(Seat):
    def publish(self, to: str, data: bytes, delay: int = 0) -> None:
        room = self.room
        assert isinstance(room, Fuzzed)
        if ATTACKER not in (self.party, to) and to in room.seats:
            for _ in range(room.often):
                room.sent += 1
                header = decode(data)[0]
                message = room.fuzz.message(to, header.generation, header.life)
                room.seats[to].deliver(ATTACKER, message)
        super().publish(to, data, delay)


@pytest.mark.parametrize("name", FEDERATED)
def test_no_message_of_any_content_ends_a_label_holder_a_client_or_a_device(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fed, clock = federation(name), Clock()
    room = Fuzzed(clock, Fuzz(fed, 11), often=3 if name == "dvfl" else 10)
    members: dict[str, Member] = {p: member(fed, room.seat(p), tmp_path) for p in fed.members}
    honest = [party for party in fed.members if party != ATTACKER]
    clock.run(*[(party, members[party].live()) for party in fed.members])
    assert room.sent > 1_000
    assert members[fed.speaker].state.result is not None
    for party in honest:
        post, tensors = members[party].post, members[party].algorithm.tensors(members[party].net)
        mine = tensors.get(party, {})  # a party may have no model
        assert all(bool(value.isfinite().all()) for value in mine.values())
        # Letters and registers are held for each of the programs side by side.
        programs = 1 + len(fed.clients) * members[party].algorithm.side_by_side
        assert post.quota.held(ATTACKER) <= programs * 2 * 2**20
        assert not set(members[party].record.told) - set(fed.members)
    if fed.leader is None:  # a member that tells some devices and not others can part them
        for party in honest:
            assert members[party].post.parts.kept
            assert names_whom_it_lacks(members[party], honest)
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if line.startswith(f"{ATTACKER}: refused")]) < 300
    assert all(line.isprintable() for line in lines)


def assert_trained_together(members: dict[str, Member], parties: list[str]) -> None:
    """These parties end with parts of one version, and each knows that the others have theirs."""
    for party in parties:
        one = members[party]
        assert one.version is not None
        assert one.version == members[parties[0]].version
        assert not one.lacking().keys() & set(parties)
        assert one.state.result is not None
        assert one.state.result.metrics["test_accuracy"] is not None


def names_whom_it_lacks(one: Member, parties: list[str]) -> bool:
    assert one.state.result is not None
    notes = " ".join(one.state.result.notes)
    if one.version is None:
        return f"{one.party} has no part of the model of its neighbours: has round" in notes
    lacking = one.lacking().keys() & set(parties)
    return all(f"the model lacks {party}: " in notes for party in lacking)


LIES: dict[str, dict[str, float]] = {
    "a version to come, that is better than all": {"best": 1000, "keeps": 1, "then": 0},
    "a version that nobody else keeps": {"best": 1, "keeps": 1, "then": 0},
    "half a round": {"best": 0.5, "keeps": 1, "then": 0},
    "a figure below zero": {"best": 0, "keeps": 1, "then": -1},
    "a life without bounds": {"life": 1e17},
    "the largest number": {"life": 3e38},
    "heard twice": {"heard": 2.0},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_device_that_lies_about_its_validation_does_not_part_the_others(
    lie: str, tmp_path: Path
) -> None:
    fed, clock = federation("mags"), Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), tmp_path) for party in fed.members}
    post, lies = members[ATTACKER].post, 0
    publish = post.post

    def lying(header: Any, value: Any, to: str) -> None:
        nonlocal lies
        if header.kind == "validation":
            value = value.clone()
            for field, number in LIES[lie].items():
                value[Witness._fields.index(field), fed.members.index(ATTACKER)] = number
            lies += 1
        publish(header, value, to)

    post.post = lying
    clock.run(*[(party, one.live()) for party, one in members.items()])
    assert lies
    assert_trained_together(members, [party for party in fed.members if party != ATTACKER])


def test_figures_of_others_in_a_neighbours_message_are_refused(tmp_path: Path) -> None:
    """On a complete graph every device tells its own figures, and nobody passes any on."""
    fed, clock = federation("mags"), Clock()
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), tmp_path) for party in fed.members}
    post = members[ATTACKER].post
    publish = post.post

    def forging(header: Any, value: Any, to: str) -> None:
        if header.kind == "validation":
            own = value[:, fed.members.index(ATTACKER)]
            value = own[:, None].expand_as(value).contiguous()
        publish(header, value, to)

    post.post = forging
    clock.run(*[(party, one.live()) for party, one in members.items()])
    honest = [party for party in fed.members if party != ATTACKER]
    assert all(members[party].post.refused for party in honest)
    assert_trained_together(members, honest)


@pytest.mark.parametrize("lie", ["the model was made without them", "they were silent"])
def test_a_client_cannot_name_others_as_missing_that_send_it_nothing(
    lie: str, tmp_path: Path
) -> None:
    fed, clock, named = federation("splitnn"), Clock(), ("client0", "client1")
    room = MemoryTransport(clock)
    members = {party: member(fed, room.seat(party), tmp_path) for party in fed.members}
    liar, leader = members[ATTACKER], members[fed.speaker]
    assert isinstance(liar, LedMember)
    announce, heed = liar.post.announce, liar.heed

    def without_them(parts: Parts) -> None:
        announce(msgspec.structs.replace(parts, missed=named))

    async def accuse(call: Call) -> None:
        account = Account(number=call.number, silent=list(named))
        liar.post.tell(fed.speaker, CALL, note=text(account))
        await heed(call)

    if lie == "they were silent":
        liar.heed = accuse
    else:
        liar.post.announce = without_them
    clock.run(*[(party, one.live()) for party, one in members.items()])
    assert leader.post.refused
    assert leader.record.points[-1]["epoch"] == 3, "no epochs more for parties that lack nothing"
    assert not leader.lacking().keys() & set(named)
    assert leader.state.result is not None
    assert not any(party in note for note in leader.state.result.notes for party in named)


def test_an_aggregator_may_say_that_a_client_is_missing_and_a_client_may_not(
    tmp_path: Path,
) -> None:
    fed = federation("dvfl")
    post = member(fed, MemoryTransport(Clock()).seat("owner"), tmp_path).post
    for sender, missed, fits in [
        ("aggregator0", "client1", True),
        ("aggregator0", "aggregator1", False),
        ("client0", "client1", False),
        ("client0", "aggregator0", False),
    ]:
        note = Parts(missed=(missed,)).text()
        post.receive(sender, beat(post, sender, 0, kind=PARTS, note=note, federation=fed.hash))
        assert (sender in post.parts_of) == fits, (sender, missed)
        post.parts_of.clear()


@pytest.mark.parametrize("kind", [Call, Account, Greeting])
def test_a_note_of_any_form_is_a_value_or_a_wire_error(kind: type[Any]) -> None:
    fuzz, errors = Fuzz(federation("splitnn"), 5), set[str]()
    for _ in range(3_000):
        try:
            read_note(fuzz.note(), kind)
        except WireError as error:
            errors.add(str(error))
    assert len(errors) > 5
    assert all(error.isprintable() and len(error) < 300 for error in errors)


# -- generations -----------------------------------------------------------------------------------


def post_of(party: str, life: int, **more: Any) -> Post:
    fed = federation("splitnn")
    seat = MemoryTransport(Clock()).seat(party)
    return Post(fed.algorithm().world(), seat, leader=fed.leader, life=life, **more)


def beat(post: Post, sender: str, generation: int, **more: Any) -> bytes:
    ends = (post.everyone.parties.index(sender), post.everyone.parties.index(post.party))
    header = Header((0, 0), "everyone", ends[0], "everyone", ends[1], HEARTBEAT)
    return encode(
        msgspec.structs.replace(header, generation=generation, nothing=True, **more), None
    )


def test_a_generation_more_than_a_day_ahead_of_the_own_clock_is_ignored() -> None:
    today = 1_800_000_000_000  # milliseconds since 1970
    leader, client = post_of("server", today), post_of("client0", today - DAY // 2)
    leader.receive(ATTACKER, beat(leader, ATTACKER, today + DAY + 1))
    assert leader.main.newest == 0
    assert leader.refused == 1
    leader.receive(ATTACKER, beat(leader, ATTACKER, today + DAY))  # as far as it can be led on
    leader.lead(leader.main, MAIN.at(0, 0))
    assert leader.generation == today + DAY + 1
    client.receive("server", beat(client, "server", leader.generation))
    assert client.generation == leader.generation, (
        "others still follow it, also if their clocks are late"
    )
    client.receive("server", beat(client, "server", today + 10 * DAY))
    assert client.generation == leader.generation


# -- memory ----------------------------------------------------------------------------------------

MB = 2**20


def letter(post: Post, place: tuple[int, ...], size: int, **more: Any) -> bytes:
    header = Header(place, "clients", 3, "server", 0, "embedding", generation=post.generation)
    return encode(msgspec.structs.replace(header, **more), torch.zeros(size // 4))


def test_all_that_is_held_of_one_sender_stays_within_its_quota(
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = post_of("server", 1, quota=Quota(4 * MB))
    post.begin(post.main, 1)
    client = post_of("client0", 1, quota=Quota(4 * MB))
    for i in range(200):
        post.receive(ATTACKER, letter(post, (i + 5, 1), MB // 2))
        post.receive(ATTACKER, letter(post, (i, 1), MB // 2, register=True, kind=f"k{i % 20}"))
        tell = {"kind": GONE, "at": (i, 0)}
        post.receive(ATTACKER, beat(post, ATTACKER, 1, **tell))
        client.receive(ATTACKER, beat(client, ATTACKER, 7, note="x" * 100_000))
        for one in (post, client):
            assert one.quota.held(ATTACKER) <= 4 * MB
    assert len(client.programs._early) < 45
    assert not post.main.gone, "nobody waits there"
    assert client.quota.drops.total > 100
    lines = [r.getMessage() for r in caplog.records if "more of its messages wait" in r.message]
    assert 2 <= len(lines) <= 6, "each told at the first, the tenth and the hundredth"
    near = MAIN.at(3, 1)
    post.receive(ATTACKER, letter(post, near, MB // 2))
    assert (near, "clients", 3, "server", 0) in post.main.mail.letters, (
        "what is needed next has precedence"
    )
    header = Header((1, 1), "clients", 1, "server", 0, "embedding", generation=1)
    post.receive("client1", encode(header, torch.zeros(MB // 4)))
    assert post.quota.held("client1") == MB + ENTRY, "others have their own"


def test_calls_that_wait_for_an_answer_count_against_the_quota(tmp_path: Path) -> None:
    fed, clock = federation("splitnn"), Clock()
    one = member(fed, MemoryTransport(clock).seat("client0"), tmp_path)
    assert isinstance(one, LedMember)
    one.post.quota.bytes = MB
    for number in range(1, 200):
        one.called("server", text(Call(number, ["x" * 20_000])))
        assert one.post.quota.held("server") <= MB
    assert 20 < len(one.calls) < 60
    assert one.post.quota.drops.total > 100
    while one.calls:
        one.first_call()
    assert one.post.quota.held("server") == 0


def test_what_is_read_or_void_is_given_back() -> None:
    post, client = post_of("server", 1, quota=Quota(64 * MB)), post_of("client0", 1)
    post.begin(post.main, 1)
    for i in range(1, 5):
        post.receive(ATTACKER, letter(post, (i, 1), 4000))
        post.receive(ATTACKER, letter(post, (i, 2), 4000, register=True))
        client.receive(ATTACKER, beat(client, ATTACKER, 2, note="{}"))
    assert post.quota.held(ATTACKER) == 8 * (4000 + ENTRY)
    assert (
        post.main.mail.read_register((MAIN, "clients", 3, "server", 0, "embedding"), MAIN.at(9, 0))
        is not None
    )
    assert post.main.mail.letters.pop((MAIN.at(1, 1), "clients", 3, "server", 0)) is not None
    assert post.quota.held(ATTACKER) == 3 * (4000 + ENTRY)
    post.begin(post.main, 2)
    assert post.quota.held(ATTACKER) == 0
    assert client.quota.held(ATTACKER) > 4 * ENTRY
    client.receive("server", beat(client, "server", 2))
    assert client.quota.held(ATTACKER) == 0


def test_a_store_owes_each_sender_what_it_holds_of_it() -> None:
    random, quota = Random(3), Quota(1000)
    store: Store[int, int] = Store(quota)
    held: dict[int, tuple[str, int]] = {}
    for _ in range(5_000):
        key, sender, size = random.randrange(12), random.choice("ab"), random.randrange(300)
        if random.random() < 0.3:
            assert (store.pop(key) is not None) == (held.pop(key, None) is not None)
        elif store.put(key, size, sender, size):
            held[key] = (sender, size)
        for one in "ab":
            assert quota.held(one) == sum(n for who, n in held.values() if who == one) <= 1000
            assert sorted(store.of(one)) == sorted(k for k, (who, _) in held.items() if who == one)
    assert len(store) == len(held) > 0


def dropped(fed: Federation, seed: int, crashes: int, times: int, folder: Path) -> int:
    """Messages that were dropped in a storm with a quota of so many times the largest message, when
    nothing but the numbers in messages counts: as if all were as large as `largest` allows."""
    quotas: list[Quota] = []
    members: dict[str, Member] = {}
    sent: list[int] = []
    usual = 4096  # the encoding of a batch
    largest = [usual]

    async def live(seat: StormSeat, life: int) -> None:
        quota = Quota(times * largest[0], own=seat.party)
        quotas.append(quota)
        publish = seat.publish

        def measured(to: str, data: bytes, delay: int = 0) -> None:
            sent.append(weight(decode(data)[1]))
            largest[0] = max(largest[0], sent[-1])
            for one in quotas:
                one.bytes = times * largest[0]
            publish(to, data, delay)

        seat.publish = measured
        one = members[seat.party] = member(fed, seat, folder, seat.clock.now // 1000 + 1)
        mail, programs = one.post.main.mail, one.post.programs
        one.post.quota = mail.quota = programs.quota = quota
        mail.letters.quota = mail.registers.quota = programs._early.quota = quota
        await one.live()

    Crew(seed, fed.members, live).run(crashes)
    assert members[fed.speaker].state.result is not None
    assert max(usual, *sent) == largest[0]
    return sum(quota.drops.total for quota in quotas)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections and tests in many parts, and only numbers counted."""
    monkeypatch.setattr("colonnade.network.quota.ENTRY", 0)
    monkeypatch.setattr("colonnade.learning.algorithm.PREDICT_ROWS", 64)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize(("seed", "crashes"), [(0, 0), (4, 8)])
def test_honest_parties_stay_below_the_default_quota(
    name: str, seed: int, crashes: int, tmp_path: Path
) -> None:
    assert dropped(federation(name), seed, crashes, 8, tmp_path) == 0


@pytest.mark.usefixtures("small")
def test_what_a_party_that_lags_had_no_room_for_is_sent_again(tmp_path: Path) -> None:
    fed = federation("fedonce")
    assert dropped(fed, 3, 6, 1, tmp_path) > 0


@pytest.mark.parametrize(
    ("network", "megabytes"),
    [({}, 512), ({"largest": 8}, 64), ({"largest": 8, "quota": 16}, 16)],
)
def test_the_quota_is_a_key_of_the_federation_file(
    network: dict[str, int], megabytes: int, tmp_path: Path
) -> None:
    table = {"name": "q", "data": {"dataset": "digits"}, "method": {"algorithm": "splitnn"}}
    fed = parse_federation({**table, "network": network}, "q")
    assert member(fed, MemoryTransport(Clock()).seat("server"), tmp_path).post.quota.bytes == (
        megabytes * MB
    )
    with pytest.raises(InputError, match=r"network.quota = 15: expected at least twice"):
        parse_federation({**table, "network": {"largest": 8, "quota": 15}}, "q")


# -- log and terminal ------------------------------------------------------------------------------

ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\n[red]x[/red]\u202e\u2028\ud800"


def is_plain(shown: str) -> bool:
    return not set(shown) & set("\x1b\x07\r\u202e\u2028\ud800")


def test_what_others_wrote_is_shown_and_not_obeyed() -> None:
    assert printable(ESCAPES) == (r"\x1b[2J\x1b]0;owned\x07\r\n[red]x[/red]\u202e\u2028\ud800")
    assert printable("Müller, 5\u00a0% 漢字") == "Müller, 5\u00a0% 漢字"
    assert printable("x" * 1000) == "x" * 199 + "…"


def test_no_log_line_holds_what_a_terminal_obeys() -> None:
    screen = io.StringIO()
    logger = logging.getLogger("colonnade")
    before = list(logger.handlers)
    set_up_log(Console(file=screen, force_terminal=True, width=200, color_system=None))
    try:
        said = ESCAPES.replace("\ud800", "")  # which the test runner could not report
        logging.getLogger("colonnade.somewhere").warning("%s said %s", "client3", said)
    finally:
        for handler in set(logger.handlers) - set(before):
            logger.removeHandler(handler)
    assert is_plain(screen.getvalue())
    assert "[red]x[/red]" in screen.getvalue()
    assert screen.getvalue().count("\n") == 1


def test_one_sender_causes_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    tally, post = Tally(logging.getLogger("colonnade.test")), post_of("server", 1)
    for i in range(1600):
        tally.add("client3", "the same", f"{i}{ESCAPES}")
        post.receive(ATTACKER, b"%d" % i)
        post.receive(ATTACKER, letter(post, (1, 1), 40, src=f"group {i}"))
    assert tally.total == 1600
    assert post.refused == 3200
    assert len(caplog.records) == 3 * 4  # the first, the tenth, the hundredth, the thousandth
    assert "1,000 times so far" in caplog.text
    assert all(record.getMessage().isprintable() for record in caplog.records)


STATUS = {"party": "server", "process": 1, "stage": "training", "round": 3, "rounds": 9}
STATUS |= {"away": {"client1": 2.0}, "late": [], "refused": 0}
BAD = [b"", b"[]", b"\xff", b"{", b'{"x": ' + b"[" * 100_000, b'{"stage": 3}', b"9" * 5000]


def status_file(folder: Path) -> Path:
    table = """name = "two"
[data]
dataset = "digits"
parties = 2
[method]
algorithm = "splitnn"
[network]
transport = "tcp"
[[parties]]
name = "server"
role = "server"
endpoint = "localhost:7001"
[[parties]]
name = "client0"
role = "clients"
endpoint = "localhost:7002"
[[parties]]
name = "client1"
role = "clients"
endpoint = "localhost:7003"
"""
    (folder / "federation.toml").write_text(table)
    (folder / "server.toml").write_text('federation = "federation.toml"\nparty = "server"\n')
    return folder / "server.toml"


@pytest.mark.parametrize("bad", BAD)
def test_an_answer_that_is_none_is_an_error_and_no_traceback(
    bad: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WireError, match="not a valid Told"):
        told(bad)
    with pytest.raises(ColonnadeError, match="not a valid Predicted"):
        predictions.read_answer(bad, "server")
    monkeypatch.setattr("colonnade.federation.asking.statuses.ask", lambda *_, **__: bad)
    shown = CliRunner().invoke(app, ["status", str(status_file(tmp_path))])
    assert shown.exit_code == 0, shown.exception
    assert "not a valid" in shown.stdout


@pytest.mark.parametrize("change", [{"ids": ["1", "2"]}, {"predictions": [7]}, {"absent": []}])
def test_predictions_that_do_not_belong_together_are_an_error(change: dict[str, Any]) -> None:
    good = {"ids": ["1"], "classes": ["a"], "predictions": [0], "probabilities": [[1.0]]}
    good |= {"absent": [{}]}
    assert predictions.read_answer(json.dumps(good).encode(), "server").ids == ["1"]
    with pytest.raises(ColonnadeError, match="server answers with something"):
        predictions.read_answer(json.dumps(good | change).encode(), "server")
    with pytest.raises(ColonnadeError) as error:
        predictions.read_answer(json.dumps(good | {"error": "\x1b[2J" * 999}).encode(), "server")
    assert is_plain(str(error.value))
    assert len(str(error.value)) <= 1000


def test_status_shows_what_a_party_says_and_obeys_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {"stage": "\x1b[2J[red]x[/red]", "away": {"\x1b[2J[b]y[/b]": 1e9}, "round": 2**62}
    answer = json.dumps(STATUS | hostile).encode()
    monkeypatch.setattr("colonnade.federation.asking.statuses.ask", lambda *_, **__: answer)
    file = str(status_file(tmp_path))
    for arguments in (["status", file], ["status", file, "--json"]):
        shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "250"})
        assert shown.exit_code == 0, shown.exception
        assert is_plain(shown.stdout)
        assert "[red]x[/red]" in shown.stdout
    too_much = json.dumps(STATUS | {"round": 10**30, "away": {"x": 1e300}}).encode()
    with pytest.raises(WireError):
        told(too_much)


# -- where nobody leads ----------------------------------------------------------------------------


@pytest.mark.parametrize(("topology", "parties"), [("complete", 4), ("ring", 9)])
@pytest.mark.parametrize("number", [2**62 - 1, DAY - SECOND // 1000, "next"])
def test_a_call_in_anothers_name_costs_that_device_nothing(
    topology: str, parties: int, number: int | str, tmp_path: Path
) -> None:
    """Whatever its number; on a ring, too, where most hear of calls from others than the caller."""
    fed = devices(parties=parties, topology=topology, epochs=1, gossip=4)
    field = Field(fed, tmp_path)

    async def story() -> None:
        honest, _ = await field.ask("client0", IDS)
        chosen = field.members["client0"].asked + 1 if isinstance(number, str) else number
        forged = Call(chosen, ["5", "6", "8", "9"], caller="client0")
        liar = field.members[fed.members[parties // 2]].post
        for party in liar.peers:
            liar.tell(party, CALL, note=text(forged))
        await field.clock.sleep_until(field.clock.now + 3 * SECOND)
        for _ in range(2):
            answer, seconds = await field.ask("client0", IDS)
            assert not answer.absent
            assert torch.allclose(answer.logits, honest.logits, atol=1e-6), "all took part"
            assert seconds < 0.5

    field.once_trained(story)


def test_a_call_that_cannot_be_answered_does_not_end_a_device(tmp_path: Path) -> None:
    fed = devices(parties=4, epochs=1)
    field = Field(fed, tmp_path)

    async def story() -> None:
        liar = field.members["client3"].post
        odd = ['{"number": %d, "ids": [], "caller": "client3"}', '{"number": %d, "caller": ""}']
        odd += ['{"number": %d, "ids": ["1"], "caller": "client9"}']
        odd += ['{"number": %d, "ids": ["\\ud800"], "caller": "client3"}', "{%d"]
        for i, note in enumerate(odd):
            for party in liar.peers:
                liar.tell(party, CALL, note=note % (liar.life + i + 1))
        await field.clock.sleep_until(field.clock.now + SECOND)
        answer, _ = await field.ask("client0", IDS)
        assert not answer.absent

    field.once_trained(story)
