"""Parties match their rows: what they find, what each one learns, and what goes wrong.

All parties are in this process, over the transport in memory and in virtual time.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.errors import ColonnadeError, InputError, Unsuited
from colonnade.federation.agreement.alignment_file import (
    ALIGNMENT,
    Alignment,
    read_alignment,
    write_alignment,
)
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import read_party, with_alignment
from colonnade.federation.member.aligning import messages
from colonnade.federation.member.aligning.follower import Follower
from colonnade.federation.member.aligning.leader import Leader
from colonnade.federation.member.aligning.messages import MARK, Ask, Begin, Hello, decode, encode
from colonnade.federation.member.aligning.process import OwnRows, read_own_rows, side_of
from colonnade.federation.member.aligning.side import Lost
from colonnade.federation.member.own_data import read_own
from colonnade.network.clock import SECOND, Clock, WallClock
from colonnade.network.transport.memory import MemoryTransport
from colonnade.network.wire import WireError
from colonnade.privacy.alignment.keys import key_column, token
from colonnade.privacy.alignment.protocols import protocol

pytest.importorskip("private_set_intersection")

Side = Leader | Follower


def federation(match: str = "plain", algorithm: str = "splitnn", **rows: Any) -> Federation:
    labels = "owner" if algorithm == "dvfl" else "server"
    table = {
        "name": "clinics",
        "rows": {"match": match, "classes": 2, "validation": 0.0, "test": 0.0, **rows},
        "method": {"algorithm": algorithm, "epochs": 1},
        "parties": [
            {"name": "hospital", "roles": ["clients", labels], "columns": 1},
            {"name": "clinic", "role": "clients", "columns": 1},
            {"name": "lab", "role": "clients", "columns": 1},
        ],
    }
    if algorithm == "dvfl":
        table["parties"].append({"name": "broker", "role": "aggregators"})
    return parse_federation(table, "clinics.toml")


class Room:
    """Parties that match their rows, and all that they send."""

    def __init__(
        self,
        fed: Federation,
        keys: Mapping[str, Sequence[str]],
        unlabelled: Any = (),
        before: Mapping[str, Alignment] = MappingProxyType({}),  # which rows are added to
    ) -> None:
        # Where another package has a process of its own, time is real.
        self.clock = WallClock() if protocol(fed.rows.match).worker else Clock()  # pyright: ignore
        self.fed, self.before = fed, before
        self.transport = MemoryTransport(self.clock)
        self.sent: list[tuple[str, str, bytes]] = []
        self.kept: dict[str, Alignment] = {}
        self.keys: Mapping[str, Sequence[str]] = keys
        self.sides: dict[str, Any] = {}
        for party in fed.members:
            self.sides[party] = self.side(party, keys.get(party), unlabelled)

    def side(self, party: str, keys: Sequence[str] | None, unlabelled: Any = ()) -> Side:
        before = self.before.get(party)
        own = OwnRows(before=before)
        if keys is not None:
            rows = self.fed.rows
            assert rows is not None
            labelled = np.array([key not in unlabelled for key in keys], dtype=bool)
            order = "" if before is None else before.facts.order
            own = OwnRows(key_column(keys, rows.steps), labelled, len(keys), order, before)
        seat = self.transport.seat(party)
        deliver = seat.publish

        def publish(to: str, data: bytes, delay: int = 0) -> None:
            self.sent.append((party, to, data))
            deliver(to, data, 1_000_000)

        seat.publish = publish
        return side_of(self.fed, own, seat, keep=lambda found: self.kept.__setitem__(party, found))

    def run(self, *more: tuple[str, Any], without: Sequence[str] = ()) -> dict[str, Alignment]:
        sides = {p: side for p, side in self.sides.items() if p not in without}
        for side in sides.values():
            side.listen()
        found = self.clock.run(*((p, s.run_to_the_end()) for p, s in sides.items()), *more)
        return dict(zip(sides, found, strict=False))

    def rows(self, party: str) -> list[str]:
        """The keys of a party's common rows, in the common order."""
        keys = list(self.keys[party])
        return [keys[int(row)] for row in self.kept[party].rows]


def matched(fed: Federation, keys: Mapping[str, Sequence[str]], unlabelled: Any = ()) -> Room:
    room = Room(fed, keys, unlabelled)
    room.run()
    return room


def messages_from(room: Room, sender: str, to: str | None = None) -> list[Any]:
    return [decode(data) for s, t, data in room.sent if s == sender and to in (None, t)]


