"""Self-contained HTML pages from the templates beside this module; they open offline."""

from __future__ import annotations

import base64
import hashlib
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from colonnade.common.files import replacing
from colonnade.common.private_files import as_private_as
from colonnade.experiments.exports import csv_text, latex_text
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
    templates.filters |= {"dashes": _dashes, "csv": csv_text, "latex": latex_text}
    version = metadata.version("colonnade")
    script = (resources.files("colonnade.experiments") / "templates" / "report.js").read_text(
        "utf-8"
    )
    # The page allows this script and no other: whatever a name in it holds, it cannot run.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"version": version, "script": Markup(script), "script_digest": digest}
    text = templates.get_template(template).render(**own, **facts)
    with as_private_as(folder), replacing(folder / page) as partial:
        partial.write_text(text, encoding="utf-8")
    return folder / page


def _dashes(style: Style) -> str:
    return " ".join(f"{1.7 * length:g}" for length in style.dashes) or "none"
