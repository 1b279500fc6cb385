"""What is not as it should be in a federation, in sentences, from what its parties tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from colonnade.federation.member.stage import Stage

Told = Mapping[str, Any]  # what a party tells of itself; empty if it does not answer


def sentences(found: Mapping[str, Told]) -> Iterator[str]:
    """How processes ended, which parties are away since when, and which the model lacks."""
    for name, told in found.items():
        if "invalid" in told:
            yield f"{name}: {told['invalid']}"
        if "ended" in told and told["stage"] != Stage.DONE:
            yield f"{name}: {ended(told)}"
    running = {name: told for name, told in found.items() if told and "ended" not in told}
    for party, seen in _by_party(running, "away").items():
        yield f"{party}: away since {max(seen.values()):.0f} s, as told by {', '.join(seen)}"
    for party, seen in _by_party(found, "lacking").items():
        yield f"The model lacks {party}: {next(iter(seen.values()))}"
    for name, told in found.items():
        for remark in told.get("remarks", ()):
            yield f"{name}: {remark}"


def _by_party(found: Mapping[str, Told], key: str) -> dict[str, dict[str, Any]]:
    """What the other parties tell of a party under this key, by the party that tells it."""
    result: dict[str, dict[str, Any]] = {}
    for teller, told in found.items():
        for party, fact in told.get(key, {}).items():
            result.setdefault(party, {})[teller] = fact
    return result


def ended(told: Told) -> str:
    """How and when a process ended."""
    end = told["ended"]
    at = f"{datetime.fromisoformat(end['at']):%Y-%m-%d %H:%M:%S} UTC"
    during = f", while {end['during']}" if end["during"] != told["stage"] else ""
    reason = f": {end['reason']}" if end["reason"] else ""
    return f"{told['stage']} at {at}{during}{reason}"
