"""The certificates of a federation: one authority, one certificate per party.

Parties identify each other by mutual TLS. The common name of a certificate is the party's name, and
the access rules of the network use this name: the holder of the authority's key decides which key
belongs to which party. An organisation that keeps its private key to itself sends a request
(`make_request`) and gets a certificate back (`sign_request`).

    make_authority("keys", "hospitals")
    identity = make_certificate("keys", "clinic", hosts=["clinic.example", "10.0.0.7"])
    identity.check("clinic")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from colonnade.common.party_names import AUTHORITY, check_party
from colonnade.errors import InputError
from colonnade.federation.keys.identity import (
    BOTH_ENDS,
    Identity,
    check_dates,
    check_is_authority,
    is_authority,
    moment_of,
    warn_if_shared,
)
from colonnade.federation.keys.names import (
    alternative_names,
    authority_name,
    common_name,
    host_names,
    party_name,
)
from colonnade.federation.keys.pem import read_certificate, read_request, write_new

__all__ = [
    "Description",
    "Identity",
    "check_party",
    "describe",
    "make_authority",
    "make_certificate",
    "make_request",
    "sign_request",
]

LOCAL = ("localhost", "127.0.0.1")
SKEW = timedelta(hours=1)  # a party whose clock is late must not refuse a fresh certificate
LONGEST = 36500


@dataclass(frozen=True)
class Description:
    """What a certificate says, for a listing."""

    party: str
    hosts: tuple[str, ...]
    valid_from: datetime
    valid_to: datetime
    fingerprint: str  # SHA-256, as `openssl x509 -fingerprint -sha256` prints it
    is_authority: bool


def make_authority(
    folder: str | Path, name: str, *, days: int = 3650, now: datetime | None = None
) -> Path:
    """Write authority.key, which stays with the person who admits parties, and authority.pem, which
    every party gets. `name`: of the federation, for people to read."""
    files, key = Identity.of(folder, AUTHORITY), _new_key()
    start, end = _validity(days, moment_of(now))
    subject = authority_name(name)
    builder = _unsigned(subject, subject, key.public_key(), start, end, authority=True)
    write_new({files.key: _private(key), files.certificate: _signed(builder, key)})
    return files.certificate


def make_certificate(
    folder: str | Path,
    party: str,
    *,
    hosts: Iterable[str] = LOCAL,
    days: int = 365,
    now: datetime | None = None,
) -> Identity:
    """Writes <party>.key and <party>.pem, signed by the authority in the folder.

    `hosts` are the names and addresses at which others connect to the party. The certificate
    expires with the authority's own, if that is sooner.
    """
    check_party(party)
    key = _new_key()
    signed = _certified(folder, party, host_names(hosts), key.public_key(), days, moment_of(now))
    identity = Identity.of(folder, party)
    write_new({identity.key: _private(key), identity.certificate: signed})
    return identity


def make_request(folder: str | Path, party: str, hosts: Iterable[str] = LOCAL) -> Path:
    """Writes <party>.key, which stays here, and <party>.csr, which goes to the authority."""
    check_party(party)
    key = _new_key()
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(party_name(party))
        .add_extension(x509.SubjectAlternativeName(host_names(hosts)), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = Path(folder) / f"{party}.csr"
    pem = request.public_bytes(serialization.Encoding.PEM)
    write_new({Identity.of(folder, party).key: _private(key), path: pem})
    return path


def sign_request(
    folder: str | Path,
    csr_path: str | Path,
    *,
    days: int = 365,
    party: str | None = None,
    now: datetime | None = None,
) -> Path:
    """Writes <party>.pem for a request, with the authority in the folder.

    Only the name, the hosts and the public key are taken from the request: whatever else it asks
    for (to be an authority itself, say) is left out. A request names itself, so give `party` when
    you know from whom the file came.
    """
    csr_path = Path(csr_path)
    request = read_request(csr_path)
    key = _requested_key(csr_path, request)
    asking = common_name(csr_path, request.subject)
    check_party(asking, str(csr_path))
    if party is not None and asking != party:
        raise InputError(f"{csr_path}: asks for the name {asking!r}, not {party!r}.")
    names = _requested_names(csr_path, request)
    signed = _certified(folder, asking, names, key, days, moment_of(now))
    path = Identity.of(folder, asking).certificate
    write_new({path: signed})
    return path


def describe(path: str | Path) -> Description:
    path = Path(path)
    certificate = read_certificate(path)
    return Description(
        party=common_name(path, certificate.subject),
        hosts=tuple(str(name.value) for name in alternative_names(certificate.extensions)),
        valid_from=certificate.not_valid_before_utc,
        valid_to=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        is_authority=is_authority(certificate),
    )


def _requested_key(
    path: Path, request: x509.CertificateSigningRequest
) -> ec.EllipticCurvePublicKey:
    key = request.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InputError(f"{path}: the key is of another kind; expected an EC key on P-256.")
    if not request.is_signature_valid:
        raise InputError(
            f"{path}: the signature is wrong, so the request was changed on its way or its sender "
            "does not have the private key; ask for a new one."
        )
    return key


def _requested_names(path: Path, request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    asked = alternative_names(request.extensions)
    if not all(isinstance(name, x509.DNSName | x509.IPAddress) for name in asked):
        raise InputError(
            f"{path}: asks for alternative names that are neither host names nor IP addresses."
        )
    try:
        return host_names(str(name.value) for name in asked)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _certified(
    folder: str | Path,
    party: str,
    names: list[x509.GeneralName],
    key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime,
) -> bytes:
    authority, signer = _authority_in(folder, now)
    start, end = _validity(days, now)
    end = min(end, authority.not_valid_after_utc)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _unsigned(party_name(party), authority.subject, key, start, end, authority=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(BOTH_ENDS), critical=False)
        .add_extension(issuer, critical=False)
    )
    return _signed(builder, signer)


def _authority_in(
    folder: str | Path, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority in a folder. It is checked first: parties refuse what an invalid authority
    signs."""
    hint = "Make the authority first, or name the folder that holds its key."
    files = Identity.of(folder, AUTHORITY)
    certificate, key = files.read(hint)
    check_is_authority(files.certificate, certificate)
    check_dates(files.certificate, certificate, now)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{files.key}: the key is of another kind; expected an EC key.")
    warn_if_shared(files.key)
    return certificate, key


def _unsigned(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    start: datetime,
    end: datetime,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    """The fields of every certificate. An authority signs parties and no further authorities."""
    constraints = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(constraints, critical=True)
        .add_extension(_usage(authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _validity(days: int, now: datetime) -> tuple[datetime, datetime]:
    if not 1 <= days <= LONGEST:
        raise InputError(f"days: {days} is not possible; expected 1 to {LONGEST}.")
    return now - SKEW, now + timedelta(days=days)
