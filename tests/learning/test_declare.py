"""Declared groups and exchanges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from colonnade.data import DataSpec, load
from colonnade.errors import InputError
from colonnade.learning import Algorithm, Columns, Exchange, LabelHolder, Numbered, Part, Task
from colonnade.learning.settings import Settings
from colonnade.network import Network


class HelperSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: int = 2


class Helped(Algorithm):
    name = "helped"
    settings = HelperSettings
    clients = Columns()
    helpers = Numbered("aggregator", "count")
    owner = LabelHolder("owner")
    question = Exchange(clients, owner, "a question", width="embedding_widths", numbers="float64")
    answer = question.back("the answer to it")
    news = question.back("the same for all", each=False, kind="answer")

    def build(self, net: Network) -> None: ...
    async def train(self, net: Network) -> None: ...
    async def predict(self, net: Network, part: Part) -> Tensor: ...


TASK = Task.of(load(DataSpec(dataset="digits", rows=100, parties=3), seed=0), seed=0)


def helped(task: Task = TASK, **keys: Any) -> Helped:
    return Helped(HelperSettings(name="h", algorithm="helped", **keys), task)


def test_an_answer_goes_the_other_way_with_the_widths_and_the_type_of_the_question() -> None:
    one = helped(encoder=[0.5])
    assert (one.answer.src, one.answer.dst) == (one.owner, one.clients)
    assert one.answer.width == one.question.width == one.embedding_widths
    assert one.answer.each
    assert not one.news.each
    assert one.answer.dtype == one.question.dtype
    assert [exchange.kind for exchange in Helped.exchanges][:3] == ["question", "answer", "answer"]


def test_numbered_parties_have_names_of_their_own_or_those_of_the_federation() -> None:
    assert helped(count=3).helpers.parties == ("helper0", "helper1", "helper2")
    named = replace(TASK, players={"helpers": ("ann", "bob")})
    assert helped(named).helpers.parties == ("ann", "bob")


def test_numbered_parties_that_cannot_be_are_an_error() -> None:
    with pytest.raises(InputError, match="count = 2: but 1 parties are helpers"):
        _ = helped(replace(TASK, players={"helpers": ("ann",)})).helpers
    taken = replace(TASK, clients=("x", "helper1", "y"))
    with pytest.raises(InputError, match="'helper1' is one of the helpers; name the client other"):
        _ = helped(taken).helpers
