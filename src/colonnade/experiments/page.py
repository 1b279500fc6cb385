"""Pieces of a self-contained HTML page: tables, pictures, sections, and the page around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata, resources
from pathlib import Path
from string import Template

from colonnade.common.files import replacing
from colonnade.experiments.plots import Picture, Style
from colonnade.experiments.table import Grid

REPORT = "report.html"
DENSE = 8  # more columns than these are set smaller


def write_page(folder: Path, *, name: str, about: str, main: str, footer: str) -> Path:
    """`report.html` in the folder, whole or not at all; everything but `name` is HTML."""
    here = resources.files(__package__ or "")
    template = Template(here.joinpath("report_page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        style=here.joinpath("report.css").read_text(encoding="utf-8"),
        name=escape(name),
        about=about,
        main=main,
        version=escape(metadata.version("colonnade")),
        footer=footer,
    )
    path = folder / REPORT
    with replacing(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return path


def section(title: str, note: str, parts: Sequence[str]) -> str:
    if not parts:
        return ""
    note = f"<p>{note}</p>" if note else ""
    return f"<section><h2>{title}</h2>{note}{''.join(parts)}</section>"


def details(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def pictures(
    pictures: Sequence[Picture], caption: str = "", legend: str = "", wide: bool = False
) -> str:
    """`wide`: for one picture that may take more room than a panel."""
    panels = ""
    for picture in pictures:
        named = f'<svg role="img" aria-label="{escape(picture.description)}" '
        svg = picture.svg.replace("<svg ", named, 1)
        panels += f"<figure><figcaption>{escape(picture.caption)}</figcaption>{svg}</figure>"
    note = f'<p class="caption">{caption}</p>' if caption else ""
    kind = "panels wide" if wide else "panels"
    return f'<div class="card">{legend}<div class="{kind}">{panels}</div>{note}</div>'


def legend(styles: Mapping[str, Style]) -> str:
    items = ""
    for method, style in styles.items():
        dashes = " ".join(f"{1.7 * length:g}" for length in style.dashes)
        line = f'stroke="{style.colour}" stroke-width="2.4" stroke-dasharray="{dashes or "none"}"'
        key = f'<svg aria-hidden="true" viewBox="0 0 34 8"><path d="M0 4H34" {line}/></svg>'
        items += f"<li>{key}{escape(method)}</li>"
    return f'<ul class="legend">{items}</ul>'


def table(grid: Grid) -> str:
    kinds = ["word" if column < grid.words else "figure" for column in range(len(grid.header))]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(title)}</th>'
        for kind, title in zip(kinds, grid.header, strict=True)
    )
    body = ""
    for number, (name, *cells) in enumerate(grid.rows):
        row = '<tr class="faint">' if number in grid.faint else "<tr>"
        body += f'{row}<th scope="row">{escape(name)}</th>'
        for column, text in enumerate(cells, start=1):
            shown = escape(text)
            if (number, column) in grid.best:
                shown = f"<strong>{shown}</strong>"
            body += f'<td class="{kinds[column]}">{shown}</td>'
        body += "</tr>"
    caption = escape(grid.caption)
    kind = "table dense" if len(grid.header) > DENSE else "table"
    # Focusable, so that a wide table can be scrolled without a mouse.
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
    return (
        f'<div class="{kind}">{scroll}'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="caption">{caption}</p></div>'
    )
