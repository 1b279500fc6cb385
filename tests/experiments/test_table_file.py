"""Tables of papers as data: the example of the documentation runs, files inherit from each other,
claims are read as they are written, and mistakes are named."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import InputError
from colonnade.experiments import reproduce as reproduce_package
from colonnade.experiments.reproduce import find
from colonnade.experiments.reproduce.assess import Assessment
from colonnade.experiments.reproduce.claims import Fact
from colonnade.experiments.reproduce.present import explained
from colonnade.experiments.reproduce.run import reproduce
from colonnade.experiments.reproduce.statements import ClaimText, Reader
from colonnade.experiments.reproduce.study import SCALES, Place, Published, Scale
from colonnade.experiments.reproduce.table_file import TableFile, read_table
from colonnade.experiments.table import Cell, Metric, Plan, Summary

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-reproduction.md"
FILES = dict(re.findall(r"`example/(\S+)`:\n\n```\w+\n(.*?)```", HOW_TO.read_text(), re.DOTALL))
TABLE = FILES["table1.toml"]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files of the documentation, as a paper of the package, without a data folder."""
    (tmp_path / "example").mkdir()
    for name, text in FILES.items():
        (tmp_path / "example" / name).write_text(text)
    monkeypatch.setattr(reproduce_package, "__path__", [*reproduce_package.__path__, str(tmp_path)])
    monkeypatch.setattr(reproduce_package, "PAPERS", (*reproduce_package.PAPERS, "example"))
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "data"))
    for name in ("example", "example.table1"):
        monkeypatch.delitem(sys.modules, f"{reproduce_package.__name__}.{name}", raising=False)


@pytest.mark.usefixtures("example")
def test_the_example_of_the_documentation_runs_and_is_short(tmp_path: Path) -> None:
    assert set(FILES) == {"table1.toml", "table1.py", "__init__.py"}
    assert FILES["table1.py"].count("\n") <= 40
    done = reproduce("example-table1", "smoke", tmp_path / "out")
    assert not done.failures
    [sheet] = done.document()["sheets"]
    cells = {(cell["row"], cell["column"]): cell for cell in sheet["cells"]}
    assert list(cells) == [(row, n) for row in ("zeros", "stale", "wait") for n in ("2", "4")]
    assert all(cells[row, n]["ours"] is not None for row in ("zeros", "stale") for n in ("2", "4"))
    assert cells["zeros", "4"]["paper"] == pytest.approx(0.964)
    assert cells["zeros", "4"]["paper_spread"] == pytest.approx(0.003)
    assert cells["stale", "4"]["paper"] is None
    assert cells["wait", "2"]["reason"] == "not built"
    assert [(claim["verdict"], claim["of"]) for claim in sheet["claims"]] == [
        ("not judged", "the paper"),
        ("not judged", "the paper"),
        ("not judged", "us"),
    ]
    assert (done.folder / "report.html").exists()


@pytest.mark.usefixtures("example")
def test_a_study_runs_the_papers_epochs_at_scale_full_and_its_share_of_them_below() -> None:
    study = find("example-table1").study
    runs = {scale: study(scale).parts[0].experiment for scale in SCALES}
    assert [e["methods"][0]["epochs"] for e in runs.values()] == [2, 10, 20]
    assert [e["methods"][0]["batch"] for e in runs.values()] == [16, 64, 64], "few rows at smoke"
    assert [len(e["seeds"]) for e in runs.values()] == [1, 2, 5]
    assert [e["data"].get("rows") for e in runs.values()] == [200, 6000, None]


# -- claims ----------------------------------------------------------------------------------------

COLUMNS = ("none", "few", "many")
FIGURES = {"A": {"few": Published(50.0)}}


def facts(*texts: str, shown: Sequence[str] = COLUMNS, **more: Any) -> list[Fact]:
    reader = Reader("table.toml", ("A", "B", "C"), COLUMNS, shown, FIGURES)
    read = reader.read(ClaimText("a claim", list(texts), **more))
    return [fact for claim in read for fact in claim.facts]


def ahead(one: str, other: str, column: str) -> Fact:
    return Fact(((one, column),), ((other, column),))


def test_a_fact_is_about_every_column_shown_or_those_it_names() -> None:
    assert facts("A > B") == [ahead("A", "B", column) for column in COLUMNS]
    assert facts("A > B", at=["many"]) == [ahead("A", "B", "many")]
    assert facts("A > B", at="after the first") == [ahead("A", "B", c) for c in ("few", "many")]
    assert facts("A > B", shown=["none", "many"], at=["few", "many"]) == [ahead("A", "B", "many")]
    assert facts("A @ few > B @ none") == [Fact((("A", "few"),), (("B", "none"),))]
    assert facts("A @ few > B @ none", shown=["none", "many"]) == []


def test_a_fact_may_be_about_all_other_rows_means_leads_and_falling_figures() -> None:
    assert facts("B > *", at=["few"]) == [ahead("B", "A", "few"), ahead("B", "C", "few")]
    assert facts("A falls") == [
        Fact((("A", "none"),), (("A", "few"),)),
        Fact((("A", "few"),), (("A", "many"),)),
    ]
    mean = Fact((("A", "none"), ("A", "many")), (("B", "none"), ("B", "many")), low=0.2)
    assert facts("A > B", at=["none", "many"], mean=True, by=0.1) == [mean]
    lead = Fact((("A", "few"), ("B", "none")), (("B", "few"), ("A", "none")))
    assert facts("A - B > A @ none - B @ none", at=["few"]) == [lead]


