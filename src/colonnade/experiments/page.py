"""Self-contained HTML pages from the templates beside this module; they open offline."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from colonnade.common.files import replacing
from colonnade.experiments.plots import Style

REPORT = "report.html"


def write_page(folder: Path, template: str, *, page: str = REPORT, **facts: Any) -> Path:
    """A page in the folder, whole or not at all. Texts among the facts are escaped, unless they are
    `Markup`."""
    templates = Environment(
        loader=PackageLoader("colonnade.experiments"),
        autoescape=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    templates.filters["dashes"] = _dashes
    version = metadata.version("colonnade")
    text = templates.get_template(template).render(version=version, **facts)
    with replacing(folder / page) as partial:
        partial.write_text(text, encoding="utf-8")
    return folder / page


def _dashes(style: Style) -> str:
    return " ".join(f"{1.7 * length:g}" for length in style.dashes) or "none"
