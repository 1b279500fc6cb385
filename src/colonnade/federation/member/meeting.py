"""What parties find out about each other when they meet: whether their files and rows fit together,
and whether two processes have the same certificate."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from colonnade.common.text import printable
from colonnade.errors import Unsuited
from colonnade.federation.agreement.alignment_file import ADD, AGAIN
from colonnade.federation.agreement.digest import differences
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.member.known_code import KnownCode
from colonnade.federation.member.messages import Greeting, text
from colonnade.federation.member.own_data import OwnData
from colonnade.network.live.post import Post

log = logging.getLogger(__name__)


class Meeting:
    """What one party knows of the parties that it has met."""

    def __init__(self, federation: Federation, own: OwnData, post: Post, codes: KnownCode) -> None:
        self.federation, self.own, self.post, self.codes = federation, own, post, codes
        self.complaints: dict[str, str] = {}  # what is wrong → the party concerned
        self.agreeing: set[str] = set()  # parties whose files and rows fit those of this party
        self.strangers: set[str] = set()  # parties that have another federation file
        self.preferring: dict[str, int] = {}  # party → which life of this party it listens to

    def greeting(self, new: bool = False) -> str:
        """What this party tells every party that it meets. `new`: it had no checkpoint when it
        started."""
        own, start = self.own, self.post.life if new else 0
        return text(Greeting(self.federation.digests, own.fingerprint, dict(own.code), start))

    def greeted(self, sender: str, theirs: Greeting) -> str:
        """Note the greeting of another party. Returns why this party cannot work with it; "" if it
        can."""
        self.codes.hear(sender, theirs.code)
        found = self._mismatch(sender, theirs)
        if not found:
            self.agreeing.add(sender)
        elif sender not in self.complaints.values():  # one complaint per party is enough
            self.complaints[found] = sender
            log.error("%s", found)
        return found

    def _mismatch(self, sender: str, theirs: Greeting) -> str:
        if differing := differences(self.federation.digests, theirs.digests):
            self.strangers.add(sender)
            for key, advice in (("rows.alignment", AGAIN), ("rows.added", ADD)):
                if key in differing:
                    return f"{sender} has another alignment of rows than we; {advice}"
            keys = printable(", ".join(differing))
            return f"the federation file of {sender} differs from ours in {keys}"
        if self.own.fingerprint and theirs.rows and theirs.rows != self.own.fingerprint:
            return f"{sender} has other rows than we: the ids of the aligned rows differ"
        return ""

    def outvoted(self) -> Unsuited:
        """Where nobody leads: the error of a party whose neighbours have other files or rows."""
        return Unsuited(f"{'; '.join(self.complaints)}; all parties need the same")

    def twice(self, sender: str, life: int) -> None:
        """Two processes have this party's certificate, and `sender` says which one it listens to.
        If it is not this one, this one ends: when the leader says so, or at least two parties and
        most of those that are there. One other member alone cannot end it, also where no further
        one is there."""
        known, self.preferring[sender] = self.preferring.get(sender), life
        if life == self.post.life:
            if known != life:
                log.warning("a second process has our certificate; %s listens to us only", sender)
            return
        there = self.post.present()
        against = [p for p in there if self.preferring.get(p, self.post.life) != self.post.life]
        since = datetime.fromtimestamp(life / 1000, UTC)
        if sender == self.federation.leader or len(against) > max(1, len(there) / 2):
            raise Unsuited(
                f"{self.post.party}: another process with this party's certificate takes part "
                f"already, started {since:%Y-%m-%d %H:%M:%S} UTC by its clock, says {sender}. "
                "Start a party once; if you did, somebody else has its key"
            )
        if known != life:
            log.warning(
                "%s says that it listens to another process with our certificate, started %s UTC; "
                "if you started this party twice, end this process",
                sender,
                f"{since:%Y-%m-%d %H:%M:%S}",
            )
