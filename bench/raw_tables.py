"""Raw tables against hand-made encodings: how much does leaving it to Colonnade cost?

Three made-up tables of unlike kinds (patients, orders, machines), with words, dates, truth values,
heavy tails and gaps, and the Credit Card default table with its codes as words. Each is trained
twice by the same network, on the same rows: from the raw CSV file, without any key that says what
to do, and from numbers that somebody who knows the table has encoded. Figure: test AUC of the raw
table minus that of the encoding, the worst of the seeds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import colonnade as cn
from bench.processes import table as table
from bench.timing import Figure, Measure, Spread, Target
from colonnade.data.datasets import load_raw, present

ROWS, SEEDS, EPOCHS, CREDIT_ROWS = 6000, (0, 1, 2), 40, 30_000
Made = tuple[dict[str, list[str]], list[np.ndarray], np.ndarray]  # raw columns, encoding, labels


def run() -> list[Figure]:
    made = {"patients": patients, "orders": orders, "machines": machines}
    if present("credit_default"):
        made["credit card"] = credit_card
    return [_figure(name, compared(make)) for name, make in made.items()]


def _figure(name: str, gains: list[tuple[float, float]]) -> Figure:
    differences = [raw - encoded for raw, encoded in gains]
    worst = min(differences)
    told = f"{name}: AUC raw {min(r for r, _ in gains):.4f}, encoded {min(e for _, e in gains):.4f}"
    spread = Spread(worst, min(differences), max(differences))
    return Figure("raw", told, 0.0, "", Measure(spread, spread), Target(-0.02), detail=gains)


def compared(make: Callable[[int], Made]) -> list[tuple[float, float]]:
    """Test AUC from the raw table and from the encoding, by seed."""
    found = []
    for seed in SEEDS:
        raw, encoded, y = make(seed)
        with TemporaryDirectory() as name:
            folder = Path(name)
            write_csv(folder / "raw.csv", {**raw, "y": [f"c{label}" for label in y]})
            features = np.column_stack(encoded)
            np.savez(folder / "encoded.npz", x=features, y=y)
            found.append(
                (
                    auc({"path": str(folder / "raw.csv"), "label": "y"}, seed),
                    auc({"path": str(folder / "encoded.npz")}, seed),
                )
            )
    return found


def auc(data: dict[str, Any], seed: int) -> float:
    method = {"algorithm": "splitnn", "epochs": EPOCHS, "encoder": [64, 32]}
    whole = {**data, "parties": 2, "metric": "auc"}
    outcome = cn.run({"name": "raw", "seeds": [seed], "data": whole, "methods": [method]})
    found = outcome.results[0].metrics["test_auc"]
    assert found is not None
    return found


def write_csv(path: Path, columns: dict[str, list[str]]) -> None:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows(zip(*columns.values(), strict=True))


# -- the tables ------------------------------------------------------------------------------------


def labels(score: np.ndarray, random: np.random.Generator) -> np.ndarray:
    centred = (score - score.mean()) / score.std()
    return (random.random(len(score)) < 1 / (1 + np.exp(-2.5 * centred))).astype(int)


def holes(values: list[str], share: float, random: np.random.Generator, mark: str = "") -> Any:
    """Some cells are empty; also which ones."""
    empty = random.random(len(values)) < share
    return [mark if gone else value for value, gone in zip(values, empty, strict=True)], empty


def filled(values: np.ndarray, empty: np.ndarray) -> list[np.ndarray]:
    """By hand: the median for gaps, and a flag."""
    return [np.where(empty, np.median(values[~empty]), values), empty.astype(float)]


def onehot(values: np.ndarray, levels: np.ndarray) -> list[np.ndarray]:
    return [(values == level).astype(float) for level in levels]


def days(numbers: np.ndarray) -> list[str]:
    return [str(np.datetime64("2019-01-01") + int(day)) for day in numbers]


def patients(seed: int) -> Made:
    random = np.random.default_rng(seed)
    age, sugar = random.normal(55, 15, ROWS).round(), random.lognormal(1.6, 0.4, ROWS)
    ward = random.choice(
        ["surgery", "medicine", "eye", "ear", "skin"], ROWS, p=[0.4, 0.3, 0.1, 0.1, 0.1]
    )
    smoker, day = random.random(ROWS) < 0.3, random.integers(0, 1500, ROWS)
    score = 0.04 * age + 0.5 * sugar + 1.2 * (ward == "surgery") + 1.0 * smoker
    score = score + 0.8 * np.sin(2 * np.pi * day / 365.25)
    aged, no_age = holes([f"{a:.0f}" for a in age], 0.15, random)
    raw = {
        "patient": [f"P{i:06}" for i in random.permutation(ROWS)],
        "age": aged,
        "sugar": [f"{s:.2f}" for s in sugar],
        "ward": list(ward),
        "smoker": ["yes" if one else "no" for one in smoker],
        "admitted": days(day),
        "remark": [f"seen by {random.integers(10**9)}" for _ in range(ROWS)],
    }
    year = 2 * np.pi * day / 365.25
    encoded = [*filled(age, no_age), sugar, *onehot(ward, np.unique(ward)), smoker.astype(float)]
    return raw, [*encoded, day, np.sin(year), np.cos(year)], labels(score, random)


def orders(seed: int) -> Made:
    random = np.random.default_rng(seed + 100)
    price, items = random.lognormal(3, 2.2, ROWS), random.poisson(3, ROWS) + 1
    countries = np.array([f"country {i}" for i in range(30)])
    effect = random.normal(0, 1, 30)
    place = np.minimum(random.geometric(0.12, ROWS) - 1, 29)
    day = random.integers(0, 900, ROWS)
    weekend = (day + 1) % 7 >= 5  # 2019-01-01 was a Tuesday
    coupon, no_coupon = holes(list(random.choice(["A", "B", "C"], ROWS)), 0.6, random)
    score = 0.5 * np.log(price) + effect[place] + 1.2 * weekend + 0.8 * (np.array(coupon) == "B")
    raw = {
        "order_id": [str(i) for i in random.permutation(ROWS) + 10**6],
        "price": [f"{p:.2f}" for p in price],
        "items": [str(i) for i in items],
        "country": list(countries[place]),
        "coupon": coupon,
        "ordered": days(day),
        "currency": ["EUR"] * ROWS,
    }
    encoded = [np.log(price), items, *onehot(place, np.arange(30))]
    encoded += [*onehot(np.array(coupon), np.array(["A", "B", "C"])), no_coupon.astype(float)]
    return raw, [*encoded, day, weekend.astype(float)], labels(score, random)


def machines(seed: int) -> Made:
    random = np.random.default_rng(seed + 200)
    heat, hours = random.normal(70, 8, ROWS), random.exponential(400, ROWS)
    model = random.choice(["x1", "x2", "x3", "old"], ROWS, p=[0.5, 0.3, 0.19, 0.01])
    grade = random.integers(0, 4, ROWS)  # 0, 1, 2 or "3+"
    leak = random.random(ROWS) < 0.1
    heated, no_heat = holes([f"{h:.1f}" for h in heat], 0.3, random, "NA")
    score = 0.1 * heat * ~no_heat + 0.003 * hours + 0.9 * (model == "x3") + 0.6 * grade + 1.5 * leak
    score = score + 8.0 * no_heat  # a sensor that is silent means something
    serviced, never = holes(days(random.integers(0, 700, ROWS)), 0.2, random)
    score = score + 0.8 * never
    raw = {
        "heat": heated,
        "hours": [f"{h:.3g}" for h in hours],
        "model": list(model),
        "grade": [str(g) if g < 3 else "3+" for g in grade],
        "leak": ["TRUE" if one else "FALSE" for one in leak],
        "serviced": serviced,
        "spare": [""] * ROWS,
    }
    encoded = [*filled(heat, no_heat), hours, *onehot(model, np.unique(model)), grade, leak * 1.0]
    return raw, [*encoded, never.astype(float)], labels(score, random)


CODES = ("SEX", "EDUCATION", "MARRIAGE")


def credit_card(seed: int) -> Made:
    """The codes as words. By hand: these one-hot, amounts as signed logarithms."""
    known = load_raw("credit_default")
    x, y = np.asarray(known.x)[:CREDIT_ROWS].astype(float), known.y[:CREDIT_ROWS].astype(int)
    raw, encoded = {}, []
    for i, name in enumerate(known.feature_names):
        column = x[:, i]
        raw[name] = [f"{name[0]}{v:.0f}" if name in CODES else f"{v:.0f}" for v in column]
        if name in CODES:
            encoded += onehot(column, np.unique(column))
        elif "AMT" in name or "BAL" in name:
            encoded.append(np.sign(column) * np.log1p(np.abs(column)))
        else:
            encoded.append(column)
    return raw, encoded, y
