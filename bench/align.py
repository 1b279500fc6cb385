"""Two parties match their keys: `colonnade align` at both, as processes, over mutual TLS.

Half of the keys of each are those of the other. Keys are names in several scripts; the parties
write them with other code points (composed and decomposed) and spaces, and some of their rows have
no key. Both must find exactly the plain intersection, or the benchmark fails. Beside it
`match = "spu"`, if spu is installed, and `match = "plain"`, which hides nothing, as a yardstick.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import unicodedata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import tomli_w
from rich.table import Table

from bench import processes
from bench.timing import Figure, Measure, Spread
from colonnade.errors import InputError
from colonnade.federation.agreement.alignment_file import read_alignment
from colonnade.federation.keys.certificates import make_authority, make_certificate
from colonnade.federation.member.local_files import free_addresses
from colonnade.privacy.alignment.protocols import protocol

KEYS, REPEATS, EMPTY = 100_000, 3, 1000  # EMPTY: rows of each party without a key
SCRIPTS = ("patient", "Zoë Müller", "Ελένη", "が島", "Đặng", "नमस्ते", "한국")
FORMS: dict[str, Literal["NFC", "NFD"]] = {"hospital": "NFC", "lab": "NFD"}
PARTIES = ("hospital", "lab")
NAMES = ("private", "spu", "plain")


def run() -> list[Figure]:
    figures: list[Figure] = []
    for match in filter(installed, NAMES):
        runs = [once(match, seed) for seed in range(REPEATS)]
        keys = f"{KEYS:,} × {KEYS:,} keys, {match}"
        figures += [
            _figure(f"{keys}: seconds", [r["seconds"] for r in runs]),
            _figure(f"{keys}: processor seconds of both", [r["cpu"] for r in runs]),
            _figure(f"{keys}: MB from the label holder", [r["hospital"] / 1e6 for r in runs]),
            _figure(f"{keys}: MB from the other party", [r["lab"] / 1e6 for r in runs]),
        ]
    return figures


def installed(match: str) -> bool:
    try:
        protocol(match)
    except InputError:
        return False
    return True


def _figure(variant: str, values: list[float]) -> Figure:
    spread = Spread.of(values)
    return Figure("align", variant, 0.0, "", Measure(spread, spread))


def table(figures: list[Figure]) -> Table:
    return processes.table(figures)


def once(match: str, seed: int) -> dict[str, float]:
    """Seconds, processor seconds, and bytes that left each party."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        keys = write(folder, match, seed)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = {party: _started(folder, party) for party in PARTIES}
        found = {party: _ended(process) for party, process in told.items()}
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        check(folder, keys)
    return {
        # The later one of the two did not wait for the other.
        "seconds": min(one["seconds"] for one in found.values()),
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        **{party: one["bytes_sent"] for party, one in found.items()},
    }


def write(folder: Path, match: str, seed: int) -> dict[str, list[str]]:
    random = np.random.default_rng(seed)
    shared = KEYS // 2
    numbers = random.permutation(2 * KEYS - shared)
    held = {"hospital": numbers[:KEYS], "lab": numbers[KEYS - shared :]}
    keys = {p: [spelling(p, int(n)) for n in random.permutation(own)] for p, own in held.items()}
    for own in keys.values():
        for place in random.integers(0, KEYS, EMPTY):
            own.insert(int(place), random.choice(["", "  "]))
    make_authority(folder / "keys", "bench")
    parties = []
    for party, address in zip(PARTIES, free_addresses(2), strict=True):
        make_certificate(folder / "keys", party)
        roles = ["clients", "server"] if party == "hospital" else ["clients"]
        parties.append({"name": party, "roles": roles, "columns": 1, "endpoint": address})
        lines = [f"{key},{i % 7},{i % 2}" for i, key in enumerate(keys[party])]
        (folder / f"{party}.csv").write_text("\n".join(["key,x,y", *lines]))
        data: dict[str, Any] = {"path": f"{party}.csv", "id": "key", "columns": ["x"]}
        data |= {"label": "y"} if party == "hospital" else {}
        own = {"federation": "federation.toml", "party": party, "keys": "keys", "data": data}
        (folder / f"{party}.toml").write_text(tomli_w.dumps(own))
    whole = {
        "name": "align",
        "rows": {"match": match, "classes": 2},
        "method": {"algorithm": "splitnn"},
        "parties": parties,
    }
    (folder / "federation.toml").write_text(tomli_w.dumps(whole))
    return keys


def spelling(party: str, number: int) -> str:
    """How a party writes a key."""
    name = f"{SCRIPTS[number % len(SCRIPTS)]} {number}"
    return " " * (number % 3) + unicodedata.normalize(FORMS[party], name)


def plain(texts: list[str]) -> list[str]:
    """What two spellings of one key have in common, by the rules of rows.normalise."""
    return [unicodedata.normalize("NFC", text).strip() for text in texts]


def _started(folder: Path, party: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "colonnade", "align", f"{party}.toml", "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=os.environ.copy()
    )


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(err)
    return json.loads(out)


def check(folder: Path, keys: dict[str, list[str]]) -> None:
    """The plain intersection, in one order."""
    found, known = [], {party: plain(own) for party, own in keys.items()}
    for party in PARTIES:
        alignment = read_alignment(folder / party)
        assert alignment is not None
        assert alignment.facts.empty == EMPTY, "another number of rows without a key"
        found.append([known[party][row] for row in alignment.rows.tolist()])
    common = set(known["hospital"]) & set(known["lab"]) - {""}
    assert found[0] == found[1], "the two parties have different orders"
    assert len(found[0]) == len(common) == KEYS // 2, "another number of rows"
    assert set(found[0]) == common, "not the intersection"
