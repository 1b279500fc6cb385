"""Which values of a polynomial are wrong: the decoding of Reed–Solomon codes by Welch and
Berlekamp.

Wrong values are the roots of an error locator E of degree e: for a polynomial P of degree below
`size` and values yᵢ of which e are wrong, Q = P·E satisfies Q(xᵢ) = yᵢ·E(xᵢ) at every point. With
E monic, that is a linear system in the coefficients of Q and E.
"""

from __future__ import annotations

from collections.abc import Sequence


def wrong_positions(
    at: Sequence[int], values: Sequence[int], size: int, prime: int
) -> list[int] | None:
    """The positions of wrong values of a polynomial with `size` coefficients, as few as explain
    them; None if there are more than can be found, half of the values beyond `size`."""
    for errors in range((len(at) - size) // 2 + 1):
        found = _explained(at, values, size, errors, prime)
        if found is not None:
            return found
    return None


def _explained(
    at: Sequence[int], values: Sequence[int], size: int, errors: int, prime: int
) -> list[int] | None:
    """The positions, if so many errors explain the values."""
    system = []
    for x, y in zip(at, values, strict=True):
        quotient = [pow(x, k, prime) for k in range(size + errors)]
        locator = [-y * pow(x, k, prime) % prime for k in range(errors)]
        system.append([*quotient, *locator, y * pow(x, errors, prime) % prime])
    solution = _solve(system, prime)
    if solution is None:
        return None
    locator = [*solution[size + errors :], 1]
    found = [i for i, x in enumerate(at) if _evaluate(locator, x, prime) == 0]
    right = [i for i in range(len(at)) if i not in found]
    return found if len(found) <= errors and len(right) >= size else None


def _solve(system: list[list[int]], prime: int) -> list[int] | None:
    """A solution of the equations (the last column is the right-hand side), unknowns that are free
    set to 0; None if there is none."""
    unknowns = len(system[0]) - 1
    pivots: list[int] = []
    for column in range(unknowns):
        row = next((r for r in range(len(pivots), len(system)) if system[r][column]), None)
        if row is None:
            continue
        here = len(pivots)
        system[here], system[row] = system[row], system[here]
        scale = pow(system[here][column], -1, prime)
        system[here] = [x * scale % prime for x in system[here]]
        for r, other in enumerate(system):
            if r != here and (factor := other[column]):
                pairs = zip(other, system[here], strict=True)
                system[r] = [(x - factor * y) % prime for x, y in pairs]
        pivots.append(column)
    if any(row[-1] for row in system[len(pivots) :]):
        return None
    solution = [0] * unknowns
    for row, column in zip(system, pivots, strict=False):
        solution[column] = row[-1]
    return solution


def _evaluate(coefficients: Sequence[int], x: int, prime: int) -> int:
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * x + coefficient) % prime
    return total
