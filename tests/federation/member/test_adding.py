"""Rows that are added to those that were matched: what is found, what stays, what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.command_line import colonnade
from tests.federation.member.test_aligning import (
    FILES,
    LONGER,
    SETS,
    Room,
    align_in,
    ends,
    federation,
    files,
    installed,
    matched,
    messages_from,
)
from tests.federation.member.test_matched_tables import HOLDERS, READY, SPELLING, write
from tests.federation.member.test_raw_tables import Meeting

from colonnade.cli.align import document
from colonnade.data import table_files
from colonnade.data.stored import StoredRows
from colonnade.errors import ColonnadeError, InputError, Unsuited
from colonnade.federation.agreement.alignment_file import (
    ALIGNMENT,
    Alignment,
    read_alignment,
    write_alignment,
)
from colonnade.federation.agreement.federation_file import parse_federation
from colonnade.federation.agreement.party_file import read_party
from colonnade.federation.asking.predictions import read_answer
from colonnade.federation.member import finding
from colonnade.federation.member.aligning import messages
from colonnade.federation.member.aligning.follower import Follower
from colonnade.federation.member.aligning.process import Outcome, sentence
from colonnade.federation.member.leaderless import member_kind
from colonnade.federation.member.own_data import read_own
from colonnade.federation.member.prediction_requests import Asked, Predicted, Predictor
from colonnade.network.clock import SECOND, Clock
from colonnade.network.transport.memory import MemoryTransport

pytest.importorskip("private_set_intersection")

MORE = {
    "hospital": [*FILES["hospital"], "gina", "ines", "jens"],
    "clinic": [*FILES["clinic"], "bert", "ines", "kurt", "jens"],
    "lab": [*FILES["lab"], "kurt", "jens", "ines"],
}  # bert was at two parties, and is at three now


def added(room: Room, keys: Mapping[str, Sequence[str]]) -> Room:
    """The parties of a match again, with more rows."""
    later = Room(room.fed, keys, before=room.kept)
    later.run()
    for side in later.sides.values():
        if isinstance(side, Follower):
            side.check_confirmed()
    return later


@settings(max_examples=30, deadline=None)
@given(
    sets=st.lists(SETS, min_size=3, max_size=3),
    more=st.lists(st.lists(SETS, min_size=3, max_size=3), min_size=1, max_size=3),
    order=st.randoms(),
    partial=st.booleans(),
)
def test_new_common_rows_come_behind_the_others_which_stay_where_they_are(
    sets: list[set[str]], more: list[list[set[str]]], order: random.Random, partial: bool
) -> None:
    fed = federation(partial=partial, normalise=[])
    keys = {party: grown(["all"], one, order) for party, one in zip(fed.members, sets, strict=True)}
    room = matched(fed, keys, unlabelled=["none"])
    for news in more:
        keys = {p: grown(keys[p], one, order) for p, one in zip(fed.members, news, strict=True)}
        later = Room(fed, keys, before=room.kept)
        later.kept = dict(room.kept)  # of a leader that finds nothing new
        later.run()
        for party in fed.members:
            old, new = room.kept[party], later.kept[party]
            assert new.rows[: len(old.rows)].tolist() == old.rows.tolist()
            assert new.facts.name == old.facts.name
            assert new.facts.aligned == old.facts.aligned
            assert new.at(old.facts.newest).facts == old.facts
        leader = [keys["hospital"][row] for row in later.kept["hospital"].rows.tolist()]
        others = [set(keys[party]) for party in ("clinic", "lab")]
        common = set.union(*others) if partial else set.intersection(*others)
        assert set(leader) == set(keys["hospital"]) & common
        for party in ("clinic", "lab"):
            rows = later.kept[party].rows.tolist()
            assert all(keys[party][r] == k for r, k in zip(rows, leader, strict=True) if r >= 0)
            if partial:
                assert later.kept["hospital"].held[party].tolist() == [row >= 0 for row in rows]
        assert len({one.facts.newest for one in later.kept.values()}) == 1
        room = later


def grown(keys: Sequence[str], more: set[str], order: random.Random) -> list[str]:
    new = sorted({key for key in more if key.strip()} - set(keys))
    return [*keys, *order.sample(new, len(new))]


@pytest.mark.parametrize("match", ["private", "plain", "spu"])
def test_only_keys_that_are_not_common_yet_take_part(match: str) -> None:
    installed(match)
    room = matched(federation(match), FILES)
    later = added(room, MORE)
    assert later.rows("hospital") == later.rows("clinic") == later.rows("lab")
    assert set(later.rows("lab")[3:]) == {"bert", "ines", "jens"}
    begun = next(m for m in messages_from(later, "hospital") if isinstance(m, messages.Begin))
    assert begun.keys == len(MORE["hospital"]) - 3
    addition = later.sides["hospital"].addition
    assert (addition.matched, addition.sizes) == ({"clinic": 3, "lab": 4}, {"clinic": 5, "lab": 6})
    secret = b"".join(data for _, _, data in later.sent)
    assert not any(key.encode() in secret for key in ("ines", "jens", "bert"))


def test_a_second_addition_comes_behind_the_first() -> None:
    room = added(matched(federation(), FILES), MORE)
    most = {party: [*keys, "lena"] for party, keys in MORE.items()}
    later = added(room, most)
    assert later.rows("clinic") == [*room.rows("clinic"), "lena"]
    assert [one.rows for one in later.kept["lab"].facts.added] == [3, 1]


def test_where_nothing_is_new_nothing_changes() -> None:
    room = matched(federation(), FILES)
    for keys in (FILES, MORE | {"hospital": FILES["hospital"], "clinic": FILES["clinic"]}):
        later = Room(room.fed, keys, before=room.kept)
        found = later.run()
        assert found["hospital"] is room.kept["hospital"]
        assert all(found[p].facts == room.kept[p].facts for p in FILES)
        assert later.sides["lab"].addition.rows == 0


def test_added_rows_are_never_trained_on_even_if_they_have_a_label() -> None:
    later = added(matched(federation(), FILES), MORE)
    assert [one.facts.aligned for one in later.kept.values()] == [3, 3, 3]
    told = [m for m in messages_from(later, "hospital") if isinstance(m, messages.Tell)]
    assert all(not any(one.labelled) for one in told)


# ---------------------------------------------------------------------------- the file, and joining


def test_the_file_keeps_what_was_added_and_refuses_what_cannot_be(tmp_path: Path) -> None:
    later = added(matched(federation(partial=True), FILES), MORE)
    for party, one in later.kept.items():
        write_alignment(tmp_path / party, one)
        again = read_alignment(tmp_path / party)
        assert again is not None
        assert again.facts == one.facts
        assert [part.tolist() for part in again.parts] == [part.tolist() for part in one.parts]
    lab = later.kept["lab"]
    many = msgspec.structs.replace(lab.facts.added[0], rows=len(lab.rows))
    facts = msgspec.structs.replace(lab.facts, added=(many,))
    write_alignment(tmp_path, Alignment(facts, lab.rows, lab.held))
    with pytest.raises(InputError, match="is no alignment of this version"):
        read_alignment(tmp_path)


def more_rows(folder: Path, more: Mapping[str, Sequence[str]]) -> None:
    for party, keys in more.items():
        with (folder / f"{party}.csv").open("a") as file:
            file.writelines(f"\n{key},{100 + i},yes" for i, key in enumerate(keys))


@pytest.mark.parametrize("algorithm", ["splitnn", "dvfl"])
def test_rows_of_the_training_and_those_beside_stay_what_they_were(
    tmp_path: Path, algorithm: str
) -> None:
    """p2 is the laboratory's alone, and `dvfl` learns from it; then the others get it, too."""
    keys = {party: [f"p{i}" for i in held] for party, held in LONGER.items()}
    fed = files(tmp_path, algorithm, **keys)
    align_in(tmp_path, fed)
    before = {p: read_party(tmp_path / f"{p}.toml") for p in fed.members}
    old = {p: read_own(one) for p, one in before.items()}
    more_rows(tmp_path, {"hospital": ["new", "p20"], "clinic": ["p2", "new", "p3"], "lab": ["new"]})
    align_in(tmp_path, fed, add=True)
    for party, one in before.items():
        after = read_party(tmp_path / f"{party}.toml")
        assert after.federation.training == one.federation.training
        assert after.federation.hash != one.federation.hash, "who lacks the addition is refused"
        own = read_own(after)
        assert after.federation.task() == one.federation.task()
        if party != "broker":
            assert len(own.ids) == len(old[party].ids) + 3
            assert [own.called([key]) for key in ("new", "p2", "p3")] != [[""]] * 3
        for part in ("train", "validation", "test"):
            both = (getattr(one.data, part).x for one in (own, old[party]))
            assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
        for a, b in zip(own.data.extra, old[party].data.extra, strict=True):
            assert torch.equal(a, b)


