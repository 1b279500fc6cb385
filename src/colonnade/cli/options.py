"""Options that several commands have, and what they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", min=1, help="Runs at a time. Default: one per core (of the cluster)."
    ),
]
EngineName = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Where the runs are: on this machine, or on a Ray cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="With --engine ray: the cluster's head. Default: RAY_ADDRESS, or the cluster of this "
        "machine.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Output folder. Default: runs/<name>; colonnade-demo for the demo, "
        "runs/<name>-<scale> for a reproduction, runs/<name>-audit for an audit of a file.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override, e.g. --set data.parties=8 --set 'methods.*.epochs=5'.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over instead of going on.")]

Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="tensorboard|mlflow",
        help="Also write curves, settings and figures for TensorBoard or MLflow, one run per "
        "training. May be given twice. Needs the extra \\[track].",
    ),
]

Where = Annotated[
    Path,
    typer.Argument(
        help="A party file, or the folder of [bold]colonnade up[/bold].", metavar="PARTY.toml|DIR"
    ),
]


def check_party_file(path: Path) -> None:
    """Before torch is imported, which takes seconds."""
    from colonnade.common.file_kinds import PARTY, check_kind

    if not path.is_dir():
        check_kind(path, PARTY)


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2))
