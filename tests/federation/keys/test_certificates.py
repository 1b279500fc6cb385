"""The certificates of a federation: what is made, what is refused, and that TLS agrees."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import InputError
from colonnade.federation.keys.certificates import (
    describe,
    make_authority,
    make_certificate,
    make_request,
    sign_request,
)
from colonnade.federation.keys.identity import Identity

NOW = datetime(2031, 5, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A federation of two, made at NOW."""
    made = tmp_path / "keys"
    make_authority(made, "hospitals", now=NOW)
    make_certificate(made, "clinic", now=NOW)
    make_certificate(made, "lab", now=NOW)
    return made


@pytest.fixture
def clinic(folder: Path) -> Identity:
    return Identity.of(folder, "clinic")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


# What is made


def test_a_party_of_the_federation_passes_and_nothing_is_said(
    clinic: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    clinic.check("clinic", now=NOW)
    assert not caplog.records


def test_keys_are_for_their_user_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_authority(tmp_path, "hospitals")
        make_certificate(tmp_path, "clinic")
        make_request(tmp_path, "lab")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {
        "authority.key": 0o600,
        "authority.pem": 0o600,
        "clinic.key": 0o600,
        "clinic.pem": 0o600,
        "lab.key": 0o600,
        "lab.csr": 0o600,
    }


def test_a_certificate_says_whose_it_is_where_and_how_long(folder: Path) -> None:
    hosts = ("lab-2.example", "10.0.0.7", "::1")
    shown = describe(make_certificate(folder, "lab-2", hosts=hosts, days=30, now=NOW).certificate)
    assert (shown.party, shown.hosts, shown.is_authority) == ("lab-2", hosts, False)
    assert shown.valid_from == NOW - timedelta(hours=1)
    assert shown.valid_to == NOW + 30 * DAY
    der = ssl.PEM_cert_to_DER_cert((folder / "lab-2.pem").read_text())
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    assert shown.fingerprint.replace(":", "").lower() == digest.finalize().hex()


def test_the_authority_is_listed_as_one(folder: Path) -> None:
    shown = describe(folder / "authority.pem")
    assert (shown.party, shown.hosts, shown.is_authority) == ("hospitals", (), True)


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    make_authority(tmp_path, "hospitals", days=20, now=NOW)
    made = make_certificate(tmp_path, "clinic", days=365, now=NOW)
    assert describe(made.certificate).valid_to == NOW + 20 * DAY


def test_a_party_may_be_called_like_its_federation(tmp_path: Path) -> None:
    make_authority(tmp_path, "clinic")
    make_certificate(tmp_path, "clinic").check("clinic")


# What is not made


@pytest.mark.parametrize(
    "again",
    [
        lambda folder: make_authority(folder, "hospitals"),
        lambda folder: make_certificate(folder, "clinic", now=NOW),
        lambda folder: make_request(folder, "clinic"),
    ],
)
def test_nothing_is_overwritten(folder: Path, again: Callable[[Path], object]) -> None:
    before = contents(folder)
    assert "exists already" in refusal(lambda: again(folder))
    assert contents(folder) == before


@pytest.mark.parametrize("left", ["lab-2.key", "lab-2.pem"])
def test_one_file_of_a_pair_is_enough_to_refuse_the_other(folder: Path, left: str) -> None:
    (folder / left).write_text("mine")
    before = contents(folder)
    assert left in refusal(lambda: make_certificate(folder, "lab-2", now=NOW))
    assert contents(folder) == before


def test_a_pair_that_cannot_be_written_leaves_no_half(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where the folder should be")
    assert "cannot be written" in refusal(lambda: make_authority(tmp_path / "keys", "hospitals"))


def test_a_full_disk_leaves_no_key_without_certificate(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def full(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("lab-2.pem"):
            raise OSError(28, "No space left on device")
        return opened(path, flags, mode)

    before = contents(folder)
    monkeypatch.setattr(os, "open", full)
    message = refusal(lambda: make_certificate(folder, "lab-2", now=NOW))
    assert "lab-2.pem" in message
    assert "No space left" in message
    assert contents(folder) == before


@pytest.mark.parametrize(
    "name",
    ["", "Clinic", "9lab", "-lab", "lab/2", "../lab", "lab*", "lab 2", "läb", "lab\n", "l" * 41],
)
def test_a_party_name_that_would_break_key_expressions_or_files_is_refused(
    folder: Path, name: str
) -> None:
    before = contents(folder)
    for make in (make_certificate, make_request):
        message = refusal(lambda make=make: make(folder, name))
        assert repr(name) in message
        assert "small letters" in message
    assert contents(folder) == before


def test_the_longest_name_is_possible_and_the_authoritys_is_not(folder: Path) -> None:
    make_certificate(folder, "l" * 40, now=NOW)
    assert "belongs to" in refusal(lambda: make_certificate(folder, "authority", now=NOW))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "tls/clinic:7447",
        "clinic.example:7447",
        "*.example",
        "clinic..example",
        "10.0.0.256",
        "klinik-süd.example",
        "0.0.0.0",
        "c" * 64,
        ".".join(["clinic"] * 40),
    ],
)
def test_what_is_not_a_host_is_refused_by_name(folder: Path, host: str) -> None:
    message = refusal(lambda: make_certificate(folder, "lab-2", hosts=[host], now=NOW))
    assert message.startswith("hosts: ")
    assert host in message


def test_no_host_at_all_is_refused(folder: Path) -> None:
    assert "at least one" in refusal(lambda: make_certificate(folder, "lab-2", hosts=[], now=NOW))


@pytest.mark.parametrize("days", [0, -3, 10**9])
def test_impossible_durations_are_refused(folder: Path, days: int) -> None:
    assert str(days) in refusal(lambda: make_certificate(folder, "lab-2", days=days, now=NOW))
    assert str(days) in refusal(lambda: make_authority(folder / "new", "hospitals", days=days))


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "é" * 33])
def test_an_authority_needs_a_name_that_fits(tmp_path: Path, name: str) -> None:
    assert "not possible for an authority" in refusal(lambda: make_authority(tmp_path, name))


