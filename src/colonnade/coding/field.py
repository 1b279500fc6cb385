"""Exact arithmetic modulo a prime, on tensors.

An element is the whole number of smallest absolute value in its residue class, |x| ≤ (p − 1)/2,
stored as int32 (4 bytes, as it travels). So a signed number of that size is its own element. (The
papers write p + x for a negative x: the same class.) Sums and products of single elements are
computed in int64. Matrix products are computed in float64, where BLAS is fast, and stay exact:

1. One operand is split into two halves of about 16 bits, b = b₁·2ʷ + b₀, and both halves are
   multiplied in one GEMM of double width. For p below about 2²⁴ the split is not needed.
2. The inner dimension is cut into chunks so short that no sum exceeds 2⁵³, up to which float64
   holds every whole number. The sum over each chunk is reduced modulo p.

For p = 2³¹ − 1 this costs about three float64 GEMMs of the same size (`python -m bench field`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from colonnade.coding.primes import MERSENNE_31, is_prime, prime_below
from colonnade.common.devices import to_device
from colonnade.common.randomness import Randomness
from colonnade.errors import InputError

EXACT = 2**53  # float64 holds every whole number up to this size
FEWEST = 64  # a chunk of the inner dimension shorter than this costs more than the split
BLOCK = 1 << 16  # numbers that are reduced at a time, so that they stay in the cache
MAPPED = 1 << 18  # results of `map` at a time: fewer calls, a tenth less time than with 1 << 16


@dataclass(frozen=True)
class Field:
    """The whole numbers modulo `prime`."""

    prime: int = MERSENNE_31

    def __post_init__(self) -> None:
        if not 3 <= self.prime <= MERSENNE_31:
            raise InputError(
                f"prime = {self.prime}: expected a prime from 3 to {MERSENNE_31} (2³¹ − 1), the "
                "largest whose elements travel as 4-byte integers"
            )
        if not is_prime(self.prime):
            raise InputError(
                f"prime = {self.prime}: is not a prime; the next one below is "
                f"{prime_below(self.prime)}"
            )

    @property
    def largest(self) -> int:
        """The largest absolute value of an element."""
        return (self.prime - 1) // 2

    def element(self, x: Tensor) -> Tensor:
        """Whole numbers (of any dtype) as elements. Larger ones than `largest` would be taken for
        others: they are an error."""
        if x.numel() and not self.holds(x):
            raise OverflowError(
                f"a number of size {float(x.abs().max()):.0f} is no element modulo {self.prime}; "
                f"the limit is ±{self.largest}"
            )
        return x.int()

    def holds(self, x: Tensor) -> bool:
        """Whether all numbers are elements."""
        return -self.largest <= float(x.min()) and float(x.max()) <= self.largest

    def random(self, shape: Sequence[int], source: Randomness) -> Tensor:
        """Uniform and independent elements: numbers of as many bits as the prime has, those that
        are not below the prime drawn again."""
        return self.random_by_source(shape, [source])[0]

    def random_by_source(self, shape: Sequence[int], sources: Sequence[Randomness]) -> Tensor:
        """The same from each of some sources. [sources, …]"""
        wanted = torch.Size(shape).numel()
        shift = 32 - self.prime.bit_length()
        drawn = np.stack([source.words(wanted) for source in sources]) >> shift
        while (bad := drawn >= self.prime).any():
            for row in np.unique(np.nonzero(bad)[0]).tolist():
                drawn[row, bad[row]] = sources[row].words(int(bad[row].sum())) >> shift
        # Modulo 2³², as which two's complement reads a difference below 0.
        elements = torch.from_numpy((drawn - np.uint32(self.largest)).view(np.int32))
        return to_device(elements.view(len(sources), *shape))

    # -- arithmetic -------------------------------------------------------------------------------

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self.reduced(a.long() + b.long())

    def subtract(self, a: Tensor, b: Tensor) -> Tensor:
        return self.reduced(a.long() - b.long())

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Element by element."""
        return self.reduced(a.long() * b.long())

    def total(self, x: Tensor, dim: int) -> Tensor:
        return self.reduced(x.long().sum(dim))

    def inverse(self, x: int) -> int:
        return pow(x, -1, self.prime)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of [..., n, k] and [..., k, m]; leading axes are broadcast."""
        return self.product(a, b).int()

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """`matmul` of elements as int32 or float64; the result is float64. The smaller operand is
        split."""
        if not self._split:
            return self._balance(self._chunked(a.double(), b.double(), self.largest))
        if b.numel() > a.numel():
            return self._joined(self._chunked(self._halves(a, -2), b.double(), self._largest_half))
        both = self._chunked(a.double(), self._halves(b, -1), self._largest_half)
        return self._joined(both, -1)

    def map(self, matrix: Tensor, values: Tensor) -> Tensor:
        """`matmul` of a small matrix and very many columns, of as many at a time as stay in the
        cache."""
        rows, inner = matrix.shape
        if (inner + 1) * int(matrix.abs().sum(1).max()) * self.largest <= EXACT // 4:
            return self._map_blocks(matrix.double(), values, Tensor.double, self._of_small)
        products = 2 * inner * self.largest * self._largest_half
        if rows > inner and products <= self._surely_balanced:
            # m·b = (m·2ʷ)·b₁ + m·b₀: with m·2ʷ modulo p, one sum of twice as many products.
            both = torch.cat([self.reduced(matrix.long() * 2**self._half), matrix], 1).double()
            halves = lambda some: self._halves(some, -2)  # noqa: E731
            return self._map_blocks(both, values, halves, self._of_large)
        mapped = torch.empty(rows, values.shape[1], dtype=torch.int32)
        halves = self._halves(matrix, -2) if self._split else matrix.double()
        largest = self._largest_half if self._split else self.largest
        step = max(1, BLOCK // rows)
        for some, result in zip(values.split(step, 1), mapped.split(step, 1), strict=True):
            found = self._chunked(halves, some.double(), largest)
            result.copy_(self._joined(found) if self._split else self._balance(found))
        return mapped

    def _map_blocks(
        self,
        matrix: Tensor,
        values: Tensor,
        prepared: Callable[[Tensor], Tensor],
        multiply: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """`map` with values made ready by `prepared` and multiplied by `multiply`, which is given
        the matrix, some columns and room for the result."""
        mapped = torch.empty(len(matrix), values.shape[1], dtype=torch.int32)
        step = max(1, MAPPED // len(matrix))
        room = torch.empty(len(matrix) * step, dtype=torch.float64)  # used again and again
        for some, results in zip(values.split(BLOCK, 1), mapped.split(BLOCK, 1), strict=True):
            pairs = zip(prepared(some).split(step, 1), results.split(step, 1), strict=True)
            for columns, result in pairs:
                sums = room[: result.numel()].view(result.shape)
                result.copy_(multiply(matrix, columns, sums))
        return mapped

    def _of_small(self, matrix: Tensor, columns: Tensor, room: Tensor) -> Tensor:
        """The quotients first, x = mc/p rounded, then mc − px, without other memory: a quarter
        faster than `_of_large`. A quotient is wrong by one rounding of m/p and one for each product
        that is added: in all by less than 1/4p, see `_surely_balanced`."""
        torch.mm(matrix / self.prime, columns, out=room).round_()
        return torch.addmm(room, matrix, columns, beta=-self.prime, out=room)

    def _of_large(self, matrix: Tensor, columns: Tensor, room: Tensor) -> Tensor:
        return self._balance(torch.mm(matrix, columns, out=room))

    def _joined(self, both: Tensor, side: int = -2) -> Tensor:
        """The product that was made of upper and lower halves, one after the other."""
        high, low = both.chunk(2, side)
        return self._balance(low.add_(self._balance(high), alpha=2.0**self._half))

    def _halves(self, x: Tensor, side: int) -> Tensor:
        """Upper and lower halves of elements as float64, one after the other. Shifts of integers
        are several times as fast as rounding."""
        half = self._half
        x = x.int()
        high = (x + (1 << (half - 1))) >> half
        size = x.shape[side]
        shape = [*x.shape]
        shape[side] = 2 * size
        both = torch.empty(shape, dtype=torch.float64)
        both.narrow(side, 0, size).copy_(high)
        both.narrow(side, size, size).copy_(x - (high << half))
        return both

    def _chunked(self, a: Tensor, b: Tensor, largest: int) -> Tensor:
        """a @ b modulo the prime, where the elements of one are halves, |x| ≤ `largest`. Not always
        balanced, but so small that adding a balanced number times 2ʷ and balancing gives the
        element."""
        inner, room = a.shape[-1], EXACT - (self.largest << self._half)
        count = max(1, -(-inner // (room // (self.largest * largest))))
        size = -(-inner // count)
        total = a[..., :size] @ b[..., :size, :]
        if count > 1 or size * self.largest * largest > self._surely_balanced // 2:
            self._balance(total)
        for start in range(size, inner, size):
            end = start + size
            total += self._balance(a[..., start:end] @ b[..., start:end, :])
        return total

    def _balance(self, x: Tensor) -> Tensor:
        """In place, given whole numbers |x| ≤ 2⁵³ − p: the same modulo p, and |x| ≤ (p + 1)/2. The
        multiple of p that is subtracted has at most 53 bits, so nothing is rounded. The result is
        the element itself, |x| ≤ (p − 1)/2, for |x| ≤ `_surely_balanced`."""
        for block in x.view(-1).split(BLOCK) if x.is_contiguous() else (x,):
            block.sub_((block * (1.0 / self.prime)).round_(), alpha=self.prime)
        return x

    def reduced(self, x: Tensor) -> Tensor:
        """Whole numbers (int64) modulo the prime."""
        x = x.remainder(self.prime)
        return torch.where(x > self.largest, x - self.prime, x).int()

    @cached_property
    def _surely_balanced(self) -> int:
        """Of larger numbers x, float64 may not tell x/p from the half between two whole numbers.
        (x/p is at least 1/2p away from it. The quotient is wrong by a rounding of the product and
        one of 1/p.) 2⁵² for p = 2³¹ − 1, at least 2⁵¹ for others."""
        of_inverse = abs(Fraction(1.0 / self.prime) * self.prime - 1)
        return int(1 / (2 * (Fraction(1, EXACT) + of_inverse))) - 1

    @property
    def _split(self) -> bool:
        return EXACT // self.largest**2 < FEWEST

    @cached_property
    def _half(self) -> int:
        """Bits of the lower half of an element."""
        return -(-self.prime.bit_length() // 2)

    @cached_property
    def _largest_half(self) -> int:
        return 2 ** (self._half - 1)
