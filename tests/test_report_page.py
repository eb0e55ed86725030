"""The page of runs and sweeps: what is in it, and what a browser makes of it."""

from __future__ import annotations

import gzip
import html
import json
import math
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly")

from tests.worlds import federation

from fedsash.averages import EMA, Window
from fedsash.cli import main
from fedsash.evaluation import Evaluation
from fedsash.records import Records, accuracies
from fedsash.report.page import collect, document
from fedsash.report.page.curves import MOST
from fedsash.report.page.smoothing import ORDER, WINDOW, smooth
from fedsash.runs import run

HOSTILE = '</script><img src=x onerror="window.hit=1">\'&<b>'
LIMIT = 6_000_000
EVALUATION = Evaluation(every=1, last=3, target=0.4)
CONFIG = {"rounds": 12, "method": {"name": "fedavg"}, "evaluation": {"every": 1, "last": 3, "target": 0.4}}


def trained(folder: Path, seed: int = 0, **config: Any) -> Path:
    """A real run of 12 rounds."""
    averages = {"window3": Window(3), "ema": EMA(0.9)}
    world = federation(averages=averages, seed=seed, evaluation=EVALUATION)
    run(world, 12, out=folder, progress=False, config=CONFIG | {"seed": seed} | config)
    return folder


def written(folder: Path, curves: dict[str, list[float | None]], config: str = "") -> Path:
    """A run's folder with these accuracies on the test set, which has not ended."""
    rows = [
        {"round": round, "model": model, "split": "test", "accuracy": value, "loss": 1.0}
        for model, values in curves.items()
        for round, value in enumerate(values, 1)
    ]
    folder.mkdir(parents=True)
    Records(folder).create(rows)
    if config:
        (folder / "config.toml").write_text(config)
    return folder


