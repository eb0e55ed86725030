"""Recipes: that every file parses at every scale, that printed numbers are the papers', and what is made of runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rich
from hypothesis import given
from hypothesis import strategies as st

from fedsash.cli import main
from fedsash.cli.reproduce import _table
from fedsash.config import ConfigError
from fedsash.recipes import FOLDER, Recipe, names
from fedsash.recipes import load as read
from fedsash.recipes.draw import draw
from fedsash.recipes.pick import Pick
from fedsash.recipes.published import Published, read_cell
from fedsash.recipes.reproduce import differences, markdown, reproduce, with_data
from fedsash.recipes.results import Measured, Results
from fedsash.recipes.tables import Table
from fedsash.records import Records, write_json
from fedsash.schedules import Mild
from fedsash.sweeps import plan

PAPERS = {
    **{f"wima-table-{n}": n for n in range(2, 6)},
    **{f"wima-figure-{n}": n for n in range(1, 4)},
    **{f"ima-table-{n}": n for n in range(1, 4)},
    **{f"ima-figure-{n}": n for n in range(1, 11)},
    "fedswa-table-3": 3,
    "fedswa-surfaces": 0,
    "fedwindow-table-1": 1,
    **{f"fedwindow-figure-{n}": n for n in (3, 4)},
}
COUNTS = {"wima-table-2": 11 * 7, "wima-table-3": 4, "wima-table-4": 10, "wima-table-5": 12}
COUNTS |= {"ima-table-1": 12 * 8, "ima-table-2": 6 * 5, "ima-table-3": 8 * 5, "fedswa-table-3": 10 * 3}
GAINS = {
    "FedAvg": [5.3, 4.2, 4.9, 3.2, None, 1.5],
    "FedAvgM": [2.4, 2.2, 4.5, 2.2, 5.7, None],
    "MIME SGD": [5.7, 4.0, 11.5, 13.1, 3.1, None],
    "MIME SGDm": [1.6, 2.0, 4.3, 4.7, 2.7, None],
    "MIMELite": [3.4, 2.9, 4.7, 3.6, 6.4, None],
    "FedCM": [2.9, 6.3, 5.7, 4.0, None, None],
    "FedACG": [4.8, 3.2, 3.5, 2.7, 2.5, None],
    "FedProx": [5.7, 4.1, 5.0, 3.0, 6.3, None],
    "SCAFFOLD": [2.5, 1.9, 4.1, 2.8, 1.6, None],
    "FedDyn": [None, None, 2.6, 3.7, 5.6, None],
    "AdaBest": [7.9, 5.9, 6.5, 6.4, 2.6, None],
}
DIGITS = {
    "rounds": 6,
    "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [8]},
    "averages": {"ima": {"name": "window", "size": 2}},
    "evaluation": {"every": 1, "last": 2, "target": 0.5},
}


@cache
def load(name: str) -> Recipe:
    return read(name)


def printed(name: str, number: int = 0) -> Table:
    return load(name).tables[number]


def values(table: Table, cell: int) -> dict[tuple[str, str], float | None]:
    return {
        (row, column): cells[i][cell].value
        for row, cells in table.published.items()
        for i, column in enumerate(table.columns)
    }


def recipe(**more: Any) -> Recipe:
    table = {"rows": "method", "columns": "seed", "published": {"A": ["50.0", "60.0"], "B": ["70.0", "?"]}}
    content = {
        "title": "a table",
        "base": DIGITS,
        "axes": {"seed": [0, 1], "method": {"A": {}, "B": {"client": {"lr": 0.05}}}},
        "tables": [table],
    }
    return Recipe.parse("test", content | more)


def pretend(out: Path, given: Recipe, accuracies: dict[str, list[float]], scale: str = "full") -> Results:
    """Run folders with these accuracies by round, for the runs whose name is in `accuracies`."""
    sweep = given.plan(scale)
    for run in sweep.runs:
        if run.name in accuracies:
            rows = [
                {"round": t, "model": model, "split": "test", "accuracy": a / (1 if model == "model" else 2)}
                for t, a in enumerate(accuracies[run.name], 1)
                for model in ("model", "ima")
            ]
            folder = out / "runs" / run.name
            folder.mkdir(parents=True)
            Records(folder).create(rows)
            write_json(folder / "summary.json", {})
    return Results(sweep, out)


# Every recipe.


def test_every_table_and_figure_of_the_papers_has_its_recipe() -> None:
    assert {name for name in names() if name.split("-")[0] in ("wima", "ima", "fedswa", "fedwindow")} == set(PAPERS)


@pytest.mark.parametrize("name", names())
def test_a_recipe_parses_at_every_scale_into_runs_that_its_tables_and_figures_take(name: str) -> None:
    found = load(name)
    assert found.paper and found.shows and "Our reading" in found.note + "Our reading" * ("Stated" in found.note)
    assert set(found.scales) == {"full", "small", "tiny"}
    for scale in found.scales:
        sweep = found.plan(scale, ["seed=0"])
        asked = {run.name for run in sweep.runs}
        results = Results(sweep, Path("nowhere"))
        used: set[str] = set()
        for table in found.tables:
            picks = [
                table.where | r | c | x
                for r in table.rows.values()
                for c in table.columns.values()
                for x in table.cells.values()
            ]
            used |= {run.name for pick in picks for run in results.asked(pick)}
        for figure in found.figures(scale):
            lines = figure.lines.values() or [Pick()]
            xs = figure.x.values() or [Pick()]
            used |= {run.name for line in lines for x in xs for run in results.asked(figure.where | line | x)}
        assert used == asked, "a run that nothing is made of"
        models = {model for run in sweep.runs for model in ("model", "sent", *run.experiment.averages)}
        for table in found.tables:
            for pick in (*table.rows.values(), *table.columns.values(), *table.cells.values(), table.where):
                assert pick.model in ("", *models)


@pytest.mark.parametrize("name", names())
def test_the_tiny_scale_needs_no_data_and_few_rounds(name: str) -> None:
    sweep = load(name).plan("tiny")
    assert with_data(sweep, Path("nowhere"))[1] == {}
    assert plan(sweep.runs).to_train <= 200
    assert len(sweep.runs[0].experiment.federated_data().clients) <= 10


@pytest.mark.parametrize("name", [name for name in names() if "figure" in name or "surfaces" in name])
def test_the_rounds_that_a_figure_looks_at_are_kept(name: str) -> None:
    """At every scale, and after the beginnings that runs share, whose states are not in their own folders."""
    found = load(name)
    for scale in found.scales:
        sweep = found.plan(scale)
        legs = {leg.runs[0]: leg for leg in plan(sweep.runs).legs if len(leg.runs) == 1}
        for figure in found.figures(scale):
            rounds = [int(there[1]) for model in figure.models if (there := re.search(r"(?:@|round:)(\d+)$", model))]
            for run in sweep.runs:
                if figure.where.takes(run.labels):
                    last, keep = run.experiment.rounds, run.experiment.checkpoint.keep
                    wanted = {*rounds, *figure.rounds}
                    assert wanted <= {*keep, last}, f"{scale}: {figure.name}: {run.name}"
                    assert min(wanted, default=last) >= legs[run.name].first


def test_with_ima_and_without_share_their_beginning_in_every_method_of_ima_table_1() -> None:
    """To the end of round 225, whose clients still receive the model, or to its beginning where the feed acts before
    the server's step, as with FedAdam and FedYogi."""
    sweep = load("ima-table-1").plan("full", ["row=FMNIST #C=2"])
    assert plan(sweep.runs).to_train == 6 * (226 + 2 * 74) + 2 * (225 + 2 * 75)


