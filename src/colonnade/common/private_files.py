"""Files for one user of the machine only: keys, checkpoints, models, ledgers, results.

Folders have mode 700 and files 600, whatever the umask, also those that were there before.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

OTHERS = 0o077  # the bits of a mode that let other users in


@contextmanager
def private(folder: Path, ours: Callable[[Path], bool] = lambda path: True) -> Iterator[None]:
    """In this block, files are written for this user only; what the folder holds already becomes
    private, too. `ours`: which entries of the folder are Colonnade's. A folder that holds other
    entries belongs to somebody else, and keeps its mode."""
    before = os.umask(OTHERS)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _tighten(folder, ours)
        yield
    finally:
        os.umask(before)


@contextmanager
def as_private_as(folder: Path) -> Iterator[None]:
    """In this block, files are written for this user only, and so is the folder if it is made here.
    A folder that is there and that others may look into was opened by its owner: then the umask
    decides, as for any other program."""
    hidden = not folder.is_dir() or not stat.S_IMODE(folder.stat().st_mode) & OTHERS
    before = os.umask(OTHERS) if hidden else None
    try:
        yield
    finally:
        if before is not None:
            os.umask(before)


def _tighten(folder: Path, ours: Callable[[Path], bool]) -> None:
    entries = list(folder.iterdir())
    mine = [entry for entry in entries if ours(entry)]
    for entry in mine:
        if not entry.is_symlink():  # its target may belong to somebody else
            for path in (entry, *entry.rglob("*")):
                _narrow(path)
    if len(mine) == len(entries):
        _narrow(folder)
    if mode := stat.S_IMODE(folder.stat().st_mode) & OTHERS:
        log.warning("%s: other users of this machine can look into it (mode %04o)", folder, mode)


def _narrow(path: Path) -> None:
    with suppress(OSError):  # of another user, or gone meanwhile
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & OTHERS and not path.is_symlink():
            path.chmod(mode & ~OTHERS)
