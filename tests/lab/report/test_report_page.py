"""The page of runs and sweeps: the numbers and pictures that are in it, and the command that writes it."""

from __future__ import annotations

import gzip
import json
import re
import sys
from base64 import b64decode
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.report.collect import collect
from fedsash.lab.report.page import document
from fedsash.runs.pictures.curves import lines
from fedsash.runs.records import Records
from support.histories import ACCURACY, history_of
from support.pages import (
    ANALYSES,
    BOWL,
    HOSTILE,
    LIMIT,
    Outline,
    everything,
    figure,
    page_of,
    put,
    specs,
    traced,
    written,
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def page(sweep: Path) -> Path:
    return page_of(sweep)


def test_without_plotly_one_line_says_what_to_install(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(
        ImportError, match=r'plotly is needed for a page with pictures: pip install "fedsash\[report\]"'
    ):
        document(collect([sweep]), "")


# What is in the page


def test_curves_and_tables_are_the_numbers_of_the_runs(page: Path, sweep: Path) -> None:
    text = page.read_text()
    found, cells = figure(text, "Accuracy over the rounds"), Outline(text).cells
    for name in "ab":
        folder = sweep / "runs" / name
        for line in lines(history_of(Records(folder).load().rows()).curves(ACCURACY), smoothed=True):
            points = traced(found, f"{name}, every model", line.name)
            assert points["x"] == list(line.x) and line.smooth is not None
            assert points["y"] == pytest.approx(line.y, rel=1e-5)
            assert points["smooth"] == pytest.approx(line.smooth, rel=1e-5)
        for model in json.loads((folder / "summary.json").read_text())["models"].values():
            mean = f"{100 * model['last_mean']:.2f} ± {100 * model['last_std']:.2f}"
            assert any(cell.removesuffix(" (best)") == mean for cell in cells)
            assert f"{100 * model['value']:.2f}" in cells
            assert f"{100 * model['best']['value']:.2f}" in cells
            assert str(model["rounds_to_target"] or "not reached") in cells


def test_every_line_of_every_run_is_in_some_view_and_no_two_of_a_view_look_alike(page: Path) -> None:
    found = figure(page.read_text(), "Accuracy over the rounds")
    assert {t["series"] for view in found["views"] for t in view["data"]} == found["series"].keys()
    for view in found["views"]:
        styles = [(t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"]) for t in view["data"]]
        assert len(set(styles)) == len(styles)


def test_all_kinds_of_analyses_are_drawn_and_damaged_ones_are_named(page: Path) -> None:
    text = page.read_text()
    views = {kind: figure(text, f"{kind} {HOSTILE}")["views"] for kind in ANALYSES}
    assert views["map"][0]["data"][0]["z"] == [[40, 50, 60], [None, 45, 65], [None, None, 55]]
    assert [view["data"][0]["type"] for view in views["surface"]] == ["surface", "surface", "contour", "contour"]
    assert views["plane"][0]["data"][0]["z"] == BOWL
    assert views["plane"][1]["data"][0]["z"] == [pytest.approx([10 * value for value in row]) for row in BOWL]
    assert views["line"][1]["data"][0]["y"] == [20, None, 30]
    assert len(views["decomposition"]) == 4 and len(views["flatness"]) == 2 and len(views["window"]) == 3
    assert len(views["variance"]) == len(views["coverage"]) == 4
    assert [[trace["y"] for trace in view["data"]] for view in views["averages"]] == [
        [[50, 60], [50, 50], [50, 70]], [[1, None], [1, 1]],
    ]  # fmt: skip
    assert len(specs(text)) == len(ANALYSES) + 4, "and the map's curve, the runs' curves and means, and the partition"
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
    held, samples = figure(page.read_text(), "Partition")["views"]
    (dots,) = held["data"]
    drawn = dict(zip(zip(dots["x"], dots["y"], strict=True), dots["customdata"], strict=True))
    assert drawn == {(k, c): n for k, held in enumerate(counts) for c, n in enumerate(held) if n}
    assert [bars["y"] for bars in samples["data"]] == [list(column) for column in zip(*counts, strict=True)]


def test_the_page_says_how_a_sweep_stands_and_compares_its_seeds(page: Path) -> None:
    text = page.read_text()
    assert "1 of 4 runs have not begun: d" in text
    cells = Outline(text).cells
    assert cells[cells.index("c") + 1] == f"lr {HOSTILE}"
    assert "Means over seeds" in text and "2" in cells
    assert all(cell in cells for cell in ("72.75 ?", "71.5"))


def test_means_over_seeds_come_first_and_then_the_single_runs(page: Path, sweep: Path) -> None:
    """The means are those of runs a and b, at each round."""
    text = page.read_text()
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert heads.index("Means over seeds") < heads.index("Results") < heads.index("What was run")
    means, runs = (figure(text, f"Accuracy over the rounds{more}") for more in (", mean over seeds", ""))
    for model in ("window3", "ema", "model"):
        a, b = (traced(runs, f"{name}, every model", model) for name in "ab")
        mean = traced(means, "2 seeds", model)
        known = {x: [y] for x, y in zip(a["x"], a["y"], strict=True)}
        for x, y in zip(b["x"], b["y"], strict=True):
            known.setdefault(x, []).append(y)
        both = [(x, sum(ys) / 2) for x, ys in known.items() if len(ys) == 2]
        drawn = dict(zip(mean["x"], mean["y"], strict=True))
        assert both and all(drawn[x] == pytest.approx(y, rel=1e-4) for x, y in both)


def test_it_is_one_small_file_in_good_order(page: Path) -> None:
    text = page.read_text()
    outline = Outline(text)
    assert len(text.encode()) < LIMIT
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    assert (
        outline.tags.count("figure")
        == outline.tags.count("figcaption")
        == outline.tags.count("table") + len(specs(text))
    )
    assert {"header", "nav", "main", "footer"} <= set(outline.tags)
    assert not {"img", "link", "iframe"} & set(outline.tags), "and nothing of a hostile name is an element"
    packed = re.search(r'id="plotly">(.*?)</script>', text, re.S)
    assert packed is not None and b"plotly.js" in gzip.decompress(b64decode(packed[1]))[:200]


# The command


def test_the_command_writes_the_page_and_the_pictures(
    tmp_path: Path, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, figures = tmp_path / "new" / "page.html", tmp_path / "figures"
    assert main(["report", str(sweep / "runs" / "a"), "--out", str(out), "--figures", str(figures)]) == 0
    assert f"page: {out}" in capsys.readouterr().out
    assert out.read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in figures.iterdir()) == ["a-curves.pdf", "a-curves.png"]


def test_a_name_that_no_encoding_knows_is_shown_as_an_escape(tmp_path: Path) -> None:
    """JSON may hold half of a pair of surrogates. It could not be written into a page."""
    run = written(tmp_path / "run", {"half \ud800 pair": [0.5, 0.6]})
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert r"half \ud800 pair" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("folder, words", [("missing", "neither a run nor a sweep"), ("damaged", "must be a JSON")])
def test_what_is_no_run_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, words: str
) -> None:
    put(tmp_path / "damaged", "metrics.jsonl", "[]\n")
    assert main(["report", str(tmp_path / folder), "--out", str(tmp_path / "p.html")]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and folder in error and words in error
    assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("how", ["folder", "glob"])
def test_a_folder_of_runs_is_reported_also_where_files_lie_between_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """The main job's folder has its two runs and a picture; a shell's `runs/*` names them all."""
    (tmp_path / "runs").mkdir()
    put(tmp_path / "runs", "curves.png", "no run")
    for name in ("observed", "ima"):
        written(tmp_path / "runs" / name, {"model": [0.5, 0.75]})
    folders = [tmp_path / "runs"] if how == "folder" else sorted((tmp_path / "runs").iterdir())
    assert main(["report", *map(str, folders)]) == 0
    file = tmp_path / "runs" / ("report.html" if how == "folder" else "ima/report.html")
    assert f"page: {file}" in capsys.readouterr().out
    assert "<h1>ima and observed</h1>" in file.read_text()


def test_a_damaged_run_in_a_folder_of_runs_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "a", {"model": [0.5, 0.75]})
    put(tmp_path / "b", "metrics.jsonl", "[]\n")
    assert main(["report", str(tmp_path)]) == 2
    assert "note: b is left out: " in capsys.readouterr().out


def test_files_alone_are_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "curves.png", "no run")
    assert main(["report", str(tmp_path / "curves.png")]) == 2
    assert "curves.png: no folder of a run or a sweep" in capsys.readouterr().err
