"""Rows that are added to an alignment: `colonnade align --add`.

The same run as a match, about keys that are not in the alignment yet. What is new is put behind the
common rows and never trained on, so that numbers, split and checkpoints stay what they were. Every
party adds the same rows, or none: the others keep an addition first, and the leader keeps it once
all have. If that breaks off, the others have one addition more than the leader; the next run goes
on from the leader's alignment, and they drop theirs. The leader cannot have answered about it.
"""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.data.rows import Indices
from colonnade.federation.agreement.alignment_file import AGAIN, Addition, Alignment
from colonnade.federation.member.own_keys import digest_of_used, outside
from colonnade.privacy.alignment.keys import KeyColumn

BOTH = "run colonnade align at every party, with --add or without it"


def to_go_on_from(before: Alignment | None, keys: KeyColumn | None) -> dict[str, int]:
    """By name of an alignment that a party can go on from, how many of its keys are not in it: the
    last one, and the one before. Empty where all rows are matched anew."""
    if before is None:
        return {}
    known = {name: before.at(name).rows for name in before.facts.names[-2:]}
    return {n: 0 if keys is None else len(outside(keys, rows).keys) for n, rows in known.items()}


def unlike(party: str, theirs: Mapping[str, int], leader: str, before: Alignment | None) -> str:
    """Why a party and the leader cannot match rows with each other; "" if they can. `theirs`: what
    the party can go on from."""
    if (before is None) != (not theirs):
        adds, anew = (party, leader) if before is None else (leader, party)
        return f"{adds} adds rows to those that were matched, and {anew} matches all anew; {BOTH}"
    if before is not None and before.facts.newest not in theirs:
        return f"{party} has another alignment of rows than {leader}; {AGAIN}"
    return ""


def addition_of(
    run: bytes,
    keys: KeyColumn | None,
    rows: Indices,
    count: int,
    file: int,
    sizes: Mapping[str, int],
    matched: Mapping[str, int] | None = None,
) -> Addition:
    """What comes of a run at one party. `keys`: those of the run; `rows`: the new ones of its file,
    which has `file`."""
    name = run.hex()
    return Addition(
        name=name,
        rows=count,
        file=file,
        others=0 if keys is None else len(keys.keys),
        keys="" if keys is None else digest_of_used(keys, rows, 0, name),
        matched=dict(matched or {}),
        sizes=dict(sizes),
    )
