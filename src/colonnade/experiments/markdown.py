"""Results as pages of documentation. The pages are made from output folders, never typed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from colonnade.experiments.table import Grid

PACKAGE = Path(__file__).parents[1]


def commit() -> str:
    """Of the checkout that this code is in, with a word if the code was changed since; nothing for
    an installed package."""
    try:
        head, changes = _git("rev-parse", "--short", "HEAD"), _git("status", "--porcelain", ".")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{head} (and changes that are not in it)" if changes else head


def _git(*words: str) -> str:
    command = ("git", "-C", str(PACKAGE), *words)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit_behind(document: Path, trained: bool) -> str:
    """The commit of the newest training that a document tells of. `trained`: just now; else it is
    the one that the document notes."""
    noted = ""
    if not trained and document.exists():
        noted = str(json.loads(document.read_text(encoding="utf-8")).get("commit", ""))
    return noted or commit()


def made_by(command: str, at: str) -> str:
    """Where a page comes from. `at`: the commit, if there is one."""
    where = f" at commit {at}" if at else ""
    return f"Made by `{command}`{where}; nothing on this page is typed by hand."


def table(grid: Grid) -> list[str]:
    """The lines of a table."""
    rule = ["---" if column < grid.words else "---:" for column in range(len(grid.header))]
    rows = [
        [_cell(text, (number, column) in grid.best) for column, text in enumerate(row)]
        for number, row in enumerate(grid.rows)
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (grid.header, rule, *rows)]
    return [*lines, "", *([grid.caption] if grid.caption else [])]


def _cell(text: str, best: bool) -> str:
    text = text.replace("|", "\\|")
    return f"**{text}**" if best else text


def section(title: str, sentences: Iterable[str]) -> list[str]:
    """A heading and a list; nothing if the list is empty."""
    lines = [f"- {sentence}" for sentence in sentences]
    return ["", f"## {title}", "", *lines] if lines else []
