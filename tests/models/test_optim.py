"""Stacked optimisers against torch's own, one per member."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from colonnade.models import Optimizer, Stack, cross_entropy, mlp
from colonnade.models.optim import Share

RULES = [
    Optimizer("sgd", 0.05),
    Optimizer("sgd", 0.05, momentum=0.9, weight_decay=1e-2),
    Optimizer("adam", 0.01),
    Optimizer("adam", 0.01, weight_decay=1e-2),
]


def reference(rule: Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    if rule.kind == "adam":
        return torch.optim.Adam(module.parameters(), lr=rule.lr, weight_decay=rule.weight_decay)
    return torch.optim.SGD(
        module.parameters(), lr=rule.lr, momentum=rule.momentum, weight_decay=rule.weight_decay
    )


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("compiled", [False, True], ids=["fused", "to be compiled"])
@pytest.mark.parametrize("taking_part", ["everyone", "some"])
def test_each_member_steps_as_if_it_had_an_optimiser_of_its_own(
    rule: Optimizer, compiled: bool, taking_part: Literal["everyone", "some"]
) -> None:
    torch.manual_seed(0)
    rule = replace(rule, share=Share())
    alone = [mlp([5, 8, 3]) for _ in range(4)]
    stack = Stack(alone, rule, compile=compiled)
    optimizers = [reference(rule, module) for module in alone]
    for step in range(25):
        rule.share.value = 1 / (1 + step)  # a rate that falls, as `lr_schedule` makes it
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rule.rate
        x, y = torch.randn(4, 16, 5), torch.randint(0, 3, (16,))
        where = torch.rand(4) < 0.6 if taking_part == "some" else torch.ones(4, dtype=torch.bool)
        for i in where.nonzero()[:, 0].tolist():
            optimizers[i].zero_grad()
            F.cross_entropy(alone[i](x[i]), y).backward()
            optimizers[i].step()
        with torch.compiler.set_stance(
            "force_eager"
        ):  # the arithmetic, without minutes of compiling
            stack.learn(x, y, cross_entropy, where)
    for i, module in enumerate(alone):
        for name, value in stack.member_state(i).items():
            assert torch.allclose(value, module.state_dict()[name], atol=2e-6), (i, name)


def test_who_misses_a_message_keeps_parameters_moments_and_step_count() -> None:
    stack = Stack([mlp([3, 2]) for _ in range(2)], Optimizer("adam"))
    x, y = torch.randn(2, 8, 3), torch.randint(0, 2, (8,))
    stack.learn(x, y, cross_entropy)
    before = stack.snapshot()
    (optimizer,) = stack.optimizers
    moments = [m[1].clone() for m in optimizer.first + optimizer.second]
    stack.learn(x, y, cross_entropy, torch.tensor([True, False]))
    assert optimizer.steps.tolist() == [2, 1]
    assert all(
        torch.equal(m[1], b)
        for m, b in zip(optimizer.first + optimizer.second, moments, strict=True)
    )
    assert all(torch.equal(stack.member_state(1)[k], v) for k, v in before[1].items())
    assert not all(torch.equal(stack.member_state(0)[k], v) for k, v in before[0].items())
