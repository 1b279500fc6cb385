"""Write hospital.csv, clinic.csv and lab.csv from scikit-learn's breast cancer data.

Each of the three knows about nine of ten patients, in an order and with a spelling of its own. The
hospital does not know the diagnosis of its last 60 patients yet.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

FOLDER = Path(__file__).parent
SHARE, NEW = 0.9, 60
SPELLING = {"hospital": "P{:03d}", "clinic": "p{:03d}", "lab": " P{:03d} "}


def main() -> None:
    data: Any = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    random = np.random.default_rng(0)
    for place, (party, spelling) in enumerate(SPELLING.items()):
        columns = list(range(10 * place, 10 * place + 10))
        patients = random.permutation(len(data.target))[: round(SHARE * len(data.target))]
        with (FOLDER / f"{party}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            label = ["diagnosis"] if party == "hospital" else []
            lines.writerow(["patient", *(names[c] for c in columns), *label])
            for row, patient in enumerate(patients):
                known = row < len(patients) - NEW
                told = [str(data.target_names[data.target[patient]]) if known else ""]
                values = [f"{value:g}" for value in data.data[patient, columns]]
                lines.writerow([spelling.format(patient), *values, *(told if label else [])])


if __name__ == "__main__":
    main()