def test_ima_starts_at_three_quarters_of_the_rounds_in_every_row_of_table_1() -> None:
    for run in load("ima-table-1").plan().runs:
        schedule, feed = run.experiment.client.schedule, run.experiment.feed
        if run.labels["IMA"] == "on":
            assert feed is not None and isinstance(schedule, Mild)
            assert feed.start == schedule.start == 0.75 * run.experiment.rounds
        else:
            assert feed is None or feed.start == 1_000_000


def test_a_file_in_the_wheel_is_there_for_every_base() -> None:
    for name in names():
        base = load(name).content["base"]
        assert not isinstance(base, str) or (FOLDER / base).is_file()


# What the papers print.


@pytest.mark.parametrize("name, count", COUNTS.items())
def test_a_printed_table_has_all_its_cells(name: str, count: int) -> None:
    for table in load(name).tables[: 2 if name == "fedswa-table-3" else 1]:
        assert sum(map(len, table.published.values())) == count
        assert all(len(cell) == len(table.cells) for cells in table.published.values() for cell in cells)


def test_ima_table_3_has_table_1s_numbers_for_the_exponential_scheme() -> None:
    first, third = values(printed("ima-table-1"), 1), values(printed("ima-table-3"), 0)
    methods = list(printed("ima-table-3").rows)
    assert len(methods) == 8
    for method in methods:
        assert third[method, "Exp"] == first["CIFAR-10 CNN a=0.1", method]


