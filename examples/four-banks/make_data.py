"""Writes north.csv, south.csv, east.csv and west.csv beside this file: what four banks know.

The customers are made up, drawn from a seed. Each has accounts at all four banks, and each bank
knows four figures of its own about every customer. A customer took a loan at one of the banks, and
only that bank knows the outcome. The first 600 rows of every file are the same customers, in an
order of its own. The other 40 are new: nobody knows their outcome yet.
"""

import csv
from pathlib import Path

import numpy as np

KNOWN, NEW = 600, 40
BANKS = ("north", "south", "east", "west")
COLUMNS = ("balance", "turnover", "overdrafts", "years")

random = np.random.default_rng(0)
figures = random.normal(size=(KNOWN + NEW, len(BANKS), len(COLUMNS)))
weights = random.normal(size=(len(BANKS), len(COLUMNS)))
risk = (figures * weights).sum((1, 2)) + 0.5 * random.normal(size=KNOWN + NEW)
outcome = np.where(risk > 0, "default", "repaid")
lender = random.integers(len(BANKS), size=KNOWN)

for k, bank in enumerate(BANKS):
    order = [*random.permutation(KNOWN), *(KNOWN + random.permutation(NEW))]
    with open(Path(__file__).parent / f"{bank}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["customer", *COLUMNS, "outcome"])
        for row in order:
            own = row < KNOWN and lender[row] == k
            known = [f"{figure:.4f}" for figure in figures[row, k]]
            writer.writerow([f"c{row:03}", *known, outcome[row] if own else ""])
