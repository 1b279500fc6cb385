"""Devices as processes, with no server: half of them are killed while one is asked."""

from __future__ import annotations

import time
from pathlib import Path

from tests.browser import CHROMIUM, NODE, browse, serving
from typer.testing import CliRunner

from colonnade.cli import app, main
from colonnade.federation.agreement.federation_file import read_federation
from colonnade.federation.agreement.party_file import read_party
from colonnade.federation.asking import predictions
from colonnade.federation.member.local_files import prepare
from colonnade.federation.member.local_processes import Local, running
from colonnade.federation.member.stage import Stage
from colonnade.watch.finding import source_of

FEDERATION = """
name = "devices"
[method]
algorithm = "mags"
method = "CD-MVFL-G2"
epochs = 8
lr = 5e-3
[data]
dataset = "digits"
rows = 400
parties = 4
split = "patches"
"""


def test_answers_keep_coming_while_devices_are_killed(tmp_path: Path) -> None:
    file, folder = tmp_path / "devices.toml", tmp_path / "out"
    file.write_text(FEDERATION)
    prepare(read_federation(file), file, folder)
    federation = read_federation(folder / "federation.toml")
    ids = [str(i + 1) for i in range(200)]
    truth = federation.vertical_data().test.y[:200].tolist()
    with running(Local(federation, folder, main, serve=True)) as local:
        limit = time.monotonic() + 90
        while local.stage() != Stage.ANSWERING:
            local.check()
            assert time.monotonic() < limit, "the training takes too long"
            time.sleep(0.1)
        right, absent = [], set[str]()
        for away in range(3):
            if away:
                local.kill(f"client{away - 1}")
            for device in ("client2", "client3"):
                found = predictions.predict(read_party(folder / f"{device}.toml"), ids)
                same = [p == y for p, y in zip(found.predictions, truth, strict=True)]
                right.append(sum(same) / len(truth))
                absent = set(found.absent[0])
        assert absent == {"client0", "client1"}
        assert right[0] > 0.8
        assert right[-1] > 0.3  # half of the picture is gone; a guess is right one time in ten
        # Who asks the folder is answered by a device that can.
        result = CliRunner().invoke(app, ["predict", str(folder), "--ids", "1,2,3"])
        assert result.exit_code == 0
        assert len(result.stdout.strip().splitlines()) == 4
        for watched in (folder, folder / "client2.toml") if CHROMIUM else ():
            assert sorted(drawn(watched, tmp_path)) == ["down", "down", "up", "up"]


def drawn(watched: Path, folder: Path) -> list[str]:
    """The states of the parties on the live page, as a browser draws them. Whoever watches by a
    party file asks the others first."""
    source, limit = source_of(watched), time.monotonic() + 30
    while [party.state for party in source.snapshot().trainings[0].parties].count("up") < 2:
        assert time.monotonic() < limit, "the parties were not asked"
        time.sleep(0.05)
    with serving(source) as server:
        options = ("--dump-dom", "--virtual-time-budget=3000")
        return NODE.findall(browse(server.address, folder / watched.stem, *options).decode())
