"""MAGS against the same in plain PyTorch: a module and an optimiser per device, heads as wide as
the whole federation with zeros where nothing came, autograd straight through the exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.algorithms.mags import MAGS, MAGSSettings
from colonnade.data import DataSpec, VerticalData, load
from colonnade.experiments.run import build, drive
from colonnade.learning.algorithm import Algorithm
from colonnade.network import Fault, Topology
from colonnade.network.faults import Communication, Device
from colonnade.network.samplers import Recorder
from colonnade.network.topology import Links

DEVICES, FULL = 9, Topology("complete")
GRID, RING, NEAR = Topology("grid"), Topology("ring"), Topology("geometric", 1.5)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def digits() -> VerticalData:
    """Eight pixels do not divide by three: the nine patches differ in size."""
    spec = DataSpec(dataset="digits", parties=DEVICES, split="patches", rows=110)
    return load(spec, seed=0)


def mags(**more: Any) -> MAGSSettings:
    brief = {"name": "m", "algorithm": "mags", "epochs": 1, "batch": 16}
    return MAGSSettings(**{**brief, **more})


def connected(topology: Topology, devices: int) -> Tensor:
    """Who hears whom, by looking at every pair. [devices, devices] bool"""
    side = round(devices**0.5)

    def near(i: int, j: int) -> bool:
        apart = hypot(i // side - j // side, i % side - j % side)
        match topology.kind:
            case "complete":
                return True
            case "ring":
                return (i - j) % devices in (0, 1, devices - 1)
            case "grid":
                return apart <= 1
            case _:
                return apart <= (topology.radius or 0) + 1e-9

    return torch.tensor([[near(i, j) for j in range(devices)] for i in range(devices)])


def table(links: Links, by_slot: Any) -> Tensor:
    """A mask by receiver and slot as a table. [senders, receivers]"""
    found = torch.zeros(len(links.src), len(links.dst), dtype=torch.bool)
    for r, j in zip(*np.nonzero(links.real & np.asarray(by_slot)), strict=True):
        found[links.senders[r, j], r] = True
    return found


class Head(nn.Module):
    """From the encodings of all members side by side; those in between average perceptrons."""

    def __init__(self, state: Mapping[str, Tensor], heard: Tensor, width: int) -> None:
        """`heard`: the members that the weights of `state` are for. [members] bool"""
        super().__init__()
        layers = [key[: -len(".weight")] for key in state if key.endswith(".weight")]
        self.deep = layers[0].endswith("linear")
        self.columns = heard.repeat_interleave(width)
        self.width = width
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for i, name in enumerate(layers):
            weight = state[f"{name}.weight"].clone()
            if i == 0:  # what stands where nothing ever comes makes no difference
                whole = torch.randn(len(weight), len(self.columns))
                whole[:, self.columns] = weight
                weight = whole
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(state[f"{name}.bias"].clone()))
        fill = torch.zeros(len(heard), width)
        self.learnt = nn.Parameter(fill.clone())  # in place of what did not come
        self.mean = fill

    def forward(self, x: Tensor) -> Tensor:
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = F.linear(x.relu() if i else x, weight, bias)
        if self.deep:
            x = x.relu()
            return torch.stack(x.split(self.width, 1)).mean(0)
        return x

    def matches(self, state: Mapping[str, Tensor]) -> float:
        """The largest difference from the weights of a head for its neighbours only."""
        mine = [w[:, self.columns] if i == 0 else w for i, w in enumerate(self.weights)]
        theirs = [v for k, v in state.items() if k.endswith("weight")]
        pairs = [*zip(mine, theirs, strict=True)]
        pairs += zip(self.biases, [v for k, v in state.items() if k.endswith("bias")], strict=True)
        return max(float((a.detach() - b).abs().max()) for a, b in pairs)


class PlainMAGS:
    """What gets through is given, as tables [senders, receivers]."""

    def __init__(self, algorithm: MAGS, data: VerticalData, topology: Topology) -> None:
        """Begins with the weights that the algorithm begins with."""
        self.set, self.data, self.width = algorithm.set, data, algorithm.models.width
        everyone = connected(topology, len(data.clients))
        chosen = list(algorithm.chosen)
        self.hears = everyone[:, chosen]  # [devices, aggregators]
        self.between = everyone[chosen][:, chosen]
        self.chosen = chosen
        self.encoders = [self.encoder(state) for state in states(algorithm, "encoder")]
        layers = [f"deep{i}" for i in range(algorithm.set.depth)] + ["head"]
        self.heads = [  # [layers][aggregators]
            [
                Head(state, (self.between if i else self.hears)[:, k], self.width)
                for k, state in enumerate(states(algorithm, name))
            ]
            for i, name in enumerate(layers)
        ]
        self.adam = {id(m): torch.optim.Adam(m.parameters(), lr=self.set.lr) for m in self.modules}  # pyright: ignore[reportArgumentType]

    @staticmethod
    def encoder(state: Mapping[str, Tensor]) -> nn.Sequential:
        (hidden, columns), (code, _) = state["0.weight"].shape, state["2.weight"].shape
        layers = nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, code), nn.ReLU()
        module = nn.Sequential(*layers)
        module.load_state_dict({key: value.clone() for key, value in state.items()})
        return module

    @property
    def modules(self) -> list[nn.Module]:
        return [*self.encoders, *(head for layer in self.heads for head in layer)]

    def learn(
        self, rows: Tensor, arrived: Tensor, returned: Tensor, alive: Sequence[bool] | None = None
    ) -> None:
        """One batch: `arrived` encodings and `returned` gradients. [devices, aggregators]"""
        alive = alive or [True] * len(self.encoders)
        h = [e(x[rows].double()) for e, x in zip(self.encoders, self.data.train.x, strict=True)]
        z: list[Tensor] = []
        for layer in self.heads:
            z = [self.apply(head, h, arrived[:, k], returned[:, k]) for k, head in enumerate(layer)]
            h, arrived, returned = z, self.between, self.between
        y = self.data.train.y[rows]
        up = [alive[device] for device in self.chosen]
        loss = sum(F.cross_entropy(one, y) for one, on in zip(z, up, strict=True) if on)
        for module in self.modules:
            module.zero_grad()
        if isinstance(loss, Tensor):
            loss.backward()
        who = [*alive, *(on for _ in self.heads for on in up)]
        for module, on in zip(self.modules, who, strict=True):
            for p in module.parameters():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            if on:
                self.adam[id(module)].step()

    def apply(self, head: Head, h: list[Tensor], arrived: Tensor, returned: Tensor) -> Tensor:
        parts = []
        for c, one in enumerate(h):
            fill: Any = 0.0
            if self.set.imputation == "mean":
                if arrived[c]:
                    head.mean[c] += 0.05 * (one.detach().mean(0) - head.mean[c])
                fill = head.mean[c]
            elif self.set.imputation == "learnt":
                fill = head.learnt[c]
            heard = bool(head.columns[c * self.width])
            came = one if returned[c] else one.detach()
            parts.append(came if arrived[c] else torch.zeros_like(one) + (fill if heard else 0.0))
        return head(torch.cat(parts, 1))

    @torch.no_grad()
    def predict(self, x: Sequence[Tensor], arrived: Tensor, gossip: Sequence[Tensor]) -> Tensor:
        """Algorithm 1. `gossip`: for each round who is heard. [aggregators, rows, classes]"""
        h = [e(one.double()) for e, one in zip(self.encoders, x, strict=True)]
        for layer in self.heads:
            joined = [
                torch.cat([one * bool(came) for one, came in zip(h, arrived[:, k], strict=True)], 1)
                for k in range(len(layer))
            ]
            h, arrived = [f(x) for f, x in zip(layer, joined, strict=True)], self.between
        z = [one.log_softmax(1) for one in h]
        for heard in gossip:
            known = [[z[j] for j in range(len(z)) if heard[j, k]] for k in range(len(z))]
            z = [torch.stack(one).mean(0) if one else torch.zeros_like(z[0]) for one in known]
        return torch.stack(z).log_softmax(2)

    def difference(self, algorithm: MAGS) -> float:
        """Of any weight."""
        gaps = [
            float((value - other).abs().max())
            for encoder, state in zip(self.encoders, states(algorithm, "encoder"), strict=True)
            for value, other in zip(encoder.state_dict().values(), state.values(), strict=True)
        ]
        names = [f"deep{i}" for i in range(len(self.heads) - 1)] + ["head"]
        for name, layer in zip(names, self.heads, strict=True):
            for head, state in zip(layer, states(algorithm, name), strict=True):
                gaps.append(head.matches(state))
                if "0.value" in state:
                    fill = head.mean if self.set.imputation == "mean" else head.learnt.detach()
                    heard = head.columns.view(-1, self.width)[:, 0]
                    gaps.append(float((fill[heard] - state["0.value"]).abs().max()))
        return max(gaps)


def states(algorithm: Algorithm, name: str) -> list[dict[str, Tensor]]:
    stack = algorithm.stacks[name][1]
    return [stack.member_state(i) for i in range(stack.members)]


# -- training -------------------------------------------------------------------------------------

SAME = [
    ({"method": "MVFL"}, FULL),
    ({"method": "MVFL"}, GRID),
    ({"method": "CD-MVFL"}, FULL),
    ({"method": "CD-MVFL"}, NEAR),
    ({"method": "PD-MVFL"}, GRID),
    ({"method": "VFL"}, FULL),
    ({"method": "PD-VFL"}, FULL),
    ({"method": "CD-4-MVFL"}, RING),
    ({"method": "CD-MVFL", "depth": 1}, GRID),
    ({"method": "MVFL", "depth": 2}, FULL),
    ({"method": "4-MVFL", "depth": 2}, NEAR),
    ({"method": "CD-MVFL", "imputation": "learnt"}, GRID),
    ({"method": "CD-MVFL", "imputation": "mean"}, GRID),
    ({"method": "CD-4-MVFL", "imputation": "learnt", "depth": 1}, FULL),
    ({"method": "CD-MVFL", "imputation": "mean", "depth": 1}, RING),
]


@pytest.mark.parametrize(("more", "topology"), SAME, ids=lambda v: getattr(v, "kind", str(v)))
def test_it_trains_the_same_models_and_predicts_the_same(
    digits: VerticalData, more: dict[str, Any], topology: Topology
) -> None:
    algorithm, net = build(mags(**more), digits, seed=3, topology=topology)
    algorithm = cast(MAGS, algorithm)
    plain = PlainMAGS(algorithm, digits, topology)
    links = net.links(algorithm.aggregators, algorithm.devices)
    assert torch.equal(table(links, True).t(), plain.hears)
    for round in range(len(algorithm.training.batches)):
        net.round = round
        kept = algorithm.kept(net)
        through = plain.hears if kept is None else table(links, kept).t()
        plain.learn(algorithm.training.batches[round].rows, through, through)
    net.round = 0
    drive(algorithm.train(net))
    assert plain.difference(algorithm) < 1e-9
    (answers,) = drive(algorithm.ask(net.within("inference"), algorithm.data.test))
    expected = plain.predict(digits.test.x, plain.hears, [])
    assert torch.allclose(answers.opinions, expected, atol=1e-8)


@pytest.mark.parametrize("topology", [GRID, RING, NEAR], ids=lambda topology: topology.kind)
def test_a_head_for_its_neighbours_is_cut_out_of_the_one_for_everybody(
    digits: VerticalData, topology: Topology
) -> None:
    settings = mags(depth=1)
    everybody, _ = build(settings, digits, seed=0)
    some, _ = build(settings, digits, seed=0, topology=topology)
    for name in ("deep0", "head"):
        pairs = zip(states(everybody, name), states(some, name), strict=True)
        for (whole, mine), heard in zip(pairs, connected(topology, DEVICES), strict=True):
            columns = heard.repeat_interleave(cast(MAGS, some).models.width)
            for key, value in mine.items():
                cut = whole[key][:, columns] if key.endswith("weight") else whole[key]
                assert torch.equal(value, cut)


LOSSY = [Communication(name="links", rate=0.3), Device(name="devices", rate=0.3)]


@pytest.mark.parametrize("fault", LOSSY, ids=lambda fault: fault.name)
@pytest.mark.parametrize("topology", [FULL, GRID], ids=lambda topology: topology.kind)
def test_a_gradient_that_got_lost_counts_as_zeros_and_who_is_away_does_not_learn(
    digits: VerticalData, fault: Fault, topology: Topology
) -> None:
    settings = mags(method="CD-MVFL")
    algorithm, net = build(settings, digits, seed=0, topology=topology, fault=fault)
    algorithm = cast(MAGS, algorithm)
    plain = PlainMAGS(algorithm, digits, topology)
    recorder = net._samplers["training"] = Recorder(net._sampler)
    there = net.links(algorithm.devices, algorithm.aggregators)
    back = net.links(algorithm.aggregators, algorithm.devices)
    drive(algorithm.train(net))
    rounds = len(algorithm.training.batches)
    lost = 0
    for round in range(rounds):
        net.round = round
        kept = table(back, algorithm.kept(net)).t()
        arrived = table(there, recorder.rows["arrived:devices>aggregators"][round]) & kept
        returned = table(back, recorder.rows["arrived:aggregators>devices"][round]).t() & arrived
        alive = recorder.rows["alive:devices"][round].tolist()
        plain.learn(algorithm.training.batches[round].rows, arrived, returned, alive)
        lost += int((arrived & ~returned).sum()) if isinstance(fault, Communication) else 1
    assert lost > 0
    assert plain.difference(algorithm) < 1e-9


# -- prediction -----------------------------------------------------------------------------------

FAULTS = [
    Communication(name="iid", rate=0.4, when="inference"),
    Communication(name="markov", rate=0.4, stay=0.6, when="inference"),
    Device(name="devices", rate=0.4, when="inference"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("topology", [FULL, GRID], ids=lambda topology: topology.kind)
def test_predictions_under_faults_are_algorithm_1(
    digits: VerticalData, fault: Fault, topology: Topology
) -> None:
    """Every batch on the graph that is left of it, and answers over the links that are left."""
    algorithm, net = build(mags(gossip=3, lr=0.01), digits, seed=0, topology=topology, fault=fault)
    algorithm = cast(MAGS, algorithm)
    drive(algorithm.train(net))
    plain = PlainMAGS(algorithm, digits, topology)
    apart = net.within("inference")
    recorder = apart._samplers["inference"] = Recorder(apart._sampler)
    answers = drive(algorithm.ask(apart, algorithm.data.test))
    assert len(answers) > 10
    links = net.links(algorithm.devices, algorithm.aggregators)
    encodings, gossip, told = (
        recorder.rows[f"arrived:{pair}"]
        for pair in ("devices>aggregators", "aggregators>aggregators", "aggregators>entity")
    )
    for i, one in enumerate(answers):
        x = [part[16 * i : 16 * (i + 1)] for part in digits.test.x]
        heard = [table(links, mask) for mask in gossip[3 * i : 3 * (i + 1)]]
        expected = plain.predict(x, table(links, encodings[i]), heard)
        assert torch.equal(one.active, torch.from_numpy(told[i][0]))
        assert torch.allclose(one.opinions[one.active], expected[one.active], atol=1e-9)
        same = all(torch.equal(mask, table(links, encodings[i])) for mask in heard)
        assert same == (fault.name != "markov")  # one graph for a prediction, or a moving one
        if isinstance(fault, Communication):
            assert encodings[i][links.own].all(), "a device always hears itself"
        else:  # who is away neither speaks nor answers
            assert not heard[0][~one.active].any()
            assert not heard[0][:, ~one.active].any()
