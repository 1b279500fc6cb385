"""Imports go in one direction only, also those inside functions and those for type checkers."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
# What a package imports: itself, these, and what these may import.
ARROWS = {
    "errors": [],
    "common": ["errors"],
    "data": ["common"],
    "coding": ["common"],
    "privacy": ["common"],
    "network": ["common"],
    "models": ["network", "privacy"],
    "learning": ["models", "network", "data", "coding"],
    "algorithms": ["learning"],
    "experiments": ["algorithms"],
    "federation.keys": ["common"],
    "federation.agreement": ["federation.keys", "algorithms"],
    "federation.member": ["federation.agreement"],
    "federation.asking": ["federation.member"],
    "federation.serving": ["federation.asking"],
    "federation": [],
    "api": ["experiments"],
    "estimators": ["experiments"],
    "__init__": ["api", "estimators"],  # the public names
    "testing": ["experiments", "federation.member"],
    "watch": ["experiments", "federation.asking"],
    "cli": ["__init__", "experiments", "federation.serving", "watch"],
    "__main__": ["cli"],
}
BELOW: dict[str, set[str]] = {}
for package in TopologicalSorter(ARROWS).static_order():  # raises CycleError
    BELOW[package] = {package}.union(*(BELOW[other] for other in ARROWS[package]))
MODULES = sorted(SOURCE.rglob("*.py"))


def package_of(module: str) -> str:
    """The longest entry of ARROWS that a dotted name begins with."""
    parts = module.removesuffix(".__init__").split(".")[1:]
    starts = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((start for start in starts if start in ARROWS), "__init__")


def imported(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "colonnade"}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_what_is_below_its_package(module: Path) -> None:
    name = ".".join(module.relative_to(SOURCE).with_suffix("").parts)
    allowed = BELOW[package_of(name)]
    assert not [other for other in imported(module) if package_of(other) not in allowed]


def test_every_module_has_its_place() -> None:
    places = [path.relative_to(SOURCE / "colonnade").with_suffix("").parts for path in MODULES]
    assert {place[0] for place in places} == {name.split(".")[0] for name in ARROWS}
