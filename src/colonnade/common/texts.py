"""Many short texts in little memory: their UTF-8 bytes one after the other, and where each ends.

A Python string of 8 letters takes 57 bytes and the reference to it 8; here it takes 16 in all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD = 8  # bytes that are compared at a time
PIECE = 2**16  # texts that are handled at a time
Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class Texts(Sequence[str]):
    def __init__(self, letters: Bytes, ends: Places) -> None:
        self.letters, self.ends = letters, ends  # ends: [texts + 1], the first is 0

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        letters, ends = bytearray(), array("q", [0])
        for text in texts:
            letters += _encoded(text)
            ends.append(len(letters))
        return cls(np.frombuffer(letters, np.uint8), np.frombuffer(ends, np.int64))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        place = range(len(self))[place]
        return self.letters[self.ends[place] : self.ends[place + 1]].tobytes().decode(**UTF8)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), PIECE):
            yield from self[start : start + PIECE]

    @property
    def lengths(self) -> Places:
        """In bytes."""
        return np.diff(self.ends)

    def take(self, order: Places) -> Texts:
        """These texts, in this order."""
        ends = np.concatenate([[0], np.cumsum(self.lengths[order])])
        letters = np.empty(ends[-1], np.uint8)
        for start in range(0, len(order), PIECE):
            these = order[start : start + PIECE]
            first, last = ends[start], ends[start + len(these)]
            shift = self.ends[these] - ends[start : start + len(these)]
            places = np.arange(first, last) + np.repeat(shift, self.lengths_of(these))
            letters[first:last] = self.letters[places]
        return Texts(letters, ends)

    def lengths_of(self, places: Places) -> Places:
        return self.ends[places + 1] - self.ends[places]

    def order(self) -> tuple[Places, int | None]:
        """The places of the texts in ascending order, as Python compares texts; equal ones in the
        order of their places. And the first place whose text stands at an earlier one, too.

        A word of each text is compared first, then the next one of those that are equal so far.
        """
        order = np.arange(len(self))
        tied, group = order.copy(), np.zeros(len(self), np.int64)  # places in `order`, and whose
        longest = int(self.lengths.max(initial=0))
        # Texts are filled up with zeros; the length comes last, as a text may end with zeros.
        for start in (*range(0, longest, WORD), None):
            if not len(tied):
                return order, None
            rows = order[tied]
            words = self.lengths_of(rows) if start is None else self._words(rows, start)
            by = np.lexsort((words, group))
            words, group = words[by], group[by]
            order[tied] = rows[by]
            first = np.append(True, (words[1:] != words[:-1]) | (group[1:] != group[:-1]))
            several = ~(first & np.append(first[1:], True))
            group = np.cumsum(first)[several]
            tied = tied[several]
        again = tied[1:][group[1:] == group[:-1]]
        return order, int(order[again].min()) if len(again) else None

    def _words(self, places: Places, start: int) -> NDArray[np.uint64]:
        """The bytes of some texts from `start`, as numbers that compare as the bytes do."""
        found = np.zeros(len(places), np.uint64)
        for piece in range(0, len(places), PIECE):
            these = places[piece : piece + PIECE]
            first, ends, words = self.ends[these] + start, self.ends[these + 1], 0
            for i in range(WORD):
                at = first + i
                there = at < ends
                byte = np.zeros(len(these), np.uint64)
                byte[there] = self.letters[at[there]]
                words = (words << np.uint64(8)) | byte if i else byte
            found[piece : piece + PIECE] = words
        return found


UTF8: Any = {"encoding": "utf-8", "errors": "surrogatepass"}


def _encoded(text: str) -> bytes:
    return text.encode(**UTF8)