def test_a_figure_is_compared_with_the_printed_one_or_another() -> None:
    assert facts("A is printed", at=["few"], share=0.1) == [Fact((("A", "few"),), (), 45, 55)]
    assert facts("A is 7", at=["few"], within=0.5) == [Fact((("A", "few"),), (), 6.5, 7.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A > b", "table.toml: claim 'a claim': 'b' is not a row.*the nearest is"),
        ("A @ fwe > B", "'fwe' is not a column.*nearest is 'few'"),
        ("A < B", "none of the forms"),
        ("B is printed", "no figure is printed in row 'B', column 'none'"),
        ("A is high", "high"),
    ],
)
def test_a_fact_that_cannot_be_read_is_named_with_its_claim(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        facts(text)


# -- files -----------------------------------------------------------------------------------------


def written(folder: Path, **files: str) -> TableFile:
    """The file `table` of a folder."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    return read_table(folder / "table.py")


def test_a_table_inherits_from_its_paper_and_a_table_like_another_from_that(tmp_path: Path) -> None:
    paper = '[data]\ndataset = "mnist"\nparties = 4\n[words]\nseen = "Seen by both."\n'
    paper += "[scales.smoke]\nepochs = 0.1\n[scales.quick]\nepochs = 0.5\n"
    other = 'citation = "us"\nname = "other"\ntitle = "Other"\nsource = "us"\nnotes = ["seen"]\n'
    other += 'takes = { smoke = "1 s", quick = "1 s", full = "1 s" }\n'
    other += '[sheets.one]\ntitle = "One"\ncolumns = ["none"]\nprinted.A = "90"\n'
    other += '[[sheets.one.claims]]\ntext = "first"\nfacts = ["A > B"]\n'
    own = 'like = "other"\nname = "own"\ndata.parties = 2\n[sheets.two]\nlike = "one"\n'
    own += 'printed.B = "80"\n[[sheets.two.claims]]\ntext = "second"\nfacts = ["B > A"]\n'
    table = written(tmp_path, paper=paper, other=other, table=own)
    assert (table.name, table.citation) == ("own", "us")
    assert table.data == {"dataset": "mnist", "parties": 2}
    assert table.scales["full"].seeds == 5, "from common.toml"
    sheet = table.sheet(table.size("smoke"), {}, "two")
    assert [(row.name, row.entries[0].why) for row in sheet.rows] == [
        ("A", "not built"),
        ("B", "not built"),
    ]
    assert [claim.text for claim in sheet.claims] == ["first", "second"]
    assert table.study("full", [], [sheet]).notes == ["Seen by both."]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("97.10±0.20 96.40±0.30", "97.10", r"printed.zeros: expected 2 figures or –, not '97.10'"),
        ("97.10±0.20 96.40", "97.1O 96.40", r"printed.zeros: expected 2 figures"),
        ("source =", "sauce =", r"table.toml.sauce: unknown key; the nearest is 'source'"),
        (
            "ours = true",
            "our = true",
            r"table.toml: sheets.accuracy.claims.our: unknown key; the nearest",
        ),
        ('"links .3/.1" =', '"links .3/1" =', r"faults.links .3/.1: unknown key; the nearest"),
        ("zeros = { missing", "zeros = { like = 'Split', missing", "settings.Split: unknown key"),
        ("title = ", "title ", "not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(
    right: str, wrong: str, message: str, tmp_path: Path
) -> None:
    assert right in TABLE

    def use() -> None:
        table = written(tmp_path, table=TABLE.replace(right, wrong, 1))
        size = table.size("smoke")
        table.fault_list(["links .3/.1"])
        table.runs(size)
        table.sheet(size, {name: [None, None] for name in table.methods})

    with pytest.raises(InputError, match=message):
        use()


# -- differences and their explanations ------------------------------------------------------------

EXPLAINED = (
    TABLE
    + """
[[explanations]]
text = "Everybody knows why."

[[explanations]]
text = "Fewer rows."
rows = ["zeros"]
at = ["4"]
scales = ["quick"]
"""
)


def differences(tmp_path: Path, scale: Scale, text: str) -> list[str]:
    """Told of ours: zeros 97.00 and 90.00 where the paper has 97.10±0.20 and 96.40±0.30, stale
    90.00 where it has 97.00±0.20."""
    file = tmp_path / f"table{len(text)}.toml"  # files are read once
    file.write_text(text)
    table = read_table(file)
    size = table.size(scale)
    rows = {name: [Place("part", name)] * 2 for name in ("zeros", "stale")}
    sheet = table.sheet(size, rows)
    ours = {("zeros", "2"): 0.97, ("zeros", "4"): 0.9, ("stale", "2"): 0.9, ("stale", "4"): 0.5}
    cells = {at: Cell((value, value), (0, 1)) for at, value in ours.items()}
    plan = Plan(("zeros", "stale", "wait"), ("2", "4"), (0, 1))
    return explained(Assessment(sheet, Summary(Metric(sheet.metric), plan, cells), {}))


def test_differences_beyond_the_papers_spread_are_told_with_the_last_explanation_about_them(
    tmp_path: Path,
) -> None:
    assert differences(tmp_path, "full", EXPLAINED) == [
        "zeros: 4 −6.40; stale: 2 −7.00. Everybody knows why."
    ]
    assert differences(tmp_path, "quick", EXPLAINED) == [
        "zeros: 4 −6.40. Fewer rows.",
        "stale: 2 −7.00. Everybody knows why.",
    ]
    assert differences(tmp_path, "full", TABLE) == [
        "zeros: 4 −6.40; stale: 2 −7.00. We have no explanation."
    ]


def test_an_explanation_of_a_row_that_is_not_there_is_told(tmp_path: Path) -> None:
    wrong = EXPLAINED.replace('rows = ["zeros"]', 'rows = ["zero"]')
    with pytest.raises(InputError, match=r"explanations\.rows.*zero.*the nearest is 'zeros'"):
        differences(tmp_path, "quick", wrong)
