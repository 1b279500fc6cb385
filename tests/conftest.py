"""Shared settings: one thread per process, and time limits that a busy machine cannot trip."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")
