"""Reproductions: every file parses at every scale, and keeps what its figures need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedsash.data import CIFAR10
from fedsash.lab.config import ConfigError
from fedsash.lab.reproductions import FOLDER, made_by, names
from fedsash.lab.reproductions import load as read
from fedsash.lab.reproductions.pick import Pick
from fedsash.lab.reproductions.reproduce import with_data
from fedsash.lab.reproductions.results import Results
from fedsash.lab.sweeps import plan
from fedsash.schedules import Mild
from support.reproductions import DIGITS, load, reproduction

PRINTED = [
    *(f"wima-table-{n}" for n in range(2, 6)),
    *(f"wima-figure-{n}" for n in range(1, 4)),
    *(f"ima-table-{n}" for n in range(1, 4)),
    *(f"ima-figure-{n}" for n in range(1, 11)),
    *("fedswa-table-3", "fedswa-surfaces", "fedwindow-table-1", "fedwindow-figure-3", "fedwindow-figure-4"),
]
LARGE = ("ima-table-1", "ima-figure-6", "fedswa-table-3")
"""Those of many runs."""


@pytest.mark.parametrize("name", PRINTED)
def test_every_table_and_figure_of_the_papers_is_made_by_a_reproduction_that_is_there_or_named(name: str) -> None:
    if name not in names():
        with pytest.raises(ValueError, match=f"is made by {made_by(name)}$"):
            load(name)
        assert made_by(name) in names()


def test_every_reproduction_is_of_something_that_is_printed() -> None:
    assert set(names()) <= set(PRINTED)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full) if name in LARGE else name for name in names()]
)
def test_a_reproduction_parses_at_every_scale_into_runs_that_its_tables_and_figures_take(name: str) -> None:
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
            wheres = [look.where for look in figure.looks.values()] or [figure.where | a | b for a in lines for b in xs]
            used |= {run.name for where in wheres for run in results.asked(where)}
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
    for scale in found.scales:
        sweep = found.plan(scale)
        legs = {leg.runs[0]: leg for leg in plan(sweep.runs).legs if len(leg.runs) == 1}
        for look in (look for figure in found.figures(scale) for look in figure.looks.values()):
            for run in sweep.runs:
                if look.where.takes(run.labels):
                    last = run.experiment.rounds
                    assert look.rounds(last) <= {*run.experiment.checkpoint.keep, last}
                    assert min(look.rounds(last), default=last) >= legs[run.name].first, f"{scale}: {run.name}"


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
            assert broadcast is not None and isinstance(schedule, Mild)
            assert broadcast.start - 1 == schedule.start == 0.75 * run.experiment.rounds
        else:
            assert broadcast is None or broadcast.start == 1_000_000


def test_a_file_in_the_wheel_is_there_for_every_base() -> None:
    for name in names():
        base = load(name).content["base"]
        assert not isinstance(base, str) or (FOLDER / base).is_file()


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
        ({"tables": [{"rows": "method", "columns": "seed"}] * 2}, "tables: two are called test: give each a name"),
        ({"figures": [{"kind": "curves", "lines": "method"}] * 2}, "figures: two are called test: give each a name"),
        ({"figures": [{"kind": "cake"}]}, "there is no kind cake"),
        ({"figures": [{"kind": "plane", "models": ["model"]}]}, "with these settings it is a surface"),
        ({"figures": [{"kind": "values", "lines": "method"}]}, "x is missing"),
        ({"figures": [{"kind": "curves"}]}, "lines is missing"),
        (
            {"figures": [{"kind": "curves", "lines": {"A": {"statistic": "speed_up"}}}]},
            'figures[0]: statistic = "speed_up": only tables have speed-ups, a figure has rounds_to_target',
        ),
        ({"scales": {"huge": {}}}, "there is no scale huge"),
        ({"scales": {"tiny": {"onyl": {}}}}, "unknown key onyl"),
        ({"scales": {"tiny": {"values": {"sead": [0]}}}}, "scales.tiny: there is no axis sead; did you mean seed?"),
        ({"scales": {"tiny": {"figures": {"x": {}}}}}, "there is no figure x"),
        ({"axes": {"seed": 3, "method": {"A": {}}}}, "axes.seed = 3: must be a list of values"),
    ],
)
def test_a_wrong_reproduction_is_refused_in_one_line(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        reproduction(**wrong)
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "made",
    [
        {"figures": [{"kind": "curves", "lines": "method", "by": "trips"}]},
        {"figures": [{"kind": "values", "lines": "seed", "x": "method", "where": {"statistic": "trips_to_target"}}]},
        {"tables": [{"rows": "method", "columns": "seed", "where": {"statistic": "trips_speed_up"}}]},
    ],
)
def test_trips_are_counted_on_networks_only(made: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^test counts client trips, and the run seed=0,A has no network$"):
        reproduction(**made).plan()
    base = {"base": DIGITS | {"network": {}}}
    assert reproduction(**base, **made).plan().runs


def test_a_change_that_no_experiment_takes_names_the_run() -> None:
    given = reproduction(changes=[{"where": {"method": "B"}, "set": {"local": {"lr": "fast"}}}])
    with pytest.raises(ConfigError, match=r"seed=0,B: local\.lr"):
        given.plan()


def test_what_the_paper_does_not_have_or_a_change_mends_need_be_no_experiment() -> None:
    """The base has no rate that an experiment takes: B is changed, and A is left out before it is looked at."""
    mended = {"where": {"method": "B"}, "set": {"local": {"lr": 0.5}}}
    axes = {"seed": [0, 1], "method": {"A": {}, "B": {}}}
    given = reproduction(base={"local": {"lr": "fast"}}, axes=axes, changes=[mended], without=[{"method": "A"}])
    rates = {run.name: run.experiment.local.lr for run in given.plan().runs}
    assert rates == {"seed=0,B": 0.5, "seed=1,B": 0.5}


def test_an_axis_that_is_called_like_a_picks_own_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="axes: no axis can be called model"):
        reproduction(axes={"model": {"a": {}}, "seed": [0]})


def test_settings_of_ones_own_win_over_the_reproductions() -> None:
    chosen = ["row=PACS #C=2", "method=FedAvg", "IMA=on"]
    (run,) = load("ima-table-1").plan("full", chosen, ["broadcast.start=100", "local.lr=0.1"]).runs
    assert run.experiment.broadcast.start == 100 and run.experiment.local.lr == 0.1


def test_another_data_set_takes_the_place_of_a_reproduction_with_all_its_keys() -> None:
    chosen = ["data=CIFAR-100", "alpha=Dir 0.1", "method=FedAvg"]
    for run in load("fedswa-table-3").plan("small", chosen, ['data={name="cifar10"}']).runs:
        assert run.experiment.data == CIFAR10()


def test_a_reproduction_may_be_in_a_file_of_ones_own(tmp_path: Path) -> None:
    given, file = reproduction(), tmp_path / "mine.toml"
    file.write_text(tomli_w.dumps(given.content))
    found = read(str(file))
    assert found.name == "mine" and [run.labels for run in found.plan().runs] == [r.labels for r in given.plan().runs]
    with pytest.raises(ConfigError, match=r"nowhere.toml: there is no such file"):
        read(str(tmp_path / "nowhere.toml"))
