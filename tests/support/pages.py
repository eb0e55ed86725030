"""Pages for tests: runs, a sweep with all that a page can show, what is in a page's text, and a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly")

from fedsash.averages import EMA, Window
from fedsash.evaluation import Evaluation
from fedsash.lab.report.collect import collect
from fedsash.lab.report.page import document
from fedsash.runs import run
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.tasks import Criterion
from support.histories import ACCURACY, history, history_of
from support.json_files import write_json
from support.worlds import federation

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


def written(
    folder: Path,
    curves: dict[str, list[float | None]],
    config: str = "",
    criterion: Criterion = ACCURACY,
    split: str = "test",
) -> Path:
    """A run's folder with these values of the criterion, which has not ended."""
    folder.mkdir(parents=True)
    Records(folder).create(history_of(history(curves, every=1, metric=criterion.name, split=split)))
    evaluation = Evaluation(**tomllib.loads(config).get("evaluation", {}))
    write_json(folder / GOAL, goal_content(criterion, evaluation))
    if config:
        (folder / "config.toml").write_text(config)
    return folder


def put(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        write_json(path, content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


GRID = [-1.0, 0.0, 1.0]
BOWL = [[x * x + y * y + 0.5 for x in GRID] for y in GRID]
SHARES = [[value / 10 for value in row] for row in BOWL]
PLACES = {"x": GRID, "y": GRID, "loss": BOWL, "error": SHARES, "split": "test", "metric": asdict(ACCURACY)}
TERMS = (
    "bias",
    "train_bias",
    "heterogeneous_bias",
    "variance",
    "locality_max",
    "locality_mean",
    "cka",
    "squared_error",
    "test_error",
)
ANALYSES: dict[str, dict[str, Any]] = {
    "line": {"models": ["model", "ema"], "beta": [0, 0.5, 1], "loss": [1, 0.5, 2], "error": [0.2, None, 0.3]}
    | {"metric": asdict(ACCURACY)},
    "plane": PLACES | {"models": {"model": [-1, 0], "ema": [1, 0], "window3": [0, 1]}, "mean": [0, 0.3]},
    "surface": PLACES | {"model": "model", "seed": 0},
    "decomposition": {term: [3.0, 1.0] for term in TERMS} | {"rounds": [6, 12], "covariance": [None, None], "runs": 1},
    "ensemble": {"split": "test", "rounds": [6], "cka": [0.5], "mean": [[0.5, 0.4]], "ensemble": [[0.5, 0.3]]}
    | {"gap": [[0.0, 0.1]], "distance": [[0.0, 2.0]]},
    "variance": {"rounds": [6], "ids": [[0, 1]], "variances": [[0.2, 0.1]], "distances": [[0.9, 0.5]], "runs": 2}
    | {name: [[0.5, 0.4]] for name in ("squared_error", "bias", "variance", "equal", "covariance", "bound")},
    "coverage": {"sizes": [1, 2], "rounds": [1, 2], "expected": [0.5, 0.75]}
    | {"share": [[0.5, 0.5], [0.5, 1.0]], "distance": [[0.2, 0.2], [0.2, 0.0]]},
    "flatness": {"models": {"model": {"eigenvalues": [4, 1], "converged": 2, "sharpness": {"0.05": 0.2}}}},
    "window": {"average": "window3", "round": 12, "rounds": [1, 2], "weights": [1, 0.5], "clients": [0.5, 1.0]}
    | {"distance_rounds": [10, 12], "distances": [0.5, 0.25]},
    "averages": {"split": "test", "round": 12, "model": 0.5, "sizes": [2, 4], "chosen": 4}
    | {"metric": asdict(ACCURACY)}
    | {"windows": {"value": [0.5, 0.6], "loss": [1.0, None], "held_out": [0.5, 0.7]}}
    | {"emas": {"decay": [0.33, 0.6], "error": [0.3, 0.2], "value": [0.5, 0.5], "loss": [1.0, 1.0]}},
    "map": {"split": "test", "metric": asdict(ACCURACY), "ends": [4, 8, 12], "model": [0.3, None, 0.5]}
    | {"sizes": [[4], [4, 8], [4, 8, 12]], "value": [[0.4], [0.5, 0.45], [0.6, 0.65, 0.55]]},
}


def everything(out: Path) -> Path:
    """Two real runs, a failed and a missing one, all kinds of analyses, a reproduction's table, and hostile names."""
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


def page_of(sweep: Path) -> Path:
    """The page of a sweep, beside its folder."""
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


def traced(found: dict[str, Any], view: str, name: str) -> dict[str, Any]:
    """The points of a line of a view: its trace, or the series of it that can be smoothed."""
    data = next(one["data"] for one in found["views"] if one["label"] == view)
    trace = next(one for one in data if one["label"] == name)
    points: dict[str, Any] = found["series"][trace["series"]] if "series" in trace else trace
    return points


SWITCHES = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run")
QUIET = ("disable-background-networking", "disable-component-update", "disable-sync")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; without one the test is skipped."""
    how = "the page is tested in Chromium: install it (apt-get install chromium) and pip install playwright"
    sync = pytest.importorskip("playwright.sync_api", reason=how)
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip(how)
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=[f"--{switch}" for switch in (*SWITCHES, *QUIET)]
        )
        yield browser
        browser.close()
