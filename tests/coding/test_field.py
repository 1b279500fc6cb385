"""Arithmetic modulo a prime is exact for every input; Python's integers are the oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.coding import Field, Quantiser, SeededRandomness, SystemRandomness
from colonnade.coding.primes import MERSENNE_31, is_prime, prime_below
from colonnade.errors import InputError

# One GEMM; one GEMM in chunks; two halves; the largest without and with a full top bit.
PRIMES = [3, 257, 65_537, 4_194_301, 8_388_593, 16_777_213, 67_108_859, 1_073_741_789, MERSENNE_31]


def stream(seed: int = 0) -> SeededRandomness:
    return SeededRandomness(np.random.default_rng(seed))


def exact(a: Tensor, b: Tensor, prime: int) -> np.ndarray:
    """The product by Python's integers, from 0 to p − 1."""
    return np.matmul(a.numpy().astype(object), b.numpy().astype(object)) % prime


@given(st.sampled_from(PRIMES), st.integers(1, 5), st.integers(1, 900), st.integers(0, 2**32))
def test_a_matrix_product_is_exact(prime: int, rows: int, inner: int, seed: int) -> None:
    field = Field(prime)
    a = field.random((rows, inner), stream(seed))
    b = field.random((inner, 3), stream(seed + 1))
    assert (field.matmul(a, b).numpy() % prime == exact(a, b, prime)).all()


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("inner", [1, 63, 64, 255, 256, 257, 783, 784, 4096])
def test_a_matrix_product_of_the_largest_elements_is_exact(prime: int, inner: int) -> None:
    field = Field(prime)
    half = 2 ** (field._half - 1)  # where the two halves of an element are largest
    extreme = [field.largest, -field.largest, field.largest - 1, half, -half, half - 1, 1, 0]
    extreme = [x for x in extreme if abs(x) <= field.largest]
    a = torch.tensor(extreme, dtype=torch.int32)[:, None].expand(-1, inner)
    found = field.matmul(a, a.t())
    assert (found.numpy() % prime == exact(a, a.t(), prime)).all()
    assert field.holds(found)


def test_leading_axes_are_those_of_clients() -> None:
    field = Field()
    a, b = field.random((4, 1, 5, 300), stream()), field.random((3, 300, 2), stream(1))
    found = field.matmul(a, b)
    assert found.shape == (4, 3, 5, 2)
    for i in range(4):
        for j in range(3):
            assert torch.equal(found[i, j], field.matmul(a[i, 0], b[j]))


@given(st.sampled_from(PRIMES), st.lists(st.integers(-(2**31), 2**31), min_size=2, max_size=2))
def test_sums_differences_and_products_of_elements_are_exact(prime: int, ab: list[int]) -> None:
    field = Field(prime)
    a, b = (torch.tensor([x % prime - field.largest], dtype=torch.int32) for x in ab)
    x, y = int(a), int(b)
    for found, wanted in (
        (field.add(a, b), x + y),
        (field.subtract(a, b), x - y),
        (field.multiply(a, b), x * y),
        (field.total(torch.stack([a, b, b]), 0), x + 2 * y),
    ):
        assert field.holds(found)
        assert int(found) % prime == wanted % prime
    if x % prime:
        assert field.inverse(x) * x % prime == 1