def test_wima_prints_the_gains_that_its_numbers_have_but_for_two() -> None:
    """5.3 for 69.95 - 64.37, which carries a doubt; and 1.5 for FEMNIST's 1.47, below the 1.5 from which gains are
    printed."""
    base, with_wima = (values(printed("wima-table-2"), cell) for cell in (0, 1))
    columns = list(printed("wima-table-2").columns)[:6]
    odd = set()
    for method, gains in GAINS.items():
        for column, gain in zip(columns, gains, strict=True):
            before, after = base[method, column], with_wima[method, column]
            if before is None or after is None:
                assert gain is None
            elif gain is None:
                assert after - before < 1.5
            elif abs(after - before - gain) > 0.0501 or after - before < 1.4999:
                odd.add((method, column))
    assert odd == {("FedAvg", "CIFAR-10 a=0"), ("FedAvg", "FEMNIST")}


def test_imas_speed_ups_are_the_quotients_of_its_rounds() -> None:
    table = printed("ima-table-2")
    rounds, ratios = values(table, 0), values(table, 1)
    for (method, start), ratio in ratios.items():
        own, base = rounds[method, start], rounds[method, "FMA"]
        assert own and base and ratio == pytest.approx(base / own, abs=0.0101)


def test_wimas_window_of_100_agrees_between_tables_2_and_4() -> None:
    second, fourth = values(printed("wima-table-2"), 1), values(printed("wima-table-4"), 0)
    assert second["FedAvg", "CIFAR-100 a=0"] == fourth["W = 100", "CIFAR-100"]
    assert second["FedAvg", "CIFAR-10 a=0"] == pytest.approx(fourth["W = 100", "CIFAR-10"], abs=0.0101)


def test_suspicious_numbers_carry_their_doubt() -> None:
    """75 % of the trend breaks at W = 50; PAM is an inference; Shakespeare is lost; FedDyn diverged."""
    fourth, second = printed("wima-table-4"), printed("wima-table-2")
    assert fourth.published["W = 50"][1][0] == Published("22.75 ?", 22.75, doubt=True)
    columns = list(second.columns)
    assert all(cells[columns.index("CIFAR-100 PAM")][0].doubt for cells in second.published.values())
    assert all(
        cells[columns.index("Shakespeare")][0] == Published("?", doubt=True) for cells in second.published.values()
    )
    assert second.published["FedDyn"][0][0] == Published("N/A")


def test_rounds_that_were_not_reached_are_beyond_the_last() -> None:
    for table, rounds in zip(load("fedswa-table-3").tables, (1000, 400), strict=True):
        for cells in table.published.values():
            for accuracy, found in cells:
                assert accuracy.std is not None
                assert found.value == rounds if found.beyond else found.value is not None and found.value < rounds


