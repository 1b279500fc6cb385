"""Exact products modulo a prime, beside a float64 product of the same size, which is inexact, and
beside the ways a researcher would take: int64 with a reduction after each step of the inner
dimension, and python-flint and galois where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
from torch import Tensor

from bench.timing import Figure, Target, Variant, compare, milliseconds, take_turns
from colonnade.coding import Field, SystemRandomness

ROWS, INNER, COLUMNS = 4096, 784, 128
REPEATS = 15
FACTOR = 3.2  # float64 products that an exact one may cost


def run() -> list[Figure]:
    field = Field()
    a, b = (field.random(size, SystemRandomness()) for size in ((ROWS, INNER), (INNER, COLUMNS)))
    x, y = a.double(), b.double()
    variants = {
        "float64, inexact": lambda: x @ y,
        "exact": lambda: field.matmul(a, b),
        "exact, of elements as float64": lambda: field.product(x, y),
    }
    figures = _measured(variants, REPEATS, Target(FACTOR, at_least=False))
    slow = {"int64, step by step": lambda: step_by_step(a, b, field.prime), **_libraries(a, b)}
    return figures + _measured({"float64, inexact": lambda: x @ y, **slow}, 1, None)[1:]


def step_by_step(a: Tensor, b: Tensor, prime: int) -> Tensor:
    a, b = a.long(), b.long()
    total = torch.zeros(len(a), b.shape[1], dtype=torch.int64)
    for k in range(a.shape[1]):
        total = (total + a[:, k, None] * b[k]) % prime
    return total


def _libraries(a: Tensor, b: Tensor) -> dict[str, Callable[[], object]]:
    """Those that are installed, with their conversion of the operands."""
    found: dict[str, Callable[[], object]] = {}
    prime = Field().prime
    if find_spec("flint"):
        import flint  # pyright: ignore[reportMissingImports]

        matrix = lambda x: flint.nmod_mat(*x.shape, x.flatten().tolist(), prime)  # noqa: E731
        found["python-flint"] = lambda: matrix(a % prime) * matrix(b % prime)
    if find_spec("galois"):
        import galois  # pyright: ignore[reportMissingImports]

        kind = galois.GF(prime)
        found["galois"] = lambda: kind((a % prime).numpy()) @ kind((b % prime).numpy())
    return found


def _measured(
    variants: Mapping[str, Callable[[], object]], repeats: int, target: Target | None
) -> list[Figure]:
    def repeated(work: Callable[[], object]) -> Variant:
        return Variant(lambda n: [work() for _ in range(n)], 1)

    turns = take_turns({name: repeated(work) for name, work in variants.items()}, repeats)
    plain, *others = turns
    return [Figure("field", plain, milliseconds(turns, plain))] + [
        Figure(
            "field",
            name,
            milliseconds(turns, name),
            "float64 products",
            compare(turns, name, plain, lambda own, base: own / base),
            target,
        )
        for name in others
    ]
