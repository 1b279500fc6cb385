"""The networks of MAGS: encoders of the devices, heads and deep layers of the aggregators (the
paper's appendix F.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from colonnade.learning import encoder_widths, make_decoder, make_encoder, make_head
from colonnade.learning.objectives import Pupils
from colonnade.models.layers import Committee, Slots, mlp
from colonnade.models.stack import Stack
from colonnade.network import Inbox, Network, local
from colonnade.network.topology import Links

if TYPE_CHECKING:
    from colonnade.algorithms.mags import MAGS

WIDEST_HEAD = 128
SLOWLY = 0.05  # how fast a mean follows what comes
# Members of a group up to which a layer is drawn for all of them and then cut: to draw what is cut
# off took 12 s and 5 GB for 4,096 devices on a grid.
DRAWN_WHOLE = 256


class MAGSModels:
    """The networks that the settings of an algorithm describe, device by device."""

    def __init__(self, algorithm: MAGS) -> None:
        self.algorithm, self.set, self.task = algorithm, algorithm.set, algorithm.task
        self.spec = self.set.encoder or default_encoder(len(self.task.clients))
        self.widths = encoder_widths(self.spec, self.task)  # of the encodings
        self.width = max(self.widths)
        self.flagged = self.set.imputation != "zeros"  # whether models must know what is missing
        self.hidden = min(len(self.task.clients) * self.width, WIDEST_HEAD)

    # -- devices ----------------------------------------------------------------------------------

    def encoder(self, device: int) -> nn.Module:
        width, shape = self.task.widths[device], self.task.shapes[device]
        return make_encoder(self.spec, width, shape, hidden=nn.ReLU)

    def encoders(self, net: Network) -> Stack:
        a = self.algorithm
        make = lambda device: a.clipping(self.encoder(device))  # noqa: E731
        return a.stack(net, "encoder", a.devices, make, input_widths=self.task.widths)

    def pupils(self) -> Pupils:
        """Devices that learn their encoders alone."""
        shapes = self.task.shapes
        return Pupils(
            self.algorithm.devices,
            shapes,
            self.widths,
            encoder=self.encoder,
            decoder=lambda i: make_decoder(None, self.spec, self.widths[i], shapes[i]),
        )

    # -- aggregators ------------------------------------------------------------------------------

    def deep(self, net: Network) -> list[Stack]:
        """One for each further round of messages."""
        a, between = (
            self.algorithm,
            net.links(self.algorithm.aggregators, self.algorithm.aggregators),
        )
        first = net.links(a.devices, a.aggregators)
        links = [first if i == 0 else between for i in range(self.set.depth)]
        return [self._stack(net, f"deep{i}", links[i]) for i in range(self.set.depth)]

    def heads(self, net: Network) -> Stack:
        a = self.algorithm
        last = a.aggregators if self.set.depth else a.devices
        return self._stack(net, "head", net.links(last, a.aggregators))

    def _stack(self, net: Network, name: str, links: Links) -> Stack:
        """Models that take a slot for each neighbour, and fill those that stayed empty."""
        make = self._head if name == "head" else self._deep
        senders = [row[real].tolist() for row, real in zip(links.senders, links.real, strict=True)]

        def module(k: int) -> nn.Module:
            body = make(senders[k], len(links.src))
            if not self.flagged:
                return body
            learnt = self.set.imputation == "learnt"
            return nn.Sequential(Slots(len(senders[k]), self.width, learnt=learnt), body)

        widths = [len(one) * (self.width + self.flagged) for one in senders]
        group = self.algorithm.aggregators
        return self.algorithm.stack(net, name, group, module, input_widths=widths)

    def _head(self, senders: Sequence[int], group: int) -> nn.Module:
        s, outputs = self.set, self.task.outputs
        if callable(s.head):
            return make_head(s.head, len(senders) * self.width, outputs)
        widths = [] if s.depth else [self.hidden] if s.head is None else s.head
        head = mlp([drawn(senders, group) * self.width, *widths, outputs], hidden=nn.ReLU)
        head[0] = narrowed(cast(nn.Linear, head[0]), senders, self.width, group)
        return head

    def _deep(self, senders: Sequence[int], group: int) -> nn.Module:
        """The hidden layer of a head, dealt out over the rounds of messages."""
        perceptrons = max(1, round(self.hidden / (self.width * self.set.depth)))
        layer = Committee(drawn(senders, group) * self.width, self.width, perceptrons)
        layer.linear = narrowed(layer.linear, senders, self.width, group)
        return layer

    def follow_means(self, models: Stack, inbox: Inbox) -> None:
        """With `imputation = "mean"`, what stands in for a missing encoding is the mean of those
        that came before."""
        if self.set.imputation == "mean":
            follow(models, inbox)


@local
def follow(models: Stack, inbox: Inbox) -> None:
    means = inbox.value.mean(2)  # [aggregators, slots, width]
    for i in range(models.members):
        value = models.member_state(i)["0.value"]
        came = inbox.arrived[i, : len(value)]
        value[came] += SLOWLY * (means[i, : len(value)][came] - value[came])


def default_encoder(devices: int) -> list[int | float]:
    """The paper's for 4, 16 and 49 devices: 64 → 16, 16 → 4, 4 → 2."""
    hidden, code = (2 ** round(torch.log2(torch.tensor(n / devices)).item()) for n in (256, 64))
    return [max(4, int(hidden)), max(2, int(code))]


def drawn(senders: Sequence[int], group: int) -> int:
    """How many senders' columns of a layer are drawn at random."""
    return group if group <= DRAWN_WHOLE else len(senders)


def narrowed(layer: nn.Linear, senders: Sequence[int], width: int, group: int) -> nn.Linear:
    """A layer for all members of a group, cut to those it can hear of: to the same numbers, as the
    others' would always be zeros. Of a large group only these were drawn: they get the spread that
    they would have in the whole layer."""
    if layer.in_features == len(senders) * width:
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_((len(senders) / group) ** 0.5)
        return layer
    columns = [s * width + i for s in senders for i in range(width)]
    cut = nn.Linear(len(columns), layer.out_features)
    with torch.no_grad():
        cut.weight.copy_(layer.weight[:, columns])
        cut.bias.copy_(layer.bias)
    return cut