def put(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


GRID = [-1.0, 0.0, 1.0]
BOWL = [[x * x + y * y + 0.5 for x in GRID] for y in GRID]
SHARES = [[value / 10 for value in row] for row in BOWL]
PLACES = {"x": GRID, "y": GRID, "loss": BOWL, "error": SHARES, "split": "test"}
TERMS = (
    "bias",
    "train_bias",
    "heterogeneous_bias",
    "variance",
    "locality_max",
    "locality_mean",
    "cka",
    "squared_error",
)
ANALYSES: dict[str, dict[str, Any]] = {
    "line": {"models": ["model", "ema"], "beta": [0, 0.5, 1], "loss": [1, 0.5, 2], "error": [0.2, None, 0.3]},
    "plane": PLACES | {"models": {"model": [-1, 0], "ema": [1, 0], "window3": [0, 1]}, "mean": [0, 0.3]},
    "surface": PLACES | {"model": "model", "seed": 0},
    "decomposition": {term: [3.0, 1.0] for term in TERMS} | {"rounds": [6, 12], "covariance": [None, None], "runs": 1},
    "flatness": {"models": {"model": {"eigenvalues": [4, 1], "sharpness": {"0.05": 0.2}}}},
    "window": {"average": "window3", "round": 12, "rounds": [1, 2], "weights": [1, 0.5], "clients": [0.5, 1.0]}
    | {"distance_rounds": [10, 12], "distances": [0.5, 0.25]},
}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real runs, a failed and a missing one, all kinds of analyses, a recipe's table, and hostile names."""
    out = tmp_path_factory.mktemp("sweep")
    trained(out / "runs" / "a", 0)
    trained(out / "runs" / "b", 1, note=HOSTILE)
    runs = {name: {"method": HOSTILE, "seed": seed} for name, seed in (("a", "0"), ("b", "1"), ("c", "2"), ("d", "3"))}
    axes = {"method": [HOSTILE], "seed": ["0", "1", "2", "3"]}
    put(out, "sweep.json", {"title": f"Sweep {HOSTILE}", "axes": axes, "runs": runs, "failed": {"c": f"lr {HOSTILE}"}})
    for kind, content in ANALYSES.items():
        put(out, f"analyses/{kind}.json", {"kind": kind, "title": f"{kind} {HOSTILE}", "command": HOSTILE} | content)
    put(out, "analyses/damaged.json", '{"kind": "line", "beta": [')
    put(out, "analyses/short.json", {"kind": "line"} | ANALYSES["line"] | {"beta": [0, 1]})
    put(out, "analyses/bare.json", {"kind": "surface", "model": "m", "x": [0], "y": [0], "loss": [[1]]})
    table = {"title": f"Table {HOSTILE}", "note": "small", "columns": ["method", "published", "measured"]}
    put(out, "tables/one.json", table | {"rows": [[HOSTILE, "72.75 ?", 71.5], ["FedProx", "70", None]], "command": "c"})
    put(out, "tables/two.json", table | {"rows": [["too short"]]})
    return out


@pytest.fixture(scope="module")
def page(sweep: Path) -> Path:
    path = sweep.parent / "page.html"
    path.write_text(document(collect([sweep]), f"fedsash report {HOSTILE}"), encoding="utf-8")
    return path


class Outline(HTMLParser):
    """The text of a page's elements, and the order of its headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")], "an event handler in the markup"
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag in ("td", "th"):
            self.inside = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.cells[-1] += data


def specs(text: str) -> dict[str, Any]:
    """The figures of a page."""
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    assert found is not None
    result: dict[str, Any] = json.loads(found[1])
    return result


def figure(text: str, title: str) -> dict[str, Any]:
    number = [html.unescape(t) for t in re.findall(r'<h3 id="figure-\d+-title">(.*?)</h3>', text)].index(title)
    result: dict[str, Any] = specs(text)[f"figure-{number}"]
    return result


# What is in the page


def test_curves_and_tables_are_the_numbers_of_the_runs(page: Path, sweep: Path) -> None:
    text = page.read_text()
    series, cells = figure(text, "Accuracy over the rounds")["series"], Outline(text).cells
    for i, name in enumerate("ab"):
        folder = sweep / "runs" / name
        for model, points in accuracies(Records(folder).load()).items():
            drawn = series[f"{i}:{model}"]
            assert drawn["x"] == list(points)
            assert drawn["y"] == pytest.approx([100 * share for share in points.values()], abs=1e-4)
            assert drawn["smooth"] == pytest.approx([100 * s for s in smooth(list(points.values()))], abs=0.01)
        for model in json.loads((folder / "summary.json").read_text())["models"].values():
            mean = f"{100 * model['last_mean']:.2f} ± {100 * model['last_std']:.2f}"
            assert any(cell.removesuffix(" (best)") == mean for cell in cells)
            assert f"{100 * model['accuracy']:.2f}" in cells
            assert f"{100 * model['best']['accuracy']:.2f}" in cells
            assert str(model["rounds_to_target"] or "not reached") in cells


def test_every_line_of_every_run_is_in_some_view_and_no_two_of_a_view_look_alike(page: Path) -> None:
    found = figure(page.read_text(), "Accuracy over the rounds")
    assert {t["series"] for view in found["views"] for t in view["data"]} == found["series"].keys()
    for view in found["views"]:
        styles = [(t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"]) for t in view["data"]]
        assert len(set(styles)) == len(styles)


def test_smoothing_fits_parabolas_and_keeps_what_is_too_short() -> None:
    """A filter of order 2 fits a parabola exactly; an even window gives it half a step on, but at the ends."""

    def parabola(t: float) -> float:
        return 0.1 + 0.02 * t - 0.001 * t * t

    n, few = WINDOW + 5, [0.0, 1.0, 0.0]
    fitted = [parabola(t + (0.5 if 5 <= t < n - 5 else 0)) for t in range(n)]
    smoothed = smooth([*(parabola(t) for t in range(n)), math.nan, *few])
    assert ORDER == 2 and smoothed[:n] == pytest.approx(fitted, abs=1e-12)
    assert math.isnan(smoothed[n]) and smoothed[n + 1 :] == few


def test_all_kinds_of_analyses_are_drawn_and_damaged_ones_are_named(page: Path) -> None:
    text = page.read_text()
    views = {kind: figure(text, f"{kind} {HOSTILE}")["views"] for kind in ANALYSES}
    assert [view["data"][0]["type"] for view in views["surface"]] == ["surface", "surface", "contour", "contour"]
    assert views["plane"][0]["data"][0]["z"] == BOWL
    assert views["plane"][1]["data"][0]["z"] == [pytest.approx([10 * value for value in row]) for row in BOWL]
    assert views["line"][1]["data"][0]["y"] == [20, None, 30]
    assert len(views["decomposition"]) == 3 and len(views["flatness"]) == 2 and len(views["window"]) == 3
    assert len(specs(text)) == len(ANALYSES) + 2, "and the curves, and the partition"
    for name in ("damaged.json", "short.json", "bare.json", "two.json"):
        assert re.search(rf"<li>[^<]*left out: [^<]*{name}", text), name


def test_surfaces_of_a_page_share_their_scales(tmp_path: Path) -> None:
    folder = written(tmp_path / "r", {"model": [0.5]})
    for factor in (1, 3):
        loss = [[factor * value for value in row] for row in BOWL]
        put(folder, f"analyses/s{factor}.json", {"kind": "surface"} | ANALYSES["surface"] | {"loss": loss})
    drawn = [spec for spec in specs(document(collect([folder]), "")).values() if len(spec["views"]) == 4]
    scales = [(s["views"][0]["data"][0]["cmin"], s["views"][0]["data"][0]["cmax"]) for s in drawn]
    assert scales == [(0.5, 7.5)] * 2


def test_the_partition_is_that_of_the_run(page: Path, sweep: Path) -> None:
    counts = json.loads((sweep / "runs" / "a" / "partition.json").read_text())["counts"]
    bubbles = figure(page.read_text(), "Partition")["views"][0]["data"][0]
    drawn = dict(zip(zip(bubbles["x"], bubbles["y"], strict=True), bubbles["marker"]["size"], strict=True))
    assert drawn == {(k, c): n for k, held in enumerate(counts) for c, n in enumerate(held) if n}


def test_the_page_says_how_a_sweep_stands_and_compares_its_seeds(page: Path) -> None:
    text = page.read_text()
    assert "run d has not begun" in text
    cells = Outline(text).cells
    assert cells[cells.index("c") + 1] == f"lr {HOSTILE}"
    assert "Over seeds" in text and "2" in cells
    assert all(cell in cells for cell in ("72.75 ?", "71.5"))


def test_it_is_one_small_file_in_good_order(page: Path) -> None:
    text = page.read_text()
    outline = Outline(text)
    assert len(text.encode()) < LIMIT
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert outline.tags.count("table") == outline.tags.count("caption")
    assert outline.tags.count("figure") == outline.tags.count("figcaption")
    assert {"header", "nav", "main", "footer"} <= set(outline.tags)
    assert not {"img", "link", "iframe"} & set(outline.tags), "and nothing of a hostile name is an element"
    packed = re.search(r'id="plotly">(.*?)</script>', text, re.S)
    assert packed is not None and b"plotly.js" in gzip.decompress(b64decode(packed[1]))[:200]


# Runs in all states


def test_a_run_that_has_not_ended_shows_what_there_is(tmp_path: Path) -> None:
    config = "rounds = 50\n[evaluation]\nlast = 2\n"
    folder = written(tmp_path / "going", {"model": [0.25, 0.5, 0.75], "w": [0.1, None, 0.5]}, config)
    text = document(collect([folder]), "")
    assert "after round 3 of 50" in text
    cells = Outline(text).cells
    assert "62.50 ± 12.50" in cells and "75.00" in cells
    assert figure(text, "Accuracy over the rounds")["series"]["0:w"]["y"] == [10, None, 50]


@pytest.mark.parametrize("rows", [[], [{"round": 1, "model": "model", "split": "clients", "accuracy": 0.5}]])
def test_a_run_without_test_accuracies_says_so(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    (tmp_path / "r").mkdir()
    Records(tmp_path / "r").create(rows)
    assert "No run was evaluated on a test set" in document(collect([tmp_path / "r"]), "")


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    folder = written(tmp_path / "r", {"model": [0.5, None]})
    guard = {"model": "model", "split": "guard", "refused": [1], "skipped": "no upload can be used"}
    Records(folder).append([{"round": 2} | guard])
    assert "diverged in round 2: no upload can be used" in document(collect([folder]), "")


def test_a_damaged_run_of_a_sweep_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    written(tmp_path / "runs" / "good", {"model": [0.5]})
    written(tmp_path / "runs" / "bad", {"model": [0.5]})
    put(tmp_path, "runs/bad/metrics.jsonl", "nonsense\n")
    put(tmp_path, "runs/good/partition.json", {"classes": ["a"], "counts": [[1, 2]]})
    put(tmp_path, "runs/good/summary.json", "{")
    put(tmp_path, "sweep.json", {"title": "s", "axes": {}, "runs": {"good": {}, "bad": {}}, "failed": {}})
    text = document(collect([tmp_path]), "")
    assert re.search("run bad is left out: [^<]*metrics.jsonl, line 1", text)
    assert "the partition of good is left out" in text and "summary.json is not JSON" in text
    assert "50.00" in text


@pytest.mark.slow
def test_forty_long_runs_stay_small(tmp_path: Path) -> None:
    values: list[float | None] = [0.5 + 0.4 * math.sin(i / 7) for i in range(1000)]
    folders = [written(tmp_path / f"r{i}", {f"m{k}": values for k in range(6)}) for i in range(40)]
    text = document(collect(folders), "")
    assert len(text.encode()) < LIMIT
    found = figure(text, "Accuracy over the rounds")
    assert sum(len(points["y"]) for points in found["series"].values()) <= MOST
    assert "One evaluation in 2 is drawn" in text


def test_each_of_forty_runs_has_a_look_of_its_own(tmp_path: Path) -> None:
    folders = [written(tmp_path / f"r{i}", {"model": [0.1, 0.2]}) for i in range(40)]
    found = figure(document(collect(folders), ""), "Accuracy over the rounds")
    looks = {(t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"]) for t in found["views"][0]["data"]}
    assert len(looks) == 40


# The command


def test_the_command_writes_the_page_and_the_pictures(
    tmp_path: Path, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "new" / "page.html", tmp_path / "figures"
    assert main(["report", str(sweep / "runs" / "a"), "--out", str(out), "--figures", str(figures)]) == 0
    assert f"page: {out}" in capsys.readouterr().out
    assert out.read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in figures.iterdir()) == ["a-curves.pdf", "a-curves.png"]


@pytest.mark.parametrize("folder, words", [("missing", "neither a run nor a sweep"), ("damaged", "must be a JSON")])
def test_what_is_no_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, words: str
) -> None:
    put(tmp_path / "damaged", "metrics.jsonl", "[]\n")
    assert main(["report", str(tmp_path / folder), "--out", str(tmp_path / "p.html")]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and folder in error and words in error
    assert not (tmp_path / "p.html").exists()


# In a browser

SWITCHES = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run")
QUIET = ("disable-background-networking", "disable-component-update", "disable-sync")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=[f"--{switch}" for switch in (*SWITCHES, *QUIET)]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(browser: Any, page: Path) -> Iterator[Any]:
    """The page with all its pictures drawn; what it complains of is in `tab.said`."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.said, tab.asked = [], []
    tab.on("console", lambda message: message.type == "error" and tab.said.append(message.text))
    tab.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.on("request", lambda asked: tab.asked.append(asked.url))
    tab.goto(page.as_uri())
    tab.wait_for_selector(".controls")
    tab.evaluate("dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('afterprint'))")
    tab.wait_for_function("[...document.querySelectorAll('.plot')].every((plot) => plot._fullLayout)")
    yield tab
    tab.close()


def test_the_browser_is_content_and_asks_for_nothing(tab: Any, page: Path) -> None:
    assert tab.said == []
    assert [url for url in tab.asked if not url.startswith(("blob:", "data:"))] == [page.as_uri()]
    assert tab.evaluate("window.hit") is None
    assert HOSTILE in tab.inner_text("h1")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_does_not_scroll_to_the_side(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.wait_for_timeout(500)
    tab.wait_for_function(f"document.documentElement.scrollWidth === {width}")  # once the pictures have followed


def test_the_pictures_show_the_numbers(tab: Any, page: Path) -> None:
    text = page.read_text()
    series = figure(text, "Accuracy over the rounds")["series"]
    read = "[...document.querySelector('.plot').data].map((trace) => [trace.x, trace.y])"
    for model in ("window3", "ema", "model"):
        tab.select_option(".controls select >> nth=0", label=f"{model}, every run")
        lines = [series[f"{i}:{model}"] for i in range(2)]
        tab.check(".controls input >> nth=0")
        assert tab.evaluate(read) == [[points["x"], points["smooth"]] for points in lines]
        tab.uncheck(".controls input >> nth=0")
        assert tab.evaluate(read) == [[points["x"], points["y"]] for points in lines]
    titles = [title for title in tab.locator("h3").all_inner_texts() if HOSTILE in title]
    assert {f"{kind} {HOSTILE}" for kind in ANALYSES} <= set(titles)
    assert tab.evaluate("document.querySelectorAll('.plot canvas').length") > 0, "the surface is not drawn"


def test_every_control_is_reached_and_worked_by_keys(tab: Any) -> None:
    controls = "main :is(a, button, select, input, summary, [tabindex='0'])"
    wanted = tab.evaluate(f"[...document.querySelectorAll(`{controls}`)].filter((e) => e.checkVisibility()).length")
    tab.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    count = """() => {
        const seen = (window.seen ??= new Set()), element = document.activeElement;
        if (element.closest("main") && element.id !== "main") seen.add(element);
        return seen.size;
    }"""
    reached = 0
    for _ in range(wanted + 20):
        tab.keyboard.press("Tab")
        reached = tab.evaluate(count)
    assert reached == wanted
    plot = tab.locator(".plot >> nth=0")
    plot.focus()
    before = tab.evaluate("document.querySelector('.plot').layout.xaxis.range")
    tab.keyboard.press("+")
    after = tab.evaluate("document.querySelector('.plot').layout.xaxis.range")
    assert after[1] - after[0] < before[1] - before[0]


def test_the_legend_hides_a_line(tab: Any) -> None:
    box = tab.locator(".legend >> nth=0").locator("input >> nth=0")
    read = "document.querySelector('.plot').data[0].visible"
    box.uncheck()
    assert tab.evaluate(read) is False
    box.check()
    assert tab.evaluate(read) is True
