"""The real network, on this machine: who gets through, who does not, and who is seen there."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zenoh

from colonnade.errors import ColonnadeError, InputError
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.keys.identity import Identity
from colonnade.network.clock import Signal, WallClock
from colonnade.network.quota import Quota
from colonnade.network.transport.zenoh import Place, ZenohTransport, ask, present
from colonnade.network.transport.zenoh_config import configuration

MEMBERS = ("clinic", "lab", "bank", "hub")
BLOCK = zenoh.CongestionControl.BLOCK
PATIENCE = 30.0  # seconds until a test gives up


class Member:
    """A party that keeps what it gets. Its clock runs in a thread."""

    def __init__(self, place: Place, life: int = 0, quota: Quota | None = None) -> None:
        self.place, self.clock, self.stop = place, WallClock(), Signal()
        self.got: list[tuple[str, bytes]] = []
        self.noticed: list[tuple[str, bool]] = []
        self.lives: list[tuple[int, bool]] = []
        self.changed = threading.Condition()
        self.transport = ZenohTransport(place, self.clock, quota)
        self.transport.listen(
            lambda sender, data: self.keep(self.got, (sender, data)),
            self.notice,
            life,
        )
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        async def until_stopped() -> None:
            await self.clock.wait(self.stop)

        self.clock.run((self.place.party, until_stopped()))

    def notice(self, party: str, there: bool, life: int) -> None:
        self.lives.append((life, there))
        self.keep(self.noticed, (party, there))

    def keep(self, where: list[Any], what: Any) -> None:
        with self.changed:
            where.append(what)
            self.changed.notify_all()

    def waits_for(self, what: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        with self.changed:
            return self.changed.wait_for(what, seconds)

    def gets(self, *messages: tuple[str, bytes]) -> bool:
        """Exactly these, in this order."""
        self.waits_for(lambda: len(self.got) >= len(messages))
        return self.got == list(messages)

    def sees(self, party: str, there: bool = True, seconds: float = PATIENCE) -> bool:
        def last() -> bool:
            return [now for name, now in self.noticed if name == party][-1:] == [there]

        return self.waits_for(last, seconds)

    def close(self) -> None:
        self.transport.close()
        self.clock.hand_over(self.stop.notify)
        self.thread.join(PATIENCE)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    long_ago = datetime.now(UTC) - timedelta(days=10)
    make_authority(folder, "hospitals", now=long_ago)
    for party in (*MEMBERS, "stranger"):
        make_certificate(folder, party)
    make_certificate(folder, "late", now=long_ago, days=1)
    (folder / "foreign").mkdir()
    make_authority(folder / "foreign", "others")
    make_certificate(folder / "foreign", "lab")
    return folder


@pytest.fixture
def members() -> Iterator[list[Member]]:
    everybody: list[Member] = []
    yield everybody
    for member in everybody:
        member.close()


@pytest.fixture
def join(members: list[Member]) -> Callable[[Place], Member]:
    def joined(place: Place) -> Member:
        members.append(Member(place))
        return members[-1]

    return joined


Join = Callable[[Place], Member]


def free_address() -> str:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{chosen.getsockname()[1]}"


def place_of(keys: Path, party: str, listen: str = "", **settings: Any) -> Place:
    others = tuple(name for name in ("clinic", "lab", "bank") if name != party)
    usual = {"connect": {}, "members": MEMBERS, "neighbours": others}
    return Place(
        party=party, listen=listen, **{"identity": Identity.of(keys, party), **usual, **settings}
    )


def pair(keys: Path, join: Join, **settings: Any) -> tuple[Member, Member]:
    """A clinic that listens and a lab that has connected to it."""
    address = free_address()
    clinic = join(place_of(keys, "clinic", address, **settings))
    lab = join(place_of(keys, "lab", connect={"clinic": address}))
    assert clinic.sees("lab")
    assert lab.sees("clinic")
    return clinic, lab


def stay(place: Place) -> None:
    Member(place).thread.join()


@contextmanager
def elsewhere(place: Place) -> Iterator[Any]:
    """A party in a process of its own, to be killed."""
    process = multiprocessing.get_context("spawn").Process(target=stay, args=(place,), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(PATIENCE)


def test_two_parties_exchange_messages_in_order_and_see_each_other_leave_and_return(
    keys: Path, join: Join
) -> None:
    clinic, lab = pair(keys, join)
    for number in range(50):
        clinic.transport.publish("lab", b"%d" % number)
        lab.transport.publish("clinic", bytes(100_000) + b"%d" % number)
    assert lab.gets(*[("clinic", b"%d" % number) for number in range(50)])
    assert clinic.gets(*[("lab", bytes(100_000) + b"%d" % number) for number in range(50)])

    lab.close()
    lab.close()
    assert clinic.sees("lab", False, 3)
    clinic.transport.publish("lab", b"lost")
    lab = join(lab.place)
    assert clinic.sees("lab")
    clinic.transport.publish("lab", b"again")
    assert lab.gets(("clinic", b"again"))


def test_messages_and_notices_pass_through_a_hub_that_alone_listens(keys: Path, join: Join) -> None:
    address = free_address()
    behind = {"hub": "hub", "connect": {"hub": address}}
    clinic = join(place_of(keys, "clinic", **behind))  # before the hub is there
    join(place_of(keys, "hub", address, hub="hub", neighbours=()))
    lab = join(place_of(keys, "lab", **behind))
    assert clinic.sees("lab")
    assert lab.sees("clinic")
    clinic.transport.publish("lab", b"hello")
    assert lab.gets(("clinic", b"hello"))
    lab.transport.publish("clinic", b"good day")
    assert clinic.gets(("lab", b"good day"))
    with elsewhere(place_of(keys, "bank", **behind)) as bank:
        assert clinic.sees("bank")
        bank.kill()
        assert clinic.sees("bank", False, 3)
    lab.transport.serve("status", lambda payload, reply: reply(b"well"))
    assert ask(place_of(keys, "bank", **behind), "lab", "status") == b"well"
    assert present(place_of(keys, "bank", **behind), 0.5) == {"clinic", "lab", "hub"}


def test_two_processes_of_one_party_are_seen_as_two_lives(
    keys: Path, join: Join, members: list[Member]
) -> None:
    address = free_address()
    clinic = join(place_of(keys, "clinic", address))
    for life in (1001, 1002):
        members.append(Member(place_of(keys, "lab", connect={"clinic": address}), life))
        assert clinic.waits_for(lambda life=life: (life, True) in clinic.lives)
    members[1].close()
    assert clinic.waits_for(lambda: (1001, False) in clinic.lives)
    assert clinic.lives == [(1001, True), (1002, True), (1001, False)]


def test_a_killed_party_is_missed_and_welcomed_back(keys: Path, join: Join) -> None:
    address = free_address()
    clinic = join(place_of(keys, "clinic", address))
    for _ in range(2):
        with elsewhere(place_of(keys, "lab", connect={"clinic": address})) as lab:
            assert clinic.sees("lab")
            lab.kill()
            assert clinic.sees("lab", False, 3)


def test_a_party_that_stands_still_holds_up_nobody_and_is_soon_counted_as_gone(
    keys: Path, join: Join
) -> None:
    clinic, lab = pair(keys, join)
    with elsewhere(place_of(keys, "bank", connect={"clinic": clinic.place.listen})) as bank:
        assert clinic.sees("bank")
        os.kill(bank.pid, signal.SIGSTOP)
        for _ in range(30):
            clinic.transport.publish("bank", bytes(2**20))  # more than sockets and queues take
        clinic.transport.publish("lab", b"in the meantime")
        assert lab.gets(("clinic", b"in the meantime"))
        assert clinic.sees("bank", seconds=0), "it was not waited for until it counts as gone"
        assert clinic.sees("bank", False)
        os.kill(bank.pid, signal.SIGCONT)
        assert clinic.sees("bank")


# ------------------------------------------------------------------------------------ intruders


def evil(place: Place, address: str, **settings: Any) -> zenoh.Config:
    """Whoever means harm does not keep to our rules on its own side."""
    config = configuration(place, visiting={"clinic": address}, patience=0.3)
    for key, value in {
        "access_control": {"enabled": False},
        "low_pass_filter": [],
        **settings,
    }.items():
        config.insert_json5(key, json.dumps(value))
    return config


def again_until(done: Callable[[], bool], act: Callable[[], None]) -> None:
    """What is sent before a subscription has arrived is lost, so it is sent again."""
    deadline = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < deadline:
        act()
        time.sleep(0.01)


def is_refused(config: zenoh.Config) -> None:
    with pytest.raises(zenoh.ZError, match="Unable to connect"):
        zenoh.open(config)


def comes_without_certificate(keys: Path, clinic: Member, lab: Member) -> None:
    tls = {"root_ca_certificate": str(keys / "authority.pem"), "enable_mtls": False}
    is_refused(evil(lab.place, clinic.place.listen, **{"transport/link/tls": tls}))


def has_a_foreign_authority(keys: Path, clinic: Member, lab: Member) -> None:
    foreign = Identity.of(keys / "foreign", "lab")
    mixed = replace(foreign, authority=keys / "authority.pem")
    is_refused(evil(replace(lab.place, identity=mixed), clinic.place.listen))


def has_an_expired_certificate(keys: Path, clinic: Member, lab: Member) -> None:
    late = replace(lab.place, identity=Identity.of(keys, "late"))
    is_refused(evil(late, clinic.place.listen))


def speaks_plain_tcp(keys: Path, clinic: Member, lab: Member) -> None:
    is_refused(evil(replace(lab.place, identity=None), clinic.place.listen))


def sends_garbage(keys: Path, clinic: Member, lab: Member) -> None:
    host, port = clinic.place.listen.split(":")
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 1000):
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
            line.sendall(noise)


def is_no_member(keys: Path, clinic: Member, lab: Member) -> None:
    clinic.transport.serve("status", lambda payload, reply: reply(b"well"))
    stranger = replace(lab.place, identity=Identity.of(keys, "stranger"))
    with zenoh.open(evil(stranger, clinic.place.listen)) as session:
        for sender in ("lab", "stranger", "*"):
            session.put(f"vfl/{sender}/to/clinic", b"evil")
        session.liveliness().declare_token("vfl/bank/alive/7").undeclare()
        assert list(session.get("vfl/clinic/ask/status", timeout=0.5)) == []
        assert list(session.liveliness().get("vfl/*/alive/*", timeout=0.5)) == []


def writes_under_another_name(keys: Path, clinic: Member, lab: Member) -> None:
    bank = replace(lab.place, identity=Identity.of(keys, "bank"))
    with zenoh.open(evil(bank, clinic.place.listen)) as session:
        for key in ("vfl/lab/to/clinic", "vfl/*/to/clinic", "vfl/**"):
            session.put(key, b"evil", congestion_control=zenoh.CongestionControl.BLOCK)
        session.liveliness().declare_token("vfl/lab/alive/0").undeclare()  # as if lab had left
        session.put("vfl/bank/to/clinic", b"mine", congestion_control=zenoh.CongestionControl.BLOCK)
        assert clinic.gets(("bank", b"mine"))
    clinic.got.clear()


def takes_the_session_number_of_another(keys: Path, clinic: Member, lab: Member) -> None:
    assert lab.transport._session is not None
    bank = replace(lab.place, identity=Identity.of(keys, "bank"))
    number = str(lab.transport._session.zid())
    is_refused(evil(bank, clinic.place.listen, id=number))


def listens_to_what_another_is_sent(keys: Path, clinic: Member, lab: Member) -> None:
    heard: list[bytes] = []
    bank = replace(lab.place, identity=Identity.of(keys, "bank"))
    with zenoh.open(evil(bank, clinic.place.listen)) as session:
        for key in ("vfl/*/to/lab", "vfl/clinic/to/*", "vfl/**", "vfl/*/to/bank"):
            session.declare_subscriber(key, lambda sample: heard.append(sample.payload.to_bytes()))

        def talk() -> None:
            clinic.transport.publish("lab", b"secret")
            clinic.transport.publish("bank", b"yours")

        again_until(lambda: len(heard) > 3, talk)
        assert set(heard) == {b"yours"}


def sends_too_much(keys: Path, clinic: Member, lab: Member) -> None:
    bank = replace(lab.place, identity=Identity.of(keys, "bank"))
    with zenoh.open(evil(bank, clinic.place.listen)) as session:
        for size in (120_000, 1_000_000, 10):
            data = bytes(size)
            session.put(
                "vfl/bank/to/clinic", data, congestion_control=zenoh.CongestionControl.BLOCK
            )
        assert clinic.gets(("bank", bytes(10)))
    clinic.got.clear()


@pytest.mark.parametrize(
    "intruder",
    [
        comes_without_certificate,
        has_a_foreign_authority,
        has_an_expired_certificate,
        speaks_plain_tcp,
        sends_garbage,
        is_no_member,
        writes_under_another_name,
        takes_the_session_number_of_another,
        listens_to_what_another_is_sent,
        sends_too_much,
    ],
)
def test_nothing_comes_of_an_intruder_who(
    intruder: Callable[[Path, Member, Member], None], keys: Path, join: Join
) -> None:
    clinic, lab = pair(keys, join, largest=100_000)
    intruder(keys, clinic, lab)
    lab.got.clear()
    lab.transport.publish("clinic", b"as before")
    assert clinic.gets(("lab", b"as before"))
    clinic.transport.publish("lab", b"indeed")
    assert lab.waits_for(lambda: ("clinic", b"indeed") in lab.got)
    assert clinic.noticed == [("lab", True)]


def test_what_a_member_sends_and_nobody_reads_stays_within_its_quota(
    keys: Path, join: Join, members: list[Member], caplog: pytest.LogCaptureFixture
) -> None:
    """While the receiver computes, its transport goes on receiving."""
    address, computing, quota = free_address(), threading.Event(), Quota(1_000_000)
    clinic = Member(place_of(keys, "clinic", address), quota=quota)
    members.append(clinic)
    lab = join(place_of(keys, "lab", connect={"clinic": address}))
    assert lab.sees("clinic")

    def compute() -> None:
        computing.wait(PATIENCE)

    clinic.clock.hand_over(compute)
    with zenoh.open(evil(place_of(keys, "bank"), address)) as session:
        for _ in range(50):
            session.liveliness().declare_token("vfl/bank/alive").undeclare()
            session.put(
                "vfl/bank/to/clinic", bytes(100_000), congestion_control=BLOCK, express=True
            )
        again_until(lambda: quota.drops.total >= 40, lambda: None)
        lab.transport.publish("clinic", b"hello")
        again_until(lambda: quota.held("lab") > 0, lambda: None)
        assert quota.held("bank") <= 1_000_000
        assert clinic.clock._handed.qsize() < 20, "who flickers is told once"
        computing.set()
        assert clinic.waits_for(lambda: ("lab", b"hello") in clinic.got)
    assert 5 <= len([sender for sender, _ in clinic.got if sender == "bank"]) <= 9
    again_until(lambda: quota.held("bank") == quota.held("lab") == 0, lambda: None)
    assert quota.held("bank") == quota.held("lab") == 0
    assert caplog.text.count("bank: more of its messages wait here than it may have") == 2


def test_a_question_that_cannot_be_answered_ends_nobody(
    keys: Path, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    clinic, lab = pair(keys, join)

    def fails(payload: bytes, reply: Callable[[bytes], None]) -> None:
        raise RecursionError("\x1b[2J")

    clinic.transport.serve("status", fails)
    asking = place_of(keys, "lab", connect={"clinic": clinic.place.listen})
    for _ in range(3):
        assert ask(asking, "clinic", "status", b"[" * 1000, timeout=2) is None
    lab.transport.publish("clinic", b"as before")
    assert clinic.gets(("lab", b"as before"))
    assert caplog.text.count("status: cannot answer: RecursionError") == 1


def test_through_a_hub_nobody_writes_under_another_name_or_reads_what_another_is_sent(
    keys: Path, join: Join
) -> None:
    address = free_address()
    behind = {"hub": "hub", "connect": {"hub": address}}
    join(place_of(keys, "hub", address, hub="hub"))
    clinic, lab = (join(place_of(keys, party, **behind)) for party in ("clinic", "lab"))
    heard: list[bytes] = []
    with zenoh.open(evil(place_of(keys, "bank", **behind), address)) as session:
        for key in ("vfl/*/to/clinic", "vfl/**", "vfl/*/to/bank"):
            session.declare_subscriber(
                key,
                lambda sample: heard.append(sample.payload.to_bytes()),
                allowed_origin=zenoh.Locality.REMOTE,
            )

        def talk() -> None:
            for sender in ("lab", "hub", "*", "bank"):
                session.put(f"vfl/{sender}/to/clinic", b"of the bank")
            lab.transport.publish("clinic", b"secret")
            lab.transport.publish("bank", b"for the bank")

        again_until(lambda: len(clinic.got) > 6 and len(heard) > 3, talk)
    assert set(clinic.got) == {("bank", b"of the bank"), ("lab", b"secret")}
    assert set(heard) == {b"for the bank"}


def test_another_party_at_a_neighbours_address_is_named(
    keys: Path, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    address = free_address()
    join(place_of(keys, "bank", address))
    clinic = join(
        place_of(keys, "clinic", connect={"lab": address.replace("127.0.0.1", "localhost")})
    )
    assert clinic.sees("bank")
    told = f"{address}: expected lab, found the certificate of bank"
    again_until(lambda: told in caplog.text, lambda: None)  # it is told by a thread of its own
    assert told in caplog.text


# --------------------------------------------------------------------------- mistakes, questions


def test_a_port_in_use_is_named(keys: Path, join: Join) -> None:
    clinic, _ = pair(keys, join)
    with pytest.raises(InputError, match=rf"{clinic.place.listen}.*in use.*choose another port"):
        ZenohTransport(place_of(keys, "lab", clinic.place.listen), WallClock())


def test_a_message_that_is_too_large_is_the_senders_mistake(keys: Path, join: Join) -> None:
    clinic, lab = pair(keys, join, largest=1000)
    with pytest.raises(ColonnadeError, match="message to 'lab': 1,001 bytes are more"):
        clinic.transport.publish("lab", bytes(1001))
    clinic.transport.publish("lab", bytes(1000))
    assert lab.gets(("clinic", bytes(1000)))


def test_questions_are_answered_at_once_or_later_and_by_nobody_in_time(
    keys: Path, join: Join
) -> None:
    clinic, lab = pair(keys, join)
    clinic.transport.serve("echo", lambda payload, reply: reply(payload * 2))

    def later(payload: bytes, reply: Callable[[bytes], None]) -> None:
        clinic.clock.call_at(clinic.clock.now + 10**8, lambda: reply(b"at last"))

    clinic.transport.serve("later", later)
    clinic.transport.serve("status", lambda payload, reply: reply(b"well"))
    own = place_of(keys, "clinic", connect={"clinic": clinic.place.listen})  # another process
    assert ask(own, "clinic", "echo", b"ab") == b"abab"
    assert ask(own, "clinic", "later") == b"at last"
    for party in ("lab", "bank"):
        asking = place_of(keys, party, connect={"clinic": clinic.place.listen})
        assert ask(asking, "clinic", "status") == b"well"
        assert ask(asking, "clinic", "echo", b"ab", timeout=0.5) is None, "not its business"
        assert present(asking) == {"clinic"}
    assert ask(clinic.place, "clinic", "echo", b"ab") == b"abab"
    nobody = place_of(keys, "lab", connect={"clinic": free_address()})
    assert ask(nobody, "clinic", "echo", timeout=0.3) is None
    assert ask(lab.place, "clinic", "unheard of", timeout=0.3) is None
    assert present(nobody, 0.3) == set()


def test_plain_tcp_is_for_those_who_ask_for_it_and_it_warns(
    keys: Path, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    address = free_address()
    clinic = join(place_of(keys, "clinic", address, identity=None))
    lab = join(place_of(keys, "lab", identity=None, connect={"clinic": address}))
    assert "plain TCP: not encrypted and anyone who reaches the port can take part" in caplog.text
    assert clinic.sees("lab")
    lab.transport.publish("clinic", b"hello")
    assert clinic.gets(("lab", b"hello"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"members": ("clinic", "*")}, "members: '\\*' cannot name a party"),
        ({"neighbours": ("elsewhere",)}, "members: elsewhere missing"),
        ({"connect": {"lab": "localhost"}}, "'localhost' is not an address; expected host:port"),
        ({"hub": "hub"}, "'clinic' needs the address of the hub 'hub'"),
    ],
)
def test_an_impossible_place_is_refused(keys: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        place_of(keys, "clinic", **wrong)


REASONS = """
import logging, sys
from pathlib import Path
from test_zenoh import evil, has_a_foreign_authority, place_of, Member
from colonnade.network.transport.zenoh import log_reasons
logging.basicConfig(level="INFO")
log_reasons()
keys, address, nobody = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
clinic = Member(place_of(keys, "clinic", address, connect={"lab": nobody}))
has_a_foreign_authority(keys, clinic, clinic)
clinic.close()
print("printed as ever")
"""


def test_the_reason_for_a_refusal_is_in_our_log_and_not_on_standard_output(keys: Path) -> None:
    address, nobody = free_address(), free_address()
    done = subprocess.run(
        [sys.executable, "-c", REASONS, str(keys), address, nobody],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "refused a connection: invalid peer certificate: UnknownIssuer" in done.stderr
    assert f"cannot connect to {nobody}: nobody listens there" in done.stderr
    assert done.stdout == "printed as ever\n"