@given(st.decimals(0, 100, places=2), st.sampled_from(["", " ?"]), st.sampled_from(["", " ±0.3"]))
def test_a_printed_number_is_read_back(value: Any, doubt: str, std: str) -> None:
    found = Published.read(f"{value}{std}{doubt}")
    assert found.value == float(value) and found.doubt == bool(doubt) and found.std == (0.3 if std else None)


@pytest.mark.parametrize("text", ["", "about 80", "80.", "-", "80 (81)", "+80"])
def test_what_is_no_printed_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be such as"):
        Published.read(text)


def test_a_cell_must_have_its_form() -> None:
    assert [number.value for number in read_cell("80.1 (82)", "{} ({})", 2)] == [80.1, 82]
    with pytest.raises(ValueError, match="must have the form"):
        read_cell("80.1", "{} ({})", 2)
    with pytest.raises(ValueError, match="must have the form"):
        read_cell("80.1 (82)", "{} ({})", 3)


# What is made of runs.


def test_a_table_sets_measured_beside_published_and_says_why_numbers_are_missing(tmp_path: Path) -> None:
    given = recipe()
    results = pretend(tmp_path, given, {"seed=0,A": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "seed=1,A": [0.5] * 6})
    filled = given.tables[0].filled(results)
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
    given = recipe()
    results = pretend(tmp_path, given, {"seed=0,A": [0.5] * 6})
    others = frozenset(run.name for run in results.sweep.runs if run.labels["method"] == "A")
    filled = given.tables[0].filled(replace(results, others=others))
    assert [row[:2] for row in filled["rows"]] == [
        [row, kind] for row in "AB" for kind in ("paper", "here", "difference")
    ][:5]
    assert filled["rows"][1] == ["A", "here", "50.00", "-"]
    assert filled["missing"] == ["B: not trained"]


def test_a_number_over_several_seeds_has_their_deviation(tmp_path: Path) -> None:
    results = pretend(tmp_path, recipe(), {"seed=0,A": [0.4] * 6, "seed=1,A": [0.6] * 6})
    found = results.measured(Pick({"method": ("A",)}, "model", "last_mean"))
    assert (found.value, found.std, found.runs) == (pytest.approx(50), pytest.approx(200**0.5), 2)
    assert str(found) == "50.00 ±14.14"


def test_rounds_to_the_target_are_of_single_rounds_and_beyond_the_last_where_a_run_does_not_reach_it(
    tmp_path: Path,
) -> None:
    accuracies = {"seed=0,A": [0.1, 0.6, 0.2, 0.2, 0.2, 0.2], "seed=1,A": [0.1] * 6}
    results = pretend(tmp_path, recipe(), accuracies)
    one, other, both = (
        Pick(where, "model", "rounds_to_target")
        for where in ({"seed": ("0",), "method": ("A",)}, {"seed": ("1",), "method": ("A",)}, {"method": ("A",)})
    )
    assert results.measured(one).value == 2
    assert str(results.measured(other)) == "6+" and str(results.measured(both)) == "6+"


def test_a_speed_up_is_the_rounds_of_the_other_runs_divided_by_the_own(tmp_path: Path) -> None:
    table = {
        "rows": "method",
        "columns": {"": {"seed": "0"}},
        "cells": {"x": {"statistic": "speed_up"}},
        "against": {"method": "A"},
    }
    given = recipe(tables=[table])
    results = pretend(tmp_path, given, {"seed=0,A": [0.0] * 5 + [0.9], "seed=0,B": [0.0, 0.9] + [0.0] * 4})
    assert [number.measured.value for number in given.tables[0].numbers(results)] == [1.0, 3.0]


