"""The preprocessing of a party: one fitted record per column, saved as JSON beside its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from colonnade.common.files import replacing
from colonnade.common.text import first_of, nearest
from colonnade.data.preprocessing import cells
from colonnade.data.preprocessing.cells import Column
from colonnade.data.preprocessing.fitted import AnyFitted, Drop, Features, Remarks
from colonnade.data.preprocessing.fitting import fit_column
from colonnade.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1


class Partial(Protocol):
    """Columns that are in a file, of which some rows can be read."""

    def take(self, name: str, rows: NDArray[np.int64]) -> Column: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, name: object, /) -> bool: ...


class Preprocessing(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Turns the raw columns of a party into float32 numbers, as fitted on its training rows."""

    columns: tuple[AnyFitted, ...]
    format: int = FORMAT

    @classmethod
    def fit(
        cls,
        columns: Mapping[str, Column] | Partial,
        rows: NDArray[np.int64],
        source: str,
        declared: Mapping[str, str] | None = None,
    ) -> Preprocessing:
        """`rows`: the training rows. `declared`: treatments by column; others are chosen."""
        declared = declared or {}
        for name in declared:
            if name not in columns:
                known = nearest(name, list(columns))
                raise InputError(f"{source}: no column {name!r}, which data.prepare names{known}.")
        fitted = cls(
            columns=tuple(
                fit_column(name, _taken(columns, name, rows), rows, source, declared.get(name))
                for name in columns
            )
        )
        if not fitted.width:
            left = "; ".join(f"{one.name}: {one.why}" for one in fitted.left)
            raise InputError(f"{source}: no column is left to train on ({left}).")
        return fitted

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.names)

    @cached_property
    def width(self) -> int:
        return len(self.names)

    @property
    def left(self) -> tuple[Drop, ...]:
        return tuple(column for column in self.columns if isinstance(column, Drop))

    def notes(self) -> tuple[str, ...]:
        """What a reader of results must know: columns that were left out unasked."""
        unasked = [one for one in self.left if one.why != "as declared"]
        left = [f"{one.name or repr('')} ({one.why})" for one in unasked]
        return (f"columns left out: {first_of(left)}",) if left else ()

    def features(
        self, columns: Mapping[str, Column], source: str, remarks: Remarks | None = None
    ) -> Features:
        """All rows of a table with these columns; others are not looked at."""
        remarks = Remarks() if remarks is None else remarks
        used = [column for column in self.columns if not isinstance(column, Drop)]
        for column in used:
            if column.name not in columns:
                raise InputError(
                    f"{source}: column {column.name!r} is missing, which the model was trained "
                    f"with{nearest(column.name, list(columns))}."
                )
        found = [column.apply(columns[column.name], source, remarks) for column in used]
        return np.concatenate(found, axis=1)

    def apply(
        self, columns: Mapping[str, Column], source: str = "table", remarks: Remarks | None = None
    ) -> Tensor:
        import torch

        return torch.from_numpy(self.features(columns, source, remarks))

    # -- as a file --------------------------------------------------------------------------------

    def json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_bytes(self.json())


def _taken(columns: Mapping[str, Column] | Partial, name: str, rows: NDArray[np.int64]) -> Column:
    if isinstance(columns, Mapping):
        return cells.take(columns[name], rows)
    return columns.take(name, rows)


def load_preprocessing(path: Path) -> Preprocessing:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Preprocessing)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: is no saved preprocessing ({error}).") from error
    if found.format != FORMAT:
        raise InputError(
            f"{path}: has format {found.format}, this version of Colonnade reads {FORMAT}; train "
            "anew with --fresh."
        )
    return found
