"""VIM: the steps of its paper, what crosses the network, and clients that are away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.algorithms.fdml import FDMLSettings
from colonnade.algorithms.splitnn import SplitNNSettings
from colonnade.algorithms.vim import VIM, VIMSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.errors import InputError
from colonnade.experiments.run import build
from colonnade.network.faults import Client
from colonnade.testing import stacked

ROWS, WIDTH, CLASSES, CLIENTS = 64, 6, 10, 4
FLOAT = 4  # bytes


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    return load(DataSpec(dataset="digits", rows=360), seed=0)


@pytest.fixture(scope="module")
def all_digits() -> VerticalData:
    return load(DataSpec(dataset="digits"), seed=0)


def vim(**more: Any) -> VIMSettings:
    return VIMSettings(**{"name": "v", "algorithm": "vim", "batch": ROWS, **more})


@pytest.mark.parametrize(
    ("solver", "up", "down"),
    [
        ("sgd", ROWS * WIDTH, ROWS * WIDTH),
        ("admm", ROWS * WIDTH, (2 * ROWS + WIDTH) * CLASSES),
        ("admm-j", ROWS * CLASSES, 2 * ROWS * CLASSES),
    ],
)
def test_a_round_costs_what_the_paper_counts(
    digits: VerticalData, solver: str, up: int, down: int
) -> None:
    """Numbers from and to each client: appendix B.4."""
    method = vim(solver=solver, width=WIDTH, epochs=1, tau=1)
    trained = stacked(method, digits)
    rounds = trained.net.round + 1
    whole = trained.algorithm.task.rows["train"] / ROWS  # the last batch is smaller
    sent = {"up": 0, "down": 0}
    for phase, sender, _, kind, _, size in trained.net.ledger.rows():
        if phase == "training" and kind != "decision":
            sent["down" if sender == "server" else "up"] += size
    fixed = WIDTH * CLASSES if solver == "admm" else 0
    expected = CLIENTS * (whole * (down - fixed) + rounds * fixed) * FLOAT
    assert sent == {"up": CLIENTS * whole * up * FLOAT, "down": expected}


def test_duals_are_the_gradient_of_the_loss_at_the_auxiliary_variables(
    digits: VerticalData,
) -> None:
    """What the minimum of equation 6 and the step of equation 7 mean together."""
    algorithm = cast(VIM, stacked(vim(epochs=2, tau=3), digits).algorithm)
    z, duals, y = algorithm.z.value[0], algorithm.duals.value[0], algorithm.data.train.y
    assert torch.allclose(duals, z.softmax(-1) - F.one_hot(y, CLASSES), atol=1e-5)


@pytest.mark.parametrize("residual", ["old", "new", "shared"])
def test_one_round_is_the_papers(digits: VerticalData, residual: str) -> None:
    """Algorithm 2, written out for each client, with one batch and one local step."""
    settings = vim(residual=residual, epochs=1, tau=1, batch=1000, rho=0.7, lr=0.2, beta=0.5)
    algorithm, _ = cast(tuple[VIM, Any], build(settings, digits, 0))
    encoders = [algorithm.encoders.snapshot()[k] for k in range(CLIENTS)]
    heads = algorithm.matrices[0].clone()  # [clients, width, classes]
    trained = stacked(settings, digits)

    part, rate, decay = algorithm.data.train, 0.2, 2 * 0.5 / 1000
    rho = 0.7 / (CLIENTS if residual == "shared" else 1)  # on the sum of the logits
    xs = [x[:, : weights["0.weight"].shape[1]] for x, weights in zip(part.x, encoders, strict=True)]
    hs = [encode(x, weights) for x, weights in zip(xs, encoders, strict=True)]
    old = [h @ W for h, W in zip(hs, heads, strict=True)]
    total = torch.stack(old).sum(0)
    z = algorithm.proximal(total[None], part.y, rho, total[None])[0]
    duals = rho * (total - z)
    pull = (duals + rho * (total - z)) / len(z)  # of the heads' objective, by the logits
    new_heads = [W - rate * (h.T @ pull + decay * W) for h, W in zip(hs, heads, strict=True)]
    new = [h @ W for h, W in zip(hs, new_heads, strict=True)]
    for k in range(CLIENTS):
        others = {"old": total - old[k], "new": torch.stack(new).sum(0) - new[k]}
        s = old[k] + (z - total) / CLIENTS if residual == "shared" else z - others[residual]
        weights = {name: w.clone().requires_grad_() for name, w in encoders[k].items()}
        o = encode(xs[k], weights) @ new_heads[k]
        objective = ((duals * o).sum(1) + 0.7 / 2 * (s - o).square().sum(1)).mean()
        gradients = torch.autograd.grad(objective, list(weights.values()))
        for (name, w), g in zip(weights.items(), gradients, strict=True):
            expected = w.detach() - rate * (g + decay * w.detach())
            found = trained.weights[f"client{k}"][f"encoder.{name}"]
            assert torch.allclose(found, expected, atol=1e-6), name
    assert torch.allclose(
        cast(VIM, trained.algorithm).matrices[0], torch.stack(new_heads), atol=1e-6
    )


def encode(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    hidden = F.leaky_relu(x @ weights["0.weight"].T + weights["0.bias"])
    return F.relu(hidden @ weights["2.weight"].T + weights["2.bias"])


@pytest.mark.parametrize("solver", ["admm", "admm-j"])
def test_clients_that_come_and_go_cost_little_and_nothing_diverges(
    all_digits: VerticalData, solver: str
) -> None:
    """A client that is away contributes nothing; the rows that it missed stay valid."""
    method = vim(solver=solver, epochs=6, tau=5, lr=0.05)
    calm = stacked(method, all_digits)
    shaky = stacked(method, all_digits, fault=Client(name="away", down=0.2, up=0.5))
    assert calm.metrics["test_accuracy"] > 0.92
    assert shaky.metrics["test_accuracy"] > calm.metrics["test_accuracy"] - 0.03
    duals = cast(VIM, shaky.algorithm).duals.value
    assert float(duals.abs().max()) <= 1 + 1e-5  # as every gradient of a cross entropy


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_a_head_at_its_client_never_overshoots(digits: VerticalData, scale: float) -> None:
    """Equation 19 is a quadratic: however large the embeddings become, a step lowers it. With the
    plain rate, digits in batches of 64 diverge after some ten epochs."""
    settings = vim(solver="admm-j", width=WIDTH, beta=0.0)
    algorithm, _ = cast(tuple[VIM, Any], build(settings, digits, 0))
    random = torch.Generator().manual_seed(0)
    h = scale * torch.randn(CLIENTS, ROWS, WIDTH, generator=random)
    aim = torch.randn(CLIENTS, 2 * ROWS, CLASSES, generator=random)
    told = torch.cat([aim, algorithm.steady(h)], 1)
    everyone = torch.ones(CLIENTS, dtype=torch.bool)
    before = algorithm.on_logits(algorithm.heads.predict(h), aim)
    algorithm.heads.fit(h, told, algorithm.on_steady_logits, everyone)
    assert bool((algorithm.on_logits(algorithm.heads.predict(h), aim) < before).all())


def test_many_clients_share_what_is_lacking_unless_told_otherwise() -> None:
    """If each made up for all of it, they would overshoot as many times as they are."""
    many = load(DataSpec(dataset="digits", split="columns", parties=64, columns_each=6), seed=0)
    usual, _ = cast(tuple[VIM, Any], build(vim(), many, 0))
    told, _ = cast(tuple[VIM, Any], build(vim(residual="old"), many, 0))
    assert (usual.residual, told.residual) == ("shared", "old")
    method = vim(width=20, epochs=3, batch=512)
    assert stacked(method, many).metrics["test_accuracy"] > 0.8


def test_it_learns_numbers() -> None:
    diabetes = load(DataSpec(dataset="diabetes"), seed=0)
    for solver in ("sgd", "admm", "admm-j"):
        found = stacked(vim(solver=solver, epochs=8, lr=0.03), diabetes).metrics
        assert found["test_r2"] > 0.25
    with pytest.raises(InputError, match='residual = "old": the squared error of a number'):
        build(vim(residual="old"), diabetes, 0)


def test_blank_columns_get_the_smallest_head(all_digits: VerticalData) -> None:
    """The importance of a client is the norm of its head: here client 2 sees nothing."""
    blank = [x * (k != 2) for k, x in enumerate(all_digits.train.x)]
    data = replace(all_digits, train=replace(all_digits.train, x=tuple(blank)))
    for solver in ("sgd", "admm", "admm-j"):
        trained = stacked(vim(solver=solver, epochs=3, tau=5, beta=1.0), data)
        found = cast(VIM, trained.algorithm).importance(trained.net)
        assert list(found) == list(all_digits.clients)
        assert min(found, key=lambda client: found[client]) == "client2"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rho": 0.0}, "rho = 0: expected a number above 0"),
        ({"rho": -1.0}, "rho = -1: expected a number above 0"),
        ({"rho": math.nan}, "rho = nan: expected a number above 0"),
        ({"tau": 0}, "tau = 0: expected 1 or more"),
        ({"width": 0}, "width = 0: expected 1 or more"),
        ({"width": -3}, "width = -3: expected 1 or more"),
        ({"beta": -0.1}, "beta = -0.1: expected 0 or more"),
        ({"head": [8]}, "head: vim has no layers there to choose; leave it out"),
    ],
)
def test_bad_values_are_named(digits: VerticalData, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(vim(**keys), digits, 0)


def test_the_sum_of_logits_goes_on_without_a_client(all_digits: VerticalData) -> None:
    method = FDMLSettings(name="f", algorithm="fdml", epochs=15, lr=5e-3)
    shaky = stacked(method, all_digits, fault=Client(name="away", down=0.2, up=0.5))
    assert shaky.metrics["test_accuracy"] > 0.93


def test_a_weighted_sum_starts_as_a_sum_or_as_a_mean_and_its_weights_are_learnt(
    digits: VerticalData,
) -> None:
    for start, begin in (("sum", 1.0), ("mean", 1 / CLIENTS)):
        keys: Any = {"encoder": [8], "head": [], "weighted_start": start, "epochs": 1}
        method = SplitNNSettings(name="w", algorithm="splitnn", combine="weighted", **keys)
        before = build(method, digits, 0)[0].stacks["head"][1].member_state(0)["0.weight"]
        assert torch.equal(before, torch.full((CLIENTS,), begin))
        after = stacked(method, digits).weights["server"]["head.0.weight"]
        assert bool((after != begin).all())
