"""Data sets by name: embedded, in the data folder, or fetched into it."""

from __future__ import annotations

import functools
import http.client
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.common.files import replacing
from colonnade.common.metric_names import GoalName
from colonnade.data import tables
from colonnade.data.catalogue import CATALOGUE, DataSet, OpenML, Split, entry
from colonnade.data.raw import Array, Raw, from_arrays
from colonnade.data.spec import DataSpec
from colonnade.errors import InputError

PATIENCE = 20.0  # seconds without a byte from openml.org before we give up
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """One line of `colonnade datasets`."""

    name: str
    title: str
    size: str
    split: Split
    parties: int
    source: str  # embedded | in data folder | can be downloaded | to be obtained by hand
    path: str  # where it is, or where it is expected; empty if embedded
    where: str
    citation: str
    licence: str
    note: str = ""


def data_folder() -> Path:
    """`$COLONNADE_DATA`, else `colonnade` in the user's cache folder."""
    if chosen := os.environ.get("COLONNADE_DATA"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "colonnade"


def present(name: str) -> bool:
    """Whether the set can be loaded without a download."""
    known = entry(name)
    return known.embedded or _found(known) is not None


def check_there(spec: DataSpec) -> None:
    """Refuse a file that cannot be read, and a data set that is neither present nor can be
    downloaded. Reads no rows, and imports no torch."""
    if spec.dataset is None:
        tables.found(spec)
    else:
        _check_obtainable(entry(spec.dataset))


def listing() -> list[Listing]:
    return [_listed(known) for known in CATALOGUE.values()]


def load_raw(name: str, goal: GoalName | None = None) -> Raw:
    """The data set of this name, downloaded if it is not there. `goal`: if it differs from the data
    set's own."""
    known = entry(name)
    goal = goal or known.goal
    if known.embedded:
        return _embedded(name, goal)
    _check_obtainable(known)
    path, note = _found(known) or (_fetch(known), "")
    raw = tables.read_npz(path, name, goal)
    notes = (*raw.notes, *known.notes, *([note] if note else []))
    return replace(raw, notes=notes, cautions=())  # what the labels of a named set are is known


def _found(known: DataSet) -> tuple[Path, str] | None:
    """The file of a set, and a note if it is a subset; None if there is no file."""
    for filename, note in ((known.filename, ""), *([known.subset] if known.subset else [])):
        path = data_folder() / filename
        if path.is_file():
            return path, note
    return None


def _listed(known: DataSet) -> Listing:
    found = _found(known)
    path, note = found or (data_folder() / known.filename, "")
    if known.embedded:
        source = "embedded"
    elif found:
        source = "in data folder"
    else:
        source = "can be downloaded" if known.openml else "to be obtained by hand"
    return Listing(
        name=known.name,
        title=known.title,
        size=known.size,
        split=known.split,
        parties=known.parties,
        source=source,
        path="" if known.embedded else str(path),
        where=known.where,
        citation=known.citation,
        licence=known.licence,
        note="; ".join((*known.notes, *([note] if note else []))),
    )


@functools.lru_cache(maxsize=4)
def _embedded(name: str, goal: GoalName) -> Raw:
    if name == "digits":
        return _digits(goal)
    from sklearn import datasets as sklearn  # more than a second to import

    bunch: Any = getattr(sklearn, f"load_{name}")()
    names = np.array(bunch.feature_names)
    arrays = {"x": bunch.data, "y": bunch.target, "feature_names": names}
    return from_arrays(arrays, name, name, goal)


def _digits(goal: GoalName) -> Raw:
    """scikit-learn's digits from the file in its package: importing scikit-learn would take a third
    of the time that a party needs to start."""
    found = find_spec("sklearn")
    assert found is not None  # a dependency of ours
    path = Path(str(found.origin)).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    arrays = {"x": table[:, :-1].reshape(-1, 8, 8), "y": table[:, -1].astype(int)}
    return replace(from_arrays(arrays, "digits", "digits", goal), pixel_max=16.0)


def _check_obtainable(known: DataSet) -> None:
    if not present(known.name) and known.openml is None:
        raise InputError(_missing(known))


def _missing(known: DataSet) -> str:
    return (
        f"data.dataset: {known.name!r} is not in the data folder: expected {known.filename} in "
        f"{data_folder()} (COLONNADE_DATA is {os.environ.get('COLONNADE_DATA') or 'not set'}). "
        f"Get it from: {known.where}."
    )


def _fetch(known: DataSet) -> Path:
    path = data_folder() / known.filename
    assert known.openml is not None  # see _check_obtainable
    log.info("%s: downloading from openml.org (data set %d)", known.name, known.openml.id)
    try:
        arrays = _from_openml(known.openml)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise InputError(
            f"{_missing(known)} The download from openml.org failed: {error}."
        ) from error
    try:
        _save(path, arrays)
    except OSError as error:
        raise InputError(
            f"{path}: the downloaded data set cannot be saved ({error.strerror}); "
            "point COLONNADE_DATA to a folder you may write to."
        ) from error
    return path


def _from_openml(known: OpenML) -> dict[str, Array]:
    from sklearn import datasets as sklearn

    with _bounded_wait(PATIENCE), warnings.catch_warnings(action="ignore"):
        # 1 and 0.1 are the least that scikit-learn accepts; liac-arff needs no pandas.
        bunch: Any = sklearn.fetch_openml(
            data_id=known.id,
            as_frame=False,
            parser="liac-arff",
            cache=False,
            n_retries=1,
            delay=0.1,
        )
    x, y = np.asarray(bunch.data), np.asarray(bunch.target).astype(np.float64).astype(np.int64)
    names = np.array([str(name) for name in bunch.feature_names])
    if known.picture is None:
        kept = np.char.lower(names) != "id"
        return {"x": x[:, kept], "y": y, "feature_names": names[kept]}
    pixels = np.moveaxis(x.astype(np.uint8).reshape(-1, *known.picture), 1, 3)
    images = pixels[..., 0] if known.picture[0] == 1 else pixels
    cut = known.train
    return {"x_train": images[:cut], "y_train": y[:cut], "x_test": images[cut:], "y_test": y[cut:]}


@contextmanager
def _bounded_wait(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _save(path: Path, arrays: dict[str, Array]) -> None:
    # Several runs may fetch the same set at once.
    with replacing(path, shared=True) as partial, partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
