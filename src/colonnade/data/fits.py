"""Whether a table that is read as a whole fits into the memory of this machine.

The figures are the least that was measured from reading to trained data: a table that is refused
does not fit, and one that is not refused may still be too large, if its columns of words become
many numbers.
"""

from __future__ import annotations

import re
from pathlib import Path

from colonnade.data.table_files import ParquetColumns
from colonnade.errors import InputError

CSV = 5  # bytes of memory for each byte of a CSV file; 5.4 for numbers of 18 digits
READ, USED = 8, 12  # bytes for each cell that is read from Parquet, and more for each that is used
GROUP = Path("/sys/fs/cgroup")  # the limits of a container


def check_fits(path: Path, called: Path, used: int | None = None) -> None:
    """Refuses a CSV or Parquet file that does not fit. `called`: its name for the user. `used`: how
    many of its columns are used; None: all."""
    free = available()
    if free is None:
        return
    size, what = _needed(path, used)
    if size > free:
        raise InputError(
            f"{called}: {what}, needs {_gb(size)} of memory or more to be read as a whole, and "
            f"{_gb(free)} are available. Select fewer columns or rows with data.query, or make a "
            "federation of it (colonnade join), whose parties read large tables in parts."
        )


def _needed(path: Path, used: int | None) -> tuple[int, str]:
    """Bytes of memory, and the size of the table in words."""
    if path.suffix.lower() == ".csv":
        size = path.stat().st_size
        return CSV * size, f"a CSV file of {_gb(size)}"
    table = ParquetColumns(path)
    columns = len(table.names)
    each = READ * columns + USED * (columns if used is None else min(used, columns))
    return table.rows * each, f"{table.rows:,} rows of {columns:,} columns"


def available() -> int | None:
    """Bytes of memory that a process may still take; None: this system does not say."""
    try:
        told = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    found = [int(told[1]) * 1024] if told else []
    try:
        most, now = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        cached = re.search(r"^file (\d+)", (GROUP / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # no container, or no limit
        return min(found, default=None)
    # The copies of files in memory count as used, and give way.
    return min([*found, most - now + (int(cached[1]) if cached else 0)])


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 10**8 else f"{size / 1e6:,.1f} MB"
