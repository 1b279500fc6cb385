"""VIM: one linear head per client, and ADMM ("Improving Vertical Federated Learning by Efficient
Communication with ADMM").

The logits of a row are Σ_k h^k W_k: h^k is client k's embedding, W_k its head. `sgd` sends the
gradient of each embedding back, for one step. `admm` splits the problem by an auxiliary variable
z_j for each training row j, with its dual variable λ_j: a client is told what its logits should be,
and takes τ steps towards that on its own. `admm-j` does the same where each client holds its head.
Equations and algorithms are those of the paper; its objectives are divided by the rows of a batch.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.algorithms.vim_settings import FEW, VIMSettings
from colonnade.learning import (
    Algorithm,
    Columns,
    Exchange,
    LabelHolder,
    Part,
    Table,
    combine,
)
from colonnade.models.stack import Stack
from colonnade.network import Network, local, locally


class VIM(Algorithm):
    name = "vim"
    takes_partial_rows = True  # with the solver sgd
    settings = VIMSettings
    set: VIMSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    embedding = Exchange(
        clients,
        server,
        "an encoding of the client's columns, row by row (`sgd` and `admm`)",
        width="width",
    )
    gradient = embedding.back("how the loss changes with the client's embedding (`sgd`)")
    logits = Exchange(
        clients,
        server,
        "the client's share of the logits, row by row (`admm-j`)",
        width="task.outputs",
    )
    guidance = Exchange(
        server,
        clients,
        "row by row, how the loss changes with the logits, which tells the label, and what the "
        "client's share of the logits should be (`admm` and `admm-j`); the client's head (`admm`)",
        width="task.outputs",
        each=True,
    )

    @property
    def residual(self) -> str:
        few = self.task.classes and len(self.clients) <= FEW
        return self.set.residual or ("old" if few else "shared")

    @property
    def width(self) -> int:
        """d_f: of every embedding."""
        return self.set.width or max(self.embedding_widths)

    def build(self, net: Network) -> None:
        s, d_c = self.set, self.task.outputs
        # β|θ|², for the mean
        decay: dict[str, Any] = {"weight_decay": s.weight_decay + 2 * s.beta / s.batch}
        same = set(self.embedding_widths) == {self.width}
        linear = None if same else self.width  # where a linear layer must follow
        self.encoders = self.encoder_stack(net, self.clients, width=linear, **decay)
        self.heads = (self.own_heads if s.solver == "admm-j" else self.all_heads)(net, **decay)
        rows = torch.zeros(len(net.here(self.server)), self.task.rows["train"], d_c)
        self.z = self.keeps(net, "auxiliary", self.server, Table(rows))
        self.duals = self.keeps(net, "dual", self.server, Table(rows.clone()))
        self.rho = s.rho / (len(self.clients) if self.residual == "shared" else 1)  # on the sum
        self.on_sum = partial(lagrangian, rho=self.rho)
        self.on_logits = partial(lagrangian, rho=s.rho)
        self.on_steady_logits = partial(in_part, rho=s.rho)
        self.on_embeddings = partial(through_head, rho=s.rho)

    def all_heads(self, net: Network, **rule: Any) -> Stack:
        """At the server, below one another: [h^1 … h^M] W is Σ_k h^k W_k."""
        make = lambda _: new_heads(len(self.clients), self.width, self.task.outputs)  # noqa: E731
        return self.stack(net, "head", self.server, make, momentum=0.0, **rule)

    def own_heads(self, net: Network, **rule: Any) -> Stack:
        """At the clients."""
        make = lambda _: self.clipping(new_heads(1, self.width, self.task.outputs))  # noqa: E731
        widths = [self.width] * len(self.clients)
        rule |= {"momentum": 0.0}
        return self.stack(net, "head", self.clients, make, input_widths=widths, **rule)

    async def train(self, net: Network) -> None:
        match self.set.solver:
            case "sgd":
                await self.sgd(net)
            case "admm":
                await self.admm(net)
            case "admm-j":
                await self.admm_j(net)

    async def sgd(self, net: Network) -> None:
        """Algorithm 1."""
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, d_f]
            inbox = await net.send(h, self.embedding, len(batch))
            able = net.alive(self.server) & inbox.any  # [server]
            joined = combine(inbox)
            batch.loss = self.heads.fit(joined.value, batch.y, self.loss, able)  # equation 11
            _, _, gradient = self.heads.derivatives(joined.value, batch.y, self.loss)  # 13
            used = inbox.arrived & able[:, None]
            back = await net.send(joined.share(gradient), self.gradient, len(batch), where=used)
            self.encoders.backward(h, back)  # 14

    async def admm(self, net: Network) -> None:
        """Algorithm 2. A client that is away contributes nothing to the logits of a round."""
        async for batch in self.training.rounds(net):
            h = self.encoders(batch.x)  # [clients, rows, d_f]
            inbox = await net.send(h, self.embedding, len(batch), work=self.set.tau)
            able = net.alive(self.server) & inbox.any  # [server]
            shares = inbox.value @ self.matrices  # h^k W_k: [server, clients, rows, d_c]
            batch.loss = locally(self.loss, shares.sum(1), batch.y)
            z, duals = self.auxiliary_and_dual(shares.sum(1), batch.rows, batch.y, able)  # 6, 7
            told = torch.cat([duals, z], 1)
            self.heads.fit(inbox.concat(), told, self.on_sum, able)  # 8
            if self.residual == "new":
                shares = inbox.value @ self.matrices
            guidance = torch.cat([self.guide(z, duals, shares), self.matrices], 2)  # 9
            rows, used = 2 * len(batch) + self.width, inbox.arrived & able[:, None]
            back = await net.send(guidance, self.guidance, rows, where=used)
            for _ in range(self.set.tau):
                loss = self.encoders.fit(batch.x, back.total(), self.on_embeddings, back.any)  # 10
                locally(net.check_loss, loss)

    async def admm_j(self, net: Network) -> None:
        """Algorithm 3."""
        async for batch in self.training.rounds(net):
            o = self.heads.predict(self.encoders.predict(batch.x))  # [clients, rows, d_c]
            inbox = await net.send(o, self.logits, len(batch), work=self.set.tau)
            able = net.alive(self.server) & inbox.any  # [server]
            batch.loss = locally(self.loss, inbox.total(), batch.y)
            z, duals = self.auxiliary_and_dual(inbox.total(), batch.rows, batch.y, able)  # 16, 17
            guidance, used = self.guide(z, duals, inbox.value), inbox.arrived & able[:, None]  # 18
            back = await net.send(guidance, self.guidance, 2 * len(batch), where=used)
            for _ in range(self.set.tau):
                h = self.encoders(batch.x)
                told = torch.cat([back.total(), self.steady(h)], 1)
                loss = self.heads.fit(h, told, self.on_steady_logits, back.any)  # 19
                locally(net.check_loss, loss)
                _, _, gradient = self.heads.derivatives(h, back.total(), self.on_logits)
                self.encoders.backward(h, gradient, back.any)  # 20

    @property
    def matrices(self) -> Tensor:
        """W_k of every client, where the server holds them. [server, clients, d_f, d_c]"""
        return self.heads.as_row().unflatten(1, (-1, self.width, self.task.outputs))

    @local(results=2)
    def auxiliary_and_dual(
        self, logits: Tensor, rows: Tensor, y: Tensor, able: Tensor
    ) -> tuple[Tensor, Tensor]:
        """z and λ of these rows, given the sum of the clients' logits. [server, rows, d_c] each"""
        rho, duals = self.rho, self.duals.read(rows)
        # −λᵀz + ρ/2 |logits − z|² is ρ/2 |logits + λ/ρ − z|² and something without z.
        z = self.proximal(logits + duals / rho, y, rho, self.z.read(rows))
        duals = duals + rho * (logits - z)
        self.z.write_where(rows, z, able)
        self.duals.write_where(rows, duals, able)
        return z, duals

    @local
    def guide(self, z: Tensor, duals: Tensor, shares: Tensor) -> Tensor:
        """λ and the residuals s^k, below one another, given h^k W_k of every client. [server,
        clients, 2 · rows, d_c]"""
        clients, total = shares.shape[1], shares.sum(1, keepdim=True)
        lacking = z[:, None] - total
        if self.residual == "shared":
            lacking = lacking / clients
        return torch.cat([duals[:, None].expand_as(shares), lacking + shares], 2)

    @local
    def steady(self, h: Tensor) -> Tensor:
        """The part of its step that a head takes, so that the step does not overshoot: the rate is
        at most 1 / (ρ mean |h|²), and ρ mean |h|² is no less than the curvature of equation 19.
        [clients, rows, d_f] → [clients, 1, d_c]"""
        curvature = self.set.rho * h.detach().square().sum(2).mean(1)
        part = (1 / (self.heads.optimizer.lr * curvature)).clamp(max=1.0)
        return part[:, None, None].expand(-1, 1, self.task.outputs)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """Heads only; who does not answer contributes nothing."""
        outputs = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            h = self.encoders.predict(batch.x)
            if self.set.solver == "admm-j":
                o = self.heads.predict(h)
                outputs.append((await net.send(o, self.logits, len(batch))).total()[0])
            else:
                inbox = await net.send(h, self.embedding, len(batch))
                outputs.append(self.heads.predict(inbox.concat())[0])
        return torch.cat(outputs)

    def importance(self, net: Network) -> dict[str, float]:
        """|W_k| of the clients whose heads are here: how much each contributes (section 4.2)."""
        heads = self.heads.as_row()
        if self.set.solver != "admm-j":
            heads = self.matrices[0]
        names = self.clients.parties
        known = net.here(self.clients) if self.set.solver == "admm-j" else range(len(names))
        return {names[k]: float(one.norm()) for k, one in zip(known, heads, strict=True)}


