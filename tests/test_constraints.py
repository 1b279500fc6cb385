"""constraints.txt pins whatever the README's commands install."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

FILE = Path(__file__).parent.parent / "constraints.txt"
# GPU builds of torch bring libraries of their own, which nobody needs here.
GPU = re.compile(r"(nvidia|cuda|triton)\b.*")
WITH_PYTHON = ("pip", "wheel")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), "name==version, no more"
    return {normal(name): version for name, version in (line.split("==") for line in lines)}


def needed(
    name: str, extras: frozenset[str] = frozenset(), seen: set[str] | None = None
) -> set[str]:
    """What an installed distribution needs here, with what that needs in turn."""
    seen = set() if seen is None else seen
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            continue
        other, wanted = normal(requirement.name), frozenset(requirement.extras)
        if (key := f"{other}[{','.join(sorted(wanted))}]") not in seen and not GPU.fullmatch(other):
            seen.add(key)
            needed(other, wanted, seen)
    return seen


def test_every_dependency_direct_or_not_has_a_version() -> None:
    names = {key.partition("[")[0] for key in needed("colonnade", frozenset({"dev", "data"}))}
    assert {"torch", "polars", "pytest", "scipy", "pycparser"} <= names, "the walk goes all the way"
    assert names - pins().keys() - {"colonnade", *WITH_PYTHON} == set()


def test_nothing_is_pinned_that_nobody_needs() -> None:
    names = {key.partition("[")[0] for key in needed("colonnade", frozenset({"dev", "data"}))}
    installed = {normal(one.name) for one in metadata.distributions()}
    assert pins().keys() & installed <= names
