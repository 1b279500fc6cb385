"""Files that are replaced whole or not at all: a reader never sees half a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"  # ends the name of a file that is being written


@contextmanager
def replacing(path: Path, *, durable: bool = False, shared: bool = False) -> Iterator[Path]:
    """Gives a path beside `path` to write to. At the end of the block that file takes the place of
    `path`; if the block raises, `path` stays as it was and the new file is removed.

    `durable`: the content is on the disk before the file is renamed, so that a power cut cannot
    leave an empty file at `path`. `shared`: several processes may write `path` at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = f".{os.getpid()}" if shared else ""
    partial = path.with_name(f"{path.name}{own}{PARTIAL}")
    try:
        yield partial
        if durable:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
