"""Hostile texts in a run's folder, and the page that `fedsash report` makes of them, opened in a browser.

The texts stand for names of runs, averages, axes and labels, for titles, commands, notes and messages. No script of
theirs may run, no request may leave, the browser may complain of nothing, and the page must not scroll to the side.
Needs playwright and Chromium.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from .frame import REFUSED, Bench, Case, Finding

SIZES = {"full": 50, "short": 3}
HIT = "window.hit=1"
TEXTS = (
    f"</script><script>{HIT}</script>",
    f"<script>{HIT}</script>",
    f"<img src=x onerror='{HIT}'>",
    f'"><svg onload={HIT}>',
    f"' autofocus onfocus='{HIT}' x='",
    f"--><script>{HIT}</script><!--",
    f"]]></style></title></textarea><script>{HIT}</script>",
    f"javascript:{HIT}",
    f"<a href='javascript:{HIT}'>click</a>",
    f"<iframe srcdoc='<script>parent.{HIT}</script>'></iframe>",
    "<img src=https://example.com/a.png><link rel=stylesheet href=//example.com/a.css>",
    "<meta http-equiv=refresh content='0;url=https://example.com/'><base href=https://example.com/>",
    "<style>@import 'https://example.com/a.css'; * { display: none }</style>",
    f"${{{HIT}}} {{{{constructor.constructor('{HIT}')()}}}} <%= {HIT} %>",
    f"\\u003cscript\\u003e{HIT}\\u003c/script\\u003e &lt;script&gt;{HIT}&lt;/script&gt; &#60;script&#62;",
    "\u202e\u2066right to left\u2069 \ufeff\u200b zero width \u2028\u2029 lines",
    "\x00\x01\x1b[31m\x07\r\n\t controls",
    "\ud800 half of a pair",
    "Z\u0351\u036b" * 2000,
    "x" * 100_000,
    "word " * 20_000,
    "__proto__",
    "constructor",
    "toString",
    "%s %(x)s {0} {x} %%",
    "'; DROP TABLE runs; --",
    "😀" * 5000,
    "a/b\\c",
    "",
    " ",
)


def cases(bench: Bench, size: int) -> Iterator[Case]:
    """One text everywhere, and after all of them mixtures. Without a browser there are no cases."""
    if PROGRAM is None or find_spec("playwright") is None:
        return
    browser = Browser()
    for number in range(size):
        chance = bench.random(number)
        chosen = (lambda chance=chance: chance.choice(TEXTS)) if number >= len(TEXTS) else (lambda n=number: TEXTS[n])
        what = repr(TEXTS[number][:40]) if number < len(TEXTS) else "a mixture"
        yield Case(f"{what} as names", partial(_page, bench, browser, chosen))


def _page(bench: Bench, browser: Browser, text: Callable[[], str], folder: Path) -> list[Finding]:
    written(folder / "sweep", text)
    ended = bench.command(folder, "report", "sweep", "--out", "page.html")
    findings = ended.findings(0, REFUSED)
    page = folder / "page.html"
    if ended.code == REFUSED and page.exists() and not ended.partial:
        findings.append(Finding("leftover", "a page of what was refused", ended.output))
    if page.exists():
        findings += [Finding("wrong", said, ended.output) for said in browser.complaints(page)]
    return findings


PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Chromium. It opens one page at a time, each in a new context."""

    def __init__(self) -> None:
        self._lock = Lock()

    def complaints(self, page: Path) -> list[str]:
        """What is wrong with a page in the browser."""
        from playwright.sync_api import sync_playwright

        with self._lock, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
            try:
                return list(_complaints(browser, page))
            finally:
                browser.close()


def _complaints(browser: Any, page: Path) -> Iterator[str]:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    tab.on("console", lambda message: said.extend([f"the console: {message.text}"] * (message.type == "error")))
    tab.on("pageerror", lambda error: said.append(f"an error: {error}"))
    tab.on("dialog", lambda dialog: said.append("a dialog"))
    own = (page.as_uri(), "blob:", "data:")
    tab.on("request", lambda asked: said.extend([f"a request: {asked.url}"] * (not asked.url.startswith(own))))
    tab.goto(page.as_uri())
    tab.wait_for_selector("main")
    tab.evaluate("dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('afterprint'))")
    tab.wait_for_timeout(500)
    for link in tab.locator("a[href]").all()[:50]:
        where = str(link.get_attribute("href"))
        if not where.startswith("#"):
            said.append(f"a link to {where[:80]}")
    if tab.evaluate("window.hit"):
        said.append("a script of theirs ran")
    if tab.url != page.as_uri():
        said.append(f"the page went to {tab.url}")
    if (width := tab.evaluate("document.documentElement.scrollWidth")) > 1280:
        said.append(f"the page is {width} pixels wide in a window of 1280")
    yield from said


def written(folder: Path, text: Callable[[], str]) -> None:
    """A sweep of two runs with analyses and a table, in which `text()` stands wherever somebody's words may stand."""
    axis = text()
    label = text()
    metric = _metric(text)
    runs = {name: {axis: label, "seed": name} for name in ("a", "b")}
    failed = {"c": text()}
    axes = {axis: [label], "seed": ["a", "b"]}
    _put(folder / "sweep.json", {"title": text(), "axes": axes, "runs": runs | {"c": {}}, "failed": failed})
    for name in ("a", "b"):
        rows = [
            {"round": round, "model": model, "split": "test", metric["name"]: round / 10, "loss": 1.0}
            for model in ("model", text())
            for round in range(1, 9)
        ]
        run = folder / "runs" / name
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        _put(run / "goal.json", metric)
        (run / "config.toml").write_text(f"rounds = 8\nnote = {json.dumps(text())}\n")
    for kind, content in _analyses(text).items():
        about = {"kind": kind, "title": text(), "command": text(), "note": text()}
        _put(folder / "analyses" / f"{kind}.json", about | content)
    table = {"title": text(), "note": text(), "columns": ["method", text(), "measured"], "command": text()}
    _put(folder / "tables" / "one.json", table | {"rows": [[text(), "72.75 ?", 71.5], [text(), text(), None]]})


def _metric(text: Callable[[], str]) -> dict[str, Any]:
    return {"name": text(), "better": "lower", "share": False, "target": 0.5}


def _analyses(text: Callable[[], str]) -> dict[str, dict[str, Any]]:
    grid = [-1.0, 0.0, 1.0]
    bowl = [[x * x + y * y + 0.5 for x in grid] for y in grid]
    line = {"beta": [0, 0.5, 1], "loss": [1, 0.5, 2], "error": [0.2, None, 0.3]}
    surface = {"x": grid, "y": grid, "loss": bowl, "error": bowl}
    return {
        "line": line | {"models": [text(), text()], "metric": _metric(text)},
        "surface": surface | {"split": text(), "model": text(), "seed": 0, "metric": _metric(text)},
        "flatness": {"models": {text(): {"eigenvalues": [4, 1], "sharpness": {"0.05": 0.2}}}},
        "window": {"average": text(), "round": 8, "rounds": [1, 2], "weights": [1, 0.5], "clients": [0.5, 1.0]}
        | {"distance_rounds": [7, 8], "distances": [0.5, 0.25]},
    }


def _put(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
