from __future__ import annotations

import pytest
from sympy import isprime

from colonnade.privacy.equality import PRIME, EqualityTest


def test_two_parties_learn_whether_their_secrets_are_equal() -> None:
    for theirs, equal in ((b"0110", True), (b"0111", False), (b"", False)):
        one, other = EqualityTest(b"0110", "a", "b"), EqualityTest(theirs, "b", "a")
        assert one.fits(other.element, other.proof(one.element)) is equal
        assert other.fits(one.element, one.proof(other.element)) is equal


def test_what_is_told_says_nothing_to_somebody_who_tries_all_secrets() -> None:
    """Elements of equal secrets differ from test to test, and a proof is that of one guess: a
    party that sent the element of a wrong guess cannot check another guess with the answer."""
    honest = EqualityTest(b"1", "a", "b")
    assert honest.element != EqualityTest(b"1", "a", "b").element
    guess = EqualityTest(b"0", "b", "a")
    answer = honest.proof(guess.element)
    assert not guess.fits(honest.element, answer)
    other_guess = EqualityTest(b"1", "b", "a")
    other_guess.exponent = guess.exponent
    assert not other_guess.fits(honest.element, answer)


@pytest.mark.parametrize("element", ["0", "1", f"{PRIME - 1:x}", f"{PRIME:x}", "zz", "f" * 1000])
def test_elements_that_would_tell_the_key_are_refused(element: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        EqualityTest(b"1", "a", "b").proof(element)


def test_the_prime_is_a_safe_one() -> None:
    assert isprime(PRIME)
    assert isprime((PRIME - 1) // 2)
