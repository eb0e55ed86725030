"""Runs on a simulated network on the page: their time lines, their link, their window, their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.cli import main
from fedsash.lab.config import parse
from fedsash.lab.report.collect import collect
from fedsash.lab.report.page import document
from fedsash.runs.records import Records
from support.experiments import trained
from support.json_files import write_json
from support.pages import HOSTILE, chromium, figure, written
from support.worlds import ON_NETWORK

TIMED: dict[str, Any] = {
    "rounds": 1000,
    "network": {"seconds": 50.0, "learning": False, "bytes": 1000, "clients": {"count": 40, "seconds": 5.0}},
    "scheduler": {"name": "fedasync"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a network, called as nobody expects."""
    out = tmp_path_factory.mktemp("runs") / f"window {HOSTILE.replace('/', '-')}"
    trained(parse(ON_NETWORK), out)
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def page(*folders: Path) -> str:
    return document(collect(folders), "the command")


def timeline(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "timeline.json").read_text())
    return found


def test_the_metric_is_drawn_against_time_and_trips(folder: Path) -> None:
    rows = [row for row in Records(folder).load().rows() if row["split"] == "test" and row["model"] == "w3"]
    views = figure(page(folder), "Accuracy over time and trips")["views"]
    assert [view["label"] for view in views] == ["against seconds", "against client trips"]
    for view, key in zip(views, ("time", "trips"), strict=True):
        line = next(trace for trace in view["data"] if trace["label"] == "w3")
        assert line["x"] == pytest.approx([row[key] for row in rows], rel=1e-4)
        assert line["y"] == pytest.approx([100 * row["accuracy"] for row in rows], rel=1e-4)


def test_a_client_is_shown_at_all_that_it_does(folder: Path) -> None:
    (view,) = figure(page(folder), "Who does what when")["views"]
    drawn = [
        (client, bars["label"], began, pytest.approx(began + took, abs=1e-2))
        for bars in view["data"]
        for client, began, took in zip(bars["y"], bars["base"], bars["x"], strict=True)
    ]
    known = [
        (client, what, pytest.approx(began, abs=1e-2), ended)
        for client, what, began, ended in timeline(folder)["intervals"]
    ]
    assert len(drawn) == len(known) > 20
    assert sorted((c, what) for c, what, _, _ in drawn) == sorted((c, what) for c, what, _, _ in known)
    assert all(row in drawn for row in known)
    assert len({bars["width"] for bars in view["data"] if bars["label"] in ("train", "upload", "wait")}) == 3


def test_the_links_use_adds_up_to_what_it_has_carried(folder: Path) -> None:
    known = timeline(folder)
    (line,) = figure(page(folder), "The link and the window")["views"][0]["data"]
    bins = zip(line["x"], line["x"][1:], line["y"], strict=False)
    carried = sum(known["rate"] * (end - begin) * share / 100 for begin, end, share in bins)
    assert carried == pytest.approx(known["carried"][-1][1], rel=1e-3)
    assert line["line"]["shape"] == "hv"


def test_the_window_is_drawn_to_the_end(folder: Path) -> None:
    known = timeline(folder)
    (line,) = figure(page(folder), "The link and the window")["views"][1]["data"]
    assert line["y"][:-1] == [size for _, size in known["window"]] and line["y"][-1] == line["y"][-2]
    assert line["x"][-1] == pytest.approx(known["until"], rel=1e-4)


def test_the_numbers_are_in_a_table_and_the_command_is_that_of_the_network(folder: Path) -> None:
    found, text = json.loads((folder / "summary.json").read_text())["network"], page(folder)
    for number in (f"{found['time']:,.1f}", str(found["trips"]), f"{found['staleness']:.2f}"):
        assert f'<td class="number">{number}</td>' in text
    assert "fedsash network " in text and "fedsash run " not in text
    assert HOSTILE.replace("/", "-") not in text


def test_a_study_of_time_alone_has_no_metric_and_says_why_it_ended(tmp_path: Path) -> None:
    experiment = parse(TIMED)
    experiment.study(tmp_path / "timed")
    text = page(tmp_path / "timed")
    assert "its simulated time was over" in text and "not finished" not in text
    assert "Who does what when" in text and "Accuracy over time and trips" not in text
    assert "The link and the window" not in text and "The link&#x27;s use" in text


def test_a_damaged_time_line_is_named_and_the_rest_is_shown(folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for name in ("metrics.jsonl", "summary.json", "config.toml", "goal.json"):
        (damaged / name).write_bytes((folder / name).read_bytes())
    write_json(damaged / "timeline.json", {"intervals": 3})
    text = page(folder, damaged)
    assert f"left out: {damaged / 'timeline.json'}" in text
    assert len(figure(text, "Who does what when")["views"]) == 1
    assert len(figure(text, "Accuracy over time and trips")["views"][0]["data"]) == 2


def test_a_run_without_a_network_has_no_section_of_it(tmp_path: Path) -> None:
    assert "On the network" not in page(written(tmp_path / "plain", {"model": [0.1, 0.2]}))


def test_pictures_for_papers_are_those_of_the_run(folder: Path, tmp_path: Path) -> None:
    arguments = ["report", str(folder), "--out", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures")]
    assert main(arguments) == 0
    names = sorted(file.name.rpartition("-")[2] for file in (tmp_path / "figures").iterdir())
    assert names == sorted(f"{n}.{e}" for n in ("curves", "link", "progress", "timeline") for e in ("pdf", "png"))


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_draws_them_all_and_does_not_scroll_to_the_side(
    browser: Any, width: int, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(page(folder))
    tab = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto((tmp_path / "page.html").as_uri())
    tab.wait_for_selector(".controls")
    tab.evaluate("dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('afterprint'))")
    tab.wait_for_function("[...document.querySelectorAll('.plot')].every((plot) => plot._fullLayout)")
    assert said == [] and tab.evaluate("window.hit") is None
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator(".legend label:visible").count() >= 7  # of curves, progress and the time line
    tab.close()
