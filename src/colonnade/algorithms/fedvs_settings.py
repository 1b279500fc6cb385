"""The settings of FedVS, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from colonnade.coding.primes import MERSENNE_31
from colonnade.errors import InputError
from colonnade.learning import POSITIVE, Settings, at_least

if TYPE_CHECKING:
    from colonnade.coding import LagrangeCode
    from colonnade.learning import Task


class FedVSSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults: the paper's T, batch and rate for images, with momentum 0.9. `batch` counts rows of
    the data: a step takes batch / partitions coded rows. `encoder`: one width, that of the
    embeddings."""

    batch: Annotated[int, at_least(1)] = 256
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float | dict[str, float] = 5e-2
    momentum: Annotated[float, at_least(0)] = 0.9
    # K: a share is 1/K of the columns. "auto": the fastest under the delays of the network.
    partitions: int | Literal["auto"] = 1
    colluders: int = 1  # T: so many clients together learn nothing
    degree: Annotated[int, at_least(1)] = 2  # D, of the clients' polynomials
    clip: Annotated[float | None, POSITIVE] = None  # columns are clipped to ±clip
    data_bits: Annotated[int, at_least(1)] = 7  # binary places of the columns and their powers
    model_bits: Annotated[int, at_least(1)] = 13  # binary places of the clients' models
    prime: int = MERSENNE_31
    # When a client does not share its model, or too few answer. last: its last model stays in the
    # sum, and answers are waited for. zeros: go on without its embedding, and leave out the steps
    # that too few answer.
    missing: Literal["last", "wait", "zeros", "error"] = "last"
    spare: Annotated[int, at_least(0)] = 0  # answers more than are needed that the server waits for

    def check(self, task: Task) -> None:
        super().check(task)
        if self.wire is not None:
            raise InputError(
                f'wire = "{self.wire}": fedvs sends field elements, which must stay exact; leave '
                "it out (data_bits, model_bits and prime decide what is rounded)"
            )
        if self.encoder is not None and not (
            isinstance(self.encoder, list) and len(self.encoder) == 1 and self.encoder[0] >= 1
        ):
            raise InputError(
                f"encoder = {self.encoder!r}: the clients' models are polynomials of their columns "
                "(see degree); expected one width, that of the embeddings, e.g. encoder = [64]"
            )
        partitions = 1 if self.partitions == "auto" else self.partitions
        code = self.code(task, partitions)
        if self.spare > code.tolerated:
            raise InputError(
                f"spare = {self.spare}: of {code.clients} clients {code.threshold} must answer, so "
                f"that at most {code.tolerated} answers are spare"
            )
        if partitions > task.rows["train"]:
            raise InputError(
                f"partitions = {partitions}: there are only {task.rows['train']} training rows"
            )

    def code(self, task: Task, partitions: int) -> LagrangeCode:
        from colonnade.coding import Field, LagrangeCode

        clients, field = len(task.clients), Field(self.prime)
        return LagrangeCode(clients, partitions, self.colluders, field=field)

    @property
    def width(self) -> int:
        return int(self.encoder[0]) if isinstance(self.encoder, list) else 64
