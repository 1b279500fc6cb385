"""The differential privacy of a training, as a table: of encodings with noise ε, δ, sigma, clip and
releases; of labels with noise ε."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

from colonnade.common.results import Result
from colonnade.experiments.table import NOTHING, Grid, Plan, short

LEFT = ("train_releases", "validation_releases", "test_releases")
NOISE, LABELS = ("ε", "δ", "sigma", "clip", "releases"), "label ε"
NEIGHBOURING = (
    "Noise on encodings: standard deviation sigma on every number, rows clipped to length clip. "
    "Releases: how often a training / validation / test row left. ε and δ are of the row that left "
    "most often, the largest of all runs; neighbouring are two tables that differ in one client's "
    "columns of one row. Not covered: what a client's encoder, having learnt from that row, tells "
    "by other rows."
)
OF_LABELS = (
    "Label ε: of noise on the training labels, drawn once, whatever is sent afterwards; "
    "neighbouring are two tables that differ in the label of one training row. Not covered: "
    "validation labels, by which the best epoch is chosen."
)

Facts = Mapping[str, float | int | None]


def privacy_grid(results: Iterable[Result], plan: Plan | None = None) -> Grid | None:
    """The table, one row per method with noise; None if no method has noise."""
    newest = list({result.key: result for result in results}.values())
    plan = (plan or Plan()).joined(newest)
    runs = {m: [r.privacy for r in newest if r.method == m and r.privacy] for m in plan.methods}
    runs = {method: found for method, found in runs.items() if found}
    if not runs:
        return None
    header = ("method", *NOISE, LABELS)
    rows = [(method, *_noise(found), _label_epsilon(found)) for method, found in runs.items()]
    noised = any(row[1] != NOTHING for row in rows)
    private = any(row[-1] != NOTHING for row in rows)
    shown = {"method": True, **dict.fromkeys(NOISE, noised), LABELS: private}
    kept = [tuple(compress(row, shown.values())) for row in (header, *rows)]
    caption = " ".join([NEIGHBOURING] * noised + [OF_LABELS] * private)
    return Grid(kept[0], tuple(kept[1:]), caption)


def spent(runs: Sequence[Facts]) -> str:
    """ε of a method in a few words: the largest of its runs."""
    known = [run["epsilon"] for run in runs if run.get("epsilon") is not None]
    parts = [short(max(value for value in known if value is not None))] if known else []
    labels = _label_epsilon(runs)
    return ", ".join(parts + ([f"{labels} of labels"] if labels != NOTHING else []))


def _label_epsilon(runs: Sequence[Facts]) -> str:
    found = [run.get("label_epsilon") for run in runs]
    known = [value for value in found if value is not None]
    return short(max(known)) if known else NOTHING


def _noise(runs: Sequence[Facts]) -> tuple[str, ...]:
    """A row of the table, from the runs of one method."""
    runs = [run for run in runs if "sigma" in run]
    if not runs:
        return (NOTHING,) * len(NOISE)
    most = lambda key: max(run[key] or 0 for run in runs)  # noqa: E731
    endless = any(run["epsilon"] is None for run in runs)
    noise = (f"{most(key):.4g}" for key in ("delta", "sigma", "clip"))
    releases = " / ".join(str(most(key)) for key in LEFT)
    return "∞" if endless else short(most("epsilon")), *noise, releases
