"""Stacks: the same as separate modules, however they are computed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from colonnade.models import Optimizer, Stack, cohort, cross_entropy, mlp
from colonnade.models.layers import cnn, output_width
from colonnade.network import ABSENT, Inbox, is_absent


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x))


class Branching(nn.Module):
    """Looks at its data, which vmap cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return y * 2 if y.sum().item() > 0 else y


def shared_activation() -> nn.Module:
    activation = nn.Tanh()
    return nn.Sequential(nn.Linear(6, 5), activation, nn.Linear(5, 4), activation)


def tied_layers() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer)


FACTORIES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "sequential": (lambda: mlp([6, 5, 4]), "plan"),
    "nested": (
        lambda: nn.Sequential(mlp([6, 5], last=nn.ReLU), nn.Linear(5, 4, bias=False)),
        "plan",
    ),
    "normalised": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4)), "vmap"),
    "own module": (Residual, "vmap"),
    "images": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 2), nn.Flatten()),
        "plan",
    ),
    "coloured images": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (3, 1, 2)),
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((1, 2)),
            nn.Flatten(),
            nn.Linear(4, 5),
        ),
        "plan",
    ),
    "convolution in groups": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 1, 3)), nn.Conv2d(2, 4, 1, groups=2), nn.Flatten()
        ),
        "vmap",
    ),
    "linear over an image": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Linear(3, 2), nn.Flatten()),
        "vmap",
    ),
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), "vmap"),
    "branching": (Branching, "loop"),
    "shared activation": (shared_activation, "plan"),
    "tied layers": (tied_layers, "vmap"),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_stack_computes_and_differentiates_like_its_modules(name: str) -> None:
    factory, how = FACTORIES[name]
    torch.manual_seed(1)
    modules = [factory() for _ in range(3)]
    stack = Stack(modules, Optimizer("sgd", 0.1), input_widths=[6, 6, 6])
    assert stack.cohorts[0].how == how
    x, gradient = (
        torch.randn(3, 7, 6),
        torch.randn(3, 7, stack.predict(torch.zeros(3, 2, 6)).shape[-1]),
    )
    out = stack(x)
    stack.backward(out, gradient)
    for i, module in enumerate(modules):
        alone = module(x[i])
        assert torch.allclose(out[i], alone, atol=1e-5)
        gradients = torch.autograd.grad(alone, list(module.parameters()), gradient[i])
        for (key, value), g in zip(module.named_parameters(), gradients, strict=True):
            assert torch.allclose(stack.member_state(i)[key], value - 0.1 * g, atol=1e-5), key
        for key, value in module.named_buffers():
            assert torch.allclose(stack.member_state(i)[key].float(), value.float(), atol=1e-5), key


def test_what_vmap_refuses_is_told_once_and_in_our_words(caplog: pytest.LogCaptureFixture) -> None:
    cohort._tell_slow.cache_clear()
    with caplog.at_level(logging.INFO, "colonnade.models.cohort"):
        for _ in range(3):
            members = [nn.Sequential(nn.Linear(6, 6), Branching()) for _ in range(2)]
            Stack(members, Optimizer(), input_widths=[6, 6])
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("Sequential (Linear, Branching): ")
    assert "one after the other" in said
    assert "slower" in said
    assert "vmap" not in said


