"""One side of RR22 of the package spu, as a process: `python spu_worker.py FOLDER NUMBER RECEIVER`.

FOLDER is private to this user. It holds `keys.csv`, one key in a line below the heading `key`. This
process listens at the socket `here` in it and connects to the socket `there`, where another process
stands for the other party. NUMBER is 0 or 1 and differs between the two parties; RECEIVER is that
of the one that finds the keys which both have, and writes them to `found.csv`. What this process
and spu write goes to the file `log` there.

The program is run by the python of an environment that has spu: it uses nothing of Colonnade.

RR22: Raghuraman and Rindal, "Blazing Fast PSI from Improved OKVS and Subfield VOLE", CCS 2022.
Private against sides that follow the protocol, if learning parity with noise is hard (in the form
of the code behind the silent VOLE) and AES is as good as a random permutation. A key matches by
mistake with a probability of at most 2^-40 for all keys together.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROUNDS, APART = 20, 30_000  # attempts to connect, milliseconds between two
SILENCE = 600_000  # milliseconds


def main(folder: Path, number: int, receiver: int) -> None:
    import spu  # pyright: ignore[reportMissingImports]
    from spu import psi  # pyright: ignore[reportMissingImports]

    link = spu.link.Desc() if hasattr(spu.link, "Desc") else spu.link.ContextDesc()
    link.id = "match"
    link.connect_retry_times, link.connect_retry_interval_ms = ROUNDS, APART
    link.recv_timeout_ms = SILENCE
    for rank in range(2):
        link.add_party(str(rank), f"unix:{folder / ('here' if rank == number else 'there')}")
    keys = psi.InputParams(path=str(folder / "keys.csv"), selected_keys=["key"], keys_unique=True)
    protocol = psi.PsiProtocolConfig(
        protocol=psi.PsiProtocol.PROTOCOL_RR22, receiver_rank=receiver, broadcast_result=False
    )
    config = psi.PsiExecuteConfig(
        protocol_conf=protocol,
        input_params=keys,
        output_params=psi.OutputParams(path=str(folder / "found.csv"), disable_alignment=True),
    )
    connection = spu.link.create_brpc(link, number)
    psi.psi_execute(config, connection)
    connection.stop_link()
    for trace in re.findall(r"/tmp/psi_\w+\.trace", (folder / "log").read_text(errors="replace")):
        Path(trace).unlink(missing_ok=True)  # of how long it took; spu writes one wherever it runs


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
