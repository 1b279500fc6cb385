from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with nothing in it."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("COLONNADE_DATA", str(folder))
    return folder


@pytest.fixture
def npz(tmp_path: Path) -> Callable[..., str]:
    """Writes arrays to a file and returns its path."""

    def write(**arrays: np.ndarray) -> str:
        path = tmp_path / "mine.npz"
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
        return str(path)

    return write


@pytest.fixture
def csv(tmp_path: Path) -> Callable[[str], str]:
    """Writes a table given as text and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "table.csv"
        path.write_text(text)
        return str(path)

    return write