def test_on_a_network_client_trips_to_the_target_are_counted_and_drawn(tmp_path: Path) -> None:
    """A round of A is five client trips, one of B a single one; of C there is none at the target."""
    cells = {"trips": {"statistic": "trips_to_target"}, "speed-up": {"statistic": "trips_speed_up"}}
    table = {"rows": "method", "columns": {"": {}}, "cells": cells, "form": "{} ({})", "against": {"method": "A"}}
    axes = {"seed": [0], "method": {"A": {}, "B": {"client": {"lr": 0.05}}, "C": {"client": {"lr": 0.01}}}}
    given = recipe(axes=axes, tables=[table])
    results = pretend(tmp_path, given, {"seed=0,A": [0.0, 0.9], "seed=0,B": [0.0] * 3 + [0.9], "seed=0,C": [0.0] * 6})
    for run, each in zip(results.sweep.runs, (5, 1, 1), strict=True):
        rows = [row | {"trips": each * row["round"]} for row in Records(results.folder(run)).load()]
        Records(results.folder(run)).create(rows)
    assert [row[-1] for row in given.tables[0].filled(results)["rows"]] == ["10 (1.00)", "4 (2.50)", "6+ (-)"]
    assert results.curve(results.sweep.runs[0], "model", "trips") == {5: 0.0, 10: 90.0}


def test_what_clients_are_sent_is_the_model_until_the_feed_begins_and_then_the_average(tmp_path: Path) -> None:
    """With start = 3 the average takes the model's place at the end of round 3, counted from 0: after 4 rounds."""
    axes = {
        "seed": [0],
        "method": {
            "A": {"feed": {"average": "ima", "start": 3}},
            "B": {"feed": {"average": "ima", "start": 3, "order": "code"}},
        },
    }
    given = recipe(axes=axes, tables=[{"rows": "method", "columns": "seed"}])
    results = pretend(tmp_path, given, {"seed=0,A": [0.8] * 6, "seed=0,B": [0.8] * 6})
    after, before = results.sweep.runs
    assert results.curve(after, "sent") == pytest.approx({1: 80, 2: 80, 3: 80, 4: 40, 5: 40, 6: 40})
    assert set(results.curve(before, "sent").values()) == {80.0}


def test_on_several_domains_the_accuracy_is_their_unweighted_mean(tmp_path: Path) -> None:
    given = recipe()
    results = pretend(tmp_path, given, {})
    run = results.sweep.runs[0]
    folder = results.folder(run)
    folder.mkdir(parents=True)
    row = {"round": 6, "model": "model", "split": "test", "accuracy": 0.9, "domains": {"a": 1.0, "b": 0.5}}
    Records(folder).create([row])
    assert results.curve(run, "model") == {6: 75.0}


def test_the_settings_that_differ_from_the_papers_are_named() -> None:
    found = load("ima-table-1")
    only = ["row=FMNIST #C=2", "method=FedAvg"]
    lines = differences(found, found.plan("tiny", only))
    assert "rounds 12 (paper: 300)" in lines
    assert 'data.name "digits" (paper: "fashion_mnist")' in lines
    assert not any("data.path" in line for line in lines)
    assert "of method only FedAvg" in lines
    assert differences(found, found.plan("full", only)) == lines[-2:]


def test_runs_whose_data_are_not_there_are_left_out_with_the_folder_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "fashion_mnist").mkdir()
    asked = load("ima-table-1").plan()
    sweep, missing = with_data(asked, tmp_path)
    assert {run.labels["row"] for run in sweep.runs} == {"FMNIST #C=2", "FMNIST a=0.1"}
    assert len(sweep.runs) + len(missing) == len(asked.runs)
    assert f"pacs is not there: put it into {tmp_path / 'pacs'} (docs/data.md says how)" in missing.values()
    assert sweep.runs[0].experiment.data.path == str(tmp_path / "fashion_mnist")  # type: ignore[attr-defined]