def test_an_added_row_whose_key_changes_is_noticed(tmp_path: Path) -> None:
    fed = files(tmp_path)
    align_in(tmp_path, fed)
    more_rows(tmp_path, {party: ["new"] for party in FILES})
    align_in(tmp_path, fed, add=True)
    read_own(read_party(tmp_path / "lab.toml"))
    path = tmp_path / "lab.csv"
    path.write_text(path.read_text().replace("\nnew,", "\nother,"))
    with pytest.raises(InputError, match=r"lab\.csv: its keys have changed"):
        read_own(read_party(tmp_path / "lab.toml"))


@dataclass
class Visit:
    """What the hospital answered, and the models of all parties."""

    answers: list[Predicted]
    weights: dict[str, dict[str, Any]]


def visit(folder: Path, life: int, *asked: list[str]) -> Visit:
    """As `colonnade join` at every party, and `colonnade predict` at the hospital."""
    parties = {p: read_party(folder / f"{p}.toml") for p in HOLDERS}
    known = {p: finding.kept(one) for p, one in parties.items()}
    assert all(known.values()) == (life > 1), "who was trained need not ask the others"
    if life == 1:
        known = Meeting({p: finding.Finding(one) for p, one in parties.items()}).found()
    clock = Clock()
    transport, members, replies = MemoryTransport(clock), {}, list[bytes]()
    for party, one in parties.items():
        found = known[party]
        assert found is not None
        finding.keep(one.folder, found)
        fed = found.complete(one.federation)
        own = read_own(replace(one, federation=fed))
        own.keep(one.folder)
        members[party] = member_kind(fed)(fed, own, transport.seat(party), one.folder, life=life)

    async def story() -> None:
        while any(m.state.stage not in READY for m in members.values()):
            await clock.sleep_until(clock.now + SECOND // 10)
        for number, keys in enumerate(asked, 1):
            request = msgspec.json.encode(Asked(keys, truths=True))
            Predictor(members["hospital"], replies.append).begin(request)
            while len(replies) < number:
                await clock.sleep_until(clock.now + SECOND // 100)

    for one in members.values():
        clock.spawn(one.live(), one.party)
    clock.run(("story", story()))
    weights = {p: one.algorithm.tensors(one.net)[p] for p, one in members.items()}
    return Visit([read_answer(reply, "hospital") for reply in replies], weights)


NEW = range(100, 106)


def grow_tables(folder: Path) -> None:
    """New patients at all three, one with values that nobody has seen; 106 is at the hospital
    alone, and all that the hospital knows of 100 is a label."""
    import polars

    hospital = [f"{SPELLING['hospital'].format(i)},{i % 3},2024-{1 + i % 12:02}-01," for i in NEW]
    hospital[0] = f"{SPELLING['hospital'].format(100)},,,yes"
    hospital.append(f"{SPELLING['hospital'].format(106)},1,2031-01-01,no")
    clinic = [f"{SPELLING['clinic'].format(i)},{i},{'Bari' if i == 101 else 'Oslo'}" for i in NEW]
    for party, lines in (("hospital", hospital), ("clinic", clinic)):
        with (folder / f"{party}.csv").open("a") as file:
            file.writelines(f"\n{line}" for line in lines)
    more = {"who": [SPELLING["lab"].format(i) for i in NEW], "sugar": [i * 0.5 for i in NEW]}
    table = polars.read_parquet(folder / "lab.parquet")
    polars.concat([table, polars.DataFrame(more)]).write_parquet(folder / "lab.parquet")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("partial", [False, True])
def test_new_patients_are_answered_by_the_model_that_was_trained_before_they_came(
    tmp_path: Path, partial: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:  # the tables stay in files
        monkeypatch.setattr(table_files, "LARGE", 0)
    write(tmp_path, split="partial = true" if partial else "")
    fed = read_party(tmp_path / "lab.toml", aligned=False).federation
    align_in(tmp_path, fed)
    old, new = ["patient7", "patient20", "patient52"], [f"patient{i}" for i in NEW]
    before = visit(tmp_path, 1, old, new)
    assert before.answers[0].ids == old
    assert before.answers[1].unknown == new
    grow_tables(tmp_path)
    unmatched = visit(tmp_path, 2, old, new)
    assert unmatched.answers == before.answers, "rows that are not matched yet do no harm"
    align_in(tmp_path, fed, add=True)
    after = visit(tmp_path, 3, old, [*new, "patient106"])
    assert isinstance(read_own(read_party(tmp_path / "lab.toml")).x, StoredRows) == large
    assert msgspec.json.encode(after.answers[0]) == msgspec.json.encode(before.answers[0])
    for party, weights in before.weights.items():
        for name, value in weights.items():
            assert torch.equal(after.weights[party][name], value)
    answer = after.answers[1]
    assert answer.ids == new
    assert answer.absent == [{}] * len(new)
    assert answer.unknown == ["patient106"]
    assert answer.model == before.answers[0].model
    assert len({tuple(row) for row in answer.probabilities}) == len(new)


def test_a_party_that_took_no_part_in_the_addition_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    fed = read_party(tmp_path / "lab.toml", aligned=False).federation
    align_in(tmp_path, fed)
    visit(tmp_path, 1)
    grow_tables(tmp_path)
    kept = (tmp_path / "clinic" / ALIGNMENT).read_bytes()
    align_in(tmp_path, fed, add=True)
    (tmp_path / "clinic" / ALIGNMENT).write_bytes(kept)
    advice = "hospital has another alignment of rows than we; run colonnade align --add at every"
    with pytest.raises(Unsuited, match=advice):
        visit(tmp_path, 2)


# ------------------------------------------------------------------------------ what can go wrong


def test_a_run_that_breaks_off_leaves_the_alignment_of_the_leader_valid_for_all() -> None:
    """The laboratory falls once the clinic has kept the addition; the hospital is killed, too."""
    room = matched(federation(), FILES)
    later = Room(room.fed, MORE, before=room.kept)
    later.kept = dict(room.kept)
    lab = later.sides["lab"]
    lab.commit = lambda *_: lab.transport.close()

    async def watch() -> None:
        await later.clock.sleep_until(later.clock.now + 10 * SECOND)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        later.run(("watch", watch()))
    assert later.kept["hospital"] is room.kept["hospital"]
    assert later.kept["lab"] is room.kept["lab"]
    clinic = later.sides["clinic"]
    assert isinstance(clinic, Follower)
    with pytest.raises(ColonnadeError, match=r"clinic: hospital left before .* --add once more"):
        clinic.check_confirmed()
    assert len(later.kept["clinic"].rows) == 6
    other = MORE | {"lab": [*FILES["lab"], "ines"]}
    again = added(later, other)
    assert again.rows("hospital") == again.rows("clinic") == again.rows("lab")
    assert set(again.rows("lab")[3:]) == {"ines"} | {"bert"}
    assert len({one.facts.newest for one in again.kept.values()}) == 1
    olga = ["carl", "olga", *FILES["lab"][2:]]  # nobody else has her, and bert was not added
    nothing = added(later, {**FILES, "clinic": MORE["clinic"], "lab": olga})
    assert nothing.kept["clinic"].facts == room.kept["clinic"].facts, "what it had more is dropped"


def test_a_party_that_falls_in_the_middle_is_waited_for_and_all_add_the_same() -> None:
    room = matched(federation("private"), FILES)
    later = Room(room.fed, MORE, before=room.kept)
    lab, fallen = later.sides["lab"], []
    commit = lab.commit

    def fall(*arguments: Any) -> None:
        if not fallen:  # as when its link is cut; the clinic has kept the addition by now
            fallen.append(True)
            lab.transport.close()
            later.clock.call_at(later.clock.now + SECOND, lambda: lab.listen(life=1))
            return
        commit(*arguments)

    lab.commit = fall
    found = later.run()
    assert later.rows("hospital") == later.rows("clinic") == later.rows("lab")
    assert [len(one.facts.added) for one in found.values()] == [1, 1, 1]
    assert len({one.facts.newest for one in later.kept.values()}) == 1


@pytest.mark.parametrize("adds", ["lab", "hospital"])
def test_adding_and_matching_anew_at_once_is_refused(adds: str) -> None:
    room = matched(federation(), FILES)
    before = {p: one for p, one in room.kept.items() if (p == "lab") == (adds == "lab")}
    anew = "hospital" if adds == "lab" else "lab"
    why = f"{adds} adds rows to those that were matched, and {anew} matches all anew"
    assert why in ends(Room(room.fed, MORE, before=before))


def test_parties_with_other_alignments_are_refused() -> None:
    room, other = matched(federation(), FILES), matched(federation(), FILES)
    mixed = {**room.kept, "lab": other.kept["lab"]}
    why = "lab has another alignment of rows than hospital; match the rows again"
    assert why in ends(Room(room.fed, MORE, before=mixed))
    later = Room(room.fed, MORE, before=room.kept)
    leader = later.sides["hospital"]
    begin = leader.begin
    leader.begin = lambda: msgspec.structs.replace(begin(), after="another")
    assert "has another alignment of rows than hospital" in ends(later)


def test_the_bound_of_keys_counts_those_that_were_matched_before() -> None:
    fed = federation(most_keys=9)
    room = matched(fed, FILES)
    added(room, MORE)
    many = MORE | {"lab": [*MORE["lab"], "x"]}
    assert "lab has 10 keys, and rows.most_keys = 9" in ends(Room(fed, many, before=room.kept))


def test_nobody_adds_rows_while_the_leader_trains() -> None:
    room = matched(federation(), FILES)
    later = Room(room.fed, MORE, before=room.kept)

    async def trains() -> None:
        seat = later.transport.seat("hospital")
        seat.listen(lambda sender, data: None, lambda *_: None)
        seat.publish("lab", b"a message of a training")
        await later.clock.sleep_until(later.clock.now + SECOND)

    with pytest.raises(Unsuited, match=r"hospital runs colonnade join; end it everywhere, and run"):
        later.run(("hospital", trains()), without=["hospital", "clinic"])


@pytest.mark.parametrize("algorithm", ["mags", "cvfl"])
def test_devices_and_several_label_holders_add_rows_as_well(algorithm: str) -> None:
    devices = [{"name": p, "role": "devices", "columns": 1} for p in FILES]
    banks = [{"name": p, "roles": ["clients", "active"], "columns": 1} for p in FILES]
    banks.append({"name": "bureau", "role": "collaborator"})
    fed = parse_federation(
        {
            "name": "others",
            "rows": {"match": "plain", "classes": ["a", "b"], "validation": 0.0, "test": 0.0},
            "method": {"algorithm": algorithm, "epochs": 1},
            "parties": devices if algorithm == "mags" else banks,
        },
        "others.toml",
    )
    later = added(matched(fed, FILES), MORE)
    assert later.rows("hospital") == later.rows("clinic") == later.rows("lab")
    assert [one.added for one in later.kept.values()] == [3] * len(fed.members)
    assert len({one.facts.newest for one in later.kept.values()}) == 1


def test_without_an_alignment_there_is_nothing_to_add_to(tmp_path: Path) -> None:
    write(tmp_path)
    done = colonnade("align", "lab.toml", "--add", folder=tmp_path)
    assert done.returncode == 2
    assert f"{ALIGNMENT}: is not there" in done.stderr
    assert "colonnade align, without --add" in done.stderr


def test_each_party_is_told_counts_and_no_key(tmp_path: Path) -> None:
    room = matched(federation("private"), FILES)
    files(tmp_path)
    later, same = added(room, MORE), added(room, FILES)
    told = {}
    for which, one in (("later", later), ("same", same)):
        for party in FILES:
            side = one.sides[party]
            kept = one.kept.get(party, room.kept[party])
            outcome = Outcome(kept, 1.0, 1, side.addition)
            told[which, party] = sentence(read_party(tmp_path / f"{party}.toml"), outcome)
    assert told["later", "hospital"] == (
        "hospital: of 5 rows here that were not matched yet, 3 are at clinic (of 5), 4 at lab (of "
        "6); 3 are at every party, and were added behind the other 3 rows. They are not trained "
        "on, and can be predicted"
    )
    assert told["later", "lab"].endswith("can be predicted; hospital has 5 such keys")
    assert "none are at every party, so nothing has changed" in told["same", "clinic"]
    outcome = Outcome(later.kept["hospital"], 1.0, 1, later.sides["hospital"].addition)
    shown = document(read_party(tmp_path / "hospital.toml"), outcome)
    counts = {name: shown[name] for name in ("common", "aligned", "added", "new", "rows")}
    assert counts == {"common": 6, "aligned": 3, "added": 3, "new": 3, "rows": 8}
    assert not any(key in text for text in told.values() for key in ("ines", "jens", "bert"))
