"""Matching by salted hashes. NOT private: the salt is known to both sides, so whoever gets the
hashes tries all keys that there may be (all dates of birth, all telephone numbers) and knows which
of them the other side has. For data whose keys are no secret, and for comparison."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from colonnade.privacy.alignment.protocols import NotOfThisProtocol

SIZE = 32  # bytes of a hash
WARNING = (
    'rows.match = "plain" is not private: the label holder gets salted hashes of all keys of every '
    'party, and can try out any key. match = "private" hides them'
)


class AskingSalted:
    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self.theirs: set[bytes] = set()

    def request(self, keys: Sequence[str]) -> bytes:
        return b""

    def learn(self, setups: Sequence[bytes], count: int) -> None:
        if any(len(one) % SIZE for one in setups) or sum(map(len, setups)) != count * SIZE:
            raise NotOfThisProtocol("bytes that are no list of so many hashes")
        for one in setups:
            self.theirs |= {one[i : i + SIZE] for i in range(0, len(one), SIZE)}
        if len(self.theirs) < count:
            raise NotOfThisProtocol("the same key twice")

    def matched(self, keys: Sequence[str], answer: bytes) -> list[int]:
        return [i for i, key in enumerate(keys) if salted(key, self.salt) in self.theirs]


class AnsweringSalted:
    def __init__(self, salt: bytes) -> None:
        self.salt = salt

    def setup(self, keys: Sequence[str]) -> bytes:
        return b"".join(salted(key, self.salt) for key in keys)

    def answer(self, request: bytes, most: int) -> bytes:
        return b""


def salted(key: str, salt: bytes) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=SIZE, key=salt).digest()
