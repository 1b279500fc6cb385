"""Imports go in one direction only, also those inside functions and those for type checkers."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
# From the bottom up. A package imports itself and what is below it; not what is beside it.
LAYERS = [
    ["errors"],
    ["common"],
    ["data", "network"],
    ["models"],
    ["algorithms"],
    ["experiments", "federation"],
    ["api", "classifier"],
    ["__init__"],  # the public names
    ["testing"],
    ["kit"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
KNOWN = {("testing", "kit")}


def package_of(module: str) -> str:
    """The entry of LAYERS that a dotted name belongs to: the longest one that it begins with."""
    parts = module.split(".")[1:] or ["__init__"]
    fitting = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return next((name for name in reversed(fitting) if name in LEVEL), "__init__")


def imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "colonnade"}


def test_no_import_goes_up_or_sideways() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        here = package_of(module.removesuffix(".__init__"))
        for name in sorted(imports(ast.parse(path.read_text(encoding="utf-8")))):
            there = package_of(name)
            if there != here and LEVEL[there] >= LEVEL[here] and (here, there) not in KNOWN:
                wrong.append(f"{module} ({here}) imports {name} ({there})")
    assert not wrong, "\n".join(wrong)


def test_every_module_has_its_place_in_the_layers() -> None:
    entries = {path.stem for path in (SOURCE / "colonnade").iterdir() if path.suffix != ".typed"}
    assert entries - {"__pycache__"} == {name.split(".")[0] for name in LEVEL}
