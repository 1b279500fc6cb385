"""Which parties are there, and what happens when a party has two processes at once (lives.py)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from colonnade.network.live.messages import TWICE

if TYPE_CHECKING:
    from colonnade.network.live.post import Post
    from colonnade.network.wire import Header

log = logging.getLogger(__name__)


class Presence:
    def __init__(self, post: Post, grace: int, release: Callable[[str, Header], None]) -> None:
        """`grace`: nanoseconds after which the second of two processes is told to end. `release`:
        called with each message that was held until its process counted."""
        self.post, self.grace, self.release = post, grace, release

    def notice(self, party: str, there: bool, life: int = 0) -> None:
        """The transport says that a process of another party came or left."""
        if party not in self.post.peers:
            return
        lives = self.post.peers[party].lives
        before = lives.current
        lives.change(life, there)
        if lives.current == before:
            if there and life in lives.present[1:]:
                self._recheck_later(party, life)
            return
        if before is not None:
            self._change(party, False)
        if lives.current is not None:
            self._change(party, True)
            for header in self.post.held.release(party, lives.current):
                self.release(party, header)

    def _recheck_later(self, party: str, life: int) -> None:
        """A party has a second process. If it was restarted, the network will soon notice the end
        of the first process; so check again after `grace`."""
        lives, clock = self.post.peers[party].lives, self.post.clock
        if life not in lives.unconfirmed:
            lives.unconfirmed.add(life)
            clock.call_at(clock.now + self.grace, lambda: self._refuse(party, life))

    def _refuse(self, party: str, life: int) -> None:
        """Tell both processes of the party which one counts, unless one of them has left meanwhile;
        repeat it for as long as both stay."""
        lives = self.post.peers[party].lives
        lives.unconfirmed.discard(life)
        if life not in lives.present[1:]:
            return
        if life not in lives.refused:
            lives.refused.add(life)
            log.warning(
                "%s: a second process has its certificate; going on with the first one only", party
            )
        self.post.tell(party, TWICE, note=str(lives.current))
        self._recheck_later(party, life)

    def _change(self, party: str, there: bool) -> None:
        peer = self.post.peers[party]
        peer.there, peer.since = there, self.post.clock.now
        peer.late.clear()
        peer.forget_positions()
        if there:
            self.post.greet(party)
        self.post.on_change(party, there)
        self.post.news.notify()
