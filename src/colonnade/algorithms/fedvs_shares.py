"""What the parties of FedVS compute in the field: shares of columns and models, coded embeddings,
and what the server opens. Nothing here is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.coding import LagrangeCode, Quantiser
from colonnade.coding.primes import MERSENNE_31
from colonnade.common.randomness import Randomness
from colonnade.errors import ColonnadeError, InputError
from colonnade.models.layers import Powers
from colonnade.network import Inbox, local

TAG = 1  # row of a share that says which sharing it belongs to
HELD, CLIPPED = 0, 1  # rows of what a client tells before a prediction

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
        powers = Powers(self.set.degree, self.set.clip)
        for i, n in enumerate(here):
            made[i, :, : self.features[n]] = powers(x[i, :, : self.widths[n]])
        return made

    @local
    def largest(self, *parts: Tensor) -> Tensor:
        """Of each power of a column in all these parts. [clients here, features]"""
        return torch.stack([powers.abs().amax(1) for powers in parts]).amax(0)

    def check_columns(self, largest: Tensor, clients: Sequence[str]) -> None:
        """`largest`: of the columns' powers [clients here, features]; `clients`: here."""
        limit = self.columns.limit
        for client, value in zip(clients, largest.amax(1).tolist(), strict=True):
            if value > limit:
                raise InputError(
                    f"data_bits = {self.set.data_bits}: the columns of {client} have values up to "
                    f"{value:.3g}, to the power of {self.set.degree}, and {limit:.3g} is the "
                    f"limit; take fewer bits{self._larger_prime}, or clip the columns, e.g. "
                    "clip = 4"
                )

    @local(results=2)
    def clipped(self, powers: Tensor, weights: Tensor, largest: Tensor) -> tuple[Tensor, Tensor]:
        """Rows to predict as they can be shared: a row with a number, or an embedding, that does
        not fit is clipped to the largest values in the training. And how many rows were. [clients
        here, rows, features], [clients here]"""
        x, w = self.columns.fixed(powers), self.models.fixed(weights)
        embeddings = (x @ w.transpose(1, 2)).abs().amax(2)  # [clients here, rows]
        fits = (powers.abs().amax(2) <= self.columns.limit) & (embeddings <= self.reach)
        bound = largest[:, None]
        return torch.where(fits[..., None], powers, powers.clamp(-bound, bound)), (~fits).sum(1)

    # -- models -----------------------------------------------------------------------------------

    @property
    def reach(self) -> float:
        """No sum over all clients leaves the field if each embedding stays below this part."""
        return self.sums.limit / self.code.clients

    def check_models(self, weights: Tensor, largest: Tensor, clients: Sequence[str]) -> None:
        """`largest`: of the columns' powers [clients here, features]. Both are rounded later, by
        less than a unit of the last place. `clients`: here."""
        w, x = weights.abs() + 2.0**-self.set.model_bits, largest + 2.0**-self.set.data_bits
        reaches, limit = (w @ x[..., None]).flatten(1).amax(1), self.reach
        if not (reaches <= limit).all():
            worst = int(reaches.argmax())
            raise Overflow(
                f"an embedding of {clients[worst]} may reach {float(reaches[worst]):.3g}, and with "
                f"data_bits = {self.set.data_bits}, model_bits = {self.set.model_bits}, prime = "
                f"{self.set.prime} and {self.code.clients} clients the limit is {limit:.3g}: take "
                f"fewer bits{self._larger_prime}, clip the columns, e.g. clip = 4, or take a lower "
                "learning rate"
            )

    @property
    def _larger_prime(self) -> str:
        """As advice, where there is one."""
        return ", a larger prime" if self.set.prime < MERSENNE_31 else ""

    # -- shares -----------------------------------------------------------------------------------

    @staticmethod
    def shared(share: Share, secret: Tensor, masks: Tensor, marks: Tensor) -> Tensor:
        """For every receiver, with a row more, whose first number, the mark, tells this sharing
        from all others. A mark is a random number: from a digest of the shares, whoever holds some
        of them could check a guess of the secret. [clients here, receivers, rows + 1, features]"""
        room = (0, 0, 0, TAG)  # zeros, whose shares are zeros: cheaper than to copy all shares
        made = share(F.pad(secret, room), F.pad(masks.transpose(0, 1), room))
        made[:, :, -1, 0] = marks  # [receivers, clients here, rows + 1, features]
        return made.transpose(0, 1)

    @staticmethod
    def mark(source: Randomness) -> int:
        """From 1 to 2³¹ − 1: 0 says that nothing came."""
        return max(1, int(source.words(1)[0]) >> 1)

    @local
    def answers(self, shares: Tensor, rows: Tensor, models: Tensor) -> Tensor:
        """The embeddings of coded rows, summed over all clients (equation 5), and last rows that
        tell which sharings went in. [clients here, rows + `mark_rows`, width]"""
        length, width = len(rows) + self.mark_rows, models.shape[2] - TAG
        made = torch.zeros(len(shares), length, width, dtype=torch.int32)
        for i, (share, model) in enumerate(zip(shares, models, strict=True)):  # stays in the cache
            x = share.index_select(1, rows).transpose(0, 1).flatten(1)  # [rows, all features]
            w = model[:, :-TAG].transpose(1, 2).flatten(0, 1)  # [all features, width]
            made[i, : len(rows)] = self.code.field.product(x, w)
        marks = torch.cat([self.marks(shares), self.marks(models)], 1)
        made[:, len(rows) :].view(len(made), -1)[:, : marks.shape[1]] = marks
        return made

    @property
    def mark_rows(self) -> int:
        """Rows of an answer that hold the marks of all clients' columns and models."""
        return -(-2 * self.code.clients // self.set.width)

    @staticmethod
    @local
    def marks(shares: Tensor) -> Tensor:
        """Of the sharings that shares belong to; 0 where nothing came. [clients here, senders]"""
        return shares[:, :, -1, 0]

    @local
    def held(self, shares: Tensor, models: Tensor) -> Tensor:
        """Whose columns and model each client here has a share of: 0 or 1. [clients here,
        senders]"""
        return ((self.marks(shares) != 0) & (self.marks(models) != 0)).int()

    @local
    def before_prediction(self, held: Tensor, clipped: Tensor) -> Tensor:
        """What each client tells the server: whose shares it has, and how many rows of its own it
        clipped. [clients here, 2, senders]"""
        told = torch.zeros(len(held), 2, held.shape[1], dtype=torch.int32)
        told[:, HELD], told[:, CLIPPED, 0] = held, clipped
        return told

    @local
    def able(self, held: Tensor, among: Tensor) -> Tensor:
        """Which clients here have all shares that count, if these are of enough clients: whatever
        the server says, no client answers about fewer. [clients here] bool"""
        return (held >= among).all(1) & (among.sum(1) >= self.fewest)

    @property
    def fewest(self) -> int:
        """Clients in a sum that is opened: T of them and the server together then know a sum over
        two others, and no single embedding. Without masks nothing is protected anyway."""
        return self.code.colluders + 2 if self.code.colluders else 1

    # -- the server -------------------------------------------------------------------------------

    @local
    def counted(self, inbox: Inbox) -> Tensor:
        """Whose shares count, given what each client has: all that any client has, but for those
        that leave too few clients able to answer; nobody's if the sum would be over too few.
        [server, 1, senders]"""
        held = inbox.value[0, inbox.arrived[0], HELD]  # [clients heard, senders]
        among = held.amax(0) if len(held) else torch.zeros(self.code.clients, dtype=torch.int32)
        while among.any() and int((held >= among).all(1).sum()) < self.code.threshold:
            rarest = torch.where(among > 0, held.sum(0), self.code.clients + 1).argmin()
            among[rarest] = 0
        return (among * (among.sum() >= self.fewest))[None, None]

    @local
    def differ(self, inbox: Inbox) -> Tensor:
        """Whether clients hold shares of different sharings of a client, or none, given the marks
        of what each of them holds and that all of them are there to share again. [1]"""
        there = inbox.arrived[0]
        marks = inbox.value[0, there][..., there]  # [clients, parts of the data, senders]
        alike = (marks == marks[:1]).all() & (marks != 0).all()
        return (~alike).float()[None]

    def marks_of_answers(self, inbox: Inbox) -> dict[int, tuple[int, ...]]:
        """By client that answered: which sharings of all clients' columns went in, and of all
        clients' models."""
        marks = inbox.value[0, :, -self.mark_rows :].flatten(1)[:, : 2 * self.code.clients].tolist()
        return {n: tuple(marks[n]) for n in inbox.arrived[0].nonzero()[:, 0].tolist()}

    def answers_of(self, inbox: Inbox, who: Sequence[int]) -> Tensor:
        """[answers, coded rows, width]"""
        found = inbox.value[0, list(who), : -self.mark_rows]
        if len(who) and self.code.field.holds(found):
            return found.int()
        return self.code.field.reduced(found.long())  # of a client that computes otherwise

    def mean(self, inbox: Inbox, who: Sequence[int], places: Tensor) -> Tensor:
        """The mean embedding of the rows at these places. [server, rows, width]"""
        total = self.code.decode(self.answers_of(inbox, who), who).flatten(0, 1)[places]
        return (self.sums.real(total) / self.code.clients)[None].to(torch.get_default_dtype())
