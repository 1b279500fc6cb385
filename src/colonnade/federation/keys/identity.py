"""The identity of a party: the files that prove it, and checks of these files before the party
connects."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from colonnade.common.party_names import AUTHORITY
from colonnade.errors import InputError
from colonnade.federation.keys.names import common_name
from colonnade.federation.keys.pem import read_certificate, read_key

log = logging.getLogger(__name__)

SOON = timedelta(days=14)
BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
MAKE = "`colonnade keys make FEDERATION.toml` makes those of a trial; see `colonnade keys --help`."


@dataclass(frozen=True)
class Identity:
    """The three files by which a party proves its identity and checks those of the others."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, folder: str | Path, party: str) -> Self:
        """The files as `colonnade.federation.keys.certificates` names them."""
        folder = Path(folder)
        return cls(folder / f"{AUTHORITY}.pem", folder / f"{party}.pem", folder / f"{party}.key")

    def check(self, party: str, now: datetime | None = None) -> None:
        """Refuse files that would otherwise cause a TLS error without a party's name in the log of
        the other side. Warn of an early expiry, and of a key that other users can read.
        """
        moment = moment_of(now)
        authority = read_certificate(self.authority, MAKE)
        check_is_authority(self.authority, authority)
        certificate, _ = self.read(MAKE)
        _check_owner(self.certificate, certificate, party)
        _check_both_ends(self.certificate, certificate)
        self._check_issuer(certificate, authority)
        for path, dated in ((self.authority, authority), (self.certificate, certificate)):
            check_dates(path, dated, moment)
            _warn_of_end(path, dated, moment)
        warn_if_shared(self.key)

    def read(self, hint: str = "") -> tuple[x509.Certificate, PrivateKeyTypes]:
        """The certificate and its key. `hint` tells what to do when a file is missing."""
        certificate, key = read_certificate(self.certificate, hint), read_key(self.key, hint)
        if key.public_key() != certificate.public_key():
            raise InputError(
                f"{self.key}: does not belong to the certificate {self.certificate}; the two must "
                "have been made together."
            )
        return certificate, key

    def _check_issuer(self, certificate: x509.Certificate, authority: x509.Certificate) -> None:
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
            raise InputError(
                f"{self.certificate}: is not signed by the authority {self.authority}; every party "
                "of a federation needs a certificate of the same authority."
            ) from error


def moment_of(now: datetime | None) -> datetime:
    return (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca


def check_is_authority(path: Path, certificate: x509.Certificate) -> None:
    if not is_authority(certificate):
        raise InputError(
            f"{path}: is a certificate, but not that of an authority; expected the authority.pem "
            "of the federation."
        )


def _check_owner(path: Path, certificate: x509.Certificate, party: str) -> None:
    owner = common_name(path, certificate.subject)
    if owner != party:
        raise InputError(f"{path}: is the certificate of {owner!r}, not of {party!r}.")


def _check_both_ends(path: Path, certificate: x509.Certificate) -> None:
    """A party listens and connects. Certificates of an organisation's own authority are often for
    servers only."""
    try:
        uses = list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return  # no restriction
    if not set(BOTH_ENDS) <= set(uses):
        raise InputError(
            f"{path}: is not made for both ends of a connection; expected the extended key usages "
            "serverAuth and clientAuth."
        )


def check_dates(path: Path, certificate: x509.Certificate, now: datetime) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if start <= now <= end:
        return
    state = "is not valid yet" if now < start else "has expired"
    advice = "" if now < start else " Else, have a new one made."
    raise InputError(
        f"{path}: {state}: it is valid from {_date(start)} to {_date(end)}, and this machine's "
        f"clock says {_date(now)}. If the clock is wrong, set it.{advice}"
    )


def _warn_of_end(path: Path, certificate: x509.Certificate, now: datetime) -> None:
    end = certificate.not_valid_after_utc
    if end - now < SOON:
        log.warning("%s: expires on %s; have a new one made before that.", path, _date(end))


def warn_if_shared(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        log.warning(
            "%s: other users of this machine can read this private key (mode %04o); "
            "run: chmod 600 %s",
            path,
            mode,
            path,
        )