@given(widths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_members_of_unequal_widths_compute_on_their_own_columns_only(widths: list[int]) -> None:
    torch.manual_seed(0)
    modules = [mlp([w, 4, 1 + w % 3]) for w in widths]
    stack = Stack(modules, Optimizer("sgd", 0.1), input_widths=widths)
    x = torch.randn(len(widths), 5, max(widths))
    out = stack(x)
    stack.backward(out, torch.ones_like(out))
    for i, (module, w) in enumerate(zip(modules, widths, strict=True)):
        alone = module(x[i, :, :w])
        assert torch.allclose(out[i, :, : alone.shape[1]], alone, atol=1e-6)
        assert (out[i, :, alone.shape[1] :] == 0).all()
        gradients = torch.autograd.grad(alone.sum(), list(module.parameters()))
        for (key, value), g in zip(module.named_parameters(), gradients, strict=True):
            assert torch.allclose(stack.member_state(i)[key], value - 0.1 * g, atol=1e-5)


@pytest.mark.parametrize("widths", [[6, 6, 6], [6, 3, 6]], ids=["equal", "unequal"])
def test_compiled_steps_give_the_same_weights_as_eager_ones(widths: list[int]) -> None:
    def train(compiled: bool) -> Stack:
        torch.manual_seed(0)
        stack = Stack(
            [mlp([w, 8, 4]) for w in widths], Optimizer(), input_widths=widths, compile=compiled
        )
        for k in range(6):
            rows = 16 if k % 2 else 10  # two shapes of batches
            x, y = torch.randn(3, rows, 6), torch.randint(0, 4, (rows,))
            out = stack(x)
            stack.backward(out, torch.randn(3, rows, 4), torch.tensor([True, k % 2 == 0, True]))
            stack.learn(x, y, cross_entropy, torch.tensor([k % 3 > 0, True, True]))
        return stack

    eager = train(False)
    with torch.compiler.set_stance("default" if widths[1] == 6 else "force_eager"):
        compiled = train(True)
    for i in range(3):
        for key, value in eager.member_state(i).items():
            assert torch.allclose(value, compiled.member_state(i)[key], atol=1e-6)


def test_learning_returns_each_members_loss_and_the_gradient_of_its_input() -> None:
    torch.manual_seed(0)
    modules = [mlp([6, 4]) for _ in range(2)]
    stack = Stack(modules, Optimizer("sgd", 0.1))
    x, y = torch.randn(2, 5, 6), torch.randint(0, 4, (5,))
    losses, gradient = stack.learn(x, y, cross_entropy)
    for i, module in enumerate(modules):
        mine = x[i].clone().requires_grad_()
        loss = F.cross_entropy(module(mine), y)
        assert losses[i].item() == pytest.approx(loss.item(), abs=1e-6)
        assert torch.allclose(gradient[i], torch.autograd.grad(loss, mine)[0], atol=1e-6)


def test_dropout_inside_a_users_module_draws_from_the_members_own_stream() -> None:
    def outputs(seeds: list[int]) -> Tensor:
        torch.manual_seed(0)
        modules = [nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5)) for _ in seeds]
        return Stack(modules, Optimizer(), input_widths=[6] * len(seeds), seeds=seeds)(
            torch.ones(len(seeds), 3, 6)
        )

    before = torch.random.get_rng_state()
    torch.manual_seed(3)
    pair, single = outputs([5, 7]), outputs([5])
    assert torch.equal(pair[0] == 0, single[0] == 0)
    assert not torch.equal(pair[0] == 0, pair[1] == 0)
    torch.random.set_rng_state(before)


def test_a_stack_with_nobody_here_answers_absent_and_does_nothing() -> None:
    empty = Stack([], Optimizer())
    assert is_absent(empty(torch.zeros(0)))
    assert all(
        is_absent(part) for part in empty.learn(torch.zeros(0), torch.zeros(0), cross_entropy)
    )
    empty.backward(torch.zeros(0), torch.zeros(0))


@pytest.mark.parametrize("shape", [(1, 7, 28), (3, 8, 8), (1, 2, 8), (1, 1, 1)])
def test_the_small_cnn_takes_any_part_of_an_image(shape: tuple[int, int, int]) -> None:
    width = shape[0] * shape[1] * shape[2]
    assert output_width(cnn(shape, 64), width) == 64


