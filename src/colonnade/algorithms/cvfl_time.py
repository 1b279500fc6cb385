"""How long CVFL's parties take in a simulation, by the key `slow`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from colonnade.errors import InputError
from colonnade.network import Delays
from colonnade.network.delays import Spec

A_STEP = 1.0  # seconds of computing, where an experiment gives none


def slowed(delays: Delays, slower: Mapping[str, float], passive: Sequence[str]) -> Delays:
    """Slow parties compute more slowly. Without `compute` of its own, a simulation counts a second
    for whatever an active party sends, and for whatever a slow passive party does."""
    if not slower:
        return delays
    late = {party: A_STEP for party in passive if party in slower}
    speed = {party: delays.speed.get(party, 1.0) * (1 - share) for party, share in slower.items()}
    compute = delays.compute or {"active": A_STEP, **late}
    return replace(delays, compute=compute, speed=delays.speed | speed)


def lagging(delays: Delays, passive: Sequence[str], parties: Sequence[str]) -> Delays:
    """What passive parties compute holds back their embeddings, and not the parties themselves:
    with stored embeddings nobody waits for them."""
    if not delays.compute:
        return delays
    if delays.lag:
        raise InputError(
            "network.delays.lag: with stale = true, what passive parties compute is their lag; "
            "leave lag out, or give them no compute"
        )
    lag = {p: _scaled(_of(delays.compute, p), delays.speed.get(p, 1.0)) for p in passive}
    others = {} if _one_for_all(delays.compute) is None else dict.fromkeys(parties, delays.compute)
    table = delays.compute if isinstance(delays.compute, dict) and not others else others
    factors = {"regulariser": 0.0, **delays.lag_factors}
    nothing = dict.fromkeys(passive, 0.0)
    return replace(delays, compute={**table, **nothing}, lag=lag, lag_factors=factors)


def _one_for_all(compute: Spec) -> Spec | None:
    table = isinstance(compute, dict) and "exponential" not in compute
    return None if table else compute


def _of(compute: Spec, party: str) -> Spec:
    """What a passive party computes."""
    if _one_for_all(compute) is not None or not isinstance(compute, dict):
        return compute
    return compute.get(party, compute.get("clients", 0.0))


def _scaled(time: Spec, speed: float) -> Spec:
    if isinstance(time, dict):
        return {"exponential": time["exponential"] / speed}
    return time / speed
