"""Private set intersection by elliptic-curve Diffie-Hellman, of the package openmined-psi.

Each side has a secret exponent; H hashes a key to a point of the curve P-256. The answering side
sends H(y)^b for its keys, the asking side H(x)^a, and gets H(x)^ab back, from which it takes its
own exponent off: x is common if H(x)^b is among the H(y)^b. Meadows, "A more efficient
cryptographic matchmaking protocol for use in the absence of a continuously available third party",
IEEE S&P 1986; Huberman, Franklin and Hogg, "Enhancing privacy and trust in electronic communities",
EC 1999. Private against sides that follow the protocol, if the decisional Diffie-Hellman problem is
hard and H is a random oracle.

The elements of the answering side are sent as they are (`RAW`): 35 bytes each, and no key matches
by mistake. A compressed set takes 6 bytes, and matches by mistake with a small probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from private_set_intersection import python as psi

from colonnade.privacy.alignment.protocols import NotOfThisProtocol

UNUSED = 1e-9  # a share of wrong matches, which elements without compression do not have


class AskingEcdh:
    def __init__(self, salt: bytes) -> None:
        self.side: Any = psi.client.CreateWithNewKey(True)
        self.theirs: Any = psi.ServerSetup()

    def request(self, keys: Sequence[str]) -> bytes:
        return self.side.CreateRequest(list(keys)).SerializeToString()

    def learn(self, setups: Sequence[bytes], count: int) -> None:
        elements: list[bytes] = []
        for one in setups:
            elements += _parsed(psi.ServerSetup(), one).raw.encrypted_elements
        if len(elements) != count:
            raise NotOfThisProtocol("another number of keys than it told")
        if len(set(elements)) < count:
            raise NotOfThisProtocol("the same key twice")
        self.theirs.raw.encrypted_elements.extend(sorted(elements))

    def matched(self, keys: Sequence[str], answer: bytes) -> list[int]:
        told = _parsed(psi.Response(), answer)
        if len(told.encrypted_elements) != len(keys):
            raise NotOfThisProtocol("an answer about another number of keys")
        if not self.theirs.raw.encrypted_elements or not keys:
            return []
        try:
            return sorted(self.side.GetIntersection(self.theirs, told))
        except RuntimeError as error:
            raise NotOfThisProtocol(f"no points of the curve ({_first_line(error)})") from error


class AnsweringEcdh:
    def __init__(self, salt: bytes) -> None:
        self.side: Any = psi.server.CreateWithNewKey(True)

    def setup(self, keys: Sequence[str]) -> bytes:
        raw = psi.DataStructure.RAW
        return self.side.CreateSetupMessage(UNUSED, 1, list(keys), raw).SerializeToString()

    def answer(self, request: bytes, most: int) -> bytes:
        asked = _parsed(psi.Request(), request)
        if len(asked.encrypted_elements) > most:
            raise NotOfThisProtocol("a request for too many keys")
        if len(set(asked.encrypted_elements)) < len(asked.encrypted_elements):
            raise NotOfThisProtocol("a request for the same key twice")
        try:
            return self.side.ProcessRequest(asked).SerializeToString()
        except RuntimeError as error:
            raise NotOfThisProtocol(f"no points of the curve ({_first_line(error)})") from error


def _parsed(message: Any, data: bytes) -> Any:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise NotOfThisProtocol("bytes that cannot be read") from error
    return message


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
