"""The documentation speaks of the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colonnade.algorithms import registry
from colonnade.algorithms.leaves import updated

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_table_of_what_leaves_a_party_is_what_the_algorithms_declare() -> None:
    page = (ROOT / "docs" / "explanation" / "what-leaves-a-party.md").read_text()
    assert updated(page) == page, (
        "run: python -m colonnade.algorithms.leaves docs/explanation/what-leaves-a-party.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_reference_names_every_key_of_every_algorithm() -> None:
    page = (ROOT / "docs" / "reference" / "experiment-file.md").read_text()
    for name, kind in registry().items():
        assert f"`{name}`" in page
        for key in kind.settings.__struct_fields__:
            assert f"`{key}`" in page, (name, key)
