"""A party whose Parquet table is larger than its memory should be: how much does it hold?

Two parties, each started by `colonnade join`: one has a table with ids, numbers, gaps, words and
dates, the other the labels, with the same ids in another order. The peak of the resident memory of
the first one is read when it has been through an epoch and its test, once with a tiny table and
once with a large one of the same columns.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import tomli_w

from bench.processes import table as table
from bench.restarts import Party
from bench.timing import Figure, Measure, Spread, Target
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.member.local_files import prepare

NUMBERS = 100  # columns of random numbers, which do not compress
TINY, LARGE = 2_000, 6_400_000  # rows; the large file has more than 5 GB
PRIME = 7919  # multiplied by it, modulo the number of rows, ids are in another order
LIMIT = 3600.0
MEGABYTE = 2**20


def run() -> list[Figure]:
    tiny, large = (measured(rows) for rows in (TINY, LARGE))
    above = (large[1] - tiny[1]) / MEGABYTE
    return [
        _figure(f"GB of the table of {LARGE:,} rows", large[0] / 1e9, None),
        _figure(f"MB resident with {TINY:,} rows", tiny[1] / MEGABYTE, None),
        _figure("MB resident above that with the large table", above, Target(1024, False)),
        _figure("minutes to prepare and train an epoch", large[2] / 60, None),
    ]


def _figure(variant: str, value: float, target: Target | None) -> Figure:
    spread = Spread.of([value])
    return Figure("tables", variant, 0.0, "", Measure(spread, spread), target)


def measured(rows: int) -> tuple[int, int, float]:
    """Bytes of the file, peak bytes of the party's resident memory, and seconds."""
    with TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(name)
        make_tables(folder, rows)
        federation = read_federation(folder / "federation.toml")
        prepare(federation, folder / "federation.toml", folder / "out")
        parties = {one: Party(folder / "out", one) for one in federation.members}
        begun, peak = time.monotonic(), 0
        try:
            for party in parties.values():
                party.start()
            while parties["server"].process.poll() is None:  # pyright: ignore
                if time.monotonic() - begun > LIMIT:
                    raise TimeoutError(parties["server"].log.read_text()[-1000:])
                peak = max(peak, peak_memory(parties["grid"]))
                time.sleep(0.05)
            for party in parties.values():
                party.process.wait(60)  # pyright: ignore[reportOptionalMemberAccess]
                if party.process.returncode:  # pyright: ignore[reportOptionalMemberAccess]
                    raise RuntimeError(party.log.read_text()[-1000:])
        finally:
            for party in parties.values():
                party.kill()
        return (folder / "grid.parquet").stat().st_size, peak, time.monotonic() - begun


def make_tables(folder: Path, rows: int) -> None:
    gaps = "CASE WHEN random() < 0.02 THEN NULL ELSE random() END"  # in every tenth column
    numbers = ", ".join(f"{'random()' if i % 10 else gaps} AS n{i}" for i in range(NUMBERS))
    others = "'town' || (random() * 30)::INT AS town, DATE '2020-01-01' + (i % 2000)::INT AS day"
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET memory_limit = '1GB'")
        mixed = f"(10000000 + (i * {PRIME}) % {rows})::VARCHAR AS id"
        made = f"SELECT {mixed}, {numbers}, {others} FROM range({rows}) t(i)"
        form = "(FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 61440)"
        connection.execute(f"COPY ({made}) TO '{folder / 'grid.parquet'}' {form}")
        ids = "(10000000 + i)::VARCHAR AS id"
        made = f"SELECT {ids}, (random() < 0.5)::INT AS y FROM range({rows}) t(i)"
        connection.execute(f"COPY ({made}) TO '{folder / 'server.parquet'}' (FORMAT parquet)")
    federation = {
        "name": "large",
        "rows": {"classes": 2},
        "method": {"algorithm": "splitnn", "epochs": 1, "batch": 4096},
        "network": {"transport": "tcp"},
        "parties": [{"name": "grid", "role": "clients"}, {"name": "server", "role": "server"}],
    }
    (folder / "federation.toml").write_text(tomli_w.dumps(federation))
    for party, label in (("grid", {}), ("server", {"label": "y"})):
        data = {"path": f"{party}.parquet", "id": "id", **label}
        file = {"federation": "federation.toml", "party": party, "data": data}
        (folder / f"{party}.toml").write_text(tomli_w.dumps(file))


def peak_memory(party: Party) -> int:
    """Of a process that runs; 0 if it has ended."""
    assert party.process is not None
    try:
        text = Path(f"/proc/{party.process.pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found.group(1)) * 1024 if found else 0
