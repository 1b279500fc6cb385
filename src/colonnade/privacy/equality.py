"""Do two parties hold the same secret? They learn that, and nothing else of each other's.

A digest of few labels tells them: whoever receives it tries all values. So the two agree on a key
in the way of SPEKE (Jablon, 1996): each secret is hashed to a generator g of a group in which
discrete logarithms are hard, a party sends g^a with a random a, and both have the same key g^ab if
their secrets are equal. A proof of the key follows. Whoever does not know the secret can try out
one guess by each element that it sends, and none afterwards, at home.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import cached_property

# A safe prime of 2,048 bits: group 14 of RFC 3526.
PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
BYTES = PRIME.bit_length() // 8


class EqualityTest:
    """One party's side of one comparison with another one."""

    def __init__(self, secret: bytes, me: str, other: str) -> None:
        self.secret, self.me, self.other = secret, me, other
        self.exponent = secrets.randbits(256)

    @cached_property
    def element(self) -> str:
        """What the other party is told, in hexadecimal digits."""
        pair = "\x1f".join(sorted((self.me, self.other))).encode()
        hashed = hashlib.shake_256(pair + b"\x1f" + self.secret).digest(BYTES)
        generator = pow(int.from_bytes(hashed, "big"), 2, PRIME)
        return f"{pow(generator, self.exponent, PRIME):x}"

    def proof(self, element: str) -> str:
        """That this party has the key which follows from the other one's element."""
        return self._proof(element, self.me, self.element, element)

    def fits(self, element: str, proof: str) -> bool:
        """Whether the other party's proof is that of the same key."""
        expected = self._proof(element, self.other, element, self.element)
        return secrets.compare_digest(proof.encode(), expected.encode())

    def _proof(self, element: str, who: str, *elements: str) -> str:
        key = pow(_number(element), 2 * self.exponent, PRIME)
        content = "\x1f".join([f"{key:x}", who, *elements])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _number(element: str) -> int:
    if len(element) > 2 * BYTES:
        raise ValueError("an element that is too long")
    number = int(element, 16)
    if not 1 < number < PRIME - 1:
        raise ValueError("an element that would tell the key")
    return number
