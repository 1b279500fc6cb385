"""Shared settings: one thread per process, and time limits that a busy machine cannot trip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: they start processes, and at the end nobody would work beside them."""
    items.sort(key=lambda item: "system" not in item.path.parts)
