"""Real processes with code of the user's own: a plugin, and a model of one party."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm"
FEDERATION = """
name = "own"
plugins = ["average"]
[data]
dataset = "digits"
rows = 300
parties = 2
[method]
algorithm = "average"
encoder = [24]
epochs = 2
"""
PARTY = """
federation = "federation.toml"
party = "client1"
encoder = "my_models:tower"
"""
MODELS = """
from torch import nn

def tower(width):
    return nn.Sequential(nn.Linear(width, 7), nn.Tanh(), nn.Linear(7, 24))
"""


def test_processes_import_plugins_and_models_from_the_folder_of_the_files(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    shutil.copy(EXAMPLE / "average.py", home)
    (home / "federation.toml").write_text(FEDERATION)
    (home / "client1.toml").write_text(PARTY)
    (home / "my_models.py").write_text(MODELS)
    command = [sys.executable, "-m", "colonnade", "up", "../home/federation.toml", "--out", "out"]
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    digests = {
        path: hashlib.sha256((home / path).read_bytes()).hexdigest()
        for path in ("average.py", "my_models.py")
    }
    plugin = {"plugin average": {"name": "average", "sha256": digests["average.py"]}}
    model = {"encoder": {"name": "my_models:tower", "sha256": digests["my_models.py"]}}
    known = json.loads((elsewhere / "out" / "server" / "code.json").read_text())
    assert known == {"server": plugin, "client0": plugin, "client1": model | plugin}
    log = " ".join((elsewhere / "out" / "server" / "log.txt").read_text().split())
    assert f"encoder my_models:tower (sha256 {digests['my_models.py'][:12]}…)" in log
    resolved = tomllib.loads((elsewhere / "out" / "federation.toml").read_text())
    assert resolved["code"] == str(home), "so that predictions can be asked for from any folder"
