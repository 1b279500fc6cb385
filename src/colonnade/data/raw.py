"""A data set as it was read, before its columns are divided among parties."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.common.metric_names import GoalName
from colonnade.common.text import first_of
from colonnade.data.partition import Shape, flattened
from colonnade.data.preprocessing.cells import Column
from colonnade.data.rows import RowSplit
from colonnade.data.table import Table
from colonnade.errors import InputError

Array = NDArray[np.generic]
COUNTING = "data rows count from 1"
MANY_CLASSES = 20  # more whole numbers than this may be amounts: ages, prices, days
AMOUNTS = 'set goal = "number" to predict the amounts, or name another label column.'


@dataclass(frozen=True, eq=False)
class Raw:
    name: str
    x: Array | Table  # [rows, columns]; images flattened channel first, views side by side
    y: NDArray[np.int64 | np.float64]  # [rows], 0..classes-1, or numbers
    classes: int  # 0: the label is a number
    shapes: tuple[Shape, ...]  # of a row: one per view, so usually one
    official: int | None = None  # the first so many rows are the official training rows
    pixel_max: float | None = None  # images are divided by it; None: standardise
    feature_names: tuple[str, ...] = ()
    view_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()  # notes that the user should read before the training
    divider: Column | None = None  # the column that rows are split by, if there is one

    @property
    def strata(self) -> NDArray[np.int64]:
        """The classes, which every part of the rows has in proportion; all 0 if the label is a
        number."""
        return self.y.astype(np.int64) if self.classes else np.zeros(len(self.y), np.int64)

    @property
    def shape(self) -> Shape | None:
        """The shape of a row; None if a row has several views."""
        return self.shapes[0] if len(self.shapes) == 1 else None


def from_arrays(
    arrays: Mapping[str, Array], source: str, name: str, goal: GoalName | None = None
) -> Raw:
    """The arrays of an `.npz` file: `x_train`…`y_test`, or `x` and `y`, or `view0`… and `y`."""
    wholes, labels, official = _assemble(arrays, source)
    y, names, cautions = encode_labels(labels, source, "y", goal)
    rows = {len(whole) for whole in wholes} | {len(y)}
    if len(rows) > 1:
        raise InputError(
            f"{source}: features and labels have different numbers of rows ("
            f"{_listed({len(whole) for whole in wholes})} and {len(y)})."
        )
    flat = [flattened(whole) for whole in wholes]
    x = np.hstack([part for part, _ in flat]) if len(flat) > 1 else flat[0][0]
    return Raw(
        name=name,
        x=x,
        y=y,
        classes=len(names),
        shapes=tuple(shape for _, shape in flat),
        official=official,
        pixel_max=255.0 if all(w.ndim > 2 and w.dtype == np.uint8 for w in wholes) else None,
        feature_names=_feature_names(arrays, x.shape[1], source),
        view_names=_texts(arrays, "view_names"),
        notes=class_note(labels, names),
        cautions=cautions,
    )


def columns_of(arrays: Mapping[str, Array], source: str) -> dict[str, Array]:
    """The arrays of an `.npz` file as named columns: an array of one axis is one column; `x` has
    many columns, named by `feature_names`, or x0, x1, …"""
    rows = {len(array) for key, array in arrays.items() if array.ndim and key != "feature_names"}
    if len(rows) != 1:
        raise InputError(f"{source}: its arrays have different numbers of rows ({_listed(rows)}).")
    columns = {key: a for key, a in arrays.items() if a.ndim == 1 and key != "feature_names"}
    if "x" in arrays and arrays["x"].ndim == 2:
        x = arrays["x"]
        names = _feature_names(arrays, x.shape[1], source)
        names = names or tuple(f"x{number}" for number in range(x.shape[1]))
        columns |= dict(zip(names, x.T, strict=True))
    return columns


class Labels(NamedTuple):
    y: NDArray[np.int64 | np.float64]  # [rows], 0..classes-1, or numbers
    names: list[str]  # of the classes; none: the label is a number
    cautions: tuple[str, ...]


def encode_labels(
    values: Array,
    source: str,
    column: str,
    goal: GoalName | None = None,
    rows: NDArray[np.int64] | None = None,
) -> Labels:
    """Classes as 0..classes-1 in sorted order: numbers by value, text by letters. Numbers of which
    one is a fraction are no classes, unless `goal` says so. `rows`: which rows of the file these
    are, for errors; default: the first ones."""
    refuse = partial(_refuse, source=source, column=column, rows=rows)
    if values.ndim != 1 or values.dtype.kind not in "biufUS":
        raise InputError(f"{source}: labels {column!r} must be one column of text or numbers.")
    if not len(values):
        raise InputError(f"{source}: has no data rows.")
    if values.dtype.kind in "US":
        values = np.char.strip(values.astype(str))
        _refuse_unlabelled(values == "", source, column, rows)
        values = _as_numbers(values)
    if values.dtype.kind == "f":
        numbers = values.astype(np.float64)
        _refuse_unlabelled(np.isnan(numbers), source, column, rows)
        refuse(np.isinf(numbers), values, "is no label")
        fractions = numbers != np.round(numbers)
        if goal is None and fractions.any():
            goal = "number"
        if goal == "classes":
            why = "is no class but a fraction"
            refuse(fractions, values, why, f" For amounts, {AMOUNTS}")
    if goal == "number":
        return Labels(_as_amounts(values, source, column, refuse), [], ())
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    names, y = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"{source}: label column {column!r} holds one class only ({str(names[0])!r}); "
            "at least two are needed."
        )
    cautions = class_cautions(names, len(values), f"{source}: label column {column!r}")
    return Labels(y.astype(np.int64), [str(name) for name in names], cautions)


def class_cautions(names: Array, rows: int, what: str, advice: str = AMOUNTS) -> tuple[str, ...]:
    """A caution if labels look like amounts: many different whole numbers. Refuses labels that are
    different in most rows. `advice`: what to do about amounts."""
    if len(names) <= MANY_CLASSES:
        return ()
    if 2 * len(names) > rows:
        raise InputError(
            f"{what} holds {len(names):,} different values in {rows:,} rows: that is an id or an "
            f"amount, not a class. If it is an amount, {advice}"
        )
    if names.dtype.kind not in "iu":
        return ()
    return (
        f"{what} holds {len(names):,} different whole numbers ({names[0]} to {names[-1]}); each is "
        f"taken as a class of its own. If they are amounts, {advice}",
    )


def _as_amounts(
    values: Array, source: str, column: str, refuse: Callable[..., None]
) -> NDArray[np.float64]:
    if values.dtype.kind in "US":
        words = np.array([_as_numbers(values[[i]]).dtype.kind in "US" for i in range(len(values))])
        refuse(words, values, 'is no number, but goal = "number"')
    numbers = values.astype(np.float64)
    if numbers.min() == numbers.max():
        raise InputError(
            f"{source}: label column {column!r} holds one number only ({numbers[0]:g}); there is "
            "nothing to learn."
        )
    return numbers


def class_note(labels: Array, names: Sequence[str]) -> tuple[str, ...]:
    """A note that tells what the class numbers stand for, if the labels are words."""
    wordy = labels.dtype.kind in "US" and 0 < len(names) <= 20  # a number has none
    return (f"classes in order: {', '.join(names)}",) if wordy else ()


def label_notes(
    classes: int, y: Array, split: RowSplit, names: Sequence[str] = ()
) -> tuple[str, ...]:
    """What a reader of the results must know of the labels. `names`: of the classes."""
    unseen = _unseen_notes(y[split.train], y[split.test], names) if classes else ()
    return (*_one_label_notes(classes, y[split.validation], y[split.test]), *unseen)


def _unseen_notes(train: Array, test: Array, names: Sequence[str]) -> tuple[str, ...]:
    """Classes that no training row has cannot be learnt."""
    unseen = np.setdiff1d(test, train).tolist()
    if not len(train) or not unseen:
        return ()
    rows = int(np.isin(test, unseen).sum())
    called = [names[int(number)] if names else str(number) for number in unseen]
    return (
        f"{rows:,} of {len(test):,} test rows are of classes that no training row has "
        f"({first_of(called)}): no model can learn to answer them",
    )


def _one_label_notes(classes: int, validation: Array, test: Array) -> tuple[str, ...]:
    """Notes where all validation labels, or all test labels, are equal: AUC and R² are then not
    defined, and the results hold a value by convention (see `learning.metrics`)."""
    if classes:
        told = "hold one class only: their AUC is 0.5, whatever the model answers"
    else:
        told = "have equal labels: their R² is 0, unless every answer is exact"
    parts = {"validation": validation, "test": test}
    return tuple(
        f"the {len(y):,} {name} rows {told}"
        for name, y in parts.items()
        if len(y) and (y == y[0]).all()
    )


def idle_note(idle: Sequence[str]) -> tuple[str, ...]:
    """A note on columns that no party holds: they may have been forgotten in `columns`."""
    return (f"{len(idle)} columns are held by no party: {', '.join(idle)}",) if idle else ()


def check_finite(x: Array, source: str, array: str, names: Sequence[str] = ()) -> None:
    """Refuse text, NaN and infinity; name the first row and its first bad column."""
    if x.dtype.kind not in "biuf":
        raise InputError(f"{source}: array {array!r} holds {x.dtype}, not numbers.")
    if x.dtype.kind != "f" or np.isfinite(x).all():
        return
    flat = x.reshape(len(x), -1)
    row, column = np.argwhere(~np.isfinite(flat))[0].tolist()
    called = repr(names[column]) if len(names) == flat.shape[1] else str(column + 1)
    raise InputError(
        f"{source}: array {array!r}, column {called}, data row {row + 1} is {flat[row, column]} "
        f"({COUNTING}); every feature must be a finite number."
    )


def _assemble(arrays: Mapping[str, Array], source: str) -> tuple[list[Array], Array, int | None]:
    """Features (one array per view), labels, and the number of official training rows."""
    if "x_train" in arrays:
        x_train, x_test = (_features(arrays, key, source) for key in ("x_train", "x_test"))
        y_train, y_test = (_wanted(arrays, key, source) for key in ("y_train", "y_test"))
        if x_train.shape[1:] != x_test.shape[1:]:
            raise InputError(
                f"{source}: rows of x_train have shape {x_train.shape[1:]}, rows of x_test "
                f"{x_test.shape[1:]}; they must be equal."
            )
        if len(x_train) != len(y_train):
            raise InputError(
                f"{source}: x_train has {len(x_train)} rows and y_train {len(y_train)}."
            )
        x, y = np.concatenate([x_train, x_test]), np.concatenate([y_train, y_test])
        return [x], y, len(y_train)
    if "x" in arrays:
        return [_features(arrays, "x", source)], _wanted(arrays, "y", source), None
    count = sum(re.fullmatch(r"view\d+", key) is not None for key in arrays)
    if not count:
        raise InputError(
            f"{source}: needs the arrays x_train, y_train, x_test, y_test, or x, y, or view0, "
            f"view1, …, y; it holds {_listed(arrays)}."
        )
    wholes = [_features(arrays, f"view{number}", source) for number in range(count)]
    return wholes, _wanted(arrays, "y", source), None


def _features(arrays: Mapping[str, Array], key: str, source: str) -> Array:
    x = _wanted(arrays, key, source)
    if x.ndim not in (2, 3, 4):
        raise InputError(
            f"{source}: array {key!r} has shape {x.shape}; expected [rows, columns], "
            "[rows, height, width] or [rows, height, width, channels]."
        )
    if 0 in x.shape:
        raise InputError(f"{source}: array {key!r} is empty (shape {x.shape}).")
    check_finite(x, source, key, _texts(arrays, "feature_names"))
    return x


def _wanted(arrays: Mapping[str, Array], key: str, source: str) -> Array:
    if key not in arrays:
        raise InputError(f"{source}: array {key!r} is missing; it holds {_listed(arrays)}.")
    return arrays[key]


def _feature_names(arrays: Mapping[str, Array], width: int, source: str) -> tuple[str, ...]:
    names = _texts(arrays, "feature_names")
    if names and (len(names) != width or len(set(names)) != width):
        raise InputError(
            f"{source}: feature_names must hold {width} different names, one per column; it holds "
            f"{len(names)}, {len(set(names))} of them different."
        )
    return names


def _texts(arrays: Mapping[str, Array], key: str) -> tuple[str, ...]:
    return tuple(str(text) for text in arrays[key].ravel()) if key in arrays else ()


def _as_numbers(texts: Array) -> Array:
    """Numbers written as text, if all of them are; else the text."""
    try:
        return texts.astype(np.float64)
    except ValueError:
        return texts


def _refuse_unlabelled(
    empty: NDArray[np.bool_], source: str, column: str, rows: NDArray[np.int64] | None
) -> None:
    if empty.any():
        raise InputError(f"{source}: {unlabelled(empty, column, rows)}")


def unlabelled(empty: NDArray[np.bool_], column: str, rows: NDArray[np.int64] | None = None) -> str:
    """That some rows have no label, and what to do. `rows`: which rows of the file these are."""
    place = int(np.argmax(empty))
    row = place if rows is None else int(rows[place])
    return (
        f"label column {column!r} is empty in {int(empty.sum()):,} of {len(empty):,} rows, first "
        f"in data row {row + 1} ({COUNTING}); a model is trained and tested on rows with a label. "
        "Leave the others out of the file, or out of the result of data.query."
    )


def _refuse(
    bad: NDArray[np.bool_],
    values: Array,
    why: str,
    advice: str = "",
    *,
    source: str,
    column: str,
    rows: NDArray[np.int64] | None,
) -> None:
    if bad.any():
        place = int(np.argmax(bad))
        row = place if rows is None else int(rows[place])
        raise InputError(
            f"{source}: label column {column!r}, data row {row + 1} {why} "
            f"({str(values[place])!r}; {COUNTING}).{advice}"
        )


def _listed(things: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, things))) or "nothing"
