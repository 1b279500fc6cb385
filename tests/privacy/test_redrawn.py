"""Normal numbers of which parts are redrawn at different intervals."""

from __future__ import annotations

import pytest
import torch

from colonnade.privacy.redrawn import LASTING, Redrawn

SECRET, ROWS = bytes(range(32)), 20_000


@pytest.mark.parametrize("epochs", [1, 2, 12])
def test_they_are_standard_normal_in_every_epoch(epochs: int) -> None:
    numbers = Redrawn(SECRET, ROWS, 2, epochs)
    for epoch in (0, epochs - 1, epochs + 5):  # more than planned
        assert float(numbers.of(epoch).mean()) == pytest.approx(0, abs=0.03)
        assert float(numbers.of(epoch).std()) == pytest.approx(1, abs=0.03)


def test_epochs_share_what_lives_as_long() -> None:
    """Parts of 12 epochs: never redrawn, and every 1, 2, 4 and 8 epochs."""
    numbers = Redrawn(SECRET, ROWS, 1, 12)
    drawn = torch.cat([numbers.of(epoch) for epoch in range(12)], 1)
    together = torch.corrcoef(drawn.T)
    part = (1 - LASTING) / 4
    for one, other, parts in [(0, 1, 3), (1, 2, 2), (0, 2, 2), (3, 4, 1), (0, 7, 1), (7, 8, 0)]:
        expected = LASTING + parts * part
        assert float(together[one, other]) == pytest.approx(expected, abs=0.03)


def test_the_same_secret_gives_the_same_numbers_from_any_epoch_on() -> None:
    """So that a party that starts again draws none of them a second time."""
    whole, again = Redrawn(SECRET, 50, 3, 12), Redrawn(SECRET, 50, 3, 12)
    for epoch in range(6):
        whole.of(epoch)
    for epoch in (6, 7, 11, 2):
        assert torch.equal(whole.of(epoch), again.of(epoch))
    other = Redrawn(bytes(32), 50, 3, 12)
    assert not torch.isclose(whole.of(0), other.of(0)).any()


def test_rows_that_are_told_twice_in_an_epoch_have_other_numbers_the_second_time() -> None:
    """Numbers that were the same would cancel in the difference of the two."""
    numbers = Redrawn(SECRET, ROWS, 1, 12)
    for epoch in (0, 5, 11):
        both = torch.cat([numbers.of(epoch), numbers.of(epoch, again=1)], 1)
        assert float(torch.corrcoef(both.T)[0, 1]) == pytest.approx(LASTING, abs=0.03)
