"""The `[data]` table of an experiment file or a federation file."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from colonnade.common.metric_names import GoalName, MetricName, Weights
from colonnade.data.catalogue import Split, entry
from colonnade.data.preprocessing.fitting import check_treatment
from colonnade.data.row_splits import SplitBy
from colonnade.data.sql import DATABASES, Query
from colonnade.errors import InputError


class PixelScale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pixels, which lie between 0 and 1, as (pixel − mean) / spread."""

    mean: float
    spread: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.mean):
            raise InputError(f"data.scale.mean = {self.mean}: expected a finite number")
        if not 0 < self.spread < math.inf:
            raise InputError(f"data.scale.spread = {self.spread:g}: expected a number above 0")


class DataSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[data]` table: exactly one of `dataset` and `path`, and how to split it."""

    dataset: str | None = None
    path: str | None = None
    query: str | None = None  # SQL over the file in `path`, whose result is the table
    attach: dict[str, str] = {}  # name in the query → a database file
    label: str | None = None  # the label column of a table
    columns: dict[str, list[str]] | None = None  # party → names of its columns
    parties: int | None = None  # default: the data set's own; 2 for own files
    split: Split | None = None
    columns_each: int | None = None  # neighbouring columns of each party; they may overlap
    rows: int | None = None  # at most so many training rows, validation rows among them
    labelled: int | None = None  # aligned labelled rows; the rest goes to the parties as `extra`
    test: float = 0.2  # share of all rows, where there is no official split
    validation: float = 0.1  # share of the training rows, after `rows`
    split_by: SplitBy | None = None  # the column that says which rows are for test
    prepare: dict[str, str] = {}  # column → what is done with it; others are decided by their cells
    goal: GoalName | None = None  # what the label is, where the labels do not show it
    metric: MetricName | None = None  # decides the best epoch, the table and the report
    weights: Weights | None = None  # of classes, in the loss
    scale: PixelScale | None = None  # of pixels, which lie between 0 and 1 without it
    noisy: dict[str, float] = {}  # party → standard deviation of noise on its scaled columns
    # Share of the training and validation rows that each party has, drawn at random; and of the
    # test rows. Not set: all.
    overlap: float | None = None
    test_overlap: float | None = None
    partial: bool = False  # train on rows that some party lacks, too; it is absent there

    @property
    def sql(self) -> Query | None:
        return Query.of(self.query, self.attach)

    @property
    def number(self) -> bool:
        """Whether the label is known to be a number before it is read."""
        known = None if self.dataset is None else entry(self.dataset).goal
        return (self.goal or known) == "number"

    def __post_init__(self) -> None:
        if (self.dataset is None) == (self.path is None):
            raise InputError("data: give exactly one of dataset (a name) and path (a file).")
        if self.dataset is not None:
            entry(self.dataset)  # refuses a name that is not known
        for key in ("parties", "rows", "labelled", "columns_each"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"data.{key} = {value}: must be at least 1.")
        for key in ("test", "validation"):
            check_share(key, getattr(self, key))
        self._check_overlap()
        self._check_table()
        for party, deviation in self.noisy.items():
            if not 0 < deviation < math.inf:
                raise InputError(
                    f"data.noisy.{party} = {deviation:g}: expected a standard deviation above 0"
                )
        if self.columns_each is not None and (self.columns or self.split not in (None, "columns")):
            raise InputError(
                'data.columns_each: is for data.split = "columns" without data.columns; leave one '
                "of them out"
            )
        if self.columns is not None:
            _check_columns(self.columns, self.parties, self.split)

    def _check_overlap(self) -> None:
        for key in ("overlap", "test_overlap"):
            value = getattr(self, key)
            if value is not None and not 0 < value <= 1:
                raise InputError(f"data.{key} = {value:g}: must be a share above 0, up to 1.")
        if self.partial and self.overlap is None:
            raise InputError(
                "data.partial: is about rows that some party lacks, and here every party has all; "
                "give data.overlap, e.g. 0.8, or leave it out."
            )
        if self.overlap is not None and self.labelled is not None:
            raise InputError(
                "data.overlap: rows that not every party has are those that data.labelled would "
                "draw; leave one of the two out."
            )

    def _check_table(self) -> None:
        for key in ("label", "query", "split_by", "prepare"):
            if getattr(self, key) and not _is_table(self.path):
                raise InputError(
                    f"data.{key}: is for a table in data.path: a CSV or Parquet file, or a "
                    "database."
                )
        Query.of(self.query, self.attach)
        if self.split_by is not None and self.split_by.party is not None:
            raise InputError("data.split_by.party: is for federations; leave it out.")
        for column, treatment in self.prepare.items():
            check_treatment(treatment, f"data.prepare.{column}")


def check_share(key: str, value: float) -> None:
    if not 0 <= value < 1:
        raise InputError(f"data.{key} = {value}: must be a share from 0 to below 1, e.g. 0.2.")


def _is_table(path: str | None) -> bool:
    return path is not None and Path(path).suffix.lower() in (".csv", ".parquet", *DATABASES)


def _check_columns(columns: dict[str, list[str]], parties: int | None, split: str | None) -> None:
    if not columns:
        raise InputError(
            "data.columns: names no party; leave it out, or give each party its columns."
        )
    if parties is not None and parties != len(columns):
        raise InputError(
            f"data.parties = {parties}: data.columns names {len(columns)} parties; "
            "leave data.parties out."
        )
    if split not in (None, "columns"):
        raise InputError(
            f'data.split = "{split}": data.columns already says who holds what; '
            'leave data.split out or take "columns".'
        )