SETS = st.sets(st.text(min_size=1, max_size=6), max_size=20)


@settings(max_examples=30, deadline=None)
@given(common=SETS.filter(bool), sets=st.lists(SETS, min_size=3, max_size=3), order=st.randoms())
def test_every_party_finds_the_plain_intersection_in_the_same_order(
    common: set[str], sets: list[set[str]], order: random.Random
) -> None:
    fed = federation()
    assert fed.rows is not None
    plain, files = [], {}
    for party, more in zip(fed.members, sets, strict=True):
        known: dict[str, str] = {}
        for text in [*sorted(common), *sorted(more), "", "  "]:
            known.setdefault(key_column([text]).keys[0] if text.strip() else text, text)
        plain.append({key for key in known if key.strip()})
        files[party] = order.sample(list(known.values()), len(known))
    expected = set.intersection(*plain)
    if not expected:
        return
    room = matched(fed, files)
    found = [[key_column([key]).keys[0] for key in room.rows(party)] for party in fed.members]
    assert found[0] == found[1] == found[2]
    assert set(found[0]) == expected
    assert len(found[0]) == len(expected)
    assert all(room.kept[party].facts.empty >= 1 for party in fed.members)


FILES = {
    "hospital": ["anna", "bert", "carl", "dora", "emil"],
    "clinic": ["emil", "anna", "carl", "fred"],
    "lab": ["carl", "bert", "anna", "emil", "gina", "hans"],
}


def installed(match: str) -> None:
    """Skips a test of a protocol that is not installed."""
    try:
        protocol(match)
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("match", ["private", "plain", "spu"])
def test_rows_with_labels_come_first_and_all_parties_agree_which(match: str) -> None:
    installed(match)
    room = matched(federation(match), FILES, unlabelled=["carl"])
    assert room.rows("hospital") == room.rows("clinic") == room.rows("lab")
    assert set(room.rows("lab")[:2]) == {"anna", "emil"}
    assert room.rows("lab")[2:] == ["carl"]
    facts = {party: found.facts for party, found in room.kept.items()}
    assert {one.name for one in facts.values()} == {facts["lab"].name}
    assert [one.aligned for one in facts.values()] == [2, 2, 2]


def test_the_leader_is_told_how_many_match_with_whom_and_the_others_are_not() -> None:
    room = matched(federation(), FILES)
    assert room.kept["hospital"].facts.matched == {"clinic": 3, "lab": 4}
    assert not room.kept["lab"].facts.matched
    (note,) = room.kept["hospital"].notes
    assert "3 at clinic (of 4), 4 at lab (of 6); 3 are at every party" in note
    assert not any(key in note for key in FILES["hospital"])


@settings(max_examples=30, deadline=None)
@given(sets=st.lists(SETS, min_size=3, max_size=3), unlabelled=SETS, order=st.randoms())
def test_with_partial_each_party_finds_what_it_shares_with_the_leader_at_the_same_places(
    sets: list[set[str]], unlabelled: set[str], order: random.Random
) -> None:
    fed = federation(partial=True, normalise=[])
    files = {
        party: order.sample(sorted({"all", "known", *one}), len({"all", "known", *one}))
        for party, one in zip(fed.members, sets, strict=True)
    }
    files = {party: [key for key in keys if key.strip()] for party, keys in files.items()}
    room = matched(fed, files, unlabelled=unlabelled - {"all"})
    leader, others = set(files["hospital"]), ("clinic", "lab")
    shared = {party: leader & set(files[party]) for party in others}
    common = room.rows("hospital")
    assert sorted(common) == sorted(shared["clinic"] | shared["lab"])
    aligned = room.kept["hospital"].facts.aligned
    assert [key not in unlabelled - {"all"} for key in common] == [
        place < aligned for place in range(len(common))
    ]
    for party in others:
        found = room.kept[party]
        assert found.facts.aligned == aligned
        have = [key in shared[party] for key in common]
        assert (found.rows >= 0).tolist() == have == found.held[party].tolist()
        assert room.kept["hospital"].held[party].tolist() == have
        own = [files[party][int(row)] for row in found.rows if row >= 0]
        assert own == [key for key in common if key in shared[party]]
        assert list(found.held) == [party], "nothing of the rows of others"
    assert all(room.kept["hospital"].held["hospital"])


