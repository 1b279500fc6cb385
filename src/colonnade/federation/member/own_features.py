"""A party's raw columns as numbers: prepared as fitted on the training rows, and kept.

The party's folder holds `preprocessing.json`, what was fitted, and `features.json`, what it was
fitted on. A party that is started again prepares its rows in the same way, and refuses a file whose
rows have changed since the training began. The numbers of a large table are in `features.f32`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.common.files import replacing
from colonnade.common.seeds import numpy_stream
from colonnade.common.text import first_of
from colonnade.data.preprocessing import (
    Column,
    Preprocessing,
    Remarks,
    cells,
    load_preprocessing,
)
from colonnade.data.rows import Indices
from colonnade.data.stored import FeatureFile, StoredRows, write_features
from colonnade.data.table_files import ParquetColumns, row_count
from colonnade.errors import InputError
from colonnade.federation.agreement.party_file import OwnSpec, PartyFile
from colonnade.federation.member.own_rows import RowOrder

SAMPLE = 10**6  # training rows that preprocessing is fitted on, at most
FITTED, KEPT, FEATURES = "preprocessing.json", "features.json", "features.f32"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What tells, without reading a file, that it is the same."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, path: Path) -> Stamp:
        found = path.stat()
        return cls(size=found.st_size, changed=found.st_mtime_ns)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What the features of a party were made from."""

    file: str
    stamp: Stamp
    spec: dict[str, Any]  # what the party file says of them
    used: str  # digest of which rows are for training, and of which are aligned
    rows: int
    width: int
    digest: str  # of the features of the aligned rows
    content: str = ""  # digest of the result of a query that is large: it may read other files


@dataclass(frozen=True)
class OwnFeatures:
    """[rows, width], in the common order of rows, and those of the rows beside."""

    x: Tensor | StoredRows
    beside: Tensor | StoredRows
    fitted: Preprocessing
    kept: Kept
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.fitted.notes(), *self.remarks.notes())

    @property
    def file_changed(self) -> bool:
        """Whether the file is not what it was when it was read, by its size and time."""
        try:
            return Stamp.of(Path(self.kept.file)) != self.kept.stamp
        except OSError:
            return True

    def keep(self, folder: Path) -> None:
        self.fitted.save(folder / FITTED)
        with replacing(folder / KEPT) as partial:
            partial.write_bytes(msgspec.json.encode(self.kept))


def own_features(
    party: PartyFile,
    columns: Mapping[str, Column],
    names: list[str],
    own: RowOrder,
    train: Indices,
) -> OwnFeatures:
    """`train`: places in the order of `own`. Rows beside are learnt from, too."""
    spec, rows = party.data, party.federation.rows
    assert spec is not None
    assert rows is not None
    path, aligned = Path(spec.path), _with(own.order[: rows.size], own.beside)
    training = _with(own.order[train], own.beside)
    if not len(training):
        raise InputError(
            f"{path}: has none of the rows that are trained on; with partial = true a party needs "
            "some. Leave this party out, or give it more rows in common with the label holder."
        )
    used = _digest_of_rows(training, aligned)
    before, source = _before(party, spec, names, used), str(path)
    training = _sample(training, party.federation.seed)  # of a large table, the others are not kept
    if before is None:
        fitted = Preprocessing.fit(
            Chosen(columns, names, spec.columns is not None), training, source, spec.prepare
        )
    else:
        fitted = load_preprocessing(party.folder / FITTED)
    _check_width(fitted, party, names)
    remarks, stamp, content = Remarks(), Stamp.of(path), _content(columns, spec)
    same = before if before and (before.stamp, before.content) == (stamp, content) else None
    found, digest = _prepared(party.folder, columns, fitted, aligned, same, source, remarks)
    if before is not None and digest != before.digest:
        raise InputError(
            f"{path}: its rows have changed since the training began; put the file back as it was, "
            "or start over with --fresh at every party."
        )
    kept = Kept(
        file=str(path),
        stamp=stamp,
        spec=_told(spec, names),
        used=used,
        rows=row_count(columns),
        width=fitted.width,
        digest=digest,
        content=content,
    )
    x, beside = (
        StoredRows(found, places) if isinstance(found, FeatureFile) else _rows(found, places)
        for places in (own.order, own.beside)
    )
    return OwnFeatures(x, beside, fitted, kept, remarks)


def _rows(found: Tensor, places: Indices) -> Tensor:
    """The features at these places; zeros for -1."""
    here = torch.from_numpy(places >= 0)
    return found[torch.from_numpy(places).clamp(min=0)] * here[:, None]


def _digest_of_rows(*rows: Indices) -> str:
    found = hashlib.blake2b(digest_size=16)
    for some in rows:
        found.update(np.ascontiguousarray(some).data)
    return found.hexdigest()


def _with(rows: Indices, beside: Indices) -> Indices:
    """In the order of the file; without those that are not there."""
    every = np.concatenate([rows, beside])
    return np.sort(every[every >= 0])


