"""Texts for people: help, errors, lists of parties; and texts of other parties, made safe to
show."""

from __future__ import annotations

import difflib
import inspect
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

LONGEST = 200  # characters of another party's text in one place of the log or of a table


def paragraphs(text: str | None) -> str:
    """Help as paragraphs: typer would keep the line breaks of the source."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message, which names the known name that was probably meant."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; the nearest is {close[0]!r}" if close else ""


def with_reasons(absent: Mapping[str, str]) -> str:
    """`lab (away), ward (untrained)`"""
    return ", ".join(f"{party} ({why})" for party, why in absent.items())


def first_of(names: Sequence[str], most: int = 6) -> str:
    """`age, sex, weight, …`"""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def printable(text: object, longest: int = LONGEST) -> str:
    """A text of another party for the log and the terminal: on one line, not longer than `longest`,
    and with every character escaped that a terminal would obey instead of showing it."""
    whole = text if isinstance(text, str) else str(text)
    shown = whole[: longest + 1]
    if not shown.isprintable():
        shown = "".join(_escaped(c) for c in shown)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _escaped(character: str) -> str:
    """Escapes control characters, marks that change the writing direction, line breaks, and halves
    of surrogate pairs."""
    kind = unicodedata.category(character)
    if kind.startswith("C") or kind in ("Zl", "Zp"):
        return character.encode("unicode_escape").decode("ascii")
    return character