def test_without_any_data_there_is_the_table_with_the_reason_in_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = reproduce(load("wima-table-3"), out, data=tmp_path / "none", progress=False, command="a command")
    table = json.loads((out / "tables" / "wima-table-3.json").read_text())
    assert table["rows"][1] == ["FedAvg", "here", "not run", "not run"]
    assert "landmarks is not there" in table["note"] and table["command"] == "a command"
    assert set(table) >= {"title", "note", "columns", "rows", "command"}
    assert "| FedAvg | paper | 58.17 | 63.05 |" in (out / "tables" / "wima-table-3.md").read_text()
    assert done.pictures == []


# What is refused, and labels that nobody expects.


@pytest.mark.parametrize(
    "wrong, line",
    [
        ({"tabels": []}, "unknown key tabels"),
        ({"tables": []}, "nothing is made of its runs"),
        ({"title": 3}, "title = 3: must be a string"),
        ({"tables": [{"rows": "methods", "columns": "seed"}]}, "there is no axis methods; did you mean method?"),
        ({"tables": [{"rows": "method", "columns": {"x": {"seed": 5}}}]}, "axis seed has no label 5"),
        ({"tables": [{"rows": "method", "columns": "seed", "published": {"A": ["1"]}}]}, "must be a list of 2 cells"),
        ({"tables": [{"rows": "method", "columns": "seed", "published": {"C": ["1", "2"]}}]}, "there is no row C"),
        ({"tables": [{"rows": "method", "columns": "seed", "published": {"A": ["1", "x"]}}]}, "must be such as"),
        ({"tables": [{"rows": {"A": {"statistic": "mean"}}, "columns": "seed"}]}, "statistic"),
        ({"figures": [{"kind": "cake"}]}, "there is no kind cake"),
        ({"figures": [{"kind": "plane", "models": ["model"]}]}, "a plane has 3 of them"),
        ({"figures": [{"kind": "values", "lines": "method"}]}, "x is missing"),
        ({"figures": [{"kind": "curves"}]}, "lines is missing"),
        ({"scales": {"huge": {}}}, "there is no scale huge"),
        ({"scales": {"tiny": {"onyl": {}}}}, "unknown key onyl"),
        ({"scales": {"tiny": {"values": {"sead": [0]}}}}, "scales.tiny: there is no axis sead; did you mean seed?"),
        ({"scales": {"tiny": {"figures": {"x": {}}}}}, "there is no figure x"),
        ({"axes": {"seed": 3, "method": {"A": {}}}}, "axes.seed = 3: must be a list of values"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        recipe(**wrong)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_change_that_no_experiment_takes_names_the_run() -> None:
    given = recipe(changes=[{"where": {"method": "B"}, "set": {"client": {"lr": "fast"}}}])
    with pytest.raises(ConfigError, match=r"seed=0,B: client\.lr"):
        given.plan()


def test_an_axis_that_is_called_like_a_picks_own_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="axes: no axis can be called model"):
        recipe(axes={"model": {"a": {}}, "seed": [0]})


def test_labels_are_plain_text_wherever_they_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = "[bold]$x^2$ | ../../<b>"
    axes = {"seed": [0], "method": {label: {}}}
    figure = {"name": f"fig {label}", "title": label, "kind": "curves", "lines": "method"}
    given = recipe(axes=axes, tables=[{"name": label, "rows": "method", "columns": "seed"}], figures=[figure])
    run = given.plan().runs[0]
    results = pretend(tmp_path, given, {run.name: [0.5] * 6})
    filled = given.tables[0].filled(results) | {"note": "", "command": ""}
    assert "\\|" in markdown(filled)
    rich.print(_table(filled))
    assert "[bold]" in capsys.readouterr().out.replace("\n", "")
    (picture,) = draw(given.figures()[0], results, "", print)
    assert picture.parent == tmp_path / "pictures" and picture.exists()


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["ima-tabel-1"], "did you mean ima-table-1?"),
        (["../ima-table-1"], "recipe = '../ima-table-1'"),
        (["ima-table-1", "--scale", "huge"], "must be one of full, small, tiny"),
        (["ima-table-1", "--only", "row"], "must be AXIS=LABEL"),
        (["ima-table-1", "--only", "row=MNIST"], "axis row has no label MNIST"),
        (["ima-table-1", "--only", "rows=MNIST"], "there is no axis rows; did you mean row?"),
        (["ima-table-1", "--scale", "tiny", "--jobs", "0"], "jobs = 0"),
    ],
)
def test_a_wrong_command_is_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_recipes_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "recipes"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in names()) and len(said.splitlines()) == len(names()) + 1
    assert main(["list", "recipes", "ima-table-2"]) == 0
    said = capsys.readouterr().out
    assert "12,000 rounds asked" in said and "start: 150, 200, 250, 300, FMA" in said
    assert main(["list", "recipes", "table"]) == 2


