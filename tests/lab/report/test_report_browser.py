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
    """The page with all its pictures drawn, without a scroll; what it complains of is in `tab.said`."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.said, tab.asked = [], []
    tab.on("console", lambda message: message.type == "error" and tab.said.append(message.text))
    tab.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.on("request", lambda asked: tab.asked.append(asked.url))
    tab.goto(page.as_uri())
    tab.wait_for_selector(".controls")
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


def picture(tab: Any, title: str) -> Any:
    """The picture with this title."""
    return tab.locator(".picture", has=tab.get_by_role("heading", name=title, exact=True))


def drawn(picture: Any) -> Any:
    """The points of the lines that a picture shows."""
    return picture.evaluate("(e) => e.querySelector('.plot').data.map((trace) => [trace.x, trace.y])")


def test_the_pictures_show_the_numbers_and_smooth_them_only_when_asked(tab: Any, page: Path) -> None:
    found, shown = figure(page.read_text(), "Accuracy over the rounds"), picture(tab, "Accuracy over the rounds")
    for model in ("window3", "ema", "model"):
        shown.locator("select").select_option(label=f"{model}, every run")
        lines = [traced(found, f"{model}, every run", name) for name in "ab"]
        assert drawn(shown) == [[points["x"], points["y"]] for points in lines]
        shown.get_by_label("smoothed").check()
        assert drawn(shown) == [[points["x"], points["smooth"]] for points in lines]
        shown.get_by_label("smoothed").uncheck()
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
    box.evaluate("(e) => e.click()")  # without a pointer on the name, which would stress the line
    assert tab.evaluate(read) is False
    box.evaluate("(e) => e.click()")
    assert tab.evaluate(read) is True


def slide(tab: Any, name: str, value: int) -> None:
    tab.locator(f"[name={name}]").evaluate("(e, to) => { e.value = to; e.dispatchEvent(new Event('input')); }", value)


@pytest.mark.full  # two curves and a matrix in the browser take two seconds
def test_the_sliders_show_a_window_and_its_curve_by_the_end(tab: Any) -> None:
    """The windows of ANALYSES["map"]: sizes and ends are 4, 8 and 12."""
    told, curve = tab.locator(".found"), picture(tab, "The chosen number of models, whenever it ends")
    overview = picture(tab, f"map {HOSTILE}")
    assert (
        told.inner_text() == "The mean of the last 8 models after round 12: accuracy 65.00 %; the model itself 50.00 %."
    )
    assert drawn(curve)[0] == [[4, 8, 12], [None, 45, 65]] and drawn(overview)[1] == [[12], [8]]
    slide(tab, "size", 0)
    slide(tab, "end", 1)
    assert told.inner_text().endswith(
        "4 models after round 8: accuracy 50.00 %; the model itself was not evaluated there."
    )
    assert drawn(curve)[0] == [[4, 8, 12], [40, 50, 60]] and drawn(overview)[1] == [[8], [4]]
    assert curve.evaluate("(e) => e.querySelector('.plot').layout.shapes[0].x0") == 8
    slide(tab, "size", 2)
    assert told.inner_text() == "There is no value for a window of 12 models that ends after round 8."
    assert tab.locator("[name=size]").get_attribute("aria-valuetext") == "12"
    overview.evaluate("(e) => e.querySelector('.plot').emit('plotly_click', { points: [{ x: 12, y: 4 }] })")
    assert "4 models after round 12: accuracy 60.00 %" in told.inner_text()
    assert [tab.locator(f"[name={name}]").input_value() for name in ("size", "end")] == ["0", "2"]


@pytest.mark.slow
def test_it_is_dark_where_the_system_is_and_the_switch_changes_it(tab: Any) -> None:
    def is_on(paper: str) -> None:
        tab.wait_for_function(
            """(paper) => getComputedStyle(document.body).backgroundColor === paper
            && [...document.querySelectorAll('.plot')].every((plot) => plot._fullLayout.paper_bgcolor === paper)""",
            arg=paper,
        )

    light, dark = "rgb(255, 255, 255)", "rgb(21, 25, 30)"
    is_on(light)
    tab.emulate_media(color_scheme="dark")
    is_on(dark)
    tab.get_by_role("button", name="Light").click()
    is_on(light)
    tab.emulate_media(color_scheme="light")
    tab.get_by_role("button", name="Dark").click()
    is_on(dark)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    is_on(light)  # paper is
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    is_on(dark)
    tab.get_by_role("button", name="Light").click()


@pytest.mark.full  # a page of two widths in the browser takes two seconds
def test_a_table_that_scrolls_says_so_and_no_other_one(tab: Any) -> None:
    for width in (390, 1280):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_timeout(300)
        tables = """() => [...document.querySelectorAll('.scroll')].filter((e) => e.checkVisibility())
            .map((e) => [e.scrollWidth > e.clientWidth, e.parentElement.querySelector('.hint').checkVisibility()])"""
        found = tab.evaluate(tables)
        assert all(scrolls == told for scrolls, told in found)
        assert any(scrolls for scrolls, _ in found) or width == 1280


@pytest.mark.full
def test_the_names_of_models_in_a_plane_are_dark_on_light(tab: Any) -> None:
    notes = picture(tab, f"plane {HOSTILE}").evaluate(
        "(e) => e.querySelector('.plot').layout.annotations.map((n) => [n.text, n.font.color, n.bgcolor])"
    )
    assert {text for text, *_ in notes} == {"model", "ema", "window3", "mean of the three"}
    assert {tuple(look) for _, *look in notes} == {("#1f2328", "rgba(255,255,255,0.85)")}


@pytest.mark.full  # a picture that is drawn once more takes more than a second
def test_save_gives_a_picture_with_its_title_and_its_legend(tab: Any, tmp_path: Path) -> None:
    shown = picture(tab, "Accuracy over the rounds")
    shown.locator("select").select_option(index=0)
    with tab.expect_download() as saved:
        shown.get_by_role("button", name="save as SVG").click()
    saved.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text()
    assert "Accuracy over the rounds (every run: " in text
    for line in ("a: ema", "b: model"):
        assert f">{line}</text>" in text


@pytest.mark.full  # a page of its own
def test_all_pictures_are_drawn_before_the_page_counts_as_loaded(browser: Any, page: Path) -> None:
    """Whoever photographs or prints a page does so then: the partition, which comes last, was missing."""
    tab = browser.new_page()
    tab.goto(page.as_uri())
    assert tab.evaluate("[...document.querySelectorAll('.plot')].every((plot) => plot._fullLayout)")
    assert tab.evaluate("document.querySelectorAll('iframe').length") == 0
    tab.close()
