"""Primes for fields."""

from __future__ import annotations

MERSENNE_31 = 2**31 - 1


def is_prime(n: int) -> bool:
    """Miller and Rabin's test; with these bases it decides for every n below 3·10⁹."""
    if n < 2:
        return False
    bases = (2, 3, 5, 7)
    if any(n % base == 0 for base in bases):
        return n in bases
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    odd = (n - 1) >> twos
    return all(_passes(n, base, odd, twos) for base in bases)


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    x = pow(base, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


def prime_below(n: int) -> int:
    return next(m for m in range(n - 1, 1, -1) if is_prime(m))
