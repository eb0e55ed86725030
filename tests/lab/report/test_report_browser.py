"""What a browser makes of the page: no complaint, no request, its numbers drawn, and keys for every control."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.pages import ANALYSES, HOSTILE, chromium, everything, figure, page_of, traced


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(everything(tmp_path_factory.mktemp("sweep")))


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
    found = figure(text, "Accuracy over the rounds")
    read = "[...document.querySelector('.plot').data].map((trace) => [trace.x, trace.y])"
    for model in ("window3", "ema", "model"):
        tab.select_option(".controls select >> nth=0", label=f"{model}, every run")
        lines = [traced(found, f"{model}, every run", name) for name in "ab"]
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
