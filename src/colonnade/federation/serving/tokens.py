"""The token that a program shows in order to be told predictions: one line in a private file."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from colonnade.common.files import replacing
from colonnade.common.private_files import OTHERS
from colonnade.errors import InputError

FEWEST = 24  # characters: about 128 bits of the usual alphabets


def new_token(path: Path) -> None:
    """Write a new token for this user of the machine only; the one before is void."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = os.umask(OTHERS)
    try:
        with replacing(path) as partial:
            partial.touch(mode=0o600)
            partial.write_text(secrets.token_urlsafe(32) + "\n", encoding="ascii")
    finally:
        os.umask(before)


def read_token(path: Path) -> bytes:
    try:
        mode, text = stat.S_IMODE(path.stat().st_mode), path.read_bytes().strip()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); --new-token makes a token"
        ) from None
    if mode & OTHERS:
        raise InputError(
            f"{path}: other users of this machine can read it (mode {mode:04o}); chmod 600 {path}, "
            "and make a new token with --new-token"
        )
    if len(text) < FEWEST or not text.isascii() or b" " in text or b"\n" in text:
        raise InputError(
            f"{path}: is no token; expected one line of {FEWEST} or more letters, digits and signs,"
            " as --new-token makes it"
        )
    return text


def shows(header: bytes, token: bytes) -> bool:
    """Whether an Authorization header shows the token. Digests of equal length are compared, in a
    time that does not depend on where they differ."""
    scheme, _, given = header.partition(b" ")
    same = hmac.compare_digest(_digest(given.strip()), _digest(token))
    return same and scheme.lower() == b"bearer"


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
