"""Everything that the documentation tells a reader to type is run, at its smallest size.

Every command line is at least parsed by the command it calls; every experiment that a page runs is
run; every block of Python is executed.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import chdir
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import typer
from bench.__main__ import BENCHMARKS
from tests.command_line import colonnade

from colonnade import algorithms
from colonnade.cli import app
from colonnade.common.toml import read_toml
from colonnade.experiments import config

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *EXAMPLES.rglob("*.md")],
    key=lambda page: page.relative_to(ROOT),
)
SMALL = ["seeds=[0]", "methods.*.epochs=1", "data.rows=300"]
BUILT_IN = ["data.dataset=digits"]  # where the page uses a set that is downloaded


OPTIONAL = set(read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"])
CODE = re.compile(r"^```(?:sh|toml|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, ...]]:
    """Each command of the pages once, without comments and redirections."""
    found: dict[tuple[str, ...], None] = {}
    for page in PAGES:
        lines = "\n".join(blocks(page, "sh")).splitlines()
        lines += re.findall(r"^\| `((?:make|\.venv)[^`]*)`", page.read_text(), re.MULTILINE)
        for line in lines:
            lexer = shlex.shlex(re.sub(r"\d> \S+", "", line), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            for operator, words in groupby(lexer, lambda word: set(word) <= set("|&;<>()")):
                if not operator:
                    found[tuple(words)] = None
    return list(found)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_documented_command_exists_with_its_options(words: tuple[str, ...]) -> None:
    match words:
        case ("colonnade", *rest):
            parse(rest)
        case ("make", *targets):
            rules = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(targets) <= set(rules)
        case ("python", "-m", "bench", *names):
            assert set(names) - {"--json"} <= BENCHMARKS.keys()
        case ("pip", "install", *what):
            extras = {one for word in what for one in re.findall(r"\[([a-z,]+)\]$", word)}
            assert extras <= OPTIONAL, extras
        case ("pytest" | ".venv/bin/pytest", path, *_) if "/" in path:
            assert (ROOT / path).exists()


# What the blocks of a page use that `make demo` does not install.
USES = {
    "psi": r'match = "private"',
    "data": r"\.parquet|\.duckdb|query =",
    "serve": r"colonnade serve",
    "track": r"--track",
    "ray": r"--engine ray",
}
GUIDES = [page for page in PAGES if page.parent.name in ("tutorial", "how-to")]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_page_says_what_to_install_before_it_is_used(page: Path) -> None:
    text = page.read_text()
    for extra, used in USES.items():
        code = [(block.start(1), block[1]) for block in re.finditer(CODE, text)]
        uses = [start + one.start() for start, block in code for one in re.finditer(used, block)]
        installs = re.search(rf"pip install [^\n]*\[[a-z,]*\b{extra}\b", text)
        assert not uses or (installs and installs.start() < uses[0]), (page.name, extra)


def parse(words: list[str]) -> None:
    """As the command line does, up to the call of the command; a usage error is raised."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    command.make_context(command.name, words)


@pytest.fixture(autouse=True)
def _as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have imported the examples, from another folder."""
    for known in ("_registered", "_plugins"):
        monkeypatch.setattr(algorithms, known, {})
    elsewhere = [path for path in sys.path if Path(path).name != "own_algorithm"]
    monkeypatch.setattr(sys, "path", elsewhere)
    for module in (EXAMPLES / "own_algorithm").glob("*.py"):
        monkeypatch.delitem(sys.modules, module.stem, raising=False)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that README and tutorial tell the reader to save."""
    folder = tmp_path_factory.mktemp("reader")
    tutorial = ROOT / "docs" / "tutorial" / "first-experiment.md"
    (folder / "links.toml").write_text(blocks(ROOT / "README.md", "toml")[0])
    (folder / "patients.toml").write_text(blocks(tutorial, "toml")[0])
    for page in ("own-model", "sensor-grid", "compare-methods"):
        _save_files(ROOT / "docs" / "tutorial" / f"{page}.md", folder)
    with chdir(folder):
        exec(blocks(tutorial, "python")[0], {})
        exec((folder / "make_tumours.py").read_text(), {})
    shutil.copytree(EXAMPLES, folder / "examples")
    return folder


