"""FDML: every client has a whole model (Hu, Niu, Yang and Zhou, "FDML: A Collaborative Machine
Learning Framework for Distributed Features", 2019).

Each client sends its share of the logits; the server, which has no model, adds them up and sends
back how the loss changes with them. In the synchronous form of the comparison in VIM.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.algorithms.fdml_settings import FDMLSettings
from colonnade.learning import Algorithm, Columns, Exchange, LabelHolder, Part, combine
from colonnade.models.layers import Loss
from colonnade.network import Network, local


class FDML(Algorithm):
    name = "fdml"
    takes_partial_rows = True
    settings = FDMLSettings
    set: FDMLSettings
    clients = Columns()
    server = LabelHolder("aggregator")
    logits = Exchange(
        clients, server, "the client's share of the logits, row by row", width="task.outputs"
    )
    gradient = logits.back("how the loss changes with the logits, which tells the label")

    def build(self, net: Network) -> None:
        self.models = self.encoder_stack(net, self.clients, width=self.task.outputs)

    async def train(self, net: Network) -> None:
        async for batch in self.training.rounds(net):
            o = self.models(batch.x)  # [clients, rows, classes]
            inbox = await net.send(o, self.logits, len(batch))
            able = net.alive(self.server) & inbox.any  # [server]
            total = combine(inbox, self.set.combine)
            batch.loss, gradient = differentiated(self.loss, total.value, batch.y)
            used = inbox.arrived & able[:, None]
            back = await net.send(total.share(gradient), self.gradient, len(batch), where=used)
            self.models.backward(o, back)

    async def predict(self, net: Network, part: Part) -> Tensor:
        """Who does not answer is missing from the sum."""
        outputs = []
        async for batch in net.rounds(part.in_order(self.predict_rows(net))):
            inbox = await net.send(self.models.predict(batch.x), self.logits, len(batch))
            outputs.append(combine(inbox, self.set.combine).value[0])
        return torch.cat(outputs)


@local(results=2)
def differentiated(loss: Loss, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient with respect to the logits. [server], [server, rows, classes]"""
    logits = logits.detach().requires_grad_()
    losses = loss(logits, y)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    return losses.detach(), gradient