def test_a_measured_number_reads_as_a_paper_prints_it() -> None:
    assert str(Measured(81.174)) == "81.17"
    assert str(Measured(beyond=300, runs=1)) == "300+"
    assert str(Measured(why="not trained")) == "not run"


# From end to end, on the digits.


def test_a_table_from_end_to_end_and_again_without_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["reproduce", "wima-table-5", "--scale", "tiny", "--only", "seed=0", "--out", str(tmp_path)]
    assert main([*arguments, "--no-progress"]) == 0
    said = capsys.readouterr().out
    assert "not comparable with the paper's" in " ".join(said.split())
    table = json.loads((tmp_path / "tables" / "wima-table-5.json").read_text())
    assert [row[:2] for row in table["rows"]] == [["CIFAR-10 a=0", kind] for kind in ("paper", "here", "difference")]
    assert table["command"] == "fedsash reproduce wima-table-5 --scale tiny --only seed=0"
    metrics = next(tmp_path.glob("runs/*/metrics.jsonl"))
    before = metrics.stat().st_mtime_ns
    assert main([*arguments, "--no-progress"]) == 0
    assert metrics.stat().st_mtime_ns == before


def test_a_setting_of_ones_own_is_said_below_the_table(tmp_path: Path) -> None:
    settings = ["rounds=3", "averages.wima.size=2"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    arguments = ["reproduce", "wima-table-5", "--scale", "tiny", "--only", "seed=0", *overrides]
    assert main([*arguments, "--out", str(tmp_path), "--no-progress"]) == 0
    table = json.loads((tmp_path / "tables" / "wima-table-5.json").read_text())
    assert "; rounds 3 (paper: " in table["note"] and "averages.wima.size 2 (paper: 100)" in table["note"]
    assert table["command"] == f"fedsash {' '.join(arguments)}"
    assert json.loads(next(tmp_path.glob("runs/*/summary.json")).read_text())["rounds"] == 3


def test_settings_of_ones_own_win_over_the_recipes() -> None:
    chosen = ["row=PACS #C=2", "method=FedAvg", "IMA=on"]
    (run,) = load("ima-table-1").plan("full", chosen, ["feed.start=100", "client.lr=0.1"]).runs
    assert run.experiment.feed.start == 100 and run.experiment.client.lr == 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, pictures, analyses",
    [
        ("ima-table-1", 0, 0),
        ("ima-table-2", 0, 0),
        ("fedswa-table-3", 0, 0),
        ("wima-figure-2", 1, 0),
        ("ima-figure-1", 4, 4),
        ("ima-figure-2", 2, 2),
        ("ima-figure-5", 2, 1),
        ("ima-figure-6", 3, 0),
        ("fedswa-surfaces", 2, 2),
        ("fedwindow-table-1", 0, 0),
        ("fedwindow-figure-3", 1, 0),
    ],
)
def test_every_kind_of_table_and_figure_from_end_to_end(
    name: str, pictures: int, analyses: int, tmp_path: Path
) -> None:
    done = reproduce(load(name), tmp_path, scale="tiny", progress=False)
    assert done.missing == [] and len(done.pictures) == pictures
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in done.pictures)
    assert len(list(tmp_path.glob("analyses/*.json"))) == analyses
    for table in done.tables:
        assert not table["missing"] and any(row[1] == "here" for row in table["rows"])