def test_frozen_parameters_stay_as_they_are() -> None:
    def frozen() -> nn.Module:
        module = mlp([6, 5, 4])
        module[0].requires_grad_(False)
        return module

    stack = Stack([frozen(), frozen()], Optimizer("sgd", 0.1), input_widths=[6, 6])
    before = stack.snapshot()
    out = stack(torch.randn(2, 8, 6))
    stack.backward(out, torch.ones_like(out))
    for i, old in enumerate(before):
        changed = {k for k, v in stack.member_state(i).items() if not torch.equal(v, old[k])}
        assert changed == {"2.weight", "2.bias"}


def test_a_module_without_parameters_has_nothing_to_learn() -> None:
    stack = Stack([nn.Identity(), nn.Identity()], Optimizer())
    out = stack(torch.ones(2, 3, 4))
    stack.backward(out, torch.ones_like(out))
    assert torch.equal(out, torch.ones(2, 3, 4))


def test_modules_that_differ_only_in_a_setting_are_not_taken_for_equal() -> None:
    class Scaled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.layer, self.factor = nn.Linear(6, 4), factor

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.factor

    modules = [Scaled(1.0), Scaled(5.0)]
    x = torch.randn(2, 3, 6)
    out = Stack(modules, Optimizer(), input_widths=[6, 6])(x)
    assert torch.allclose(out[1], modules[1](x[1]), atol=1e-5)