def test_with_partial_the_order_of_rows_is_a_secret_of_the_leader_which_it_keeps(
    tmp_path: Path,
) -> None:
    """By an order that everybody can compute, a party could tell from the neighbours of a row that
    it lacks which keys the row may have."""
    keys = {party: [f"{i}" for i in range(30)] for party in FILES}
    fed = federation(partial=True)
    room, other = matched(fed, keys), matched(fed, keys)
    assert room.rows("lab") != other.rows("lab")
    assert room.rows("lab") == room.rows("hospital")
    write_alignment(tmp_path, room.kept["hospital"])
    before = read_alignment(tmp_path)
    assert before is not None
    again = Room(fed, keys)
    again.sides["hospital"].order = before.facts.order
    again.run()
    assert again.rows("clinic") == room.rows("lab")
    secret = room.kept["hospital"].facts.order.encode()
    assert not any(secret in data for _, _, data in room.sent)
    assert not room.kept["lab"].facts.order


def test_with_partial_a_method_that_needs_whole_rows_is_refused() -> None:
    with pytest.raises(InputError, match=r'toml: method\.algorithm = "dvfl": needs whole rows'):
        federation(algorithm="dvfl", partial=True)


def test_with_partial_spu_finds_the_same_rows() -> None:
    installed("spu")
    room, plain = (matched(federation(match, partial=True), FILES) for match in ("spu", "plain"))
    for party in ("clinic", "lab"):
        places = [
            dict(zip(one.rows("hospital"), one.kept[party].rows.tolist(), strict=True))
            for one in (room, plain)
        ]
        assert places[0] == places[1]


def test_with_partial_the_leader_tells_a_party_of_no_row_that_the_party_lacks() -> None:
    room = matched(federation("private", partial=True), FILES)
    assert set(room.rows("hospital")) == {"anna", "bert", "carl", "emil"}
    told = {p: messages_from(room, "hospital", p) for p in ("clinic", "lab")}
    for party, shared in (("clinic", 3), ("lab", 4)):
        (news,) = [one for one in told[party] if isinstance(one, messages.Tell)]
        assert (news.common, news.rows, len(news.places)) == (shared, 4, 4 * shared)
        setups = [one.setup for one in told[party] if isinstance(one, messages.Answer)]
        assert sum(map(len, setups)) < (shared + 1) * 36
    (note,) = room.kept["hospital"].notes
    assert "3 at clinic (of 4), 4 at lab (of 6); 4 are at one of them or more (3 at every" in note


@pytest.mark.parametrize("places", [b"", bytes(12), b"\x00" * 4 + b"\x01" * 8, b"\x09" * 12])
def test_places_that_cannot_be_end_the_run_with_a_sentence(places: bytes) -> None:
    room = Room(federation(partial=True), FILES)
    leader = room.sides["hospital"]
    news = leader.announcement

    def wrong(*arguments: Any) -> Any:
        asked, told = news(*arguments)
        return asked, msgspec.structs.replace(told, places=places)

    leader.announcement = wrong
    assert "hospital tells places of rows that cannot be" in ends(room)


# ---------------------------------------------------------------------- what each party can learn


def test_no_transcript_holds_a_key_or_a_hash_of_one() -> None:
    files = {p: [f"{key}-{key}" for key in keys] for p, keys in FILES.items()}
    room = matched(federation("private"), files)
    everything = b"".join(data for _, _, data in room.sent)
    for key in {key for keys in files.values() for key in keys}:
        assert key.encode() not in everything
        for text in (key, token(key)):
            assert text.encode() not in everything
            for kind in ("md5", "sha1", "sha256", "blake2b"):
                digest = hashlib.new(kind, text.encode())
                assert digest.digest() not in everything
                assert digest.hexdigest().encode() not in everything


def test_a_party_hears_from_nobody_but_the_leader_and_the_leader_only_sizes_and_answers() -> None:
    room = matched(federation("private"), FILES)
    for sender, to, _ in room.sent:
        assert "hospital" in (sender, to)
    for party in ("clinic", "lab"):
        kinds = {type(message).__name__ for message in messages_from(room, party)}
        assert kinds == {"Hello", "Answer", "Ask", "Ready", "Kept"}
        hello = messages_from(room, party)[0]
        assert isinstance(hello, Hello)
        assert hello.keys == len(FILES[party])