@pytest.mark.parametrize("lost", ["authority.pem", "authority.key"])
def test_without_an_authority_nobody_is_certified(folder: Path, lost: str) -> None:
    (folder / lost).unlink()
    message = refusal(lambda: make_certificate(folder, "lab-2", now=NOW))
    assert lost in message
    assert "Make the authority first" in message


def test_an_authority_that_cannot_sign_is_refused(folder: Path, tmp_path: Path) -> None:
    late = NOW + 4000 * DAY
    assert "has expired" in refusal(lambda: make_certificate(folder, "lab-2", now=late))
    shutil.copy(folder / "lab.key", folder / "authority.key")
    assert "does not belong" in refusal(lambda: make_certificate(folder, "lab-2", now=NOW))
    shutil.copy(folder / "lab.pem", folder / "authority.pem")
    assert "not that of an authority" in refusal(lambda: make_certificate(folder, "lab-2", now=NOW))


# Requests


def request_of(
    names: list[str], key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *more: x509.ExtensionType
) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


HOST = x509.SubjectAlternativeName([x509.DNSName("lab-2.example")])


def test_a_private_key_never_leaves_the_organisation_that_made_it(
    folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    csr = make_request(home, "lab-2", ["lab-2.example", "10.0.0.7"])
    pem = sign_request(folder, csr, days=30, party="lab-2", now=NOW)
    assert not (folder / "lab-2.key").exists()
    assert describe(pem).hosts == ("lab-2.example", "10.0.0.7")
    assert describe(pem).valid_to == NOW + 30 * DAY
    Identity(folder / "authority.pem", pem, home / "lab-2.key").check("lab-2", now=NOW)


def test_a_request_cannot_make_itself_an_authority(folder: Path, tmp_path: Path) -> None:
    csr = tmp_path / "lab-2.csr"
    wish = x509.BasicConstraints(ca=True, path_length=None)
    csr.write_bytes(request_of(["lab-2"], ec.generate_private_key(ec.SECP256R1()), HOST, wish))
    assert not describe(sign_request(folder, csr, now=NOW)).is_authority


def test_a_request_is_signed_once(folder: Path, tmp_path: Path) -> None:
    csr = make_request(tmp_path, "clinic")
    before = contents(folder)
    assert "exists already" in refusal(lambda: sign_request(folder, csr, now=NOW))
    assert contents(folder) == before


def test_a_request_for_the_name_of_another_is_refused(folder: Path, tmp_path: Path) -> None:
    csr = make_request(tmp_path, "lab-2")
    message = refusal(lambda: sign_request(folder, csr, party="lab-3", now=NOW))
    assert "'lab-2', not 'lab-3'" in message


def test_a_changed_request_is_refused(folder: Path, tmp_path: Path) -> None:
    csr = make_request(tmp_path, "lab-2")
    der = base64.b64decode("".join(csr.read_text().splitlines()[1:-1]))
    changed = base64.encodebytes(der.replace(b"lab-2", b"lab-3")).decode()
    csr.write_text(
        f"-----BEGIN CERTIFICATE REQUEST-----\n{changed}-----END CERTIFICATE REQUEST-----\n"
    )
    message = refusal(lambda: sign_request(folder, csr, now=NOW))
    assert str(csr) in message
    assert "signature is wrong" in message


@pytest.mark.parametrize(
    ("names", "extension", "reason"),
    [
        (["../lab"], HOST, "small letters"),
        (["authority"], HOST, "belongs to"),
        ([], HOST, "0 common names"),
        (["lab-2", "clinic"], HOST, "2 common names"),
        (["lab-2"], x509.SubjectAlternativeName([x509.DNSName("*")]), "neither a host name"),
        (["lab-2"], x509.SubjectAlternativeName([x509.RFC822Name("a@b.example")]), "alternative"),
        (["lab-2"], x509.BasicConstraints(ca=False, path_length=None), "at least one"),
    ],
)
def test_a_request_that_asks_for_too_much_is_refused(
    folder: Path, tmp_path: Path, names: list[str], extension: x509.ExtensionType, reason: str
) -> None:
    csr = tmp_path / "lab-2.csr"
    csr.write_bytes(request_of(names, ec.generate_private_key(ec.SECP256R1()), extension))
    before = contents(folder)
    message = refusal(lambda: sign_request(folder, csr, now=NOW))
    assert str(csr) in message
    assert reason in message
    assert contents(folder) == before


def test_a_request_with_another_kind_of_key_is_refused(folder: Path, tmp_path: Path) -> None:
    csr = tmp_path / "lab-2.csr"
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 1024)):
        csr.write_bytes(request_of(["lab-2"], key, HOST))
        assert "P-256" in refusal(lambda: sign_request(folder, csr, now=NOW))


