"""Labels at several parties, as processes: an active party and the collaborator are killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from colonnade.cli import main
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.party_file import read_party
from colonnade.federation.asking import predictions
from colonnade.federation.member.local_files import prepare
from colonnade.federation.member.local_processes import Local, running
from colonnade.federation.member.stage import Stage
from colonnade.federation.member.status import read_status

FEDERATION = """
name = "banks"
[method]
algorithm = "cvfl"
epochs = 40
patience = 40
optimizer = "adam"
lr = 3e-3
active = 2
[data]
dataset = "digits"
rows = 300
parties = 3
[network]
gather = 10.0
extra_epochs = 3
"""


def test_a_training_goes_on_while_an_active_party_and_the_collaborator_are_killed(
    tmp_path: Path,
) -> None:
    file, folder = tmp_path / "banks.toml", tmp_path / "out"
    file.write_text(FEDERATION)
    prepare(read_federation(file), file, folder)
    federation = read_federation(folder / "federation.toml")
    with running(Local(federation, folder, main, serve=True)) as local:

        def wait(ready: Callable[[], bool]) -> None:
            limit = time.monotonic() + 120
            while not ready():
                local.check()
                assert time.monotonic() < limit, "takes too long"
                time.sleep(0.05)

        def epoch() -> int:
            return int(read_status(folder / "client0").get("round", 0))

        wait(lambda: epoch() > 2)
        local.kill("client1")
        left = epoch()
        wait(lambda: epoch() > left + 2)  # past the end of an epoch without it
        local.start("client1")
        local.kill("collaborator")
        local.start("collaborator")
        wait(lambda: local.stage() == Stage.ANSWERING)
        wait(lambda: read_status(folder / "client1").get("stage") == Stage.ANSWERING)
        local.kill("client0")
        local.kill("collaborator")
        found = predictions.predict(read_party(folder / "client1.toml"), ["1", "2", "3"])
        assert set(found.absent[0]) == {"client0", "collaborator"}
        assert len(found.predictions) == 3
