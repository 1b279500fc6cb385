"""A researcher opens `report.html` of a comparison that was interrupted."""

from __future__ import annotations

import csv
import json
import re
import shutil
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tests import browser
from tests.browser import needs_browser

from colonnade.common.curves import Curves, write_curves
from colonnade.common.results import LedgerRow, Result, read_results, write_lines, write_results
from colonnade.errors import InputError
from colonnade.experiments.exports import csv_text
from colonnade.experiments.link_plots import link_pictures
from colonnade.experiments.plots import average
from colonnade.experiments.report import export_tables, write_report
from colonnade.experiments.table import Grid
from colonnade.learning.curves import curves_of

NASTY = '<b>&" $x$'
METHODS = {"DVFL": 0.975, "SplitNN zeros": 0.973, NASTY: 0.93}
FAULTS = {"none": 0.0, "links .3/.1": 0.04}
NOTES = ("Rows with a missing value were left out: 12 of 1,797.",)
CONFIG = """name = "links that fail & <recover>"
seeds = [0, 1, 2]
[data]
dataset = "digits"
parties = 4
split = "bands"
[[faults]]
name = "none"
[[faults]]
name = "links .3/.1"
kind = "connection"
[[methods]]
name = "DVFL"
[[methods]]
name = "SplitNN zeros"
[[methods]]
name = '<b>&" $x$'
"""
ANSWERS = torch.tensor([[2.0, 0, 0], [0, 2.0, 0], [0, 0, 2.0], [0, 1.5, 1.0], [0, 0, 9.0]])
CURVES = cast(Curves, curves_of(ANSWERS, torch.tensor([0, 1, 2, 2, 2]), 3))


def ledger(scale: int, clients: int = 4) -> list[LedgerRow]:
    rows = []
    for phase, rounds in (("training", 600), ("inference", 6)):
        for client in range(clients):
            size = rounds * scale * (100 + client)
            name = f"client{client}"
            rows.append(LedgerRow(phase, name, "server", "embedding", rounds, size))
            if phase == "training":
                rows.append(LedgerRow(phase, "server", name, "gradient", rounds, size))
    return rows


def history(final: float, epochs: int, scale: int, seconds: float) -> list[dict[str, float | None]]:
    return [
        {
            "round": 10 * epoch,
            "epoch": epoch,
            "virtual_seconds": seconds * epoch,
            "bytes": 30_000 * scale * epoch,
            "validation_accuracy": final - 0.7 * float(np.exp(-epoch / 4)),
            "train_loss": None if epoch == 1 else 2.0 / epoch,
        }
        for epoch in range(1, epochs + 1)
    ]


