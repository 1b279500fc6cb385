"""Labels at several parties, and programs side by side, as real parties have them: leaders that
fall and return, a collaborator that falls, and questions to any of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.federation.member.test_versions import Hall, small

from colonnade.federation.member.answers import Question
from colonnade.federation.member.member import Member
from colonnade.federation.member.stage import Stage
from colonnade.learning.side_by_side import PACE
from colonnade.network.clock import SECOND


async def ask(hall: Hall, party: str) -> Any:
    """An answer of this party about three rows."""
    answers: list[Any] = []
    one = hall.members[party]
    one.questions.append(Question(["1", "2", "3"], answers.append))
    one.wake.notify()
    await hall.until(lambda: bool(answers))
    return answers[0]


def rounds_led(one: Member, program: int) -> int:
    return int(one.algorithm.training.progress.get(f"{PACE}{program}", 0))


def test_any_label_holder_answers_also_without_the_first_and_without_the_collaborator(
    tmp_path: Path,
) -> None:
    hall = Hall(small("cvfl", 3), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        await hall.trained()
        await hall.until(lambda: hall.members["client2"].state.stage == Stage.ANSWERING)
        first, second = await ask(hall, "client0"), await ask(hall, "client2")
        assert first.absent == second.absent == {}
        assert (first.logits - second.logits).abs().max() < 1e-6, "one model, whoever asks"
        hall.kill("collaborator")
        await hall.clock.sleep_until(hall.clock.now + SECOND)
        alone = await ask(hall, "client2")
        assert alone.absent == {"collaborator": "away"}
        assert (alone.logits - second.logits).abs().max() < 1e-6, "by its own copy of the top net"
        hall.kill("client0")
        hall.kill("client2")
        hall.start("client2")
        await hall.until(lambda: hall.members["client2"].state.stage == Stage.ANSWERING)
        await hall.clock.sleep_until(hall.clock.now + SECOND)
        left = await ask(hall, "client2")
        assert set(left.absent) == {"client0", "collaborator"}
        assert left.logits.shape == second.logits.shape

    hall.tell(story)


@pytest.mark.parametrize("name", ["cvfl", "vafl"])
def test_the_others_go_on_past_the_end_of_an_epoch_without_a_leader_that_fell(
    name: str, tmp_path: Path
) -> None:
    """It comes back, and leads again."""
    hall = Hall(small(name, 3, epochs=60, patience=60), tmp_path)

    async def story() -> None:
        hall.start(*hall.fed.members)
        decider = hall.members[hall.fed.speaker]
        await hall.until(lambda: decider.state.round > 3)
        hall.kill("client2")
        await hall.until(lambda: "client2" in decider.away())
        epoch, led = decider.state.round, rounds_led(decider, 2)
        await hall.until(lambda: decider.state.round > epoch + 5)
        assert rounds_led(decider, 2) == led
        hall.start("client2")
        await hall.until(lambda: rounds_led(decider, 2) > led + 2)
        await hall.trained()
        assert not decider.lacking()

    hall.tell(story)
