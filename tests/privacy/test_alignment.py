"""Keys and protocols of matching: what is found is the plain intersection, and no more is sent."""

from __future__ import annotations

import hashlib
import secrets
import unicodedata
from collections.abc import Sequence

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colonnade.errors import InputError
from colonnade.privacy.alignment import protocols
from colonnade.privacy.alignment.keys import (
    DuplicateKeys,
    Step,
    common_order,
    key_column,
    normalised,
    token,
)
from colonnade.privacy.alignment.protocols import (
    PART,
    Kind,
    NotOfThisProtocol,
    intersection,
    protocol,
)

pytest.importorskip("private_set_intersection")

NAMES = ("private", "plain")
STEPS: tuple[Step, ...] = ("trim", "nfc", "nfkc", "case", "zeros")
KEYS = st.text(max_size=12) | st.text("0012 ", max_size=6)


# ------------------------------------------------------------------------------------------- keys


def test_of_100_000_keys_those_that_repeat_are_counted_in_whatever_spelling() -> None:
    """Composed and decomposed, with spaces; rows without a key are no duplicates."""
    keys = [f"Zoë Müller {n}" for n in range(100_000)] + [""] * 1000
    again = [f" {unicodedata.normalize('NFD', keys[n])}" for n in (3, 70, 99_999, 3)]
    with pytest.raises(DuplicateKeys) as caught:
        key_column([*keys, *again])
    assert (caught.value.keys, caught.value.rows) == (3, 7)
    assert key_column(keys).empty == 1000


@given(st.lists(KEYS, max_size=30), st.lists(st.sampled_from(STEPS), unique=True))
def test_every_key_counts_once_and_empty_ones_are_counted(
    texts: list[str], steps: list[Step]
) -> None:
    known = [normalised(text, steps) for text in texts]
    there = [key for key in known if key.strip()]
    if len(set(there)) < len(there):
        with pytest.raises(DuplicateKeys) as caught:
            key_column(texts, steps)
        assert caught.value.keys == len({key for key in there if there.count(key) > 1})
        assert caught.value.rows == sum(there.count(key) > 1 for key in there)
        return
    found = key_column(texts, steps)
    assert list(found.keys) == there
    assert [known[row] for row in found.rows] == there
    assert found.empty == len(texts) - len(there)


@given(KEYS, st.permutations(STEPS))
def test_a_key_that_is_normalised_stays_as_it_is_whatever_the_order(
    key: str, steps: Sequence[Step]
) -> None:
    once = normalised(key, steps)
    assert normalised(once, STEPS) == once


def test_the_same_name_typed_in_two_ways_is_one_key() -> None:
    composed, decomposed = "Zoë", unicodedata.normalize("NFD", "Zoë")
    assert normalised(composed, ["nfc"]) == normalised(decomposed, ["nfc"])
    assert normalised(" Straße ", ["trim", "case"]) == normalised("STRASSE", ["trim", "case"])
    assert normalised("１７", ["nfkc"]) == "17"  # full-width digits
    assert normalised(" p1", []) == " p1"
    assert [normalised(key, ["zeros"]) for key in ("0017", "000", "0", "p017")] == [
        *("17", "0", "0", "p017")
    ]


def test_keys_are_numbers_only_if_all_are_written_as_whole_numbers() -> None:
    assert key_column(["17", "-3", "0"]).kind == "numbers"
    for odd in ("017", "17.0", "p17", "1e3"):
        assert key_column(["17", odd]).kind == "text"


def test_an_error_about_duplicates_counts_them_and_names_none() -> None:
    with pytest.raises(DuplicateKeys) as caught:
        key_column(["anna ", "anna", "Anna", "bert", "bert"], ["trim", "case"])
    assert str(caught.value) == "2 keys are those of more than one row, 5 rows in all"


@given(st.sets(KEYS, max_size=20), st.randoms())
def test_the_common_order_depends_on_keys_and_seed_only(keys: set[str], random) -> None:
    one = [token(key) for key in sorted(keys)]
    other = random.sample(one, len(one))
    assert [one[i] for i in common_order(one, 3)] == [other[i] for i in common_order(other, 3)]


# -------------------------------------------------------------------------------------- protocols


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(mine=st.sets(KEYS, max_size=40), theirs=st.sets(KEYS, max_size=40), both=st.sets(KEYS))
def test_a_protocol_finds_the_plain_intersection(
    name: str, mine: set[str], theirs: set[str], both: set[str]
) -> None:
    one, other = sorted(mine | both), sorted(theirs | both)
    found = intersection(
        protocol(name), [token(k) for k in one], [token(k) for k in other], secrets.token_bytes(16)
    )
    assert {one[i] for i in found} == set(one) & set(other)


def test_keys_in_several_parts_are_found_in_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "PART", 7)
    mine, theirs = [f"p{i}" for i in range(40)], [f"p{i}" for i in range(13, 90, 2)]
    for name in NAMES:
        found = intersection(protocol(name), mine, theirs, b"s" * 16)
        assert found == [i for i in range(40) if f"p{i}" in theirs]