def test_a_certificate_is_not_a_request(folder: Path) -> None:
    message = refusal(lambda: sign_request(folder, folder / "lab.pem", now=NOW))
    assert "holds CERTIFICATE; expected one CERTIFICATE REQUEST" in message


# What is wrong with an identity


@pytest.mark.parametrize("role", ["authority", "certificate", "key"])
def test_a_file_that_is_missing_unreadable_or_something_else_is_named(
    clinic: Identity, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path: Path = getattr(clinic, role)
    whole = path.read_bytes()

    def reason() -> str:
        message = refusal(lambda: clinic.check("clinic", now=NOW))
        assert message.startswith(f"{path}: ")
        return message

    path.write_bytes(b"\x30\x82\x01\x00")
    assert "not a PEM file" in reason()
    path.write_bytes(whole * 2)
    assert "expected one" in reason()
    lines = whole.splitlines()
    path.write_bytes(b"\n".join([lines[0], b"AAAA", lines[-1]]))
    assert "cannot be understood" in reason()
    path.write_bytes((clinic.certificate if role == "key" else clinic.key).read_bytes())
    assert "holds " in reason()
    path.unlink()
    assert "no such file" in reason()
    path.mkdir()
    assert "cannot be read" in reason()

    read = Path.read_bytes

    def denied(self: Path) -> bytes:  # as root, no mode denies anything
        if self == path:
            raise PermissionError(13, "Permission denied")
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", denied)
    assert "permission denied" in reason()


def test_a_key_with_a_passphrase_is_refused(clinic: Identity) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    clinic.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    assert "passphrase" in refusal(lambda: clinic.check("clinic", now=NOW))


def test_the_key_of_another_is_refused(clinic: Identity, folder: Path) -> None:
    mixed = Identity(clinic.authority, clinic.certificate, folder / "lab.key")
    message = refusal(lambda: mixed.check("clinic", now=NOW))
    assert message.startswith(f"{folder / 'lab.key'}: does not belong to")
    assert str(clinic.certificate) in message


def test_the_certificate_of_another_party_is_refused_and_its_owner_named(folder: Path) -> None:
    message = refusal(lambda: Identity.of(folder, "lab").check("clinic", now=NOW))
    assert message == f"{folder / 'lab.pem'}: is the certificate of 'lab', not of 'clinic'."


def test_dates_are_told_with_a_word_about_the_clock(folder: Path) -> None:
    ward = make_certificate(folder, "ward", now=NOW + DAY)
    start, end = NOW + DAY - timedelta(hours=1), NOW + 366 * DAY
    ward.check("ward", now=start)
    ward.check("ward", now=end)
    early = refusal(lambda: ward.check("ward", now=start - SECOND))
    late = refusal(lambda: ward.check("ward", now=end + SECOND))
    assert early.startswith(f"{ward.certificate}: is not valid yet")
    assert late.startswith(f"{ward.certificate}: has expired")
    for message in (early, late):
        assert "from 2031-05-05 11:00 UTC to 2032-05-04 12:00 UTC" in message
        assert "clock" in message


def test_an_expired_authority_is_what_is_named(folder: Path) -> None:
    message = refusal(lambda: Identity.of(folder, "lab").check("lab", now=NOW + 3651 * DAY))
    assert message.startswith(f"{folder / 'authority.pem'}: has expired")


@pytest.mark.parametrize("name", ["hospitals", "others"])
def test_a_foreign_authority_is_refused_even_under_the_same_name(
    clinic: Identity, tmp_path: Path, name: str
) -> None:
    foreign = make_authority(tmp_path / "foreign", name, now=NOW)
    mixed = Identity(foreign, clinic.certificate, clinic.key)
    message = refusal(lambda: mixed.check("clinic", now=NOW))
    assert message.startswith(f"{clinic.certificate}: is not signed by the authority {foreign}")


def test_a_party_is_not_an_authority(clinic: Identity, folder: Path) -> None:
    mixed = Identity(folder / "lab.pem", clinic.certificate, clinic.key)
    message = refusal(lambda: mixed.check("clinic", now=NOW))
    assert message.startswith(f"{folder / 'lab.pem'}: is a certificate, but not that of")


def test_a_certificate_for_servers_only_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = (ExtendedKeyUsageOID.SERVER_AUTH,)
    monkeypatch.setattr("colonnade.federation.keys.certificates.BOTH_ENDS", server)
    identity = make_certificate(folder, "lab-2", now=NOW)
    assert "clientAuth" in refusal(lambda: identity.check("lab-2", now=NOW))


def test_a_key_that_others_can_read_is_warned_of(
    clinic: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    clinic.key.chmod(0o640)
    clinic.check("clinic", now=NOW)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"chmod 600 {clinic.key}" in caplog.text
    assert "0640" in caplog.text


def test_the_last_two_weeks_of_a_certificate_are_warned_of(
    clinic: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    clinic.check("clinic", now=NOW + 351 * DAY)
    assert not caplog.records
    clinic.check("clinic", now=NOW + 351 * DAY + SECOND)
    assert f"{clinic.certificate}: expires on 2032-05-03 12:00 UTC" in caplog.text


@settings(max_examples=60)
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_damaged_certificate_gives_an_error_for_people_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        make_authority(folder, "hospitals", now=NOW)
        make_certificate(folder, "clinic", now=NOW)
    clinic = Identity.of(folder, "clinic")
    der = bytearray(ssl.PEM_cert_to_DER_cert(clinic.certificate.read_text()))
    changed = der[place % len(der)] != byte
    der[place % len(der)] = byte
    damaged = folder / "damaged.pem"
    damaged.write_text(ssl.DER_cert_to_PEM_cert(bytes(der)))
    with contextlib.suppress(InputError):
        describe(damaged)
    with pytest.raises(InputError) if changed else contextlib.nullcontext():
        Identity(clinic.authority, damaged, clinic.key).check("clinic", now=NOW)


# TLS, which looks at the real clock


@pytest.fixture
def today(tmp_path: Path) -> Path:
    """A federation of two, five years old; its certificates are of today."""
    made = tmp_path / "today"
    make_authority(made, "hospitals", now=datetime.now(UTC) - 1825 * DAY)
    make_certificate(made, "clinic", hosts=["clinic.example", "10.0.0.7", "localhost"])
    make_certificate(made, "lab")
    return made


def context(identity: Identity, protocol: int) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(identity.authority)
    made.load_cert_chain(identity.certificate, identity.key)
    return made


def peer(connection: ssl.SSLSocket) -> str:
    certificate = connection.getpeercert() or {}
    return dict(entry for names in certificate["subject"] for entry in names)["commonName"]  # pyright: ignore


def serve(end: socket.socket, identity: Identity) -> str:
    with context(identity, ssl.PROTOCOL_TLS_SERVER).wrap_socket(end, server_side=True) as secure:
        secure.sendall(b"welcome")
        return peer(secure)


def connect(end: socket.socket, identity: Identity, host: str) -> str:
    with context(identity, ssl.PROTOCOL_TLS_CLIENT).wrap_socket(
        end, server_hostname=host
    ) as secure:
        # TLS 1.3: a server that refuses the client's certificate says so after the handshake
        assert secure.recv(7) == b"welcome"
        return peer(secure)


def handshake(server: Identity, client: Identity, host: str = "localhost") -> tuple[str, str]:
    """Whom each side sees, over a real connection; the error of the side that refused."""
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(10)
    with ThreadPoolExecutor(1) as pool, ends[0], ends[1]:
        served = pool.submit(serve, ends[0], server)
        try:
            seen = connect(ends[1], client, host)
        except ssl.SSLCertVerificationError:
            raise
        except OSError:
            served.result()  # the server refused: its error is the cause
            raise
        return served.result(), seen


@pytest.mark.parametrize("host", ["localhost", "clinic.example", "10.0.0.7"])
def test_two_parties_know_each_other_by_name(today: Path, host: str) -> None:
    clinic, lab = Identity.of(today, "clinic"), Identity.of(today, "lab")
    assert handshake(server=clinic, client=lab, host=host) == ("lab", "clinic")


def test_a_signed_request_is_as_good_as_a_made_certificate(today: Path, tmp_path: Path) -> None:
    csr = make_request(tmp_path / "home", "lab-2")
    pem = sign_request(today, csr)
    lab = Identity(today / "authority.pem", pem, tmp_path / "home" / "lab-2.key")
    lab.check("lab-2")
    assert handshake(server=lab, client=Identity.of(today, "clinic")) == ("clinic", "lab-2")


def test_a_host_that_is_not_in_the_certificate_is_refused(today: Path) -> None:
    clinic, lab = Identity.of(today, "clinic"), Identity.of(today, "lab")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.example'"):
        handshake(server=clinic, client=lab, host="other.example")


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_party_of_a_foreign_authority_is_refused_by_the_other_side(
    today: Path, tmp_path: Path, side: str
) -> None:
    make_authority(tmp_path / "foreign", "hospitals")
    foreign = make_certificate(tmp_path / "foreign", "clinic")
    intruder = Identity(today / "authority.pem", foreign.certificate, foreign.key)
    lab = Identity.of(today, "lab")
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(*((intruder, lab) if side == "server" else (lab, intruder)))


@pytest.mark.parametrize("side", ["server", "client"])
def test_an_expired_certificate_is_refused_by_the_other_side(today: Path, side: str) -> None:
    past = datetime.now(UTC) - 400 * DAY
    expired = make_certificate(today, "ward", now=past)
    assert "has expired" in refusal(lambda: expired.check("ward"))
    lab = Identity.of(today, "lab")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        handshake(*((expired, lab) if side == "server" else (lab, expired)))


def test_a_party_cannot_admit_others(
    today: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rogue = tmp_path / "rogue"
    rogue.mkdir()
    for suffix in ("key", "pem"):
        shutil.copy(today / f"clinic.{suffix}", rogue / f"authority.{suffix}")
    assert "not that of an authority" in refusal(lambda: make_certificate(rogue, "ward"))
    monkeypatch.setattr(
        "colonnade.federation.keys.certificates.check_is_authority", lambda *_: None
    )
    ward = make_certificate(rogue, "ward")
    chain = rogue / "chain.pem"
    chain.write_bytes(ward.certificate.read_bytes() + ward.authority.read_bytes())
    intruder = Identity(today / "authority.pem", chain, ward.key)
    with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA certificate"):
        handshake(server=Identity.of(today, "lab"), client=intruder)
