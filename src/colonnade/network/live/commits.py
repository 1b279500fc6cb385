"""Versions of the model among real parties: which party keeps which version, and how the parties
agree that their parts of the model are final."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
import torch
from torch import Tensor

from colonnade.errors import Diverged
from colonnade.network.clock import SECOND
from colonnade.network.live.messages import WEIGHTS
from colonnade.network.live.waiting import WaitingNetwork
from colonnade.network.network import LIVES
from colonnade.network.parts import Parts, Version
from colonnade.network.program_counter import MAIN

log = logging.getLogger(__name__)

WINDOW = 2  # rounds that a party may be ahead of another one


class CommittingNetwork(WaitingNetwork):
    """The methods of `Network` about versions of the model, for real parties. `Network` says what
    each of them promises."""

    @property
    def life(self) -> int:
        return self.post.life % LIVES

    def missing(self) -> set[str]:
        told = [party for parts in self.post.parts_of.values() for party in parts.missed]
        return self.silent.union(*self.post.missed.values(), told)

    def left_out(self) -> list[str]:
        known = {party: self.post.peers[party] for party in self.silent & self.post.peers.keys()}
        # A party that was started again may be a round or two further. One that says to be further
        # ahead is trained, or has jumped, and does not come back to what is computed here.
        ahead = MAIN.at(self.at.rounds_done(MAIN) + WINDOW + 2, 0)
        near = {party: k for party, k in known.items() if not k.reached(ahead)}
        return [party for party, k in near.items() if k.there or self.may_return(k)]

    def owing(self) -> list[str]:
        known = {party: self.post.peers[party] for party in self.silent & self.post.peers.keys()}
        there = [party for party, k in known.items() if k.there and not k.reached(self.at)]
        return there + [p for p, k in known.items() if not k.there and self.may_return(k)]

    def lacking(self, version: Version, parties: Sequence[str]) -> list[str]:
        return [party for party in parties if not self.post.keeps(party, version)]

    def past_without(self, version: Version, parties: Sequence[str]) -> list[str]:
        generation, round = version
        told = [(p, self.post.parts_of[p]) for p in parties if p in self.post.parts_of]
        without = [party for party, parts in told if not parts.have(version)]
        if generation != self.generation:
            return without
        next_round = MAIN.at(round + 2, 0)  # a program counter has the rounds begun
        return [party for party in without if self.post.peers[party].reached(next_round)]

    def unheard(self, parties: Sequence[str]) -> list[str]:
        return [p for p in parties if p in self.post.peers and p not in self.post.parts_of]

    def away_since(self, moment: float, parties: Sequence[str]) -> list[str]:
        known = {party: self.post.peers[party] for party in parties if party in self.post.peers}
        return [p for p, k in known.items() if not k.there or k.since > moment * SECOND]

    def measured_as_it_is(self, rounds: int) -> bool:
        if self.origin.rounds_done(MAIN) > self.post.joined_at + min(WINDOW, rounds - 1):
            return True  # no earlier process was here, whatever a peer says
        known = [peer.mine_before for peer in self.post.peers.values() if peer.there]
        told, mine = [self.post.before, *known], self.post.weights
        return all(past is not None and past.allows(self.origin, mine) for past in told)

    def tell_weights(self, digest: Callable[[], str]) -> None:
        self.post.weights = f"{','.join(map(str, self.origin))} {digest()}"
        for party in self.post.present():
            self.post.tell(party, WEIGHTS, self.origin, self.post.weights)

    def announce(self, parts: Parts) -> None:
        missed = tuple(sorted(set[str]().union(*self.post.missed.values())))
        self.post.announce(msgspec.structs.replace(parts, missed=missed))

    async def commit(self, keep: Callable[[bool], bool]) -> None:
        self.step += 1
        mark, leader = self.rounds_begun, self.leader
        if leader is not None and not self.leads:  # the leader says whether this is too late
            limit = self.clock.now + int(self.post.silence * SECOND)
            await self.wait_until(lambda: leader in self.post.parts_of, lambda: [leader], limit)
        late = mark < self.resume_at or self._committed(mark)
        self.post.muted = not keep(late)
        if self.post.muted:
            log.warning("%s: its part was not final when the others went on", self.party)
        self.post.reach(self.at)
        self.post.beat_all()
        if late:
            return
        if self.leads:
            nothing = Parts()
            await self.wait_for_all(lambda p: self.post.parts_of.get(p, nothing).final(mark))
        elif leader is None:
            await self.wait_for_all(lambda p: self.post.peers[p].reached(self.at))
        else:
            await self.wait_until(lambda: self._committed(mark), lambda: [leader])

    def _committed(self, mark: int) -> bool:
        """Whether the leader has said that the parts which were final at round `mark` are in
        use."""
        told = self.post.parts if self.leads else self.post.parts_of.get(self.leader or "")
        return told is not None and told.committed is not None and told.committed >= mark

    def check_loss(self, loss: Tensor) -> None:
        if not bool(torch.as_tensor(loss).isfinite().all()):
            raise Diverged(
                f"the loss of round {self.round + 1} is not a number any more. The largest numbers "
                f"came from {self.post.loudness.loudest()}. Lower the learning rate, or "
                "network.loudness in the federation file, which bounds what is accepted"
            )

    def clear_missed(self) -> None:
        self.post.missed.clear()
        self.announce(self.post.parts)

    async def wait_for_absent(self, spent: float = 0.0) -> None:
        lately = self.origin.at(self.rounds_begun - WINDOW, 0)
        beyond = self.origin.at(self.rounds_begun, self.step + 1)

        def ready(party: str) -> bool:
            return self.post.peers[party].reached(lately)

        def gone_on() -> (
            bool
        ):  # without a leader: others stopped waiting, and wait for this party now
            equals = self.leader is None
            return equals and any(k.there and k.reached(beyond) for k in self.post.peers.values())

        await self.wait_for_all(ready, gone_on, self.post.returns - spent)