def test_a_party_learns_the_rows_that_all_have_and_not_those_it_shares_with_the_leader_alone() -> (
    None
):
    """bert is at the hospital and at the lab. The lab asks about all its keys, and gets elements of
    three rows."""
    room = matched(federation("private"), FILES)
    assert set(room.rows("lab")) == {"anna", "carl", "emil"}
    told = [one for one in messages_from(room, "hospital", "lab") if hasattr(one, "common")]
    assert {one.common for one in told} == {3}
    setups = [
        one.setup
        for one in messages_from(room, "hospital", "lab")
        if type(one).__name__ == "Answer"
    ]
    assert sum(len(one) for one in setups) < 4 * 36  # elements of 33 bytes, with their headers


def test_the_kept_file_holds_row_numbers_and_no_key(tmp_path: Path) -> None:
    room = matched(federation("private"), FILES)
    write_alignment(tmp_path, room.kept["lab"])
    content = (tmp_path / ALIGNMENT).read_bytes()
    assert not any(key.encode() in content for key in FILES["lab"])
    again = read_alignment(tmp_path)
    assert again is not None
    assert again.facts == room.kept["lab"].facts
    assert again.rows.tolist() == room.kept["lab"].rows.tolist()


# ------------------------------------------------------------------------------------ bad input


def ends(room: Room) -> str:
    with pytest.raises(ColonnadeError) as caught:
        room.run()
    return str(caught.value)


def test_keys_of_different_types_are_an_error_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = [str(n) for n in range(9)]
    files = {"hospital": numbers, "clinic": numbers, "lab": [f"{n}.0" for n in range(9)]}
    why = ends(Room(federation(), files))
    assert "hospital says: keys of different types: those of lab are text, those of hospital" in why
    assert "keys of different types" in caplog.text
    declared = federation(keys="text")
    room = matched(declared, files | {"lab": ["3", "17.0"]})
    assert room.rows("lab") == ["3"]


def test_an_empty_intersection_is_an_error_with_advice_and_no_figures_for_the_others() -> None:
    files = FILES | {"lab": ["Anna", "Emil"]}
    room = Room(federation(), files)
    why = ends(room)
    assert "no key of hospital (5 keys) is one of lab (2 keys)" in why
    assert "rows.normalise" in why
    stops = [one.why for one in messages_from(room, "hospital") if hasattr(one, "why")]
    assert stops == ["the parties have no rows in common that can be trained on"] * 2
    assert set(matched(federation(normalise=["case"]), files).rows("clinic")) == {"anna", "emil"}


def test_rows_that_no_party_but_the_leader_shares_with_all_are_told() -> None:
    files = {"hospital": ["a", "b"], "clinic": ["a"], "lab": ["b"]}
    assert "no row is at every party: hospital has 1 with clinic, 1 with lab" in ends(
        Room(federation(), files)
    )


def test_common_rows_without_a_label_cannot_be_trained_on() -> None:
    room = Room(federation(), FILES, unlabelled=FILES["hospital"])
    assert "none of the 3 rows that all parties have has a label" in ends(room)


def test_too_few_common_rows_are_told_with_the_key() -> None:
    room = Room(federation(test=0.9), FILES)
    assert "3 rows are at every party, which is too few. rows.aligned = 3: test = 0.9" in ends(room)


def test_another_federation_file_is_refused_with_the_keys_that_differ() -> None:
    room = Room(federation(), FILES)
    room.fed = federation(normalise=["case"])
    room.sides["lab"] = room.side("lab", FILES["lab"])
    assert "differ in rows.normalise" in ends(room)


# ------------------------------------------------------------------------ members that misbehave


def misbehaving(room: Room, party: str, act: Callable[[Any], Any]) -> tuple[str, Any]:
    """A member that sends what it likes, and never ends by itself."""
    seat = room.transport.seat(party)
    seat.listen(lambda sender, data: None, lambda *_: None)
    return party, act(seat)


