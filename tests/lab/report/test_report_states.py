"""The page shows runs in all states, unfinished, stuck, damaged and many, as far as they got."""

from __future__ import annotations

import html
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash import Broadcast, Checkpoint, Fork, Window
from fedsash.evaluation import Evaluation
from fedsash.lab.report.collect import collect
from fedsash.lab.report.page import document
from fedsash.lab.report.page.curves import MOST
from fedsash.lab.report.page.seeds import _mean
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.runs import run
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content
from support.histories import ACCURACY, history_of
from support.json_files import write_json
from support.observing import start
from support.pages import ANALYSES, LIMIT, Outline, figure, put, traced, written
from support.worlds import federation


def test_a_run_that_has_not_ended_shows_what_there_is(tmp_path: Path) -> None:
    config = "rounds = 50\n[evaluation]\nlast = 2\n"
    folder = written(tmp_path / "going", {"model": [0.25, 0.5, 0.75], "w": [0.1, None, 0.5]}, config)
    text = document(collect([folder]), "")
    assert "after round 3 of 50" in text
    cells = Outline(text).cells
    assert "62.50 ± 12.50 (best)" in cells and "75.00" in cells
    assert traced(figure(text, "Accuracy over the rounds"), "going", "w")["y"] == [10, None, 50]


