"""What leaves each party, algorithm by algorithm, from what the algorithms declare.

`python -m colonnade.algorithms.privacy_table PAGE.md` writes the table into a page, between its two
marks. The declarations themselves are checked against the ledger by the algorithm test kit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from colonnade.algorithms import built_in

BEGIN, END = "<!-- what leaves: begin -->", "<!-- what leaves: end -->"


def table() -> str:
    """Markdown: one row per kind of content."""
    rows = [
        "| algorithm | content | from | to | what it tells its receiver | takes `noise` |",
        "|---|---|---|---|---|---|",
    ]
    for name, kind in built_in().items():
        if not kind.exchanges:
            rows.append(f"| `{name}` | nothing | – | – | – | – |")
        for e in kind.exchanges:
            noise = "yes" if e.encodes and not kind.side_by_side else "–"
            rows.append(f"| `{name}` | {' | '.join(e.ends)} | {e.what} | {noise} |")
    return "\n".join(rows)


def updated(page: str) -> str:
    """The page with the table of today between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
