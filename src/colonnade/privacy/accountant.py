"""How much privacy Gaussian noise gives, as (ε, δ).

A row is released n times: each time its encoding, clipped to length `clip`, leaves with Gaussian
noise of standard deviation `sigma` on every number. Neighbouring are two tables that differ in the
columns of one row of one client. That row's encoding may then be any other of length `clip`, so the
sensitivity is 2 · clip and the noise multiplier is z = sigma / (2 · clip).

n releases with multiplier z are exactly as private as one with z / √n, and ε of one Gaussian
release has a closed form (Balle and Wang, "Improving the Gaussian Mechanism for Differential
Privacy", 2018, theorem 8). `epsilon` uses it. `by_pld` and `by_rdp` are dp-accounting's accountants
(extra `dp`), which know nothing of that, as checks:

python -m colonnade.privacy.accountant --clip 1 --sigma 10 --releases 60
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from colonnade.errors import InputError

STEPS = 200  # of a bisection: more than a double has binary places


def multiplier(clip: float, sigma: float) -> float:
    """Noise per sensitivity."""
    return sigma / (2 * clip)


def delta(epsilon: float, multiplier: float) -> float:
    """The smallest δ for which one Gaussian release is (ε, δ)-private."""
    from scipy.special import log_ndtr, ndtr

    half, shift = 1 / (2 * multiplier), epsilon * multiplier
    return max(0.0, float(ndtr(half - shift) - math.exp(epsilon + log_ndtr(-half - shift))))


def epsilon(multiplier: float, releases: int, delta_: float) -> float:
    """The smallest ε for which so many releases are (ε, δ)-private; infinite without noise."""
    if releases == 0:
        return 0.0
    if multiplier == 0:
        return math.inf
    one = multiplier / math.sqrt(releases)
    if delta(0.0, one) <= delta_:
        return 0.0
    # Of concentrated differential privacy, with ρ = 1 / 2z²: a valid ε, though not the smallest.
    rho = 1 / (2 * one * one)
    most = rho + 2 * math.sqrt(rho * math.log(1 / delta_))
    return _where_true(lambda value: delta(value, one) <= delta_, 0.0, most)


def multiplier_for(epsilon_: float, delta_: float, releases: int) -> float:
    """The smallest noise multiplier for which so many releases are (ε, δ)-private."""
    most = 1.0
    while delta(epsilon_, most) > delta_:
        most *= 2
    one = _where_true(lambda value: delta(epsilon_, value) <= delta_, 0.0, most)
    return one * math.sqrt(releases)


def _where_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest value, between one for which something does not hold and one for which it
    does."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def by_pld(multiplier: float, releases: int, delta_: float) -> float:
    """ε by privacy loss distributions: numerical convolution, an upper bound."""
    accounting = _dp_accounting()
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(accounting.GaussianDpEvent(multiplier), releases)
    return float(accountant.get_epsilon(delta_))


def by_rdp(multiplier: float, releases: int, delta_: float) -> float:
    """ε by Rényi differential privacy: an upper bound, usually some percent above."""
    accounting = _dp_accounting()
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(accounting.GaussianDpEvent(multiplier), releases)
    return float(accountant.get_epsilon(delta_))


def _dp_accounting() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise InputError("dp-accounting is not installed: pip install 'colonnade[dp]'") from None
    return dp_accounting


def main() -> None:
    """ε of a setting by three accountants, or with --epsilon the noise that it takes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--clip", type=float, required=True)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--sigma", type=float)
    given.add_argument("--epsilon", type=float)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--releases", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    print(f"ε at δ = {asked.delta:g}; tables that differ in one client's columns of one row")
    print("releases     sigma  closed form       PLD       RDP")
    for releases in asked.releases:
        sigma = asked.sigma
        if sigma is None:
            sigma = 2 * asked.clip * multiplier_for(asked.epsilon, asked.delta, releases)
        z = multiplier(asked.clip, sigma)
        found = [how(z, releases, asked.delta) for how in (epsilon, by_pld, by_rdp)]
        closed, pld, rdp = (f"{one:.3f}" for one in found)
        print(f"{releases:8}  {sigma:8.4g}  {closed:>11}  {pld:>8}  {rdp:>8}")


if __name__ == "__main__":
    main()