def sent(kind: Kind, mine: list[str], theirs: list[str]) -> tuple[bytes, bytes]:
    """What leaves the asking side, and what leaves the answering side."""
    asking, answering = kind.asking(b"s" * 16), kind.answering(b"s" * 16)
    request = asking.request(mine)
    return request, answering.setup(theirs) + answering.answer(request, PART)


def test_what_is_sent_holds_no_key_and_no_hash_of_one() -> None:
    mine, theirs = [f"anna-{i}" for i in range(50)], [f"bert-{i}" for i in range(50)]
    tokens = [[token(key) for key in side] for side in (mine, theirs)]
    for transcript in sent(protocol("private"), *tokens):
        for key in (*mine, *theirs):
            for content in (key.encode(), token(key).encode(), bytes.fromhex(token(key))):
                assert content not in transcript
            for hashed in ("md5", "sha1", "sha256", "sha512", "blake2b"):
                for text in (key, token(key)):
                    digest = hashlib.new(hashed, text.encode())
                    assert digest.digest() not in transcript
                    assert digest.hexdigest().encode() not in transcript


def test_the_same_keys_look_different_in_every_run() -> None:
    keys = [token(f"p{i}") for i in range(20)]
    first, second = (sent(protocol("private"), keys, keys) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        elements = [{text[i : i + 33] for i in range(len(text) - 32)} for text in (one, other)]
        assert not elements[0] & elements[1]


def test_plain_matching_says_that_it_is_not_private() -> None:
    assert "not private" in protocol("plain").warning
    assert not protocol("private").warning


def _asks_for_nothing(message: bytes) -> bool:
    """Whether bytes are a request of the private protocol without any key."""
    from private_set_intersection import python as psi

    try:
        request = psi.Request.FromString(message)
    except DecodeError:
        return False
    return request.reveal_intersection and not request.encrypted_elements


@given(st.binary(max_size=300))
@example(b"")
@example(b"\x12\x03abc")  # a list of one element that is no point of the curve
@settings(deadline=None)
def test_garbage_is_refused_by_either_side(garbage: bytes) -> None:
    kind = protocol("private")
    asking, answering = kind.asking(b""), kind.answering(b"")
    if not _asks_for_nothing(garbage):
        with pytest.raises(NotOfThisProtocol):
            answering.answer(garbage, PART)
    with pytest.raises(NotOfThisProtocol):
        kind.asking(b"").learn([garbage], 3)
    asking.request([token("a")])
    asking.learn([answering.setup([token("a")])], 1)
    with pytest.raises(NotOfThisProtocol):
        asking.matched([token("a")], garbage)


@given(st.binary(max_size=300).filter(lambda garbage: len(garbage) != 96))
def test_hashes_of_another_number_or_length_are_refused(garbage: bytes) -> None:
    """Of salted hashes, only the number can be wrong: any 32 bytes may be one."""
    with pytest.raises(NotOfThisProtocol):
        protocol("plain").asking(b"s" * 16).learn([garbage], 3)


def test_a_request_for_more_keys_than_told_is_refused() -> None:
    kind = protocol("private")
    request = kind.asking(b"").request([token(str(i)) for i in range(5)])
    with pytest.raises(NotOfThisProtocol, match="too many"):
        kind.answering(b"").answer(request, 4)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_key_twice_is_refused(name: str) -> None:
    """A set that claims to be large, made of one element."""
    kind, salt = protocol(name), b"s" * 16
    asking, answering = kind.asking(salt), kind.answering(salt)
    one = token("ann")
    with pytest.raises(NotOfThisProtocol, match="the same key twice"):
        asking.learn([answering.setup([one]), answering.setup([one])], 2)
    if name == "private":
        with pytest.raises(NotOfThisProtocol, match="the same key twice"):
            answering.answer(asking.request([one, one]), 2)


def test_a_protocol_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="expected one of private, plain, spu"):
        protocol("psi")


def test_another_protocol_may_be_registered_under_a_known_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocols, "_kinds", dict(protocols._kinds))
    protocols.register("spu", lambda: protocol("plain"))
    keys = [token(str(i)) for i in range(4)]
    assert intersection(protocol("spu"), keys, keys[2:], b"s" * 16) == [2, 3]


def test_a_large_set_is_found_whole() -> None:
    """Of the size that the benchmark measures, without the elliptic curve."""
    random = np.random.default_rng(0)
    mine, theirs = (random.choice(200_000, 100_000, replace=False) for _ in range(2))
    found = intersection(
        protocol("plain"), [token(f"{i}") for i in mine], [token(f"{i}") for i in theirs], b"s" * 16
    )
    assert {int(mine[i]) for i in found} == set(mine.tolist()) & set(theirs.tolist())
