"""The module that the fork server of `colonnade up` preloads: it imports the other modules and
reads the data before processes of parties are forked, so that a killed party is back within a
moment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from colonnade.common.processes import die_with_parent
from colonnade.errors import ColonnadeError
from colonnade.federation.agreement.federation import loaded
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.member import process

FILE = "COLONNADE_FORK_SERVER"  # the federation file whose data is read beforehand

__all__ = ["join", "process"]


def _read_data() -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    with suppress(ColonnadeError):
        federation = read_federation(Path(os.environ[FILE]))
        if federation.data is not None:
            loaded(federation.data, federation.seed)


def join(main: Callable[[], None], file: Path, log: Path, once: bool) -> None:
    """What `colonnade join` does, with its output in a file. `main`: the command line."""
    os.setsid()
    die_with_parent()
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(target, descriptor)
    os.close(target)
    sys.argv = ["colonnade", "join", str(file), *(["--once"] if once else [])]
    main()


if FILE in os.environ:
    _read_data()
