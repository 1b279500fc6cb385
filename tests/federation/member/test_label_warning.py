"""Whoever holds binary labels is told what gradients tell of them, when its process starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.federation.member.test_member import calm

from colonnade.federation.agreement.federation_file import parse_federation


@pytest.mark.parametrize(
    ("more", "told"),
    [({}, 1), ({"hide_labels": 0}, 0), ({"algorithm": "fedonce", "client_epochs": 1}, 0)],
)
def test_the_label_holder_is_told_once_and_nobody_else(
    more: dict[str, Any], told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    method = {"algorithm": "splitnn", "epochs": 1, **more}
    table = {"data": {"dataset": "breast_cancer", "parties": 2, "rows": 64}, "method": method}
    calm(parse_federation({"name": "test", "network": {"gather": 5.0}, **table}, "test"), tmp_path)
    assert caplog.text.count("the gradients tell every column holder the label") == told
