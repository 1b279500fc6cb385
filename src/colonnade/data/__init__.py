"""Data: named sets and own files, split over clients by columns."""

from colonnade.data.catalogue import CATALOGUE, DataSet
from colonnade.data.datasets import Listing, data_folder, listing, present
from colonnade.data.loading import DataSpec, from_arrays, load
from colonnade.data.partition import Part, Partition, Rows, VerticalData
from colonnade.data.scaling import Scaler

__all__ = [
    "CATALOGUE",
    "DataSet",
    "DataSpec",
    "Listing",
    "Part",
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
