"""Figures: rounds as shares, what one picture shows, and numbers that are the best over a grid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsash.lab.config import ConfigError
from fedsash.lab.papers.composed import Finding, _axis, composed
from fedsash.lab.papers.figures import CurvesFigure, Job, StudyFigure, StudyPanel, first_clients, global_models
from fedsash.lab.papers.measures import of_curves
from fedsash.lab.papers.pick import pick
from fedsash.lab.papers.tables import Table
from fedsash.lab.studies.landscape import LandscapeStudy
from fedsash.runs.pictures import Axis, Line, Panel, Picture, look
from fedsash.runs.pictures.paper import figure as on_paper
from fedsash.runs.pictures.styles import paired
from support.reproduced import pretend, reproduction

LINE = {"kind": "line", "title": "t", "models": ["a", "b"], "split": "test", "metric": {"name": "accuracy"}}


def finding(panel: str, run: str, loss: float) -> Finding:
    table = LINE | {"beta": [0.0, 0.5, 1.0], "loss": [loss, loss, 2 * loss], "error": [0.1, 0.2, 0.3]}
    return Finding(panel, run, table)


# --- rounds ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.integers(0, 100), st.integers(-3, 3))
def test_a_share_of_the_rounds_is_a_round_of_the_run(last: int, share: int, more: int) -> None:
    low, high = (min(max(share * last / 100 + off + more, 1), last) for off in (-0.5, 0.5))
    (name,) = global_models(share / 100, (more,))(last)
    assert name.startswith("round:") and low <= int(name.removeprefix("round:")) <= high
    names = first_clients(share / 100, -more)(last)
    rounds = {int(client.partition("@")[2]) for client in names}
    assert [client.partition("@")[0] for client in names] == [f"client:#{number}" for number in (1, 2, 3)]
    assert all(low <= round <= high for round in rounds)


def test_runs_keep_the_states_that_their_figures_look_at() -> None:
    figure = StudyFigure(
        "s",
        "t",
        pick(method="A"),
        LandscapeStudy(("model", "ima")),
        {
            "middle and end": StudyPanel(lambda last: [*global_models(0.5)(last), *global_models(1, (-1,))(last)]),
            "clients": StudyPanel(lambda last: ["client:#1@1", "model"]),
        },
    )
    runs = reproduction(figures=[figure]).plan().runs
    assert [run.experiment.checkpoint.keep for run in runs if run.labels["method"] == "A"] == [(1, 3, 5)] * 2
    assert [run.experiment.checkpoint.keep for run in runs if run.labels["method"] == "B"] == [()] * 2


# --- one picture -----------------------------------------------------------------------------------------------------


def test_rows_are_runs_and_what_is_shown_and_columns_are_panels() -> None:
    findings = [finding(panel, run, 1) for panel in ("early", "final") for run in ("A", "B")]
    picture = composed("t", findings, ["loss", "error"], overlay=False)
    assert picture.columns == 2
    assert [panel.name for panel in picture.panels] == [
        f"{run}, {panel}: {shown}" for run in "AB" for shown in ("loss", "error (%)") for panel in ("early", "final")
    ]


def test_without_panels_runs_are_the_columns_and_a_missing_one_leaves_its_place_empty() -> None:
    picture = composed("t", [finding("", "A", 1), finding("", "B", 2)], ["loss"], overlay=False)
    assert picture.columns == 2 and [panel.name for panel in picture.panels] == ["A", "B"]
    gap = composed("t", [finding("x", "A", 1), finding("y", "B", 2)], ["loss"], overlay=False)
    assert [bool(panel.layers) for panel in gap.panels] == [True, False, False, True]


def test_lines_of_all_runs_are_in_one_panel_and_are_found_by_their_names() -> None:
    picture = composed("t", [finding("", "A", 1), finding("", "B", 2)], ["loss"], overlay=True)
    (panel,) = picture.panels
    lines = {layer.name: dict(zip(layer.x, layer.y, strict=True)) for layer in panel.layers if isinstance(layer, Line)}
    assert set(lines) == {"A", "B"} and lines["B"] == {0.0: 2.0, 0.5: 2.0, 1.0: 4.0}


def test_an_axis_of_several_runs_is_as_long_as_all_of_theirs() -> None:
    axes = [Axis("y", 20.0, 22.0), Axis("y", 60.0, 80.0)]
    assert _axis(axes) == Axis("y", 20.0, 80.0) and _axis([*axes, Axis("y", 0.0)]) == Axis("y", 0.0)


def test_a_panel_that_a_study_does_not_draw_is_refused_with_those_it_draws() -> None:
    with pytest.raises(ValueError, match="shows has 'height', which is none of its panels: loss, error"):
        composed("t", [finding("", "A", 1)], ["height"], overlay=False)


def test_a_line_with_more_is_drawn_as_the_line_without_dashed() -> None:
    styles = paired(["A", "A + x", "B", "B + x", "C + x"])
    assert styles["A"] == look(0) and styles["B"] == look(1) and styles["C + x"] == look(2)
    assert (styles["A + x"].colour, styles["A + x"].dash) == (look(0).colour, "dash")


def test_sentences_stand_below_the_panels_on_paper() -> None:
    panel = Panel("p", Axis("x"), Axis("y"), [Line("a", [0, 1], [0, 1], look(0))])
    bare, told = (on_paper(Picture("t", [panel], below=below)) for below in ([], ["one sentence " * 20]))
    assert told.get_figheight() > bare.get_figheight()
    assert "one sentence" in told.texts[-1].get_text() and "\n" in told.texts[-1].get_text()


def test_a_line_has_the_same_name_whichever_runs_are_asked_for(tmp_path: Path) -> None:
    """Claims name lines, so a part of the figure must call them as the whole does."""
    figure = StudyFigure("s", "t", pick(seed=0), LandscapeStudy(("round:1", "round:2", "model")))
    results = pretend(tmp_path, reproduction(), {"seed=0,A": [0.5] * 6})
    run, others = results.sweep.runs[0], {run.name for run in results.sweep.runs[1:]}
    assert figure._labels(run, results) == figure._labels(run, replace(results, others=frozenset(others))) == ["A"]


# --- grids and runs that are left out --------------------------------------------------------------------------------


def test_a_number_is_the_best_over_a_grid_and_the_grid_is_named_below(tmp_path: Path) -> None:
    table = Table(rows="method", columns={"accuracy": pick()}, best_over="seed")
    given = reproduction(tables=[table])
    values = {"seed=0,A": [0.4] * 6, "seed=1,A": [0.6] * 6, "seed=0,B": [0.3] * 6}
    filled = given.table().filled(pretend(tmp_path, given, values))
    assert [row[-1] for row in filled["rows"] if row[1] == "here"] == ["60.00", "30.00"]
    assert "The best over seed (0, 1), for each number by itself." in filled["chosen"]
    assert "1 was best for A, accuracy" in filled["chosen"]
    assert [number["chosen"] for number in filled["numbers"]] == ["1", "0"]


def test_the_grid_below_a_table_has_the_labels_that_were_run_and_one_label_is_no_grid(tmp_path: Path) -> None:
    axes = {"seed": [0, 1, 2], "method": {"A": {}}}
    given = reproduction(axes=axes, tables=[Table(rows="method", columns={"accuracy": pick()}, best_over="seed")])
    results = pretend(tmp_path, given, {"seed=0,A": [0.4] * 6, "seed=2,A": [0.6] * 6})
    some = replace(results, others=frozenset({"seed=1,A"}))
    assert given.table().filled(some)["chosen"][0] == "The best over seed (0, 2), for each number by itself."
    one = replace(pretend(tmp_path / "one", given, {"seed=0,A": [0.4] * 6}), others=frozenset({"seed=1,A", "seed=2,A"}))
    assert given.table().filled(one)["chosen"] == []


def test_the_best_number_of_rounds_is_the_smallest_and_one_that_is_not_reached_the_worst(tmp_path: Path) -> None:
    cells = {"rounds": pick(statistic="rounds_to_target")}
    table = Table(rows="method", columns={"": pick()}, cells=cells, best_over="seed")
    given = reproduction(tables=[table])
    values = {"seed=0,A": [0.1] * 6, "seed=1,A": [0.1, 0.1, 0.9, 0.9, 0.9, 0.9]}
    values |= {"seed=0,B": [0.9] * 6, "seed=1,B": [0.1, 0.9, 0.9, 0.9, 0.9, 0.9]}
    found = given.table().numbers(pretend(tmp_path, given, values))
    assert [str(number.measured) for number in found] == ["3", "1"]


def test_the_best_is_one_of_the_labels_that_a_number_selects_and_a_speed_up_says_which(tmp_path: Path) -> None:
    """Run 0 needs 4 rounds and run 1 needs 2. Against run 0 the best is twice as fast."""
    table = Table(
        rows={"A": pick(method="A")},
        columns={"": pick()},
        cells={"times": pick(statistic="speed_up"), "own": pick(statistic="rounds_to_target", seed=0)},
        form="{} {}",
        against=pick(method="A", seed=0),
        best_over="seed",
    )
    given = reproduction(tables=[table])
    values = {"seed=0,A": [0.1] * 3 + [0.9] * 3, "seed=1,A": [0.1] + [0.9] * 5}
    times, own = given.table().numbers(pretend(tmp_path, given, values))
    assert (times.measured.value, times.measured.chosen, own.measured.value) == (2, "1", 4)


def test_a_figure_is_smoothed_and_the_evidence_for_claims_is_not(tmp_path: Path) -> None:
    values = [0.1, 0.9] + [0.1, 0.3] * 10
    curve = CurvesFigure("c", "t", lines={"A": pick(method="A", seed=0)}, smoothed=True)
    results = pretend(tmp_path, reproduction(figures=[curve]), {"seed=0,A": values})
    (panel,) = curve.pictures(results, Job())["c"].panels
    (line,) = (layer for layer in panel.layers if isinstance(layer, Line))
    assert max(y or 0 for y in line.y) < 90 and of_curves(curve, results)["A", 2].mean == 90
    assert curve.draw(results, Job())[0].exists()


def test_a_figure_of_which_nothing_was_run_is_not_drawn_and_says_so(tmp_path: Path) -> None:
    curve = CurvesFigure("c", "t", lines="method")
    said: list[str] = []
    assert curve.draw(pretend(tmp_path, reproduction(figures=[curve]), {}), Job(say=said.append)) == []
    assert said == ["c: without 4 runs that are not there, such as seed=0,A"]


def test_a_line_may_be_of_other_runs_than_the_figure(tmp_path: Path) -> None:
    curve = CurvesFigure("c", "t", pick(method="A"), {"other": pick(method="B")})
    results = pretend(tmp_path, reproduction(figures=[curve]), {"seed=0,B": [0.5] * 6})
    assert of_curves(curve, results)["other", 6].mean == 50 and len(curve.draw(results, Job())) == 1


def test_runs_that_the_paper_does_not_have_are_left_out() -> None:
    given = reproduction(without=lambda run: run["method"] == "B" and run["seed"] == "1")
    assert [run.name for run in given.plan().runs] == ["seed=0,A", "seed=0,B", "seed=1,A"]
    with pytest.raises(ConfigError, match="no run is left"):
        given.plan("full", ["method=B", "seed=1"])