def _save_files(page: Path, folder: Path) -> None:
    """The files that a page says to save, each in the block after the sentence."""
    saved = r"Save as `([^`]+)`[^`]*?```\w+\n(.*?)^```"
    found = re.findall(saved, page.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    for name, text in found:
        (folder / name).write_text(text)


RUNS = [
    *(w for w in commands() if w[:2] == ("colonnade", "run") and w[2] != "mine.toml"),
    ("colonnade", "run", "examples/catastrophe.toml"),
]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_a_documented_experiment_runs(words: tuple[str, ...], workplace: Path) -> None:
    small = SMALL + (BUILT_IN if "mnist" in words[2] else [])
    rest = [word for key in small for word in ("--set", key)]
    typo = "methods.1.missng=stale" in words  # what the tutorial shows of mistakes
    done = colonnade(*words[1:], *rest, "--jobs", "1", "--fresh", folder=workplace)
    assert done.returncode == (2 if typo else 0), done.stderr
    if typo:
        shown = "Error patients.toml: methods[1].missng: unknown key; the nearest is 'missing'"
        assert shown in done.stderr


COMPARED = [w for w in commands() if w[:2] == ("colonnade", "compare") and w[2] != "mine.toml"]


@pytest.mark.parametrize("words", COMPARED, ids=" ".join)
def test_a_documented_comparison_runs(words: tuple[str, ...], workplace: Path) -> None:
    small = [word for key in SMALL if "epochs" not in key for word in ("--set", key)]
    done = colonnade(*words[1:], *small, "--epochs", "1", "--jobs", "1", folder=workplace)
    assert done.returncode == 0, done.stderr


AUDITED = [w for w in commands() if w[:2] == ("colonnade", "audit") and w[2].endswith(".toml")]


@pytest.mark.parametrize("words", AUDITED, ids=" ".join)
def test_a_documented_audit_runs(words: tuple[str, ...], workplace: Path) -> None:
    small = [word for key in SMALL for word in ("--set", key)]
    if "leakage" in words[2]:  # dozens of methods; a test in test_examples.py looks at each
        dataset = "digits" if "mnist" in words[2] else "breast_cancer"
        small += ["--set", f"data.dataset={dataset}", "--method", "SplitNN"]
    done = colonnade(*words[1:], *small, "--jobs", "1", folder=workplace)
    assert done.returncode == 0, done.stderr


def test_the_demo_runs_and_its_copy_is_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = config.read_experiment
    monkeypatch.setattr(config, "read_experiment", lambda path, *_: read(path, SMALL))
    assert colonnade("demo", "--jobs", "1", folder=tmp_path).returncode == 0
    monkeypatch.undo()
    (tmp_path / "mine.toml").write_bytes((tmp_path / "colonnade-demo" / "config.toml").read_bytes())
    changed = ["--set", "faults.2.up=0.3", "--set", 'faults.2.name="clients .3/.3"']
    assert colonnade("run", "mine.toml", *changed, "--jobs", "1", folder=tmp_path).returncode == 0


# Blocks that are no programs: a signature, and excerpts of functions that are shown elsewhere.
EXCERPTS = ("cn.run(experiment, *", "async for batch", "self.", '"""')
PROGRAMS = [page for page in PAGES if blocks(page, "python") and page.name != "CONTRIBUTING.md"]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(
    page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a page one after the other, as a reader would paste them."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "own_algorithm"))
    session: dict[str, Any] = {"__name__": "__main__"}
    exec("import colonnade as cn\nfrom torch import nn", session)
    with chdir(workplace), warnings.catch_warnings(action="ignore"):
        for block in blocks(page, "python"):
            if not block.startswith(EXCERPTS):
                small = re.sub(r'(epochs(?:=|": ))\d+', r"\g<1>1", block).replace("mnist", "digits")
                exec(compile(small, str(page), "exec", dont_inherit=True), session)


@pytest.mark.parametrize(
    ("example", "reports", "ids"),
    [
        ("three-hospitals", "hospital", "p431,p040"),
        ("four-banks", "north", "c600,c601"),
    ],
)
def test_the_federation_of_a_tutorial_trains_answers_and_reports(
    example: str, reports: str, ids: str, tmp_path: Path
) -> None:
    """`bench/clinics.py` types the tutorial of the first federation; test_bench.py runs it."""
    folder = tmp_path / example
    shutil.copytree(EXAMPLES / example, folder)
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True, timeout=120)
    table = read_toml(folder / "federation.toml")
    table["method"]["epochs"] = 2
    (folder / "federation.toml").write_text(tomli_w.dumps(table))
    for words in (
        ("keys", "make", "federation.toml"),
        ("up", "federation.toml", "--out", "out"),
        ("predict", "out", "--ids", ids, "--out", "new.csv"),
        ("status", "out"),
        ("report", f"out/{reports}"),
    ):
        done = colonnade(*words, folder=folder)
        assert done.returncode == 0, (words, done.stderr)
        # Two classes: whoever starts it is told once what gradients tell.
        assert done.stderr.count("hide_labels = 16") == (words[0] == "up"), done.stderr
    assert (folder / "new.csv").read_text().count(f"\n{ids[0]}") == 2


@pytest.mark.parametrize("target", ["demo", "test", "check", "bench", "format", "constraints"])
def test_make_knows_how(target: str) -> None:
    words = ["make", "--dry-run", target]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
