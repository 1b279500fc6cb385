"""The privacy that noise on encodings gives, as a table: ε, δ, sigma, clip, releases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from colonnade.common.results import Result
from colonnade.experiments.table import Grid, Plan, short

LEFT = ("train_releases", "validation_releases", "test_releases")
NEIGHBOURING = (
    "Noise on encodings: standard deviation sigma on every number, rows clipped to length clip. "
    "Releases: how often a training / validation / test row left. ε and δ are of the row that left "
    "most often, the largest of all runs; neighbouring are two tables that differ in one client's "
    "columns of one row. Not covered: what a client's encoder, having learnt from that row, tells "
    "by other rows."
)


def privacy_grid(results: Iterable[Result], plan: Plan | None = None) -> Grid | None:
    """The table, one row per method with noise; None if no method has noise."""
    newest = list({result.key: result for result in results}.values())
    plan = (plan or Plan()).joined(newest)
    runs = {m: [r.privacy for r in newest if r.method == m and r.privacy] for m in plan.methods}
    rows = tuple((method, *_noise(found)) for method, found in runs.items() if found)
    header = ("method", "ε", "δ", "sigma", "clip", "releases")
    return Grid(header, rows, NEIGHBOURING) if rows else None


def _noise(runs: Sequence[Mapping[str, float | int | None]]) -> tuple[str, ...]:
    """A row of the table, from the runs of one method."""
    most = lambda key: max(run[key] or 0 for run in runs)  # noqa: E731
    endless = any(run["epsilon"] is None for run in runs)
    noise = (f"{most(key):.4g}" for key in ("delta", "sigma", "clip"))
    releases = " / ".join(str(most(key)) for key in LEFT)
    return "∞" if endless else short(most("epsilon")), *noise, releases
