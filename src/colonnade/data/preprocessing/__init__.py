"""From raw tables to numbers: what is done with each column, fitted on training rows and saved.

fitted = Preprocessing.fit(columns, training_rows, "patients.csv", {"city": "onehot"})
fitted.apply(columns)                   # float32 [rows, fitted.width]
fitted.save(folder / "clinic.preprocessing.json")
"""

from __future__ import annotations

from colonnade.data.preprocessing.cells import Column
from colonnade.data.preprocessing.fitted import Remarks
from colonnade.data.preprocessing.fitting import TREATMENTS, check_treatment
from colonnade.data.preprocessing.preprocessing import Preprocessing, load_preprocessing

__all__ = [
    "TREATMENTS",
    "Column",
    "Preprocessing",
    "Remarks",
    "check_treatment",
    "load_preprocessing",
]
