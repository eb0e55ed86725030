"""Reproductions: each expands at every scale, keeps what its figures need, and refuses what is wrong in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsash.data import CIFAR10
from fedsash.lab.config import ConfigError
from fedsash.lab.papers import made_by, names
from fedsash.lab.papers.figures import CurvesFigure, Figure, StudyFigure, StudyPanel, ValuesFigure
from fedsash.lab.papers.pick import Labels, Pick, pick
from fedsash.lab.papers.reproduce import with_data
from fedsash.lab.papers.reproduction import Note, Scale, Settings
from fedsash.lab.papers.results import Results
from fedsash.lab.papers.tables import Table
from fedsash.lab.studies.coverage import CoverageStudy
from fedsash.lab.studies.flatness import FlatnessStudy
from fedsash.lab.sweeps import plan
from fedsash.methods.schedules import Mild
from fedsash.settings.errors import SettingError
from support.by_default import some
from support.reproduced import DIGITS, load, reproduction

PRINTED = [
    *(f"wima-table-{n}" for n in range(2, 6)),
    *(f"wima-figure-{n}" for n in range(1, 4)),
    *(f"ima-table-{n}" for n in range(1, 4)),
    *(f"ima-figure-{n}" for n in range(1, 11)),
    *("fedswa-table-3", "fedswa-surfaces", "fedwindow-table-1", "fedwindow-figure-3", "fedwindow-figure-4"),
]
LARGE = ("ima-table-1", "ima-table-2", "ima-figure-6", "fedswa-table-3", "wima-table-2")
"""Those of many runs."""


@pytest.mark.parametrize("name", PRINTED)
def test_every_table_and_figure_of_the_papers_is_made_by_a_reproduction_that_is_there_or_named(name: str) -> None:
    if name not in names():
        with pytest.raises(ValueError, match=f"is made by {made_by(name)}$"):
            load(name)
        assert made_by(name) in names()


def test_notes_stand_below_the_rows_alone_that_were_asked_for() -> None:
    table = load("ima-table-1")
    fmnist = {"row": "FMNIST #C=2", "method": "FedAvg", "strength": "0.1", "IMA": "on"}
    note = table.note_on([fmnist])
    assert note == table.note and not any(word in note for word in ("CIFAR-100", "PACS", "FedFA", "FedNova"))
    pacs = table.note_on([fmnist, fmnist | {"row": "PACS a=0.1", "method": "FedFA"}])
    assert "PACS's network" in pacs and "FedFA: from the code anchors" in pacs and "Digit-Five" not in pacs
    with pytest.raises(SettingError, match=r"ima-table-1.notes.row = 'PACS': did you mean"):
        replace(table, notes=[Note("of nothing", pick(row="PACS"))])


def test_every_reproduction_is_of_something_that_is_printed() -> None:
    assert set(names()) <= set(PRINTED)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in LARGE else name for name in names()]
)
def test_a_reproduction_expands_at_every_scale_into_runs_that_its_tables_and_figures_take(name: str) -> None:
    found = load(name)
    assert found.paper and found.shows and found.note
    assert set(found.scales) == {"small", "tiny"}
    for scale in ("full", *found.scales):
        sweep = found.plan(scale, ["seed=0"])
        results = Results(sweep, Path("nowhere"), found.labels)
        picks = [pick for table in found.bound_tables for pick in table.picks]
        models = {model for run in sweep.runs for model in ("model", "sent", *run.experiment.averages)}
        assert {pick.model for pick in picks} <= models
        picks += [pick for figure in found.figures_at(scale) for pick in figure.picks(found.labels)]
        used = {run.name for pick in picks for run in results.selected(pick)}
        assert used == {run.name for run in sweep.runs}, "a run that nothing is made of"


@pytest.mark.parametrize("name", some(names(), "fedswa-table-3", "fedwindow-figure-4", "ima-table-2", "wima-figure-2"))
def test_the_tiny_scale_needs_no_data_and_few_rounds(name: str) -> None:
    sweep = load(name).plan("tiny")
    assert with_data(sweep, Path("nowhere"))[1] == {}
    assert plan(sweep.runs).to_train <= 200
    assert len(sweep.runs[0].experiment.federated_data().clients) <= 10


@pytest.mark.parametrize(
    "name",
    [
        "ima-figure-1",
        "ima-figure-2",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("ima-table-2", LARGE[2])),
    ],
)
def test_the_rounds_that_a_figure_looks_at_are_kept(name: str) -> None:
    """At every scale, and after the beginnings that runs share, whose states are not in their own folders."""
    found = load(name)
    for scale in ("full", *found.scales):
        sweep = found.plan(scale)
        segments = {segment.runs[0]: segment for segment in plan(sweep.runs).segments if len(segment.runs) == 1}
        for figure in found.figures_at(scale):
            for run in sweep.runs:
                if rounds := figure.rounds(run):
                    assert rounds <= {*run.experiment.checkpoint.keep, run.experiment.rounds}
                    assert min(rounds) >= segments[run.name].first, f"{scale}: {run.name}"


def test_the_three_arms_of_ima_table_1_share_their_beginning_in_every_method() -> None:
    """To the end of round 226, whose clients still receive the model at the same rate. With FedAdam and FedYogi, where
    the broadcast acts before the server's step, that arm leaves the others after round 225. FedProx and FedFA are there
    at three strengths."""
    sweep = load("ima-table-1").plan("full", ["row=FMNIST #C=2"])
    assert plan(sweep.runs).to_train == 10 * (226 + 3 * 74) + 2 * (226 + 2 * 74 + 75)


@pytest.mark.parametrize("only", [["row=FMNIST #C=2"], pytest.param([], marks=pytest.mark.full)], ids=["one", "all"])
def test_ima_starts_at_three_quarters_of_the_rounds_in_every_row_of_table_1(only: list[str]) -> None:
    for run in load("ima-table-1").plan(only=only).runs:
        schedule, broadcast = run.experiment.local.schedule, run.experiment.broadcast
        if run.labels["IMA"] == "on":
            assert broadcast is not None and isinstance(schedule, Mild) and broadcast.start != "auto"
            assert broadcast.start - 1 == schedule.start == 0.75 * run.experiment.rounds
        else:
            assert broadcast is None or broadcast.start == 1_000_000


ROWS = Table(rows="method", columns="seed")
CURVES = CurvesFigure("curves", "t", lines="method")
FLATNESS = FlatnessStudy(("model",))


def table(**settings: Any) -> dict[str, list[Table]]:
    return {"tables": [Table(**{"rows": "method", "columns": "seed"} | settings)]}


@pytest.mark.parametrize(
    "wrong, line",
    [
        ({"name": "a/b"}, "Reproduction.name = 'a/b': must be letters, digits, _ and -"),
        ({"tables": []}, "test = (): must have tables or figures"),
        (table(rows="methods"), "test.rows = 'methods': there is no such axis; did you mean method?"),
        (
            table(columns=["seed", "alpha"]),
            "test.columns = 'alpha': there is no such axis; must be one of seed, method",
        ),
        (table(columns={"x": pick(sead=0)}), "test.columns.x = 'sead': there is no such axis; did you mean seed?"),
        (table(columns={"x": pick(seed=5)}), "test.columns.x.seed = '5': must be one of 0, 1"),
        (table(cells={"x": pick(method="a")}), "test.method = 'a': must be one of A, B"),
        (table(against=pick(method="C")), "test.method = 'C': must be one of A, B"),
        (table(best_over="methd"), "test.best_over = 'methd': there is no such axis; did you mean method?"),
        (table(printed={"A": ["1", "2", "3"]}), "test.printed = 'A': has 3 cells for 2 columns"),
        (table(printed={"C": ["1", "2"]}), "test.printed = 'C': must be one of the rows A, B"),
        (table(printed={"A": ["1", "x"]}), "must be such as 81.17"),
        ({"tables": [ROWS, ROWS]}, "test = 'test': must be the name of one table or figure only"),
        ({"figures": [CURVES, CURVES]}, "test = 'curves': must be the name of one table or figure only"),
        ({"figures": [CurvesFigure("c", "t", lines="methods")]}, "c.lines = 'methods': there is no such axis"),
        ({"figures": [CurvesFigure("c", "t", pick(method="C"), "seed")]}, "c.method = 'C': must be one of A, B"),
        ({"figures": [ValuesFigure("v", "t", lines="method", x="x")]}, "v.x = 'x': there is no such axis"),
        (
            {"figures": [ValuesFigure("v", "t", pick(statistic="speed_up"), "method", "seed")]},
            "v.statistic = 'speed_up': only tables have speed-ups; a figure has rounds_to_target",
        ),
        ({"figures": [StudyFigure("s", "t", pick(methd="A"), FLATNESS)]}, "s = 'methd': there is no such axis"),
        ({"figures": [StudyFigure("s", "t", study=FLATNESS, over="sed")]}, "s.over = 'sed': there is no such axis"),
        ({"scales": {"huge": Scale()}}, "test.scales = 'huge': must be one of full, small, tiny"),
        ({"scales": {"tiny": Scale(values={"sead": [0]})}}, "test.scales.tiny = 'sead': there is no such axis"),
        (
            {"scales": {"tiny": Scale(only={"method": ["a"]})}},
            "test.scales.tiny.only.method = 'a': must be one of A, B",
        ),
        ({"scales": {"tiny": Scale(figures={"x": {}})}}, "test.scales.tiny.figures = 'x': there is no such figure"),
        ({"axes": {"seed": 3, "method": {"A": {}}}}, "test.axes.seed = 3: must be a list of values"),
        ({"axes": {"model": {"a": {}}, "seed": [0]}}, "test.axes = 'model': no axis can be called so"),
    ],
)
def test_a_wrong_reproduction_is_refused_in_one_line(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as error:
        reproduction(**wrong)
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings, line",
    [
        ({"points": 3}, "s.study = 'points': must be one of models, eigenvalues, rho, split, samples"),
        ({"eigenvalues": 0}, "FlatnessStudy.eigenvalues = 0: must be from 1 to"),
    ],
)
def test_a_scale_has_settings_that_the_study_takes(settings: Settings, line: str) -> None:
    with pytest.raises(SettingError, match=line):
        reproduction(figures=[StudyFigure("s", "t", study=FLATNESS)], scales={"tiny": Scale(figures={"s": settings})})


def test_a_figure_without_what_it_shows_is_refused() -> None:
    with pytest.raises(SettingError, match=r"c\.lines = \{\}: must be an axis"):
        CurvesFigure("c", "t")
    with pytest.raises(SettingError, match=r"v\.x = \{\}: must be an axis"):
        ValuesFigure("v", "t", lines="method")
    with pytest.raises(SettingError, match=r"s\.study = None: must be a study"):
        StudyFigure("s", "t")
    with pytest.raises(SettingError, match=r"s\.panels = 'early': the study coverage looks at no models"):
        StudyFigure("s", "t", study=CoverageStudy(), panels={"early": StudyPanel(lambda last: ["model"])})
    with pytest.raises(SettingError, match="statistic = 'mean': must be one of last_mean"):
        pick(statistic="mean")


def test_a_label_of_a_value_may_be_picked_by_the_value() -> None:
    assert pick(seed=0, lr=[0.1, "0.2"]) == Pick({"seed": ("0",), "lr": ("0.1", "0.2")})


@pytest.mark.parametrize(
    "name, made",
    [
        ("curves", {"figures": [CurvesFigure("curves", "t", lines="method", by="trips")]}),
        ("values", {"figures": [ValuesFigure("values", "t", pick(statistic="trips_to_target"), "seed", "method")]}),
        ("test", table(where=pick(statistic="trips_speed_up"))),
    ],
)
def test_trips_are_counted_on_networks_only(name: str, made: dict[str, list[Table | Figure]]) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} counts client trips, and the run seed=0,A has no network$"):
        reproduction(**made).plan()
    assert reproduction(base=DIGITS | {"network": {}}, **made).plan().runs


def test_a_change_that_no_experiment_takes_names_the_run() -> None:
    def changes(run: Labels) -> list[Settings]:
        return [{"local": {"lr": "fast"}}] if run["method"] == "B" else []

    with pytest.raises(ConfigError, match=r"seed=0,B: local\.lr"):
        reproduction(changes=changes).plan()


def test_what_the_paper_does_not_have_or_a_change_mends_need_be_no_experiment() -> None:
    """The base has no rate that an experiment takes: B is changed, and A is left out before it is looked at."""
    given = reproduction(
        base={"local": {"lr": "fast"}},
        axes={"seed": [0, 1], "method": {"A": {}, "B": {}}},
        changes=lambda run: [{"local": {"lr": 0.5}}],
        without=lambda run: run["method"] == "A",
    )
    rates = {run.name: run.experiment.local.lr for run in given.plan().runs}
    assert rates == {"seed=0,B": 0.5, "seed=1,B": 0.5}


def test_changes_come_in_order_after_the_axes_and_those_of_a_scale_after_them() -> None:
    given = reproduction(
        changes=lambda run: [{"local": {"lr": 0.2, "batch": 4}}, {"local": {"batch": 5}}],
        scales={"tiny": Scale(changes=lambda run: [{"local": {"batch": 6 if run["method"] == "B" else 7}}])},
    )
    local = {run.labels["method"]: run.experiment.local for run in given.plan(only=["seed=0"]).runs}
    assert [(local[method].lr, local[method].batch) for method in "AB"] == [(0.2, 5), (0.2, 5)]
    assert [run.experiment.local.batch for run in given.plan("tiny", ["seed=0"]).runs] == [7, 6]


def test_only_takes_the_place_of_a_scales_labels_on_the_axes_that_it_names() -> None:
    given = reproduction(scales={"tiny": Scale(only={"method": ["A"]}, values={"seed": (2, 3)})})
    assert [run.name for run in given.plan("tiny").runs] == ["seed=2,A", "seed=3,A"]
    assert [run.name for run in given.plan("tiny", ["method=B", "seed=3"]).runs] == ["seed=3,B"]
    with pytest.raises(ConfigError, match="axis seed has no label 0"):
        given.plan("tiny", ["seed=0"])
    with pytest.raises(SettingError, match="scale = 'small': must be one of full, tiny"):
        given.plan("small")


def test_settings_of_ones_own_win_over_the_reproductions() -> None:
    chosen = ["row=PACS #C=2", "method=FedAvg", "IMA=on"]
    (run,) = load("ima-table-1").plan("full", chosen, ["broadcast.start=100", "local.lr=0.1"]).runs
    broadcast = run.experiment.broadcast
    assert broadcast is not None and broadcast.start == 100 and run.experiment.local.lr == 0.1


def test_another_data_set_takes_the_place_of_a_reproduction_with_all_its_keys() -> None:
    chosen = ["data=CIFAR-100", "alpha=Dir 0.1", "method=FedAvg"]
    for run in load("fedswa-table-3").plan("small", chosen, ['data={name="cifar10"}']).runs:
        assert run.experiment.data == CIFAR10()
