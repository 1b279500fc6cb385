"""Lagrange coded computing (Yu et al., "Lagrange Coded Computing: Optimal Design for Resiliency,
Security, and Privacy", 2019).

A secret of K segments is hidden in a polynomial of degree K + T − 1 that takes the segments as its
values at β₁ … β_K and uniform masks at β_K+1 … β_K+T. Client n is given the value at αₙ: its
*share*. Any T shares together are uniform, whatever the secret. Whoever computes a polynomial of
degree D on shares gets the value at αₙ of a polynomial of degree D(K + T − 1), whose values at
β₁ … β_K are the results on the segments: D(K + T − 1) + 1 answers determine it, whichever they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from colonnade.coding.field import Field
from colonnade.coding.reed_solomon import wrong_positions
from colonnade.common.devices import to_device
from colonnade.common.randomness import Randomness
from colonnade.errors import InputError, Unanswerable


class TooFewAnswers(Unanswerable):
    """Fewer clients answered than the code needs."""


class WrongAnswers(Unanswerable):
    """Answers that no polynomial of the code's degree goes through."""


@dataclass(frozen=True)
class LagrangeCode:
    """The code of `clients` shares, with `partitions` segments (K) and up to `colluders` (T)
    clients that learn nothing together. `degree`: of what is computed on the shares; a product of
    two of them is of degree 2."""

    clients: int
    partitions: int
    colluders: int
    degree: int = 2
    field: Field = field(default_factory=Field)

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise InputError(f"partitions = {self.partitions}: expected 1 or more")
        if self.colluders < 0:
            raise InputError(f"colluders = {self.colluders}: expected 0 or more")
        if self.threshold > self.clients:
            raise InputError(
                f"partitions = {self.partitions}, colluders = {self.colluders}: need "
                f"{self.threshold} answers, of {self.clients} clients; "
                + possible(self.clients, self.degree)
            )
        if self.points + self.clients > self.field.prime:
            raise InputError(
                f"prime = {self.field.prime}: too small for {self.clients} clients; expected at "
                f"least {self.points + self.clients}"
            )

    @property
    def points(self) -> int:
        """K + T: segments and masks."""
        return self.partitions + self.colluders

    @property
    def threshold(self) -> int:
        """So many answers determine the result."""
        return self.degree * (self.points - 1) + 1

    @property
    def tolerated(self) -> int:
        """So many clients may be late or away."""
        return self.clients - self.threshold

    @cached_property
    def betas(self) -> tuple[int, ...]:
        return tuple(range(self.points))

    @cached_property
    def alphas(self) -> tuple[int, ...]:
        """On both sides of the betas: the numbers that shares are made with are then small (for 28
        clients, K = 6 and T = 1 up to 38,760; 1,344,904 with all alphas on one side)."""
        below = self.clients // 2
        return (*range(-below, 0), *range(self.points, self.points + self.clients - below))

    # -- sharing ----------------------------------------------------------------------------------

    def share(self, segments: Tensor, masks: Tensor) -> Tensor:
        """The shares of a secret. Masks must be uniform, and never used before. [partitions, …],
        [colluders, …] → [clients, …]"""
        return self._map(self._encoding, torch.cat([segments, masks]))

    def share_same(self, value: Tensor, masks: Tensor) -> Tensor:
        """The shares of a secret whose segments are all the same value. […], [colluders, …] →
        [clients, …]"""
        return self._map(self._encoding_of_same, torch.cat([value[None], masks]))

    def masks(self, shape: Sequence[int], source: Randomness) -> Tensor:
        """Fresh masks for a segment of this shape. [colluders, …]"""
        return self.field.random((self.colluders, *shape), source)

    def masks_by_source(self, shape: Sequence[int], sources: Sequence[Randomness]) -> Tensor:
        """The same for several secrets, each from its own source. [sources, colluders, …]"""
        return self.field.random_by_source((self.colluders, *shape), sources)

    @cached_property
    def _encoding(self) -> Tensor:
        """From the values at the betas to those at the alphas. [clients, partitions + colluders]"""
        return interpolation(self.field, self.betas, self.alphas)

    @cached_property
    def _encoding_of_same(self) -> Tensor:
        """The same where the first K values are equal. [clients, 1 + colluders]"""
        first, masks = self._encoding.split([self.partitions, self.colluders], 1)
        return torch.cat([self.field.total(first, 1)[:, None], masks], 1)

    # -- answers ----------------------------------------------------------------------------------

    def decode(self, answers: Tensor, who: Sequence[int]) -> Tensor:
        """The results on the segments, from the answers of the clients `who`, in their order; the
        first `threshold` of them are used. [answers, …] → [partitions, …]"""
        if len(who) < self.threshold:
            raise TooFewAnswers(self.shortage(len(who)))
        used = tuple(self.alphas[n] for n in who[: self.threshold])
        onto = self.betas[: self.partitions]
        return self._map(interpolation(self.field, used, onto), answers[: self.threshold])

    def shortage(self, answered: int) -> str:
        """What to tell somebody when too few have answered."""
        return (
            f"K={self.partitions}, T={self.colluders} need {self.threshold} of {self.clients} "
            f"clients, {answered} answered"
        )

    def wrong(self, answers: Tensor, who: Sequence[int], source: Randomness) -> list[int]:
        """Which of the clients `who` gave a wrong answer; [] if all agree.

        With s spare answers (more than `threshold`) any wrong answer of up to s clients is noticed,
        and up to s // 2 wrong clients are named; where more are wrong than can be named,
        `WrongAnswers` is raised. Without spare answers nothing can be noticed. The answers are
        compared by one random combination of their numbers, which hides a wrong one with
        probability 1/p.
        """
        if len(who) <= self.threshold:
            return []
        flat = answers.reshape(len(who), -1)
        weights = self.field.random((flat.shape[1], 1), source)
        combined = self.field.matmul(flat, weights)  # [answers, 1]
        at = tuple(self.alphas[n] for n in who)
        known, spare = combined.split([self.threshold, len(who) - self.threshold])
        onto = interpolation(self.field, at[: self.threshold], at[self.threshold :])
        if torch.equal(self.field.matmul(to_device(onto), known), spare):
            return []  # nearly always: what follows takes milliseconds
        values = combined[:, 0].tolist()
        found = wrong_positions(at, values, self.threshold, self.field.prime)
        if found is None:
            raise WrongAnswers(
                f"at least one of the clients {', '.join(map(str, who))} gave a wrong answer; "
                f"{len(who)} answers are not enough to tell which"
            )
        return [who[position] for position in found]

    def _map(self, matrix: Tensor, values: Tensor) -> Tensor:
        """A linear map over the first axis."""
        mapped = self.field.map(to_device(matrix), values.reshape(len(values), -1))
        return mapped.reshape(len(matrix), *values.shape[1:])


@lru_cache(maxsize=4096)
def interpolation(field: Field, at: tuple[int, ...], onto: tuple[int, ...]) -> Tensor:
    """The matrix that maps the values at some points of a polynomial of degree len(at) − 1 to its
    values at other points, which must be different ones. [onto, at]"""
    p = field.prime
    below = [math.prod([x - other for other in at if other != x]) for x in at]
    rows = []
    for z in onto:
        above = math.prod([z - x for x in at])
        rows.append(
            [above * field.inverse((z - x) * d) % p for x, d in zip(at, below, strict=True)]
        )
    return field.reduced(torch.tensor(rows, dtype=torch.int64, device="cpu"))


def most_partitions(clients: int, colluders: int, degree: int = 2) -> int:
    """The largest K that so many clients allow beside T."""
    return (clients - 1) // degree + 1 - colluders


def possible(clients: int, degree: int = 2) -> str:
    """Which K and T so many clients allow, in words."""
    most = most_partitions(clients, 0, degree)  # K + T
    if most < 2:
        return "that allows K = 1, T = 0 only, which protects nothing; three clients are the least"
    return f"possible is K + T ≤ {most}, for example K = {most - 1}, T = 1"