def test_garbage_of_a_member_is_refused_with_a_sentence_and_ends_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room, source = Room(federation("private"), FILES), random.Random(0)
    good = encode(Hello(room.fed.digests, 4, "text"))
    run = b"r" * 16
    odd = [
        b"",
        MARK,
        MARK + b"\xff" * 40,
        good[:-3],
        good + b"x",
        MARK + b"\x91" * 100_000,
        encode(Ask(run, "find", 0, b"\x02" * 33)),
        encode(Ask(run, "tell", messages.MOST // messages.PART, b"")),
        *(source.randbytes(source.randrange(200)) for _ in range(200)),
        *(MARK + source.randbytes(source.randrange(200)) for _ in range(200)),
    ]

    async def garbage(seat: Any) -> None:
        for data in odd:
            for to in ("hospital", "clinic"):
                seat.publish(to, data)
        await room.clock.sleep_until(room.clock.now + SECOND)
        seat.close()
        room.sides["lab"].listen()
        await room.sides["lab"].run_to_the_end()

    room.run(misbehaving(room, "lab", garbage), without=["lab"])
    assert room.rows("hospital") == room.rows("clinic") == room.rows("lab")
    assert "lab: refused: not a message about matching rows" in caplog.text
    assert len(caplog.records) < 40


def test_a_letter_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(WireError, match="too long"):
        decode(MARK + bytes(messages.LARGEST))
    with pytest.raises(WireError):
        decode(encode(Ask(b"r" * 16, "find", 0, bytes(messages.BODY + 1))))
    with pytest.raises(WireError):
        decode(encode(Begin(b"r" * 16, messages.MOST + 1)))


def test_a_member_that_asks_twice_for_other_keys_gets_no_answer() -> None:
    room = Room(federation("private"), FILES)
    leader, asked = room.sides["hospital"], []
    original = Follower.send

    def twice(self: Follower, party: str, message: Any) -> None:
        original(self, party, message)
        if isinstance(message, Ask) and self.party == "lab" and not asked:
            asked.append(message)
            other = self.kind.asking(self.run).request([token(f"bert{i}") for i in range(6)])
            original(self, party, Ask(message.run, "tell", message.part, other))

    Follower.send = twice
    try:
        room.run()
    finally:
        Follower.send = original
    assert asked
    answers = [
        one for one in messages_from(room, "hospital", "lab") if type(one).__name__ == "Answer"
    ]
    assert len(answers) == 1
    assert leader.refused.total == 1


def test_a_party_with_more_keys_than_agreed_is_refused_and_one_with_very_many_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever claims all patient numbers there are would learn who is a patient."""
    room = Room(federation("private", most_keys=5), {**FILES, "lab": [f"k{i}" for i in range(6)]})
    with pytest.raises(
        Unsuited, match=r"lab has 6 keys, and rows\.most_keys = 5 in the federation"
    ):
        room.run()
    room = Room(federation("plain", most_keys=6), {**FILES, "hospital": list("abcdefg")})
    with pytest.raises(Unsuited, match=r"hospital has 7 keys, and rows\.most_keys = 6"):
        room.run()
    keys = {**FILES, "lab": [*FILES["lab"], *(f"k{i}" for i in range(11_000))]}
    matched(federation("plain"), keys)
    assert "lab: has 11,0" in caplog.text
    assert "made-up keys would show which of them are here" in caplog.text


@pytest.mark.parametrize("prober", ["lab", "hospital"])
def test_a_party_that_begins_again_and_again_is_not_answered_without_end(prober: str) -> None:
    """In each run it could try out other keys, and learn which of them are common."""
    room = Room(federation("plain"), FILES)
    side = room.sides[prober]
    original, heard = side.ask, side.unexpected
    side.unexpected = lambda p, m: None if isinstance(m, messages.Stop) else heard(p, m)

    async def ask_and_begin_anew(party: str, stage: Any, *more: Any) -> Any:
        """It learns which of its keys are there, and says that it has to begin anew."""
        await original(party, stage, *more)
        if prober == "lab":
            side.send(party, side.hello())
        raise Lost(party)

    side.ask = ask_and_begin_anew
    told = {
        "lab": "lab was told the common rows in 16 runs and kept none of them",
        "hospital": "hospital has matched rows 16 times and kept nothing",
    }
    with pytest.raises((InputError, Unsuited), match=told[prober]):
        room.run()
    assert len({one.run for one in messages_from(room, "hospital") if isinstance(one, Begin)}) < 20


def test_a_false_answer_ends_the_run_and_the_leader_waits_for_that_party(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = Room(federation("private"), FILES)
    lab = room.sides["lab"]
    original = lab.reply
    lab.reply = lambda party, answers, ask: lab.send(
        party, messages.Answer(ask.run, ask.stage, ask.part, b"\x07garbage", b"garbage")
    )
    with pytest.raises(Unsuited, match="no part of the protocol"):
        room.run()
    assert "lab: takes no part; matching begins anew when it is back (its answers" in caplog.text
    lab.reply = original


def test_a_party_that_leaves_in_the_middle_is_waited_for_and_all_begin_anew() -> None:
    room = Room(federation("private"), FILES)
    lab = room.sides["lab"]
    original, calls = lab.reply, []

    def fall(party: str, answers: Any, ask: Ask) -> None:
        calls.append(ask.run)
        if len(calls) == 1:  # as when its link is cut, without a notice at its own end
            lab.transport.close()
            room.clock.call_at(room.clock.now + SECOND, lambda: lab.listen(life=1))
            return
        original(party, answers, ask)

    lab.reply = fall
    room.run()
    assert len(set(calls)) == 2
    assert room.rows("hospital") == room.rows("clinic") == room.rows("lab")


def test_a_party_that_has_kept_the_alignment_may_leave_before_the_others_have() -> None:
    room = Room(federation(), FILES)
    lab, clinic = room.sides["lab"], room.sides["clinic"]
    sends = {party: room.sides[party].send for party in ("lab", "clinic")}

    def leave(party: str, message: Any) -> None:
        sends["lab"](party, message)
        if isinstance(message, messages.Kept):
            room.clock.call_at(room.clock.now + SECOND, lab.transport.close)

    def late(party: str, message: Any) -> None:
        delay = 5 * SECOND if isinstance(message, messages.Kept) else 0
        room.clock.call_at(room.clock.now + delay, lambda: sends["clinic"](party, message))

    lab.send, clinic.send = leave, late
    found = room.run()
    assert len({one.facts.name for one in found.values()}) == 1
    assert len([one for one in messages_from(room, "hospital") if isinstance(one, Begin)]) == 2


def test_a_party_without_an_alignment_says_so_when_the_others_train_already() -> None:
    room = Room(federation(), FILES)

    async def trains(seat: Any) -> None:
        seat.publish("lab", b"a message of a training")
        await room.clock.sleep_until(room.clock.now + SECOND)

    with pytest.raises(Unsuited, match=r"hospital trains already.*colonnade align"):
        room.run(misbehaving(room, "hospital", trains), without=["hospital", "clinic"])


# --------------------------------------------------------------------------- what is kept is used


def files(folder: Path, algorithm: str = "splitnn", **keys: Sequence[str]) -> Federation:
    fed = federation("plain", algorithm)
    text = fed.toml()
    (folder / "federation.toml").write_text(text.replace('transport = "tls"', 'transport = "tcp"'))
    for party in fed.members:
        known = (keys or FILES).get(party)
        table = f'federation = "federation.toml"\nparty = "{party}"\n'
        if known is not None:
            lines = [f"{key},{i},{'yes' if i % 4 else 'no'}" for i, key in enumerate(known)]
            (folder / f"{party}.csv").write_text("\n".join(["who,x,ill", *lines]))
            table += f'[data]\npath = "{party}.csv"\nid = "who"\ncolumns = ["x"]\n'
            table += 'label = "ill"\n' if party == "hospital" else ""
        (folder / f"{party}.toml").write_text(table)
    return read_party(folder / "lab.toml", aligned=False).federation


def align_in(folder: Path, fed: Federation, *, add: bool = False) -> None:
    """As `colonnade align` at every party, or `colonnade align --add`."""
    clock = Clock()
    transport, sides = MemoryTransport(clock), {}
    for party in fed.members:
        file = read_party(folder / f"{party}.toml", aligned=False)
        keep: Any = lambda found, file=file: write_alignment(file.folder, found)  # noqa: E731
        before = with_alignment(file).alignment if add else None
        own = read_own_rows(file, before)
        sides[party] = side_of(fed, own, transport.seat(party), keep=keep)
    for side in sides.values():
        side.listen()
    clock.run(*((party, side.run_to_the_end()) for party, side in sides.items()))


LONGER = {"hospital": range(12), "clinic": range(4, 20), "lab": range(2, 15)}


def test_join_finds_the_rows_that_were_matched(tmp_path: Path) -> None:
    align_in(tmp_path, files(tmp_path))
    own = {party: read_own(read_party(tmp_path / f"{party}.toml")) for party in FILES}
    parties = {party: read_party(tmp_path / f"{party}.toml").federation for party in FILES}
    assert len({fed.hash for fed in parties.values()}) == 1
    assert {one.fingerprint for one in own.values()} == {own["lab"].fingerprint}
    assert [one.ids for one in own.values()] == [("1", "2", "3")] * 3, "no key is an id"
    keys = {party: one.keys.keys for party, one in own.items() if one.keys is not None}
    assert keys["hospital"] == keys["clinic"] == keys["lab"]
    assert own["lab"].called(["emil ", "bert"])[1] == ""
    assert own["lab"].names(own["lab"].called(["emil "])) == ["emil"]
    x = own["lab"].x
    assert isinstance(x, Tensor)
    rank = [FILES["lab"].index(key) for key in keys["lab"]]
    assert np.argsort(x[:, 0].numpy()).tolist() == np.argsort(rank).tolist()
    (note,) = (n for n in own["hospital"].data.notes if "matched" in n)
    assert "3 at clinic (of 4), 4 at lab (of 6)" in note


def test_rows_beside_the_common_ones_serve_a_method_that_learns_without_labels(
    tmp_path: Path,
) -> None:
    keys = {party: [f"p{i}" for i in held] for party, held in LONGER.items()}
    align_in(tmp_path, files(tmp_path, "dvfl", **keys))
    for party in ("hospital", "clinic", "lab", "broker"):
        file = read_party(tmp_path / f"{party}.toml")
        assert file.federation.task().rows == {"train": 8, "validation": 0, "test": 0, "extra": 4}
        own = read_own(file)
        assert [len(x) for x in own.data.extra] == [4, 4, 4]
        if party == "clinic":  # its own four, as it scaled them; others hold nothing here
            assert own.data.extra[1].std() > 0
            assert own.data.extra[0].std() == 0
    align_in(tmp_path, files(tmp_path, "splitnn", **keys))
    assert read_party(tmp_path / "lab.toml").federation.task().rows["extra"] == 0


def test_a_file_whose_keys_changed_after_the_match_is_refused(tmp_path: Path) -> None:
    align_in(tmp_path, files(tmp_path))
    path = tmp_path / "lab.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *reversed(lines[1:])]))
    with pytest.raises(InputError, match=r"lab\.csv: its keys have changed since.*colonnade align"):
        read_own(read_party(tmp_path / "lab.toml"))


@pytest.mark.parametrize("algorithm", ["splitnn", "dvfl"])
def test_rows_that_are_added_behind_the_others_need_no_new_match(
    tmp_path: Path, algorithm: str
) -> None:
    """Also where rows that some party lacks are learnt from: the new ones are not among them."""
    keys = {party: [f"p{i}" for i in held] for party, held in LONGER.items()}
    align_in(tmp_path, files(tmp_path, algorithm, **keys))
    before = read_own(read_party(tmp_path / "lab.toml"))
    with (tmp_path / "lab.csv").open("a") as file:
        file.write("\nnew,100,\nnewer,-100,\n")
    after = read_own(read_party(tmp_path / "lab.toml"))
    assert after.keys == before.keys
    assert after.ids == before.ids
    for old, new in zip(before.data.extra, after.data.extra, strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("algorithm", ["splitnn", "dvfl"])
def test_a_changed_key_is_refused_if_its_row_is_used(tmp_path: Path, algorithm: str) -> None:
    """The laboratory's p2 is at no other party: only `dvfl` learns from it. p5 is common."""
    keys = {party: [f"p{i}" for i in held] for party, held in LONGER.items()}
    align_in(tmp_path, files(tmp_path, algorithm, **keys))
    path = tmp_path / "lab.csv"
    text = path.read_text()
    path.write_text(text.replace("\np2,", "\nother,"))
    if algorithm == "dvfl":
        with pytest.raises(InputError, match="keys have changed"):
            read_own(read_party(tmp_path / "lab.toml"))
    else:
        read_own(read_party(tmp_path / "lab.toml"))
    for change in ("\nother,", "\n,"):
        path.write_text(text.replace("\np5,", change))
        with pytest.raises(InputError, match="keys have changed"):
            read_own(read_party(tmp_path / "lab.toml"))


def test_other_settings_of_a_training_need_no_new_match_but_other_keys_do(tmp_path: Path) -> None:
    align_in(tmp_path, files(tmp_path))
    path = tmp_path / "federation.toml"
    text = path.read_text()
    path.write_text(text.replace("epochs = 1", "epochs = 3"))
    assert not read_party(tmp_path / "lab.toml").needs_alignment
    path.write_text(text.replace("[rows]", '[rows]\nnormalise = ["case"]'))
    with pytest.raises(InputError, match="how rows are matched have changed"):
        read_party(tmp_path / "lab.toml")
    assert read_party(tmp_path / "lab.toml", aligned=False).needs_alignment


def test_a_damaged_alignment_is_refused_with_what_to_do(tmp_path: Path) -> None:
    align_in(tmp_path, files(tmp_path))
    path = tmp_path / "lab" / ALIGNMENT
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=f"{ALIGNMENT}: cannot be read.*colonnade align"):
        read_party(tmp_path / "lab.toml")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["anna,1", "anna ,2", "bert,3"], "1 key is that of more than one row, 2 rows in all"),
        ([",1", "  ,2"], "has no key in any row"),
    ],
)
def test_what_is_wrong_with_keys_is_told_before_anyone_connects(
    tmp_path: Path, lines: list[str], why: str
) -> None:
    files(tmp_path)
    (tmp_path / "lab.csv").write_text("\n".join(["who,x", *lines]))
    with pytest.raises(InputError, match=why) as caught:
        read_own_rows(read_party(tmp_path / "lab.toml"))
    assert "lab.csv: column 'who'" in str(caught.value)
    assert "anna" not in str(caught.value)


