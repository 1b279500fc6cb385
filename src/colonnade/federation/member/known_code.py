"""Which code of their own the parties run, as they tell each other."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from colonnade.common.user_code import Source, changes, shown

log = logging.getLogger(__name__)

Known = dict[str, dict[str, Source]]  # by party and key

CODE = "code.json"
MOST = 20  # changes of one party that are told: a member cannot fill the log with them


class KnownCode:
    """Which code of their own the parties run, as they told. A file keeps it, so that a change is
    noticed after a restart, too."""

    def __init__(self, folder: Path, mine: Mapping[str, Source]) -> None:
        self.path, self.mine = folder / CODE, mine
        self.changes: Counter[str] = Counter()
        self.known: Known = {}
        with suppress(OSError, msgspec.MsgspecError):  # nothing is known yet
            self.known = msgspec.json.decode(self.path.read_bytes(), type=Known)

    def hear(self, party: str, code: Mapping[str, Source]) -> None:
        before = self.known.get(party, {})
        if before == code or self.changes[party] == MOST:
            return
        self.changes[party] += 1
        if before:
            log.warning(
                "%s runs other code than before: %s", party, "; ".join(changes(before, code))
            )
        else:
            told = ", ".join(shown(key, source) for key, source in code.items())
            log.info("%s runs code of its own: %s", party, told)
        for key in self.mine.keys() & code.keys():
            if key.startswith("plugin ") and self.mine[key] != code[key]:
                log.warning("%s: %s has %s, we have %s", key, party, code[key], self.mine[key])
        self.known[party] = dict(code)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(msgspec.to_builtins(self.known), indent=1), "utf-8")
        except OSError as error:
            log.error("%s: cannot be written (%s)", self.path, error)