def make_folder(out: Path) -> Path:
    """Three methods × two fault settings × three seeds; two runs of one combination are missing."""
    out.mkdir()
    (out / "config.toml").write_text(CONFIG, encoding="utf-8")
    generator = np.random.default_rng(7)
    results = []
    for number, (method, accuracy) in enumerate(METHODS.items()):
        for fault, loss in FAULTS.items():
            for seed in range(3):
                if method == NASTY and fault != "none" and seed > 0:
                    continue
                final = accuracy - loss * number + float(generator.normal(0, 0.002))
                run, epochs = f"{number}-{fault[:4]}-{seed}", 24 - 4 * number - seed
                curve = history(final, epochs, 1 + number, 0.5 + number)
                write_lines(out / "history" / f"{run}.jsonl", curve)
                write_lines(out / "ledger" / f"{run}.jsonl", ledger(1 + number))
                write_curves(out, run, CURVES)
                metrics = {"test_accuracy": final, "test_loss": 1 - final}
                cost = {"rounds": 10 * epochs, "bytes": 30_000 * epochs, "wall_seconds": 1.5}
                results.append(Result(method, fault, seed, run, dict(metrics), dict(cost), NOTES))
    write_results(out, results)
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "out")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written once, for those who only read it."""
    return write_report(make_folder(tmp_path_factory.mktemp("report") / "out"))


@pytest.fixture(scope="module")
def page(report: Path) -> str:
    return report.read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Headings, table cells and figures of a page, as a reader meets them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self.labels: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        if values.get("role") == "img":
            self.labels.append(values.get("aria-label") or "")
        if tag in ("h1", "h2", "h3", "th", "td", "figure", "li", "p"):
            self.found.setdefault(tag, []).append("")
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[self._open[-1]][-1] += data


def test_the_report_says_who_is_best_and_when_the_best_are_level(page: str, report: Path) -> None:
    outline = Outline(page)
    results = read_results(report.parent)
    calm = [
        r.metrics["test_accuracy"] or 0 for r in results if (r.method, r.faults) == (NASTY, "none")
    ]
    lead = " ".join(outline.found["p"])
    first, second = outline.found["li"][:2]
    assert "DVFL is best in 1 of 2 fault settings; in the other the best are level." in lead
    assert first.startswith("Without faults, DVFL (")
    assert ") are level: which is ahead changes with the seed; clearly behind: " in first
    assert first.endswith(f"({100 * np.mean(calm):.2f}\u00a0%).")
    assert re.fullmatch(
        r"Under “links .3/.1”, DVFL \(97.\d\d\s%\) is best, [34].\d\d points ahead of SplitNN zeros"
        r" \(93.\d\d\s%\)\.",
        second,
    )
    assert "Unfinished: 16 of 18 planned runs." in lead
    assert "Rows with a missing value were left out: 12 of 1,797." in lead


def test_names_appear_as_they_were_written_and_never_as_markup(page: str) -> None:
    outline = Outline(page)
    assert outline.found["h1"] == ["links that fail & <recover>"]
    assert NASTY in outline.found["th"]
    assert escape(NASTY, quote=False) in page  # also in the pictures, where $x$ is no formula
    assert "<b>" not in page
    assert "<recover>" not in page


def test_the_report_needs_nothing_from_outside(page: str) -> None:
    addresses = set(re.findall(r"https?://[^\"'\s<]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script .*|link|img|iframe|object)\b|@import|url\((?!#)", page)


def test_the_page_allows_its_own_script_and_no_other(page: str) -> None:
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in page
    assert "default-src 'none'" in page


def test_every_picture_is_described_and_keeps_its_ids_to_itself(page: str) -> None:
    outline = Outline(page)
    # Final figures, three kinds of curves, ROC and calibration for two fault settings; for each
    # method a confusion matrix in each setting, and two kinds of links.
    drawn = 2 + 3 * 2 + 2 * 2 + 3 * 2 + 2 * 3
    assert len(outline.found["figure"]) == len(outline.labels) == drawn
    assert all(len(label) > 20 for label in outline.labels)
    assert len(outline.ids) == len(set(outline.ids))


def test_the_same_results_give_the_same_page_in_whatever_order_they_finished(
    folder: Path, page: str
) -> None:
    write_results(folder, read_results(folder)[::-1])
    assert write_report(folder).read_text(encoding="utf-8") == page
    assert not list(folder.glob("*.partial"))


def test_without_curves_and_ledger_there_is_still_a_table(folder: Path) -> None:
    shutil.rmtree(folder / "history")
    shutil.rmtree(folder / "ledger")
    shutil.rmtree(folder / "curves")
    outline = Outline(write_report(folder).read_text(encoding="utf-8"))
    assert outline.found["h2"] == ["Results", "Configuration"]
    assert len(outline.found["figure"]) == 2


def test_without_delays_there_are_no_curves_over_virtual_time(folder: Path) -> None:
    for path in (folder / "history").iterdir():
        text = re.sub(r'"virtual_seconds":[\d.]+', '"virtual_seconds":0.0', path.read_text())
        path.write_text(text)
    headings = Outline(write_report(folder).read_text(encoding="utf-8")).found["h3"]
    assert "Over megabytes sent" in headings
    assert "Over virtual time" not in headings


def test_one_seed_is_not_called_a_win(folder: Path) -> None:
    runs = [Result(m, "none", 0, m, {"test_accuracy": a}, {}) for m, a in list(METHODS.items())[:2]]
    write_results(folder, runs)
    (folder / "config.toml").write_text('name = "one"\nseeds = [0]\n', encoding="utf-8")
    page = write_report(folder).read_text(encoding="utf-8")
    assert "0.20 points ahead" in page
    assert "with one seed this may be chance" in page


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda out: shutil.rmtree(out), "no such folder"),
        (lambda out: (out / "config.toml").unlink(), "not an output folder"),
        (lambda out: (out / "config.toml").write_text("= 3"), "not a resolved experiment file"),
        (lambda out: (out / "results.jsonl").unlink(), "no finished runs yet"),
        (lambda out: (out / "results.jsonl").write_text("{}\n"), "line 1: damaged"),
    ],
)
def test_a_folder_that_cannot_be_reported_on_is_named_with_the_reason(
    folder: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=reason) as caught:
        write_report(folder)
    assert str(folder) in str(caught.value)


def test_a_run_that_stopped_early_keeps_its_last_value_in_the_mean() -> None:
    long = (np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.5, 0.9]))
    stopped = (np.array([1.0, 2.0]), np.array([0.3, 0.7]))
    curve = average([long, stopped])
    assert curve.x.tolist() == [1, 2, 3]
    np.testing.assert_allclose(curve.mean, [0.2, 0.6, 0.8])
    np.testing.assert_allclose(curve.low, [0.1, 0.5, 0.7])


def test_links_of_many_parties_are_drawn_between_groups() -> None:
    pictures = link_pictures({"few": ledger(1), "many": ledger(1, 1024)})
    assert ">client3<" in pictures["few"][0].svg
    assert ">client × 1024<" in pictures["many"][0].svg
    assert len(pictures["many"][0].svg) < 20_000


def browse(page: Path, *options: str) -> bytes:
    return browser.browse(page.as_uri(), page.parent / "profile", *options)


@needs_browser
def test_a_browser_shows_the_page(report: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    browse(report, f"--screenshot={picture}", "--window-size=1400,1800")
    pixels = imread(picture)
    assert pixels.shape[:2] == (1800, 1400)
    red, green, blue = (255 * pixels[..., :3]).round().astype(int).reshape(-1, 3).T
    colours = set((65536 * red + 256 * green + blue).tolist())
    assert len(colours) > 200
    assert {0x0072B2, 0xD55E00, 0x009E73} < colours  # the first three methods


@needs_browser
def test_the_page_fits_a_telephone_and_a_large_screen(page: str, tmp_path: Path) -> None:
    """Frames of both widths in one page, whose script writes down what it measures."""
    frames = "".join(
        f'<iframe style="border:0" width="{width}" height="900" srcdoc="{escape(page)}"></iframe>'
        for width in (400, 1400)
    )
    script = """<script>addEventListener("load", () => {
        const read = frame => {
            const page = frame.contentDocument, root = page.documentElement;
            const small = [...page.querySelectorAll("figure text")].map(
                text => text.getBoundingClientRect().height).filter(height => height < 8);
            return [root.clientWidth, root.scrollWidth, page.querySelectorAll("table").length,
                    page.querySelectorAll("figure svg").length, small.length].join(" ");
        };
        document.title = [...document.querySelectorAll("iframe")].map(read).join(" | ");
    });</script>"""
    frames_page = tmp_path / "frames.html"
    frames_page.write_text(f"<!DOCTYPE html><title></title>{frames}{script}", encoding="utf-8")
    dom = browse(frames_page, "--dump-dom").decode()
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title
    for width, frame in zip((400, 1400), title[1].split(" | "), strict=True):
        visible, needed, tables, pictures, tiny = map(int, frame.split())
        assert needed == visible <= width
        assert tables == 2 + 1 + 3  # accuracy and cost, loss, a ledger for each method
        assert pictures == 24
        assert tiny == 0


USE = """<script>addEventListener("load", () => {
    try { use(); } catch (error) { document.title = JSON.stringify({ error: error.stack }); }
});
function use() {
    const frame = document.querySelector("iframe"), page = frame.contentDocument;
    const all = query => [...page.querySelectorAll(query)];
    const point = (drawn, x, y) => {
        const svg = drawn.querySelector("svg"), [l, t, w, h] = JSON.parse(drawn.dataset.hover).box;
        const place = svg.getBoundingClientRect();
        svg.dispatchEvent(new frame.contentWindow.PointerEvent("pointermove", {
            clientX: place.left + (l + x * w) * place.width,
            clientY: place.top + (t + y * h) * place.height}));
        return page.querySelector(".tip").innerText;
    };
    const titled = title => all("h3").find(h => h.innerText == title);
    const panel = title => {
        let next = titled(title);
        while (!next.querySelector("figure")) next = next.nextElementSibling;
        return next.querySelector("figure");
    };
    const found = { curve: point(panel("Over rounds"), 0.99, 0.5) };
    found.cell = point(panel("Confusion"), 0.99, 0.01);
    const shown = () => ["DVFL", "SplitNN zeros"].map(method => all("tbody tr").filter(
        row => row.cells[0].innerText == method && row.offsetParent).length);
    found.before = shown();
    const box = page.querySelector(".filter input");
    box.click();
    found.after = shown();
    found.without = point(panel("Over rounds"), 0.99, 0.5);
    found.lines = all("svg [data-method='0']").filter(
        one => frame.contentWindow.getComputedStyle(one).display != "none").length;
    frame.contentWindow.Blob = function (parts) { found.saved = parts.join(""); };
    frame.contentWindow.URL.createObjectURL = () => "#saved";
    page.querySelector(".save button").click();
    document.title = JSON.stringify(found);
}</script>"""


@needs_browser
def test_a_reader_points_at_pictures_hides_a_method_and_saves_a_table(
    page: str, tmp_path: Path
) -> None:
    path = tmp_path / "use.html"
    frame = f'<iframe width="1200" height="900" srcdoc="{escape(page)}"></iframe>'
    path.write_text(f"<!DOCTYPE html><title></title>{frame}{USE}", encoding="utf-8")
    dom = browse(path, "--dump-dom").decode()
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title
    found = json.loads(unescape(title[1]))
    assert "error" not in found, found["error"]
    at, *values = found["curve"].splitlines()
    assert at == "rounds: 240"
    assert [line.rsplit(": ", 1)[0] for line in values] == list(METHODS)
    assert found["cell"].splitlines()[0] == "true 0, predicted 2"
    assert (found["before"], found["after"]) == ([2, 2], [0, 2])  # in the two tables that are open
    assert "DVFL" not in found["without"]
    assert "SplitNN zeros" in found["without"]
    assert found["lines"] == 0
    assert found["saved"].splitlines()[0].startswith("method,none,none ± 2 sd,links .3/.1")


def test_tables_are_saved_as_csv_with_numbers_and_as_latex(folder: Path) -> None:
    paths = export_tables(folder, as_csv=True, as_latex=True)
    assert {path.suffix for path in paths} == {".csv", ".tex"}
    rows = list(csv.DictReader((folder / "tables" / "01-test-accuracy.csv").open()))
    assert [row["method"] for row in rows] == list(METHODS)
    assert all(90 < float(row["none"]) < 98 and float(row["none ± 2 sd"]) < 2 for row in rows)
    assert rows[2]["links .3/.1 of seeds"] == "1/3"
    latex = (folder / "tables" / "01-test-accuracy.tex").read_text()
    assert r"<b>\&" in latex
    assert latex.count(r"\\") == 4  # a head and three methods
    assert r"\textbf{9" in latex
    with (folder / "tables" / "runs.csv").open() as file:
        every = list(csv.DictReader(file))
    assert [float(row["test_accuracy"]) for row in every] == [
        result.metrics["test_accuracy"] for result in read_results(folder)
    ]


def test_a_name_that_a_spreadsheet_would_run_is_saved_as_text() -> None:
    grid = Grid(("method", "none"), (("=cmd()", "−1,234.50"), ("@x", "–")), "A caption.")
    assert csv_text(grid) == "method,none\n'=cmd(),-1234.50\n'@x,\n"


def test_numbers_are_shown_predicted_beside_true(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(400, generator=generator, dtype=torch.float64)
    for result in read_results(folder):
        answers = (y + 0.3 * torch.randn(400, generator=generator))[:, None]
        curves = curves_of(answers, y, 0)
        assert curves is not None
        write_curves(folder, result.run, curves)
    headings = Outline(write_report(folder).read_text(encoding="utf-8")).found["h3"]
    assert headings[:2] == ["Errors", "Predicted beside true"]
