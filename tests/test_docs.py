"""The documentation speaks of the code as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from colonnade import algorithms
from colonnade.algorithms import built_in
from colonnade.algorithms.privacy_table import updated
from colonnade.common.file_kinds import PARTY
from colonnade.federation.agreement.federation import Federation
from colonnade.federation.agreement.party_file import OwnSpec
from colonnade.federation.agreement.specs import ConnectionSpec, PartySpec, RowsSpec

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_table_of_what_leaves_a_party_is_what_the_algorithms_declare() -> None:
    page = (ROOT / "docs" / "explanation" / "what-leaves-a-party.md").read_text()
    assert updated(page) == page, (
        "run: python -m colonnade.algorithms.privacy_table docs/explanation/what-leaves-a-party.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_reference_names_every_key_of_every_algorithm() -> None:
    page = (ROOT / "docs" / "reference" / "experiment-file.md").read_text()
    for name, kind in built_in().items():
        assert f"`{name}`" in page
        for key in kind.settings.__struct_fields__:
            assert f"`{key}`" in page, (name, key)


def test_the_reference_names_every_key_of_federation_and_party_files() -> None:
    page = (ROOT / "docs" / "reference" / "federation-file.md").read_text()
    specs = (Federation, PartySpec, RowsSpec, ConnectionSpec, OwnSpec)
    keys = {key for spec in specs for key in spec.__struct_fields__} | set(PARTY.keys)
    for key in keys - {"method", "parties", "rows", "data", "network"}:
        assert f"`{key}`" in page, key
    for table in ("[method]", "[[parties]]", "[rows]", "[data]", "[network]"):
        assert f"`{table}`" in page, table


@pytest.mark.parametrize(
    "party", ["first-federation/hospital", "three-hospitals/hospital", "four-banks/north"]
)
def test_the_tutorial_shows_the_files_of_its_example(party: str) -> None:
    example, name = party.split("/")
    page = (ROOT / "docs" / "tutorial" / f"{example}.md").read_text()
    for file in ("federation.toml", f"{name}.toml"):
        assert (ROOT / "examples" / example / file).read_text() in page


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def unindented(text: str) -> str:
    return "".join(f"{line.strip()}\n" for line in text.splitlines())


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/how-colonnade-thinks.md"])
def test_code_that_explains_algorithms_is_that_of_algorithms_which_are_tested(page: str) -> None:
    folders = (ROOT / "src" / "colonnade" / "algorithms", ROOT / "examples" / "own_algorithm")
    sources = [unindented(path.read_text()) for folder in folders for path in folder.glob("*.py")]
    assert python_blocks(page)
    for block in python_blocks(page):
        assert any(unindented(block) in source for source in sources), block


def test_contributing_shows_the_whole_algorithm_of_the_example() -> None:
    whole = (ROOT / "examples" / "own_algorithm" / "average.py").read_text()
    assert whole in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize(
    ("page", "skipped"),
    [("docs/how-to/own-algorithm.md", 0), ("docs/reference/python.md", 1)],
    ids=lambda value: str(value),
)
def test_code_on_a_page_runs_as_it_stands(
    page: str, skipped: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`skipped`: the first blocks of a page, which show a signature."""
    monkeypatch.setattr(algorithms, "_registered", {})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples" / "own_algorithm"), *sys.path])
    blocks = python_blocks(page)[skipped:]
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {"__name__": "page"})
