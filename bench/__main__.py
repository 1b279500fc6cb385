"""`python -m bench [name …] [--json] [--keep FILE] [--jobs N]`: run benchmarks, print figures
beside their targets.

Without a name all are run but `chaos`, which takes hours, `storms`, a quarter of an hour, `ray`,
which needs Ray and network namespaces, `tables`, which writes 5 GB, `raw`, `growth` and `overlap`,
ten minutes each, and `audit`, three minutes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from bench import (
    align,
    audit,
    autoencoder,
    chaos,
    client_time,
    clinics,
    cvfl,
    dvfl,
    equivalence,
    fedvs,
    field,
    growth,
    large_tables,
    links,
    mags,
    overhead,
    overlap,
    processes,
    proximal,
    raw_tables,
    ray_runs,
    restarts,
    serving,
    storms,
)
from bench.timing import Figure, Spread

BENCHMARKS: dict[str, Callable[..., list[Figure]]] = {
    "mags": mags.run,
    "autoencoder": autoencoder.run,
    "cvfl": cvfl.run,
    "dvfl": dvfl.run,
    "client": client_time.run,
    "overhead": overhead.run,
    "field": field.run,
    "fedvs": fedvs.run,
    "proximal": proximal.run,
    "links": links.run,
    "equivalence": equivalence.run,
    "processes": processes.run,
    "restarts": restarts.run,
    "serve": serving.run,
    "clinics": clinics.run,
    "ray": ray_runs.run,
    "align": align.run,
    "overlap": overlap.run,
    "audit": audit.run,
    "chaos": chaos.run,
    "storms": storms.run,
    "tables": large_tables.run,
    "raw": raw_tables.run,
    "growth": growth.run,
}
ONLY_BY_NAME = ("chaos", "storms", "ray", "tables", "raw", "growth", "overlap", "audit")
TABLES: dict[str, Callable[[list[Figure]], Table]] = {
    "client": client_time.table,
    "processes": processes.table,
    "restarts": restarts.table,
    "serve": processes.table,
    "clinics": clinics.table,
    "ray": restarts.table,
    "align": align.table,
    "overlap": overlap.table,
    "audit": audit.table,
    "chaos": chaos.table,
    "storms": storms.table,
    "tables": large_tables.table,
    "raw": raw_tables.table,
    "growth": growth.table,
}
WIDTH = 100


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="of chaos and growth: append what is measured to FILE; do not repeat what it holds",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="of chaos: so many federations at a time"
    )
    parser.add_argument(
        "--every",
        type=float,
        default=chaos.EVERY,
        metavar="SECONDS",
        help="of chaos: a process is killed about so often",
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"of chaos: runs of each method, {chaos.SEEDS}"
    )
    parser.add_argument(
        "--methods", metavar="NAME,…", help=f"of chaos: of {', '.join(chaos.METHODS)}"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    torch.set_num_threads(1)
    progress = Console(stderr=True)
    figures: list[Figure] = []
    failed = False
    for name in arguments.names or [name for name in BENCHMARKS if name not in ONLY_BY_NAME]:
        try:
            with progress.status(name):
                figures += run(name, arguments)
        except Exception:  # the figures of the others count all the same
            failed = True
            progress.print_exception()
    if arguments.json:
        print(json.dumps(document(figures), indent=2))
    else:
        # Piped output has no width of its own, and the usual 80 columns are too few.
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        for each in tables(figures):
            console.print(each)
    if failed:
        sys.exit(1)


def run(name: str, arguments: argparse.Namespace) -> list[Figure]:
    if name == "chaos":
        names = tuple(arguments.methods.split(",")) if arguments.methods else ()
        plan = chaos.Plan(arguments.seeds, arguments.every, names)
        return chaos.run(arguments.keep, arguments.jobs, plan)
    if name == "growth":
        return growth.run(arguments.keep)
    return BENCHMARKS[name]()


def document(figures: list[Figure]) -> dict[str, object]:
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "figures": [asdict(figure) | {"reached": figure.reached} for figure in figures],
    }


def tables(figures: list[Figure]) -> list[Table]:
    """One of most figures, and those of the benchmarks that have a table of their own."""
    most = [figure for figure in figures if figure.benchmark not in TABLES]
    own = {name: [f for f in figures if f.benchmark == name] for name in TABLES}
    return ([table(most)] if most else []) + [TABLES[name](own[name]) for name in own if own[name]]


CAPTION = """\
ratio: by wall time, median over turns (smallest – largest); cpu: its median by processor time
MVFL, CD-MVFL, autoencoder, cvfl, dvfl: times as fast as the plain loop
100 epochs: minutes, computed
dvfl as a whole: ms of processor time
overhead: the engine's share of a step
fedvs: steps of the plain loop that one step takes, by number of partitions; shares of a step
proximal: times as fast per row as L-BFGS-B of scipy, row by row
links: cost per link relative to the smallest grid
equivalence: time of one process per party in memory relative to all parties in one
differs by: largest difference of a parameter from the plain loop's, or between the engines"""


def table(figures: list[Figure]) -> Table:
    result = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=CAPTION, caption_justify="left"
    )
    for header in ("benchmark", "variant"):
        result.add_column(header)
    for header in ("ms", "ratio", "cpu", "target", "reached", "differs by"):
        result.add_column(header, justify="right", no_wrap=True)
    for figure in figures:
        result.add_row(*_cells(figure), end_section=figure is _last(figures, figure.benchmark))
    return result


def _cells(figure: Figure) -> tuple[str, ...]:
    measure, target = figure.result, figure.target
    return (
        figure.benchmark,
        figure.variant,
        _milliseconds(figure.milliseconds),
        _spread(measure.wall, figure.percent) if measure else "",
        _text(measure.cpu.median, figure.percent) if measure else "",
        f"{'≥' if target.at_least else '≤'} {_text(target.limit, figure.percent)}"
        if target
        else "",
        "" if figure.reached is None else "yes" if figure.reached else "no",
        "" if figure.difference is None else f"{figure.difference:.0e}",
    )


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 1e3 else f"{value:,.0f}"


def _spread(spread: Spread, percent: bool) -> str:
    low, high = _text(spread.low, percent), _text(spread.high, percent)
    return f"{_text(spread.median, percent)} ({low} – {high})"


def _text(value: float, percent: bool) -> str:
    return f"{100 * value:.0f} %" if percent else f"{value:.2f}"


def _last(figures: list[Figure], benchmark: str) -> Figure:
    return [figure for figure in figures if figure.benchmark == benchmark][-1]


if __name__ == "__main__":
    main()