def test_what_keeps_statistics_is_not_compiled(caplog: pytest.LogCaptureFixture) -> None:
    modules = [nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    stack = Stack(modules, Optimizer(), input_widths=[6, 6], compile=True)
    stack.learn(torch.randn(2, 8, 6), torch.zeros(8, dtype=torch.long), cross_entropy)
    assert "not compiled" in caplog.text
    assert stack.member_state(0)["1.num_batches_tracked"].item() == 1


def moved(stack: Stack, before: list[dict[str, Tensor]]) -> list[bool]:
    """Which members have other parameters than before."""
    return [
        any(not torch.equal(value, old[name]) for name, value in stack.member_state(i).items())
        for i, old in enumerate(before)
    ]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_member_that_is_down_takes_no_step_unless_it_is_told_to(compiled: bool) -> None:
    up = torch.tensor([True, False, True])
    x, y = torch.randn(3, 5, 4), torch.zeros(5, dtype=torch.long)
    modules = [mlp([4, 2]) for _ in range(3)]
    with torch.compiler.set_stance("force_eager"):
        stack = Stack(modules, Optimizer("sgd", 0.1), up=lambda: up, compile=compiled)
        for step in (
            lambda **where: stack.learn(x, y, cross_entropy, **where),
            lambda **where: stack.fit(x, y, cross_entropy, **where),
            lambda **where: stack.backward(stack(x), torch.ones(3, 5, 2), **where),
        ):
            before = stack.snapshot()
            step()
            assert moved(stack, before) == [True, False, True]
            before = stack.snapshot()
            step(where=torch.tensor([False, True, False]))
            assert moved(stack, before) == [False, True, False]


def test_members_that_were_sent_no_gradient_take_no_step() -> None:
    arrived = torch.tensor([[True, True], [False, False], [False, True]])
    gradients = Inbox(torch.ones(3, 2, 5, 2), arrived, everything=False)
    x = torch.randn(3, 5, 4)
    modules = [mlp([4, 2]) for _ in range(3)]
    stack, by_hand = (Stack(modules, Optimizer("sgd", 0.1)) for _ in range(2))
    before = stack.snapshot()
    stack.backward(stack(x), gradients)
    assert moved(stack, before) == [True, False, True]
    by_hand.backward(by_hand(x), gradients.total(), gradients.any)
    for i in range(3):
        for name, value in by_hand.member_state(i).items():
            assert torch.equal(value, stack.member_state(i)[name])


def test_a_stack_without_members_asks_as_well_so_that_all_parties_draw_the_same_faults() -> None:
    asked = []

    def up() -> Tensor:
        asked.append(1)
        return torch.zeros(0, dtype=torch.bool)

    stack = Stack([], Optimizer(), up=up)
    stack.learn(ABSENT, ABSENT, cross_entropy)  # pyright: ignore[reportArgumentType]
    stack.fit(ABSENT, ABSENT, cross_entropy)  # pyright: ignore[reportArgumentType]
    stack.backward(ABSENT, ABSENT)  # pyright: ignore[reportArgumentType]
    assert len(asked) >= 3


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_another_programs_step_between_forward_and_backward_does_no_harm(compile: bool) -> None:
    """Forward, forward, backward, backward: as two programs side by side do it."""
    torch.manual_seed(0)
    stack = Stack([mlp([6, 5, 4]) for _ in range(2)], Optimizer("sgd", 0.1), compile=compile)
    apart = Stack([mlp([6, 5, 4]) for _ in range(2)], Optimizer("sgd", 0.1))
    apart.restore(stack.snapshot())
    gradient = torch.randn(2, 8, 4)
    for programs in (2, 2, 2, 1, 1):  # in the end one of them goes on alone
        x = [torch.randn(2, 8, 6) for _ in range(programs)]
        outs = [stack(one) for one in x]
        for out in outs:
            stack.backward(out, gradient)
        for one in x:  # one after the other: each derivative at the parameters of its step
            apart.backward(apart(one), gradient)
    for member in range(2):
        for name, value in apart.member_state(member).items():
            assert torch.allclose(stack.member_state(member)[name], value, atol=1e-6), name


def test_a_version_restored_between_forward_and_backward_does_no_harm() -> None:
    """As when a program ends, goes back to its best version, and another one goes on."""
    torch.manual_seed(0)
    stack, apart = (Stack([mlp([6, 5, 4])], Optimizer("sgd", 0.1)) for _ in range(2))
    x, gradient, best = torch.randn(1, 8, 6), torch.randn(1, 8, 4), apart.snapshot()
    out = stack(x)
    stack.restore(best)
    stack.backward(out, gradient)
    apart.backward(apart(x), gradient)
    for name, value in apart.member_state(0).items():
        assert torch.equal(stack.member_state(0)[name], value), name


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
def test_what_is_passed_back_belongs_to_its_own_forward_computation(compile: bool) -> None:
    torch.manual_seed(0)
    stack = Stack([mlp([6, 5, 4])], Optimizer("sgd", 5.0), compile=compile)
    x = torch.randn(1, 8, 6).requires_grad_()
    out = stack(x)
    stack.learn(torch.randn(1, 8, 6), torch.zeros(8, dtype=torch.long), cross_entropy)
    found = stack.pass_back(x, out, torch.ones(1, 8, 4), torch.tensor([False]))
    (expected,) = torch.autograd.grad(_sum(stack, x), x)
    assert torch.allclose(found, expected, atol=1e-6)


def _sum(stack: Stack, x: Tensor) -> Tensor:
    """As an eager stack with the same parameters computes it, differentiable."""
    eager = Stack([mlp([6, 5, 4])], Optimizer())
    eager.restore(stack.snapshot())
    return eager(x).sum()


def test_a_stack_follows_its_twin_as_a_running_mean_where_it_is_told_to() -> None:
    modules = [nn.Linear(3, 2), nn.Linear(4, 2), nn.Linear(3, 2)]  # two cohorts
    mean = Stack(modules, Optimizer("sgd", 1.0), input_widths=[3, 4, 3])
    learning, where = mean.twin(), torch.tensor([True, True, False])
    first = [mean.member_state(i)["bias"].clone() for i in range(3)]
    expected = [value.clone() for value in first]
    for step in range(1, 40):
        for i in range(3):
            state = {name: value + 1 for name, value in learning.member_state(i).items()}
            learning.load_member_state(i, state)
        mean.follow(learning, 3, where)
        for i in range(2):
            newest = first[i] + step
            expected[i] += (newest - expected[i]) / min(3, 1 + step / 10)
    for i in range(3):
        assert torch.allclose(mean.member_state(i)["bias"], expected[i], atol=1e-5)
    assert torch.allclose(learning.member_state(2)["bias"], first[2] + 39), "learns by itself"