class Chosen:
    """Some columns of a table, in this order, of which some rows are taken. `named`: the party file
    names them."""

    def __init__(self, columns: Mapping[str, Column], names: list[str], named: bool) -> None:
        self.columns, self.names, self.named = columns, names, named

    def take(self, name: str, rows: Indices) -> Column:
        if isinstance(self.columns, ParquetColumns):
            found = self.columns.take(name, rows)
        else:
            found = cells.take(self.columns[name], rows)
        if self.named and isinstance(found, cells.Unusable):
            raise found.refused()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names


def _prepared(
    folder: Path,
    columns: Mapping[str, Column],
    fitted: Preprocessing,
    aligned: Indices,
    same: Kept | None,
    source: str,
    remarks: Remarks,
) -> tuple[Tensor | FeatureFile, str]:
    """The features in the order of the file, and the digest of those of the aligned rows. `same`:
    what an earlier process has kept of the same table."""
    if not isinstance(columns, ParquetColumns):
        whole = fitted.features(columns, source, remarks)
        return torch.from_numpy(whole), _digest([whole], aligned)
    path = folder / FEATURES
    size = columns.rows * fitted.width * 4
    if same is not None and path.exists() and size == _size(path):
        return FeatureFile(path, columns.rows, fitted.width), same.digest
    folder.mkdir(parents=True, exist_ok=True)
    digest = Digest(aligned)
    names = [column.name for column in fitted.columns if column.width]

    def chunks() -> Iterator[NDArray[np.float32]]:
        for part in columns.chunks(names):
            found = fitted.features(part, source, remarks)
            digest.add(found)
            yield found

    with replacing(path) as partial:
        write_features(partial, chunks())
    return FeatureFile(path, columns.rows, fitted.width), digest.hex()


def _sample(training: Indices, seed: int) -> Indices:
    """The rows that preprocessing is fitted on: all training rows, or a million of them."""
    if len(training) <= SAMPLE:
        return training
    chosen = numpy_stream(seed, "preprocessing").choice(len(training), SAMPLE, replace=False)
    return training[np.sort(chosen)]


class Digest:
    """Of the features of some rows, of which the chunks hold all, one after the other."""

    def __init__(self, rows: Indices) -> None:
        self.rows, self.seen = rows, 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, chunk: NDArray[np.float32]) -> None:
        first, last = np.searchsorted(self.rows, (self.seen, self.seen + len(chunk)))
        self._hash.update(chunk[self.rows[first:last] - self.seen].tobytes())
        self.seen += len(chunk)

    def hex(self) -> str:
        return self._hash.hexdigest()


def _digest(chunks: list[NDArray[np.float32]], rows: Indices) -> str:
    digest = Digest(rows)
    for chunk in chunks:
        digest.add(chunk)
    return digest.hex()


def _size(path: Path) -> int:
    return path.stat().st_size


def _content(columns: Mapping[str, Column], spec: OwnSpec) -> str:
    """Which files a query reads is not known, so that a large result is compared as a whole."""
    if spec.query is None or not isinstance(columns, ParquetColumns):
        return ""
    with columns.path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _told(spec: OwnSpec, names: list[str]) -> dict[str, Any]:
    return {"columns": names, "prepare": dict(spec.prepare), "query": spec.query}


def _before(party: PartyFile, spec: OwnSpec, names: list[str], used: str) -> Kept | None:
    """What an earlier process kept, if the training has begun; refuses other settings."""
    path = party.folder / KEPT
    if not path.exists() or not any((party.folder / "checkpoints").glob("*")):
        return None
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: cannot be read ({error}); start over with --fresh.") from error
    if why := _changed(kept, spec, names, used, party.source):
        raise InputError(f"{why}, or start over with --fresh at every party.")
    return kept


def _changed(kept: Kept, spec: OwnSpec, names: list[str], used: str, source: str) -> str:
    """What is not as it was when the training began, and what to do; "" if all of it is."""
    before = kept.spec["columns"]
    lost = [name for name in before if name not in names]
    new = [name for name in names if name not in before]
    if spec.columns is None and lost:
        what = f"column {lost[0]!r} is missing, which the model was trained with"
        return f"{spec.path}: {what}; put it back"
    if spec.columns is None and new:
        what = f"column {new[0]!r} is new since the training began"
        return f"{spec.path}: {what}; list the others in data.columns of {source}"
    if kept.spec == _told(spec, names) and kept.used == used:
        return ""
    what = "[data] of the party file" if kept.used == used else "which rows are trained on"
    return f"{source}: {what} has changed since the training began; put it back as it was"


def _check_width(fitted: Preprocessing, party: PartyFile, names: list[str]) -> None:
    assert party.data is not None
    expected = party.federation.party(party.party).columns
    if expected is None or fitted.width == expected:
        return
    became = "" if fitted.width == len(names) else f", which become {fitted.width} numbers"
    raise InputError(
        f"{party.data.path}: gives {len(names)} columns ({first_of(names)}){became}, but the "
        f"federation file says columns = {expected} for {party.party!r}; leave columns out there, "
        "or list the right ones in data.columns."
    )
