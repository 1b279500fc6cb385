"""What FedVS tells whoever runs it: in the log, while columns are shared, and in the result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.algorithms.fedvs_settings import FedVSSettings
from colonnade.algorithms.fedvs_shares import TAG, Shares
from colonnade.learning import Task
from colonnade.learning.segments import Segments
from colonnade.network import Network

log = logging.getLogger(__name__)

BAR = 20  # characters
UNPROTECTED = (
    "shares have no masks and protect nothing: a client can read the others' columns and models "
    "from the shares that it is sent; take colluders = 1 or more"
)


@dataclass
class Progress:
    """Of a sharing of columns, as a bar: `rows` of so many were sent and received; `bytes` leave a
    client for all others."""

    bytes: int
    length: int
    rows: int = 0

    def __str__(self) -> str:
        share = self.rows / self.length
        done = round(BAR * share)
        bar = "━" * done + "─" * (BAR - done)
        return f"sharing columns {bar} {share:.0%} of {self.bytes / 1e6:,.1f} MB"


class Told:
    """`task` and `shares`: those of the algorithm; `clients`: all of them."""

    def __init__(
        self, settings: FedVSSettings, task: Task, shares: Shares, clients: Sequence[str]
    ) -> None:
        self.set, self.task, self.shares, self.clients = settings, task, shares, clients
        self.here: Sequence[int] = ()  # clients that run here
        self.sharing: Progress | None = None  # of columns, while they are shared
        self.choice = ""  # of K
        if settings.partitions == "auto":
            fastest, none = "the fastest under the configured delays", "no delays are configured"
            why = fastest if task.delays.any else none
            self.choice = f"{settings.name}: partitions = {shares.code.partitions} ({why})"
            log.info(self.choice)

    def length(self, rows: int) -> int:
        """Rows of a share of so many rows."""
        return Segments(rows, self.shares.code.partitions).length + TAG

    def bytes_of(self, length: int) -> int:
        """That leave a client, here or of the widest columns, with so many coded rows for each of
        the others."""
        features = [self.shares.features[n] for n in self.here] or [self.shares.widest]
        return 4 * length * max(features) * (len(self.clients) - 1)

    def what_protects(self, net: Network) -> None:
        """In the log, once: where masks come from, and how much is shared."""
        rows = [self.task.rows[part] for part in ("train", "validation") if self.task.rows[part]]
        for party in (self.clients[n] for n in self.here[:1]):
            origin = net.secrets(party, "masks").origin
            log.info("%s: the masks of its shares come from %s", party, origin)
            megabytes = self.bytes_of(sum(map(self.length, rows))) / 1e6
            others = len(self.clients) - 1
            log.info("%s: shares its columns: %.1f MB to %d others", party, megabytes, others)
        if self.here and not self.set.colluders:
            log.warning("colluders = 0: %s", UNPROTECTED)

    def remarks(self) -> list[str]:
        unprotected = "" if self.set.colluders else f"colluders = 0: {UNPROTECTED}"
        return [said for said in (self.choice, unprotected) if said]
