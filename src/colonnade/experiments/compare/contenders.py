"""The methods of a comparison: which there are, which of them suit the data, and what each is tuned
over."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product
from typing import Any

from colonnade.common.text import nearest
from colonnade.common.toml import Table
from colonnade.errors import InputError
from colonnade.experiments.config import Experiment

EPOCHS = 40  # of the final training of most methods; those of other methods are in proportion
COUNTED = ("epochs", "client_epochs", "aggregator_epochs", "owner_epochs", "encoder_epochs")


@dataclass(frozen=True)
class Contender:
    """A method, as a `[[methods]]` table, and the values that some of its keys are tuned over."""

    table: Table
    search: Mapping[str, Sequence[Any]]

    @property
    def name(self) -> str:
        return str(self.table["name"])

    def trials(self) -> list[Table]:
        """One table for each combination of values."""
        found = []
        for k, chosen in enumerate(product(*self.search.values()), 1):
            table = {**self.table, "name": f"{self.name} #{k}"}
            for key, value in zip(self.search, chosen, strict=True):
                table = _with(table, key, value)
            found.append(table)
        return found

    def values(self, trial: Table) -> Table:
        """What a trial has for the keys that are tuned."""
        return {key: _value(trial, key) for key in self.search}


def _with(table: Table, key: str, value: Any) -> Table:
    outer, _, inner = key.partition(".")
    return {**table, outer: {**table[outer], inner: value} if inner else value}


def _value(table: Table, key: str) -> Any:
    outer, _, inner = key.partition(".")
    return table[outer][inner] if inner else table[outer]


def contenders(given: Sequence[Table] | None, only: Sequence[str] = ()) -> list[Contender]:
    """Those of a file, or all there are. `only`: of these, the ones with such a name or algorithm.
    A method of a file keeps the values it has; its other keys are tuned as those of the first
    method here with the same algorithm."""
    if given is not None and not given:
        raise InputError("methods: none given; add a [[methods]] table, or leave methods out")
    usual = _usual()
    found = usual if given is None else [_given(table, usual) for table in given]
    unknown = [name for name in only if not any(_called(name, one) for one in found)]
    if unknown:
        known = [name for one in found for name in (one.name, str(one.table["algorithm"]))]
        whose = "there are" if given is None else "the file has methods of its own, and only these:"
        raise InputError(
            f"--only {unknown[0]}: no such method{nearest(unknown[0], known)}; {whose} "
            f"{', '.join(dict.fromkeys(one.name for one in found))}"
        )
    return [one for one in found if not only or any(_called(name, one) for name in only)]


def _called(name: str, one: Contender) -> bool:
    return name.lower() in (one.name.lower(), str(one.table["algorithm"]).lower())


def _usual() -> list[Contender]:
    text = (
        resources.files("colonnade.experiments.compare")
        .joinpath("methods.toml")
        .read_text(encoding="utf-8")
    )
    return [_split(table) for table in tomllib.loads(text)["methods"]]


def _split(table: Table) -> Contender:
    rest = {key: value for key, value in table.items() if key != "search"}
    return Contender(rest, table.get("search", {}))


def _given(table: Table, usual: Sequence[Contender]) -> Contender:
    algorithm = table.get("algorithm")
    alike = next((one for one in usual if one.table["algorithm"] == algorithm), None)
    named = {"name": table.get("method", algorithm), **table}
    if alike is None:
        return Contender(named, {})
    search = {
        key: values for key, values in alike.search.items() if key.partition(".")[0] not in table
    }
    tuned = [key.partition(".")[0] for key in search if "." in key]
    taken = {key: alike.table[key] for key in (*COUNTED, *tuned) if key in alike.table}
    return Contender({**taken, **named}, search)


def scaled(table: Table, share: float) -> Table:
    """A method with this share of its epochs, at least one. It does all of them."""
    epochs = {key: max(1, round(share * table[key])) for key in COUNTED if key in table}
    return {**table, **epochs, "patience": max(1, max(epochs.values(), default=1))}


def pooled(method: str, experiment: Experiment) -> bool:
    """Whether a method moves all columns to one place: a yardstick, and not a choice."""
    return next(one.pooled for one in experiment.methods if one.name == method)
