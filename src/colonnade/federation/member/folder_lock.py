"""One process per folder, and whether it is still there.

Not by `filelock`: `is_running` takes a shared lock, so that several who look do not take each other
for the process, and it writes nothing into the folder.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import TextIO

from colonnade.errors import InputError
from colonnade.federation.member.folder import LOCK

ATTEMPTS, PAUSE = 5, 0.05  # seconds; who only looks holds the lock for a moment


def only_one(folder: Path, party: str) -> TextIO:
    """A folder is one process's: two would overwrite each other's checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / LOCK).open("a")
    for _ in range(ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            time.sleep(PAUSE)
    lock.close()
    raise InputError(
        f"{folder}: {party} is running already, and uses this folder; end that process, or give "
        "the party file another folder"
    )


def is_running(folder: Path) -> bool:
    """Whether a process of this machine uses the folder. The system takes the lock from a process
    that is killed."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
