"""Reproductions: what is made of runs, in tables beside the published numbers and in pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedsash.evaluation import Evaluation
from fedsash.lab.cli.reproduce import _table
from fedsash.lab.papers.figures import CurvesFigure, Job
from fedsash.lab.papers.measures import Count, compared, counts, of_target
from fedsash.lab.papers.numbers import Numbers
from fedsash.lab.papers.pick import Pick, pick
from fedsash.lab.papers.reproduce import differences, markdown
from fedsash.lab.papers.results import Measurement
from fedsash.lab.papers.tables import Table
from fedsash.runs import terminal
from fedsash.runs.records import Records
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.tasks import Criterion
from support.histories import RMSE, history, history_of
from support.json_files import write_json
from support.reproduced import DIGITS, load, pretend, reproduction


def test_a_table_sets_measured_beside_published_and_says_why_numbers_are_missing(tmp_path: Path) -> None:
    given = reproduction()
    results = pretend(tmp_path, given, {"seed=0,A": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "seed=1,A": [0.5] * 6})
    filled = given.table().filled(results)
    assert filled["rows"] == [
        ["A", "paper", "50.0", "60.0"],
        ["A", "here", "55.00", "50.00"],
        ["A", "difference", "+5.00", "-10.00"],
        ["B", "paper", "70.0", "?"],
        ["B", "here", "not run", "not run"],
    ]
    assert filled["missing"] == ["B: not trained"]
    assert filled["numbers"][0]["measured"] == pytest.approx(55) and filled["numbers"][3]["measured"] is None


def test_runs_of_an_earlier_sitting_count_and_the_other_ones_are_not_missed(tmp_path: Path) -> None:
    given = reproduction()
    results = pretend(tmp_path, given, {"seed=0,A": [0.5] * 6})
    others = frozenset(run.name for run in results.sweep.runs if run.labels["method"] == "A")
    filled = given.table().filled(replace(results, others=others))
    assert [row[:2] for row in filled["rows"]] == [
        [row, kind] for row in "AB" for kind in ("paper", "here", "difference")
    ][:5]
    assert filled["rows"][1] == ["A", "here", "50.00", "-"]
    assert filled["missing"] == ["B: not trained"]


def test_a_run_that_is_stuck_says_so_below_the_table(tmp_path: Path) -> None:
    given = reproduction()
    results = pretend(tmp_path, given, {f"seed={seed},{method}": [0.5] * 6 for seed in (0, 1) for method in "AB"})
    stopped = {"rounds": 6, "stuck": {"round": 4, "why": "nobody answers"}}
    write_json(tmp_path / "runs" / "seed=1,B" / "summary.json", stopped)
    assert given.table().filled(results)["missing"] == ["B: stuck since round 4: nobody answers"]


def test_a_run_that_was_stopped_has_a_summary_and_is_not_in_the_table(tmp_path: Path) -> None:
    given = reproduction()
    results = pretend(tmp_path, given, {f"seed={seed},{method}": [0.5] * 3 for seed in (0, 1) for method in "AB"})
    write_json(tmp_path / "runs" / "seed=1,B" / "summary.json", {"rounds": 3})
    write_json(tmp_path / "runs" / "seed=1,A" / "summary.json", {"rounds": 3, "ended_early": "enough"})
    filled = given.table().filled(results)
    assert filled["missing"] == ["B: not finished"] and filled["rows"][1][2:] == ["50.00", "50.00"]


def test_a_number_over_several_seeds_has_their_deviation(tmp_path: Path) -> None:
    results = pretend(tmp_path, reproduction(), {"seed=0,A": [0.4] * 6, "seed=1,A": [0.6] * 6})
    found = results.measured(Pick({"method": ("A",)}, "model", "last_mean"))
    assert found.value == pytest.approx(50) and found.std == pytest.approx(200**0.5) and found.runs == 2
    assert dict(found.values) == pytest.approx({"0": 40, "1": 60})
    assert str(found) == "50.00 ±14.14"


def test_an_average_that_begins_among_the_last_evaluations_has_no_mean_over_them(tmp_path: Path) -> None:
    results = pretend(tmp_path, reproduction(), {"seed=0,A": [0.4] * 6})
    late = [{"round": 6, "model": "swa", "split": "test", "accuracy": 0.8}]  # the run's last two are 5 and 6
    Records(tmp_path / "runs" / "seed=0,A").append(history_of(late))
    of = {"seed": ("0",), "method": ("A",)}
    assert results.measured(Pick(of, "swa", "last_mean")).value is None
    assert results.measured(Pick(of, "swa", "value")).value == pytest.approx(80)
    assert results.measured(Pick(of, "ima", "last_mean")).value == pytest.approx(20)


def test_rounds_to_the_target_are_of_single_rounds_and_beyond_the_last_where_a_run_does_not_reach_it(
    tmp_path: Path,
) -> None:
    accuracies = {"seed=0,A": [0.1, 0.6, 0.2, 0.2, 0.2, 0.2], "seed=1,A": [0.1] * 6}
    results = pretend(tmp_path, reproduction(), accuracies)
    one, other, both = (
        Pick(where, "model", "rounds_to_target")
        for where in ({"seed": ("0",), "method": ("A",)}, {"seed": ("1",), "method": ("A",)}, {"method": ("A",)})
    )
    assert results.measured(one).value == 2
    assert str(results.measured(other)) == "6+" and str(results.measured(both)) == "6+"


def test_each_seed_says_by_itself_whether_it_has_reached_the_target(tmp_path: Path) -> None:
    """A table's number is beyond the last round if one seed is; the other's rounds are known all the same."""
    cells = {"": pick(statistic="rounds_to_target")}
    given = reproduction(tables=[Table(rows="method", columns={"": pick()}, cells=cells)])
    accuracies = {"seed=0,A": [0.1, 0.6, 0.2, 0.2, 0.2, 0.2], "seed=1,A": [0.1] * 6, "seed=1,B": [0.6] * 6}
    results = pretend(tmp_path, given, accuracies)
    measured = results.measured(Pick({"method": ("A",)}, "model", "rounds_to_target"))
    assert measured.reached == {"0": 2}
    assert measured.unreached == {"1": 6}
    assert (str(measured), measured.value, measured.values) == ("6+", None, {})
    found = of_target(given, results)
    assert {key: (quantity.seeds, quantity.values) for key, quantity in found.items()} == {
        ("A", "", "reached"): (("0",), (2,)),
        ("A", "", "beyond"): (("1",), (6,)),
        ("B", "", "reached"): (("1",), (1,)),
    }
    assert results.measured(Pick({"method": ("A",)}, "model", "value")).reached == {}
    other = results.measured(Pick({"method": ("A",)}, "another", "rounds_to_target"))
    assert (other.unreached, other.beyond, other.why) == ({}, None, "never evaluated")


def test_a_speed_up_is_unreached_in_a_seed_in_which_one_of_its_two_runs_did_not_reach_the_target(
    tmp_path: Path,
) -> None:
    cells = {"": pick(statistic="speed_up")}
    table = Table(rows="method", columns={"": pick()}, cells=cells, against=pick(method="B"))
    given = reproduction(tables=[table])
    accuracies = {
        "seed=0,A": [0.1, 0.6, 0.6, 0.6, 0.6, 0.6],
        "seed=0,B": [0.1, 0.1, 0.1, 0.6, 0.6, 0.6],
        "seed=1,A": [0.1] * 6,
        "seed=1,B": [0.6] * 6,
    }
    results = pretend(tmp_path, given, accuracies)
    (bound,) = given.bound_tables
    measured = bound.measured(bound.pick("A", "", ""), results)
    assert (measured.reached, measured.unreached) == ({"0": 2.0}, {"1": 6})
    assert (str(measured), measured.value, measured.values) == ("-", None, {})


@pytest.mark.parametrize(
    ("own", "other", "difference"),
    [
        (Count(3, True), Count(5, True), -2),
        (Count(3, True), Count(5, False), -2),
        (Count(5, False), Count(3, True), 2),
        (Count(5, True), Count(5, False), math.nan),
        (Count(5, False), Count(7, True), math.nan),
        (Count(5, False), Count(5, False), None),
    ],
)
def test_a_count_that_was_not_reached_is_a_bound_that_may_say_which_is_less(
    own: Count, other: Count, difference: float | None
) -> None:
    found = compared(lambda a, b: a - b, {"0": own}, {"0": other, "1": other})
    assert (found and found.values) == (None if difference is None else (pytest.approx(difference, nan_ok=True),))


def test_what_so_many_rounds_did_not_reach_takes_one_more_at_least() -> None:
    numbers = Numbers.measured(
        ("row", "target"), {("A", "reached"): {"0": 6, "2": 4}, ("A", "beyond"): {"1": 6}, ("B", "beyond"): {"0": 9}}
    )
    assert counts(numbers) == {
        ("A",): {"0": Count(6, True), "2": Count(4, True), "1": Count(7, False)},
        ("B",): {"0": Count(10, False)},
    }


def test_a_speed_up_is_the_rounds_of_the_other_runs_divided_by_the_own(tmp_path: Path) -> None:
    cells = {"x": pick(statistic="speed_up")}
    table = Table(rows="method", columns={"": pick(seed=0)}, cells=cells, against=pick(method="A"))
    given = reproduction(tables=[table])
    results = pretend(tmp_path, given, {"seed=0,A": [0.0] * 5 + [0.9], "seed=0,B": [0.0, 0.9] + [0.0] * 4})
    assert [number.measured.value for number in given.table().numbers(results)] == [1.0, 3.0]


def test_on_a_network_client_trips_to_the_target_are_counted_and_drawn(tmp_path: Path) -> None:
    """A round of A is five client trips, one of B a single one; of C there is none at the target."""
    cells = {"trips": pick(statistic="trips_to_target"), "speed-up": pick(statistic="trips_speed_up")}
    table = Table(rows="method", columns={"": pick()}, cells=cells, form="{} ({})", against=pick(method="A"))
    axes = {"seed": [0], "method": {"A": {}, "B": {"local": {"lr": 0.05}}, "C": {"local": {"lr": 0.01}}}}
    given = reproduction(base=DIGITS | {"network": {}}, axes=axes, tables=[table])
    results = pretend(tmp_path, given, {"seed=0,A": [0.0, 0.9], "seed=0,B": [0.0] * 3 + [0.9], "seed=0,C": [0.0] * 6})
    for run, each in zip(results.sweep.runs, (5, 1, 1), strict=True):
        rows = [row | {"trips": each * row["round"]} for row in Records(results.folder(run)).load().rows()]
        Records(results.folder(run)).create(
            history_of([*rows, {"round": 6, "model": "model", "split": "guard", "refused": [1]}])
        )
    assert [row[-1] for row in given.table().filled(results)["rows"]] == ["10 (1.00)", "4 (2.50)", "6+ (-)"]
    assert results.curve(results.sweep.runs[0], "model", "trips") == {5: 0.0, 10: 0.9}


def test_what_clients_are_sent_is_the_model_until_the_broadcast_begins_and_then_the_average(tmp_path: Path) -> None:
    """With start = 4 the average takes the place of the model after 4 rounds."""
    axes = {
        "seed": [0],
        "method": {
            "A": {"broadcast": {"average": "ima", "start": 4}},
            "B": {"broadcast": {"average": "ima", "start": 4, "order": "code"}},
        },
    }
    given = reproduction(axes=axes, tables=[Table(rows="method", columns="seed")])
    results = pretend(tmp_path, given, {"seed=0,A": [0.8] * 6, "seed=0,B": [0.8] * 6})
    after, before = results.sweep.runs
    assert results.curve(after, "sent") == pytest.approx({1: 0.8, 2: 0.8, 3: 0.8, 4: 0.4, 5: 0.4, 6: 0.4})
    assert set(results.curve(before, "sent").values()) == {0.8}


def test_what_clients_are_sent_is_what_evaluations_chose(tmp_path: Path) -> None:
    """After round 3 the average `ima` begins, after round 5 another one is better."""
    axes = {
        "seed": [0],
        "method": {"A": {"broadcast": {"average": ["ima", "w"], "start": "auto"}, "evaluation": {"held_out": 0.2}}},
    }
    averages = {"ima": {"name": "window", "size": 2}, "w": {"name": "window", "size": 3}}
    table = Table(rows="method", columns="seed")
    given = reproduction(base=DIGITS | {"averages": averages}, axes=axes, tables=[table])
    results = pretend(tmp_path, given, {"seed=0,A": [0.8] * 6})
    (run,) = results.sweep.runs
    rows = Records(results.folder(run)).load().rows()
    rows += [{"round": t, "model": "w", "split": "test", "accuracy": 0.1} for t in range(1, 7)]
    chosen = {1: ("w", None), 3: ("ima", 3), 5: ("w", 3)}
    rows += [{"round": t, "model": name, "split": "broadcast", "start": begins} for t, (name, begins) in chosen.items()]
    Records(results.folder(run)).create(history_of(rows))
    assert results.curve(run, "sent") == pytest.approx({1: 0.8, 2: 0.8, 3: 0.4, 4: 0.4, 5: 0.1, 6: 0.1})


def test_on_several_domains_the_value_is_their_unweighted_mean(tmp_path: Path) -> None:
    given = reproduction()
    results = pretend(tmp_path, given, {})
    run = results.sweep.runs[0]
    folder = results.folder(run)
    folder.mkdir(parents=True)
    row = {"round": 6, "model": "model", "split": "test", "accuracy": 0.9, "domains": {"a": 1.0, "b": 0.5}}
    Records(folder).create(history_of([row]))
    write_json(folder / GOAL, goal_content(Criterion(), Evaluation()))
    assert results.curve(run, "model") == {6: 0.75}


def test_the_best_is_chosen_on_held_out_samples_where_there_are_some(tmp_path: Path) -> None:
    results = pretend(tmp_path, reproduction(), {"seed=0,A": [0.2, 0.4, 0.3]})
    run = {"seed": ("0",), "method": ("A",)}
    assert results.measured(Pick(run, "model", "best")).value == 40.0
    (folder,) = (tmp_path / "runs").iterdir()
    held = [
        {"round": t, "model": "model", "split": "held_out", "accuracy": a} for t, a in ((1, 0.5), (2, 0.6), (3, 0.7))
    ]
    rows = [*Records(folder).load().rows(), *held]
    Records(folder).create(history_of(rows))
    again = replace(results, _read={})
    assert again.measured(Pick(run, "model", "best")).value == 30.0
    assert again.measured(Pick(run, "model", "value")).value == 30.0


def test_what_should_be_low_is_measured_as_it_is_and_reaches_its_target_by_falling(tmp_path: Path) -> None:
    values = {"seed=0,A": [4.0, 2.0, 1.0, 3.0, 2.0, 4.0]}
    results = pretend(tmp_path, reproduction(), values, criterion=replace(RMSE, target=1.5))
    run = {"seed": ("0",), "method": ("A",)}
    found = {name: results.measured(Pick(run, "model", name)).value for name in ("last_mean", "best", "value")}
    assert found == {"last_mean": 3.0, "best": 1.0, "value": 4.0}
    assert results.measured(Pick(run, "model", "rounds_to_target")).value == 3
    assert results.curve(results.sweep.runs[0], "model")[2] == 2.0


@pytest.mark.parametrize("statistic", ["last_mean", "value", "best"])
def test_without_a_test_set_or_a_number_there_is_nothing_to_print(statistic: str, tmp_path: Path) -> None:
    results = pretend(tmp_path, reproduction(), {"seed=0,A": [0.5] * 6, "seed=1,A": [float("nan")] * 6})
    first = results.folder(results.sweep.runs[0])
    Records(first).create(history_of(history({"model": [0.5]}, split="held_out")))
    for seed in "01":
        found = results.measured(Pick({"seed": (seed,), "method": ("A",)}, "model", statistic))
        assert str(found) == "-" and found.runs == 1


def test_a_domain_without_a_number_leaves_the_mean_over_domains_undefined(tmp_path: Path) -> None:
    results = pretend(tmp_path, reproduction(), {"seed=0,A": [0.5] * 6})
    run = results.sweep.runs[0]
    row = {"round": 1, "model": "model", "split": "test", "accuracy": 0.9, "domains": {"a": 1.0, "b": None}}
    Records(results.folder(run)).create(history_of([row]))
    assert math.isnan(results.curve(run, "model")[1])


def test_the_settings_that_differ_from_the_papers_are_named() -> None:
    found = load("ima-table-1")
    only = ["row=FMNIST #C=2", "method=FedAvg"]
    lines = differences(found, found.plan("tiny", only))
    assert "rounds 12 (full scale: 300)" in lines
    assert 'data.name "digits" (full scale: "fashion_mnist")' in lines
    assert not any("data.path" in line for line in lines)
    assert differences(found, found.plan("full", only)) == []
    same = ["engine.kind=sequential", "engine.workers=1", "checkpoint.every=7", "device=cpu", "trajectory.every=5"]
    assert differences(found, found.plan("full", only, same)) == []
    assert differences(found, found.plan("full", only, ["engine.precision=bfloat16"])) == [
        'engine.precision "bfloat16" (full scale: "full")'
    ]


def test_a_setting_that_the_paper_leaves_out_is_named_too() -> None:
    found = load("ima-table-1")
    here = found.plan("full", ["row=FMNIST #C=2", "method=FedAvg"], ["local.clip=1.0", "partition_seed=3"])
    assert differences(found, here) == [
        "local.clip 1.0 (full scale: left out)",
        "partition_seed 3 (full scale: left out)",
    ]


def test_labels_are_plain_text_wherever_they_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = "[bold]$x^2$ | ../../<b>"
    axes = {"seed": [0], "method": {label: {}}}
    figure = CurvesFigure(f"fig {label}", label, lines="method")
    given = reproduction(axes=axes, tables=[Table(name=label, rows="method", columns="seed")], figures=[figure])
    run = given.plan().runs[0]
    results = pretend(tmp_path, given, {run.name: [0.5] * 6})
    filled = given.table().filled(results) | {"note": "", "command": ""}
    assert "\\|" in markdown(filled)
    terminal.show(_table(filled))
    assert "[bold]" in capsys.readouterr().out.replace("\n", "")
    (picture,) = figure.draw(results, Job())
    assert picture.parent == tmp_path / "pictures" and picture.exists()


def test_a_measured_number_reads_as_a_paper_prints_it() -> None:
    assert str(Measurement(81.174)) == "81.17"
    assert str(Measurement(beyond=300, runs=1)) == "300+"
    assert str(Measurement(why="not trained")) == "not run"


def test_a_target_that_the_best_missed_is_said_though_another_was_not_run(tmp_path: Path) -> None:
    results = pretend(tmp_path, reproduction(), {"seed=0,B": [0.1] * 6})
    pick = Pick({"seed": ("0",)}, "model", "rounds_to_target")
    assert str(results.best(pick, "method")) == "6+"