def test_keys_of_64_bits_stay_exact_and_floats_that_may_be_two_keys_are_refused(
    tmp_path: Path,
) -> None:
    """2^53 and 2^53 + 1 are one float64."""
    polars = pytest.importorskip("polars")
    files(tmp_path)
    toml = tmp_path / "lab.toml"
    toml.write_text(toml.read_text().replace("lab.csv", "lab.parquet"))
    keys = [2**53, 2**53 + 1, -(2**63)]
    table = polars.DataFrame({"who": keys, "x": [1, 2, 3]})
    table.write_parquet(tmp_path / "lab.parquet")
    found = read_own_rows(read_party(toml)).keys
    assert found is not None
    assert found.keys == tuple(map(str, keys))
    assert found.kind == "numbers"
    table = table.with_columns(who=polars.Series([float(2**53), 1.0, 2.0]))
    table.write_parquet(tmp_path / "lab.parquet")
    with pytest.raises(InputError, match=r"data row 1 is no key.*below 2\^53.*CAST"):
        read_own_rows(read_party(toml))


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"match": "private", "aligned": 5}, "rows.aligned = 5: with match"),
        ({"aligned": 5, "normalise": ["trim"]}, "rows.normalise: is for match"),
        ({"aligned": 5, "partial": True}, "rows.partial: is for match"),
        (
            {"match": "plain", "partial": True, "split_by": {"party": "lab", "time": "day"}},
            'rows.split_by.party = "lab": with partial = true a party may lack rows',
        ),
        ({"match": "private", "alignment": "x"}, "rows.alignment: is found when rows"),
        ({"match": "private", "added": "x"}, "rows.added: is found when rows"),
        ({"match": "hashes"}, "rows.match"),
        ({"match": "private", "normalise": ["upper"]}, "rows.normalise"),
    ],
)
def test_a_federation_file_that_does_not_fit_is_refused(rows: dict[str, Any], why: str) -> None:
    table = federation().table()
    with pytest.raises(InputError, match=why.replace(".", r"\.")):
        parse_federation({**table, "rows": {"classes": 2, **rows}}, "f")


