"""What the parties of FedVS compute in the field: shares of columns and models, coded embeddings,
and what the server opens. Nothing here is sent."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from colonnade.coding import LagrangeCode, Quantiser
from colonnade.coding.field import MERSENNE_31
from colonnade.errors import ColonnadeError, InputError
from colonnade.network import Inbox, local

if TYPE_CHECKING:
    from colonnade.algorithms.fedvs import FedVSSettings

TAG = 1  # row of a share or an answer that says which sharing it belongs to

Share = Callable[[Tensor, Tensor], Tensor]  # of a secret and masks; see `LagrangeCode`


class Overflow(ColonnadeError):
    """A sum could leave the field, and would be taken for another."""


class Shares:
    """`widths`: of the columns, by client."""

    def __init__(self, settings: FedVSSettings, code: LagrangeCode, widths: Sequence[int]) -> None:
        self.set, self.code, self.widths = settings, code, tuple(widths)
        self.columns = Quantiser(code.field, settings.data_bits)
        self.models = Quantiser(code.field, settings.model_bits)
        self.sums = Quantiser(code.field, settings.data_bits + settings.model_bits)
        # By client: each power of the columns, with a column of ones for the bias.
        self.features = tuple(settings.degree * (width + 1) for width in widths)
        self.widest = max(self.features)

    # -- columns ----------------------------------------------------------------------------------

    @local
    def powers(self, x: Tensor, here: Sequence[int]) -> Tensor:
        """[X, 1, X², 1, …] by client, padded to the widest. [clients here, rows, features]"""
        made = torch.zeros(*x.shape[:2], self.widest)
        for i, n in enumerate(here):
            own = torch.cat([x[i, :, : self.widths[n]], torch.ones(x.shape[1], 1)], 1)
            powers = [own**d for d in range(1, self.set.degree + 1)]
            made[i, :, : self.features[n]] = torch.cat(powers, 1)
        return made

    def check_columns(self, powers: Tensor) -> None:
        largest, limit = float(powers.abs().max()), self.columns.limit
        if largest > limit:
            raise InputError(
                f"data_bits = {self.set.data_bits}: the columns have values up to {largest:.3g}, "
                f"to the power of {self.set.degree}, and {limit:.3g} is the limit; take fewer "
                f"bits{self._larger_prime}, or scale the columns"
            )

    # -- models -----------------------------------------------------------------------------------

    def check_models(self, weights: Tensor, largest: Tensor) -> None:
        """No sum over all clients leaves the field if each embedding stays below its part.
        `largest`: of the columns' powers [clients here, features]."""
        reach = float((weights.abs() @ largest[..., None]).max())
        limit = self.sums.limit / self.code.clients
        if not reach <= limit:
            raise Overflow(
                f"an embedding may reach {reach:.3g}, and with data_bits = {self.set.data_bits}, "
                f"model_bits = {self.set.model_bits}, prime = {self.set.prime} and "
                f"{self.code.clients} clients the limit is {limit:.3g}: take fewer "
                f"bits{self._larger_prime}, or a lower learning rate"
            )

    @property
    def _larger_prime(self) -> str:
        """As advice, where there is one."""
        return ", a larger prime" if self.set.prime < MERSENNE_31 else ""

    # -- shares -----------------------------------------------------------------------------------

    @staticmethod
    def shared(share: Share, secret: Tensor, masks: Tensor) -> Tensor:
        """For every receiver, with a row more, whose first number tells this sharing from all
        others: a digest of its shares. [clients here, receivers, rows + 1, features]"""
        shares = share(secret, masks.transpose(0, 1))  # [receivers, clients here, rows, features]
        receivers, clients, rows, features = shares.shape
        made = torch.zeros(receivers, clients, rows + TAG, features, dtype=torch.int32)
        made[:, :, :-TAG] = shares
        for i in range(clients):
            made[:, i, -1, 0] = _digest(shares[:, i])
        return made.transpose(0, 1)

    @local
    def answers(self, shares: Tensor, rows: Tensor, models: Tensor) -> Tensor:
        """The embeddings of coded rows, summed over all clients (equation 5), and last a row that
        tells which sharings went in. [clients here, rows + 1, width]"""
        made = torch.zeros(len(shares), len(rows) + TAG, models.shape[2] - TAG, dtype=torch.int32)
        tags = torch.stack([shares[:, :, -1, 0], models[:, :, -1, 0]], 1)
        for i, (share, model) in enumerate(zip(shares, models, strict=True)):  # stays in the cache
            x = share.index_select(1, rows).transpose(0, 1).flatten(1)  # [rows, all features]
            w = model[:, :-TAG].transpose(1, 2).flatten(0, 1)  # [all features, width]
            made[i, :-TAG] = self.code.field.product(x, w)
            made[i, -1, 0] = _digest(tags[i])
        return made

    @local
    def held(self, shares: Tensor, models: Tensor) -> Tensor:
        """Whose columns and model each client here has a share of: 0 or 1. Tags that are 0 say that
        nothing came. [clients here, senders]"""
        return ((shares[:, :, -1, 0] != 0) & (models[:, :, -1, 0] != 0)).int()

    @local
    def able(self, held: Tensor, among: Tensor) -> Tensor:
        """Which clients here have all shares that count, if any do. [clients here] bool"""
        return (held >= among).all(1) & among.any(1)

    # -- the server -------------------------------------------------------------------------------

    @local
    def counted(self, inbox: Inbox) -> Tensor:
        """Whose shares count, given what each client has: all that any client has, but for those
        that leave too few clients able to answer. [server, 1, senders]"""
        held = inbox.value[0, inbox.arrived[0], 0]  # [clients heard, senders]
        among = held.amax(0) if len(held) else torch.zeros(self.code.clients, dtype=torch.int32)
        while among.any() and int((held >= among).all(1).sum()) < self.code.threshold:
            rarest = torch.where(among > 0, held.sum(0), self.code.clients + 1).argmin()
            among[rarest] = 0
        return among[None, None]

    def agreeing(self, inbox: Inbox) -> list[int]:
        """Most of the clients that answered, all from the same sharings."""
        answered = inbox.arrived[0].nonzero()[:, 0].tolist()
        tags = {n: int(inbox.value[0, n, -1, 0]) for n in answered}
        common = Counter(tags.values()).most_common(1)
        return [n for n in answered if tags[n] == common[0][0]]

    def mean(self, inbox: Inbox, who: Sequence[int], places: Tensor) -> Tensor:
        """The mean embedding of the rows at these places. [server, rows, width]"""
        answers = self.code.field.reduced(inbox.value[0, list(who), :-TAG].long())
        total = self.code.decode(answers, who).flatten(0, 1)[places]
        return (self.sums.real(total) / self.code.clients)[None].to(torch.get_default_dtype())


def _digest(numbers: Tensor) -> int:
    """From 1 to 2³¹ − 1: 0 says that nothing came."""
    digest = 0
    for part in numbers.contiguous().numpy() if numbers.is_contiguous() else numbers.numpy():
        digest = zlib.crc32(part.data, digest)
    return max(1, digest >> 1)
