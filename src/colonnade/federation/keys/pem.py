"""Certificates, requests and private keys as PEM files, with errors for the person whose file it
is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from colonnade.common.private_files import private
from colonnade.errors import InputError

LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
MALFORMED = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
Signed = TypeVar("Signed", x509.Certificate, x509.CertificateSigningRequest)


def read_certificate(path: Path, hint: str = "") -> x509.Certificate:
    """`hint` tells what to do when there is no such file."""
    return _signed(path, "CERTIFICATE", x509.load_pem_x509_certificate, hint)


def read_request(path: Path) -> x509.CertificateSigningRequest:
    return _signed(path, "CERTIFICATE REQUEST", x509.load_pem_x509_csr)


def read_key(path: Path, hint: str = "") -> PrivateKeyTypes:
    data = _block(path, "PRIVATE KEY", hint)
    try:
        return load_pem_private_key(data, password=None)
    except TypeError as error:
        raise InputError(
            f"{path}: the private key has a passphrase, which nobody can type when a party "
            "restarts; store it without one, readable by its user only."
        ) from error
    except MALFORMED as error:
        raise _damaged(path, "private key", error) from error


def write_new(files: Mapping[Path, bytes]) -> None:
    """Write all of the files or none. An existing file is never overwritten: a lost key cannot be
    restored.

    A file has mode 600 from its creation on, so that no other user can ever read a private key.
    """
    for path in files:
        if os.path.lexists(path):
            raise InputError(
                f"{path}: exists already and is not overwritten, as what relies on it would stop "
                "working. To replace it, move it away first."
            )
    written: list[Path] = []
    for path, data in files.items():
        try:
            _write(path, data, written)
        except OSError as error:
            for partial in written:
                partial.unlink(missing_ok=True)
            raise InputError(f"{path}: cannot be written ({error.strerror}).") from error


def _of_keys(path: Path) -> bool:
    return path.suffix in (".key", ".pem", ".csr")


def _write(path: Path, data: bytes, written: list[Path]) -> None:
    mode = 0o600  # from the creation of the file on
    with (
        private(path.parent, _of_keys),
        open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file,
    ):
        written.append(path)
        file.write(data)


def _signed(path: Path, label: str, load: Callable[[bytes], Signed], hint: str = "") -> Signed:
    data = _block(path, label, hint)
    try:
        signed = load(data)
        # cryptography parses these fields when they are first read. Read them here, where an error
        # can name the file.
        _ = signed.subject, signed.extensions, signed.public_key(), signed.signature_hash_algorithm
    except MALFORMED as error:
        raise _damaged(path, label.lower(), error) from error
    return signed


def _block(path: Path, label: str, hint: str) -> bytes:
    """The bytes of a file that holds one PEM block, of this kind."""
    data = _read(path, hint)
    labels = [found.decode() for found in LABEL.findall(data)]
    if not labels:
        raise InputError(f"{path}: is not a PEM file; expected -----BEGIN {label}-----.")
    if len(labels) > 1 or not labels[0].endswith(label):
        raise InputError(f"{path}: holds {' + '.join(labels)}; expected one {label}.")
    return data


def _read(path: Path, hint: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file. {hint}".rstrip()) from error
    except PermissionError as error:
        raise InputError(
            f"{path}: cannot be read (permission denied); it must be readable by the user who "
            "runs this command."
        ) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def _damaged(path: Path, kind: str, error: Exception) -> InputError:
    reason = str(error).split("\n", 1)[0]
    return InputError(f"{path}: the {kind} in it cannot be understood ({reason}).")