def test_a_party_reads_its_own_spelling_and_may_ask_in_any_other(tmp_path: Path) -> None:
    spelt = FILES | {"lab": [f" {key.upper()}" for key in FILES["lab"]]}
    fed = files(tmp_path, "splitnn", **spelt)
    path = tmp_path / "federation.toml"
    path.write_text(fed.toml().replace("[rows]", '[rows]\nnormalise = ["trim", "case"]'))
    align_in(tmp_path, read_party(tmp_path / "lab.toml", aligned=False).federation)
    own = read_own(read_party(tmp_path / "lab.toml"))
    assert own.names(own.called(["emil", "ANNA "])) == ["EMIL", "ANNA"]


def test_devices_and_several_label_holders_match_rows_as_well() -> None:
    """Where nobody leads, the first aggregator does it; of several label holders, the first."""
    devices = [{"name": p, "role": "devices", "columns": 1} for p in FILES]
    banks = [{"name": p, "roles": ["clients", "active"], "columns": 1} for p in FILES]
    banks.append({"name": "bureau", "role": "collaborator"})
    for algorithm, parties in (("mags", devices), ("cvfl", banks)):
        fed = parse_federation(
            {
                "name": "others",
                "rows": {"match": "plain", "classes": ["a", "b"], "validation": 0.0, "test": 0.0},
                "method": {"algorithm": algorithm, "epochs": 1},
                "parties": parties,
            },
            "others.toml",
        )
        room = matched(fed, FILES)
        assert room.rows("hospital") == room.rows("clinic") == room.rows("lab")
        assert room.kept["hospital"].facts.aligned == 3
        assert all(room.kept[party].facts.aligned == 3 for party in fed.members)
