"""The networks of DVFL: encoders of the clients, compressors of the aggregators, and what the owner
computes (the paper's appendix D.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from colonnade.common.devices import to_device
from colonnade.common.seeds import torch_stream
from colonnade.learning import make_head
from colonnade.learning.objectives import OBJECTIVES, UNSUPERVISED, Objective, Pupils
from colonnade.models.layers import Centre, Placeholders, mlp
from colonnade.models.stack import Stack
from colonnade.network import Network, local

if TYPE_CHECKING:
    from colonnade.algorithms.dvfl import DVFL


class DVFLModels:
    """The networks that the settings of an algorithm describe."""

    def __init__(self, algorithm: DVFL) -> None:
        self.algorithm, self.set, self.task = algorithm, algorithm.set, algorithm.task
        self.joined = sum(algorithm.embedding_widths)  # W_g
        self.code = self.set.aggregator_width or max(1, self.joined // 2)  # W_h
        self.hidden = (self.joined + 3 * self.code) // 4
        # Widths of what the owner is sent, by sender.
        self.offered = (self.code,) * self.set.aggregators or algorithm.embedding_widths

    def encoders(self, net: Network) -> Objective:
        clients, spec = self.algorithm.clients, self.set.encoder
        columns = Pupils.of_columns(clients, self.task, spec, self.set.decoder)
        return OBJECTIVES[self.set.objective](self.algorithm, net, columns, **UNSUPERVISED)

    def compressors(self, net: Network) -> Objective:
        count, W_g, W_h = self.set.aggregators, self.joined, self.code
        # Encodings end in a ReLU, unless by an encoder of the user's own.
        last = None if callable(self.set.encoder) else nn.ReLU
        pupils = Pupils(
            self.algorithm.aggregators,
            shapes=((W_g,),) * count,
            codes=(W_h,) * count,
            encoder=lambda _: mlp([W_g, self.hidden, W_h], last=nn.LeakyReLU),
            decoder=lambda _: mlp([W_h, self.hidden, W_g], last=last),
            names=("compressor", "expander"),
        )
        return OBJECTIVES[self.set.objective](self.algorithm, net, pupils, **UNSUPERVISED)


class OwnerModels:
    """What the owner makes of encodings side by side, followed by a flag for each sender: centred
    encodings, and a head on them that knows what to put where none came."""

    def __init__(self, models: DVFLModels, net: Network) -> None:
        algorithm = models.algorithm
        self.models, self.set, self.offered = models, models.set, models.offered
        self.values = sum(self.offered)
        self.received = self.values + len(self.offered)
        self.centre = algorithm.stack(
            net,
            "centre",
            algorithm.owner,
            lambda _: Centre(self.offered),
            input_widths=[self.received],
        )
        learnt = self.set.imputation == "learnt"
        self.head: Stack = algorithm.stack(
            net,
            "head",
            algorithm.owner,
            lambda _: self._filled_head() if learnt else self._head(),
            input_widths=[self.received if learnt else self.values],
        )

    def _head(self) -> nn.Module:
        W_h, hidden = self.models.code, self.models.hidden
        usual = [W_h, 40] if self.set.aggregators else [hidden, W_h, W_h, 40]
        spec = usual if self.set.head is None else self.set.head
        return make_head(spec, self.values, self.models.task.outputs)

    def _filled_head(self) -> nn.Module:
        head = self._head()
        return nn.Sequential(Placeholders(self.offered), head)

    @local
    def find_centre(self, train: Tensor) -> None:
        """SGD finds its way from centred encodings, whatever the clients' encoders give."""
        if self.set.centre and train.shape[1]:  # no rows: they were collected before a restart
            self.centre.load_member_state(0, Centre.of(train[0, :, : self.values]))

    @local
    def left_out(self, x: Tensor, round: int) -> Tensor:
        """Training rows as if encodings had been lost, each with probability `dropout`."""
        if not self.set.dropout:
            return x
        stream = torch_stream(self.models.task.seed, "owner", "dropout", round)
        drawn = torch.rand(x.shape[1], len(self.offered), generator=stream, device="cpu")
        kept = to_device(drawn) >= self.set.dropout
        wide = kept.repeat_interleave(torch.tensor(self.offered), 1)
        return x * torch.cat([wide, kept], 1)

    def predict(self, received: Tensor) -> Tensor:
        """[owner, rows, outputs]"""
        return self.head.predict(self.centre.predict(received))