def new_heads(heads: int, d_f: int, d_c: int) -> nn.Linear:
    """Below one another, each a layer of its own. All begin with the usual norm to the digit: so
    what their norms differ by later was learnt, and not drawn."""
    layer = nn.Linear(heads * d_f, d_c, bias=False)
    with torch.no_grad():
        each = layer.weight.unflatten(1, (heads, d_f))
        even = each / each.norm(dim=(0, 2), keepdim=True) * math.sqrt(d_c / 3)
        layer.weight.copy_(even.flatten(1))
    return layer


def lagrangian(o: Tensor, told: Tensor, rho: float) -> Tensor:
    """λᵀo + ρ/2 |s − o|², mean over the rows; `told` is λ, and below it s. [members, rows, d_c],
    [members, 2 · rows, d_c] → [members]"""
    duals, aim = told.chunk(2, 1)
    return ((duals * o).sum(-1) + rho / 2 * (aim - o).square().sum(-1)).mean(1)


def in_part(o: Tensor, told: Tensor, rho: float) -> Tensor:
    """A part of that, and so of its gradient; the part is below λ and s."""
    return told[:, -1, 0] * lagrangian(o, told[:, :-1], rho)


def through_head(h: Tensor, told: Tensor, rho: float) -> Tensor:
    """The same of o = hW; W is below λ and s. [members, rows, d_f] → [members]"""
    rows = h.shape[1]
    return lagrangian(h @ told[:, 2 * rows :], told[:, : 2 * rows], rho)