@pytest.mark.parametrize("rows", [[], [{"round": 1, "model": "model", "split": "clients", "accuracy": 0.5}]])
def test_a_run_without_evaluations_says_so(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    (tmp_path / "r").mkdir()
    Records(tmp_path / "r").create(history_of(rows))
    write_json(tmp_path / "r" / GOAL, goal_content(ACCURACY, Evaluation()))
    text = document(collect([tmp_path / "r"]), "")
    assert "No evaluation: none is due yet, or there is no test set, and evaluation.held_out is 0." in text


def test_the_commands_of_a_page_train_each_run_into_a_folder_of_its_own(tmp_path: Path) -> None:
    runs: dict[str, dict[str, str]] = {"a b": {}, "c": {}}
    put(tmp_path, "sweep.json", {"title": "s", "axes": {}, "runs": runs, "failed": {}})
    for name in runs:
        written(tmp_path / "runs" / name, {"model": [0.5]}, "rounds = 1\n")
    put(tmp_path / "runs" / "c", "own_code.json", {})  # it names code of one's own
    found = re.search("<code>(fedsash run .*?)</code>", document(collect([tmp_path]), "fedsash report s"), re.DOTALL)
    assert found is not None
    *commands, last = html.unescape(found[1]).splitlines()
    places = [shlex.split(line)[2:] for line in commands]
    assert last == "fedsash report s"
    assert [more for _, _, *more in places] == [["AGAIN/a b"], ["AGAIN/c", "--own-code"]]
    assert all(Path(file).exists() for file, *_ in places)


def test_a_run_made_in_python_says_what_it_was_made_of(tmp_path: Path) -> None:
    run(federation(server=ServerSGD(momentum=0.5)), 2, out=tmp_path / "r", progress=False)
    assert "ServerSGD(momentum=0.5)" in document(collect([tmp_path / "r"]), "")
    (manifest,) = (tmp_path / "r" / "state").glob("*/state.json")
    manifest.write_text("{")
    assert "ServerSGD" not in document(collect([tmp_path / "r"]), ""), "a damaged state does not cost the page"


def test_what_several_tables_of_a_reproduction_say_stands_once_below_the_first(tmp_path: Path) -> None:
    put(tmp_path, "sweep.json", {"title": "t", "axes": {"seed": ["0"]}, "runs": {}, "failed": {}})
    for name in ("first-more", "first"):
        table = {"title": f"Title of {name}", "columns": ["method", "here"], "rows": [["FedAvg", f"cell of {name}"]]}
        put(tmp_path, f"tables/{name}.json", table | {"note": f"server_state\nonly {name}"})
    text = document(collect([tmp_path]), "")
    assert text.count(">server_state<") == 1
    order = [
        "Title of first<",
        "cell of first<",
        ">server_state<",
        ">only first<",
        "Title of first-more<",
        ">only first-more<",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_a_stuck_run_says_so(tmp_path: Path) -> None:
    folder = written(tmp_path / "r", {"model": [0.5, None]})
    guard = {"model": "model", "split": "guard", "refused": [1], "skipped": "no upload can be used"}
    Records(folder).append(history_of([{"round": 2} | guard]))
    assert "stuck since round 2: no upload can be used" in document(collect([folder]), "")


def test_a_damaged_run_of_a_sweep_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    written(tmp_path / "runs" / "good", {"model": [0.5]})
    written(tmp_path / "runs" / "bad", {"model": [0.5]})
    written(tmp_path / "runs" / "cut", {"model": [0.5]})
    put(tmp_path, "runs/bad/metrics.jsonl", "nonsense\n")
    put(tmp_path, "runs/cut/summary.json", "{")
    put(tmp_path, "runs/good/partition.json", {"classes": ["a"], "counts": [[1, 2]]})
    runs: dict[str, dict[str, str]] = {"good": {}, "bad": {}, "cut": {}}
    put(tmp_path, "sweep.json", {"title": "s", "axes": {}, "runs": runs, "failed": {}})
    found = collect([tmp_path])
    text = document(found, "")
    assert len(found.damaged) == 2
    assert re.search("run bad is left out: [^<]*metrics.jsonl, line 1: must be", text)
    assert re.search("run cut is left out: [^<]*summary.json is not JSON", text)
    assert "left out: the partition of good" in text
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


def test_the_page_opens_with_all_runs_over_each_other_and_the_models_that_all_have(tmp_path: Path) -> None:
    """Models that not all have are in the legend, to be ticked."""
    a: dict[str, list[float | None]] = {"model": [0.1, 0.5], "ema": [0.1, 0.6], "w": [0.1, 0.7]}
    b: dict[str, list[float | None]] = {"model": [0.2, 0.4], "w": [0.2, 0.5]}
    folders = [written(tmp_path / name, curves) for name, curves in {"a": a, "b": b}.items()]
    view = figure(document(collect(folders), ""), "Accuracy over the rounds")["views"][0]
    assert view["label"] == "every run: w, model"
    ticked = {trace["label"]: not trace.get("unticked", False) for trace in view["data"]}
    assert ticked == {"a: w": True, "a: model": True, "a: ema": False, "b: w": True, "b: model": True}
    looks = {(trace["line"]["color"], trace["line"]["dash"], trace["marker"]["symbol"]) for trace in view["data"]}
    colours = {trace["label"][0]: trace["line"]["color"] for trace in view["data"]}
    assert len(looks) == 5 and len(set(colours.values())) == 2


def test_of_many_runs_the_page_opens_with_as_many_common_models_as_can_be_told_apart(tmp_path: Path) -> None:
    curves: dict[str, list[float | None]] = {"model": [0.1, 0.5], "ema": [0.1, 0.6], "w": [0.1, 0.7]}
    folders = [written(tmp_path / f"r{i}", curves) for i in range(9)]
    view = figure(document(collect(folders), ""), "Accuracy over the rounds")["views"][0]
    assert view["label"] == "every run: w"
    assert [trace["label"] for trace in view["data"]] == [f"r{i}" for i in range(9)]


def test_a_fork_is_marked_and_begins_where_it_leaves_its_source(tmp_path: Path) -> None:
    """The rows of a fork begin with those of its source, which stand in the picture once."""
    world = federation(averages={"w": Window(2)}, evaluation=Evaluation(every=1))
    run(world, 4, out=tmp_path / "source", progress=False, checkpoint=Checkpoint(every=2))
    ima = replace(world, broadcast=Broadcast("w", start=3))
    config = {"broadcast": {"start": 3}}
    run(ima, 4, out=tmp_path / "ima", progress=False, config=config, fork=Fork(tmp_path / "source", 2))
    found = figure(document(collect([tmp_path / "source", tmp_path / "ima"]), ""), "Accuracy over the rounds")
    (note,) = [one["text"] for one in found["views"][0]["layout"]["annotations"] if "fork" in one["text"]]
    assert note == "ima: forked at round 2, broadcasting from 3"
    assert traced(found, found["views"][0]["label"], "ima: model")["x"] == [2, 3, 4]
    assert traced(found, found["views"][0]["label"], "source: model")["x"] == [1, 2, 3, 4]
    alone = figure(document(collect([tmp_path / "ima"]), ""), "Accuracy over the rounds")
    assert traced(alone, "ima", "model")["x"] == [1, 2, 3, 4]
    assert "forked at round 2, broadcasting from 3" in str(alone["views"][0]["layout"]["annotations"])


def test_the_best_average_is_drawn_before_the_others_and_the_model_last(tmp_path: Path) -> None:
    curves: dict[str, list[float | None]] = {"model": [0.1, 0.9], "bad": [0.1, 0.2], "good": [0.1, 0.5]}
    folders = [written(tmp_path / name, curves) for name in "ab"]
    views = figure(document(collect(folders), ""), "Accuracy over the rounds")["views"]
    assert [view["label"] for view in views[1:4]] == ["good, every run", "bad, every run", "model, every run"]


def test_a_run_has_the_same_colour_in_the_panels_of_all_models(tmp_path: Path) -> None:
    """Also of a model that the run before it does not have."""
    both: dict[str, list[float | None]] = {"model": [0.1, 0.9], "w": [0.1, 0.5]}
    folders = [written(tmp_path / name, of) for name, of in {"a": both, "b": {"model": [0.2]}, "c": both}.items()]
    views = figure(document(collect(folders), ""), "Accuracy over the rounds")["views"]
    colours = [{trace["label"]: trace["line"]["color"] for trace in view["data"]} for view in views[1:3]]
    assert colours[0] == {run: colours[1][run] for run in "ac"}


@pytest.mark.parametrize(
    "configs, title",
    [
        (['[method]\nname = "fedavg"\n[data]\nname = "digits"\n'], "FedAvg on digits: r0"),
        (['[scheduler]\nname = "fedwindow"\n[method]\nname = "fedavg"\n'], "FedWindow: r0"),
        (['[scheduler]\nname = "synchronous"\n[method]\nname = "my.own:Method"\n'], "my.own:Method: r0"),
        (['[method]\nname = "fedavg"\n', '[method]\nname = "fedprox"\n', ""], "r0, r1 and r2"),
        (['[method]\nname = "fedprox"\n'] * 4, "FedProx: 4 runs"),
    ],
)
def test_the_title_says_what_was_trained_as_far_as_it_is_the_same(
    tmp_path: Path, configs: list[str], title: str
) -> None:
    folders = [written(tmp_path / f"r{i}", {"model": [0.5]}, config) for i, config in enumerate(configs)]
    assert f"<h1>{title}</h1>" in document(collect(folders), "")


def test_the_title_names_a_sweep_and_the_runs_beside_it(tmp_path: Path) -> None:
    sweep = tmp_path / "s"
    put(sweep, "sweep.json", {"title": "s", "axes": {}, "runs": {"inner": {}}, "failed": {}})
    written(sweep / "runs" / "inner", {"model": [0.5]})
    alone = [written(tmp_path / f"r{i}", {"model": [0.5]}) for i in range(4)]
    assert "<h1>s</h1>" in document(collect([sweep]), "")
    assert "<h1>s and r0</h1>" in document(collect([alone[0], sweep]), "")
    assert "<h1>s and 4 runs</h1>" in document(collect([sweep, *alone]), "")


def test_a_run_with_sums_but_no_map_says_which_command_makes_it(tmp_path: Path) -> None:
    with_sums, mapped, plain = (written(tmp_path / name, {"model": [0.5]}) for name in ("sums", "mapped", "plain"))
    for folder in (with_sums, mapped):
        put(folder, "trajectory/00000010.safetensors", "")
    put(mapped, "analyses/map.json", {"kind": "map", "title": "its map"} | ANALYSES["map"])
    text = document(collect([with_sums, mapped, plain]), "")
    assert f"<code>fedsash map {with_sums}</code>" in text and "its map" in text
    assert "Any window, after the fact" not in document(collect([plain]), "")


def test_a_map_with_a_single_end_has_no_sliders(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", {"model": [0.5]})
    one = {"ends": [4], "model": [0.3], "sizes": [[4]], "value": [[0.4]]}
    put(folder, "analyses/map.json", {"kind": "map", "title": "its map"} | ANALYSES["map"] | one)
    text = document(collect([folder]), "")
    assert "Any window, after the fact" in text and 'class="sliders"' not in text


def test_each_of_forty_runs_has_a_look_of_its_own(tmp_path: Path) -> None:
    folders = [written(tmp_path / f"r{i}", {"model": [0.1, 0.2]}) for i in range(40)]
    found = figure(document(collect(folders), ""), "Accuracy over the rounds")
    looks = {(t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"]) for t in found["views"][0]["data"]}
    assert len(looks) == 40


def test_the_page_says_who_missed_which_round_and_why(tmp_path: Path) -> None:
    folder, plain = written(tmp_path / "r", {"model": [0.5] * 9}), written(tmp_path / "plain", {"model": [0.5] * 9})
    rows: list[dict[str, Any]] = [{"round": r, "refused": [3, 3], "missing": {"5": "late: <2 s"}} for r in (1, 2, 3, 7)]
    rows += [{"round": 9, "refused": [], "missing": {"5": "failed: no memory"}, "skipped": "no client answered"}]
    Records(folder).append(history_of([{"model": "model", "split": "guard", "skipped": ""} | row for row in rows]))
    text = document(collect([folder]), "")
    cells = Outline(text).cells
    for row in (
        ["5", "late: <2 s", "4", "1 to 3, 7"],
        ["3", "upload refused: not finite, or too long", "4", "1 to 3, 7"],
        ["5", "failed: no memory", "1", "9"],
        ["all", "round skipped: no client answered", "1", "9"],
    ):
        assert any(cells[i : i + 3] == row[1:] for i in range(len(cells))), row
    assert "Who was missing" in text and "Who was missing" not in document(collect([plain]), "")


def test_a_run_made_in_python_shows_the_means_of_its_own_summary(tmp_path: Path) -> None:
    """Its config.toml does not say over how many evaluations they are; goal.json does."""
    evaluation = Evaluation(every=1, last=3, held_out=0.3)
    result = run(federation(evaluation=evaluation), 6, out=tmp_path / "a", progress=False)
    found = collect([tmp_path / "a"])
    assert found.runs[0].summary["over_clients"] == result.summary["over_clients"]
    assert "over the last 3 evaluations" in document(found, "")


@pytest.mark.parametrize(("starts", "shown"), [((2, 2), 2), ((2, 3), None)])
def test_means_over_seeds_begin_their_broadcast_where_all_of_them_do(
    starts: tuple[int, int], shown: int | None, tmp_path: Path
) -> None:
    runs = collect([written(tmp_path / str(seed), {"model": [0.5]}) for seed in (0, 1)]).runs
    each = [replace(run, broadcast_start=start) for run, start in zip(runs, starts, strict=True)]
    assert _mean("2 seeds", each).broadcast_start == shown


def test_a_fork_says_so_and_where_its_broadcast_begins(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"averages": {"w": Window(2)}}
    start(federation(**settings), 3, tmp_path / "a", every=1)
    world = federation(**settings, broadcast=Broadcast("w", 1))
    start(world, 4, tmp_path / "f", fork=Fork(tmp_path / "a", 2), config={"broadcast": {"start": 1}})
    (found,) = collect([tmp_path / "f"]).runs
    assert (found.forked, found.broadcast_start, found.settings["forked"]) == (2, 2, "at round 2")
    text = document(collect([tmp_path / "f"]), "")
    assert "--fork SOURCE@2" in text and "SOURCE is the run from which f was forked" in text
    (plain,) = collect([tmp_path / "a"]).runs
    assert (plain.forked, plain.broadcast_start) == (None, None)
