"""Tables as CSV and LaTeX: for the buttons of a page, and for `colonnade report --csv --latex`.

A table is the one of the report. In CSV, "96.10 ± 1.20 (2/3)" becomes three columns: the mean, two
standard deviations, and the seeds that it is of. `runs.csv` holds every run with all digits.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from colonnade.common.files import replacing
from colonnade.common.results import TABLES, Result, slug
from colonnade.experiments.table import NOTHING, Grid

FIGURE = re.compile(r"(.*?)(?: ± (.*?))?(?: \((\d+/\d+)\))?")  # mean, 2 sd, seeds
ENDINGS = (" ± 2 sd", " of seeds")
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "\u00a0": "~",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}


def csv_text(grid: Grid) -> str:
    """Comma-separated, for a spreadsheet or a program; numbers without commas inside."""
    columns: list[list[str]] = []
    for number, title in enumerate(grid.header):
        texts = [row[number] for row in grid.rows]
        columns += [[title, *texts]] if number < grid.words else _split(title, texts)
    return _csv([list(row) for row in zip(*columns, strict=True)])


def _split(title: str, texts: Sequence[str]) -> list[list[str]]:
    """A column of figures, and beside it those for their spread and seeds, if any has them."""
    found = [FIGURE.fullmatch(text) for text in texts]
    parts = [["" if one is None else one[i] or "" for one in found] for i in (1, 2, 3)]
    parts[0] = ["" if text == NOTHING else text for text in parts[0]]
    plain = [[_number(text) for text in part] for part in parts]
    kept = [(title, plain[0]), *zip((title + end for end in ENDINGS), plain[1:], strict=True)]
    return [[name, *part] for name, part in kept if name == title or any(part)]


def _number(text: str) -> str:
    """Without thousands separators and typographic signs."""
    plain = text.replace("−", "-")
    return plain.replace(",", "") if re.fullmatch(r"[+-]?[\d,]+(\.\d+)?", plain) else plain


def runs_csv(results: Sequence[Result]) -> str:
    """Every run with all its metrics and costs, with all digits."""
    metrics = list(dict.fromkeys(name for result in results for name in result.metrics))
    costs = list(dict.fromkeys(name for result in results for name in result.cost))
    rows = [["method", "faults", "seed", *metrics, *(f"cost_{name}" for name in costs)]]
    for result in results:
        figures = [result.metrics.get(name) for name in metrics]
        figures += [result.cost.get(name) for name in costs]
        texts = ["" if figure is None else repr(figure) for figure in figures]
        rows.append([result.method, result.faults, str(result.seed), *texts])
    return _csv(rows)


def _csv(rows: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    # A spreadsheet would run a text that begins with one of these as a formula.
    safe = [
        [f"'{cell}" if re.match(r"[=@\t\r]|[+-](?![\d.])", cell) else cell for cell in row]
        for row in rows
    ]
    csv.writer(buffer, lineterminator="\n").writerows(safe)
    return buffer.getvalue()


def latex_text(grid: Grid) -> str:
    """A `table` environment with the rules of the package booktabs."""
    sides = "l" * grid.words + "r" * (len(grid.header) - grid.words)
    lines = [" & ".join(map(_latex, grid.header))]
    for number, row in enumerate(grid.rows):
        cells = [_latex(text) for text in row]
        bold = [(number, column) in grid.best for column in range(len(row))]
        lines.append(
            " & ".join(rf"\textbf{{{c}}}" if b else c for c, b in zip(cells, bold, strict=True))
        )
    head, *body = [f"{line} \\\\" for line in lines]
    parts = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(grid.caption)}}}"]
    parts += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *body]
    return "\n".join([*parts, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex(text: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def write_tables(
    folder: Path, grids: Sequence[Grid], runs: str | None, *, as_csv: bool, as_latex: bool
) -> list[Path]:
    """Write the tables into `tables/` of an output folder; returns their paths. `runs`: the content
    of `runs.csv`."""
    texts: dict[str, str] = {}
    for number, grid in enumerate(grids, 1):
        name = f"{number:02}-{slug(grid.caption.split('.')[0].split(',')[0])}"
        texts |= {f"{name}.csv": csv_text(grid)} if as_csv else {}
        texts |= {f"{name}.tex": latex_text(grid)} if as_latex else {}
    if as_csv and runs is not None:
        texts["runs.csv"] = runs
    for name, text in texts.items():
        with replacing(folder / TABLES / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return [folder / TABLES / name for name in texts]
