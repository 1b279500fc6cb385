"""Data: named sets and own files, split over clients by columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common import lazy
from colonnade.data.catalogue import CATALOGUE, DataSet
from colonnade.data.datasets import Listing, data_folder, listing, present
from colonnade.data.partition import ClientColumns, Partition, Rows, VerticalData
from colonnade.data.spec import DataSpec

if TYPE_CHECKING:
    from colonnade.data.loading import from_arrays, load
    from colonnade.data.scaling import Scaler

__all__ = [
    "CATALOGUE",
    "ClientColumns",
    "DataSet",
    "DataSpec",
    "Listing",
    "Partition",
    "Rows",
    "Scaler",
    "VerticalData",
    "data_folder",
    "from_arrays",
    "listing",
    "load",
    "present",
]

__getattr__ = lazy.attributes(
    __name__, {"loading": ("from_arrays", "load"), "scaling": ("Scaler",)}
)