@pytest.mark.parametrize("prime", [3, 257, 1_500_000_001])
@pytest.mark.parametrize("source", [stream(7), SystemRandomness()], ids=["seeded", "system"])
def test_random_elements_are_uniform(
    prime: int, source: SeededRandomness | SystemRandomness
) -> None:
    field = Field(prime_below(prime + 1))
    drawn = field.random((30_000,), source).long() + field.largest
    boxes = min(field.prime, 16)
    count = torch.bincount(drawn * boxes // field.prime, minlength=boxes).double()
    first = -(-torch.arange(boxes + 1) * field.prime // boxes)  # element of each box
    expected = 30_000 * first.diff() / field.prime
    chi_square = float(((count - expected).square() / expected).sum())
    assert chi_square < 50  # 15 degrees of freedom: once in 100,000 trials


def test_a_number_beyond_the_field_is_an_error_and_not_another_number() -> None:
    field = Field(257)
    assert field.element(torch.tensor([128, -128])).tolist() == [128, -128]
    with pytest.raises(OverflowError, match="size 129 is no element modulo 257; the limit is ±128"):
        field.element(torch.tensor([3, -129]))


@pytest.mark.parametrize(
    ("prime", "message"),
    [
        (2**31 - 2, "prime = 2147483646: is not a prime; the next one below is 2147483629"),
        (1, "prime = 1: expected a prime from 3"),
        (2**61 - 1, "4-byte integers"),
    ],
)
def test_what_is_no_prime_or_too_large_is_refused(prime: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Field(prime)


def test_primes_are_told_from_others() -> None:
    sieve = [n for n in range(2, 3000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(3000) if is_prime(n)] == sieve
    strong_pseudoprimes = (2047, 1_373_653, 25_326_001)  # to base 2; 2, 3; 2, 3, 5
    assert not any(map(is_prime, strong_pseudoprimes))
    assert is_prime(MERSENNE_31)


@given(st.lists(st.floats(-1000, 1000), min_size=1), st.integers(0, 16))
def test_quantised_numbers_come_back_within_half_a_step(numbers: list[float], bits: int) -> None:
    quantiser, x = Quantiser(Field(), bits), torch.tensor(numbers, dtype=torch.float64)
    assert float((quantiser.real(quantiser.nearest(x)) - x).abs().max()) <= 2.0 ** -(bits + 1)


def test_halves_are_rounded_up() -> None:
    halves = torch.tensor([0.5, -0.5, 1.5, -1.5])
    assert Quantiser(Field(), 0).nearest(halves).tolist() == [1, 0, 2, -1]


def test_random_rounding_has_the_right_mean() -> None:
    quantiser, x = Quantiser(Field(), 2), torch.full((40_000,), 0.3)
    chance = torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    rounded = quantiser.real(quantiser.rounded(x, chance))
    assert set(rounded.tolist()) == {0.25, 0.5}
    assert float(rounded.mean()) == pytest.approx(0.3, abs=4 * 0.1 / 200)


def test_the_limit_of_a_quantiser_is_the_last_number_that_it_takes() -> None:
    quantiser = Quantiser(Field(257), 3)
    limit = torch.tensor([quantiser.limit, -quantiser.limit])
    assert torch.equal(quantiser.real(quantiser.nearest(limit)), limit.double())
    with pytest.raises(OverflowError):
        quantiser.nearest(limit + 0.25)


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("small", [True, False], ids=["small numbers", "any numbers"])
@pytest.mark.parametrize("shape", [(7, 2), (3, 9), (200, 160)], ids=str)
def test_a_map_of_many_columns_is_the_matrix_product(
    prime: int, small: bool, shape: tuple[int, int]
) -> None:
    """Whatever is split: neither, the values or the matrix."""
    field = Field(prime)
    matrix = field.random(shape, stream())
    matrix = matrix.clamp(-9, 9) if small else matrix
    values = field.random((shape[1], 500), stream(1))
    values[:, 0], values[:, 1] = field.largest, -field.largest
    found = field.map(matrix, values)
    assert torch.equal(found, field.matmul(matrix, values))
    assert (found[:, :9].numpy() % prime == exact(matrix, values[:, :9], prime)).all()


@pytest.mark.parametrize("prime", [3, 257, MERSENNE_31])
def test_elements_of_several_sources_are_those_of_each_alone(prime: int) -> None:
    field = Field(prime)
    together = field.random_by_source((5, 7), [stream(n) for n in range(3)])
    alone = [field.random((5, 7), stream(n)) for n in range(3)]
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("prime", PRIMES[2:])
def test_a_sum_next_to_half_the_prime_is_its_element_however_large_it_was(prime: int) -> None:
    """There, one unit decides between the largest element and the smallest. One chunk of the inner
    dimension holds sums up to 2⁵³, of which float64 cannot always tell x/p from a half."""
    field = Field(prime)
    largest_half = field._largest_half - 1 if field._split else field.largest
    most = 2**53 // (field.largest * largest_half)
    for inner in {min(most, 4096) * part // 64 for part in range(1, 65)} - {0}:
        for wanted in (field.largest, -field.largest):
            a = torch.full((1, inner + 1), field.largest, dtype=torch.int32)
            b = torch.full((inner + 1, 1), largest_half, dtype=torch.int32)
            a[0, -1] = field.reduced(torch.tensor(wanted - inner * field.largest * largest_half))
            b[-1] = 1
            assert int(field.matmul(a, b)) == wanted
            assert field.map(a, b.expand(-1, 3).contiguous()).tolist() == [[wanted] * 3]
