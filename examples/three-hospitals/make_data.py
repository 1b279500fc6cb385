"""Writes clinic.csv, lab.csv and hospital.csv beside this file: three parts of one public table.

scikit-learn's breast cancer data: 569 tumours, 30 measurements of each. Every party gets ten of
them, the hospital the diagnosis as well. The first 500 rows of every file are the same patients, in
an order of its own. The other 69 are new: nobody trains on them, and their diagnosis is left empty.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

KNOWN = 500
COLUMNS = {"clinic": range(0, 10), "lab": range(10, 20), "hospital": range(20, 30)}

data: Any = load_breast_cancer()
names = [str(name).replace(" ", "_") for name in data.feature_names]
random = np.random.default_rng(0)
mixed = random.permutation(len(data.data))

for party, columns in COLUMNS.items():
    order = [*random.permutation(mixed[:KNOWN]), *random.permutation(mixed[KNOWN:])]
    table = {"patient": [f"p{row:03}" for row in order]}
    table |= {names[column]: data.data[order, column] for column in columns}
    if party == "hospital":
        known = [data.target_names[data.target[row]] for row in order[:KNOWN]]
        table["diagnosis"] = known + [""] * (len(order) - KNOWN)
    with open(Path(__file__).parent / f"{party}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
