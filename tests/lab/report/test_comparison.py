"""`fedsash compare`: means over seeds, gains paired by seed, and their confidence intervals."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from fedsash.evaluation import Curves, Evaluation
from fedsash.lab.cli import main
from fedsash.lab.report.collect import collect
from fedsash.lab.report.comparison import (
    Choice,
    Row,
    by_decided,
    compare,
    compare_best,
    head,
    not_chosen,
    of_other_lengths,
    table,
)
from fedsash.lab.report.page.papers import of_settings
from fedsash.runs.pictures import Line
from fedsash.runs.summaries import GOAL, goal_content
from fedsash.settings.errors import RunError
from fedsash.tasks import Criterion
from fedsash.tasks.criterion import UNKNOWN
from support.histories import ACCURACY, RMSE, history
from support.json_files import write_json
from support.pages import written


@dataclass
class CollectedRun:
    name: str
    config: dict[str, Any]
    labels: dict[str, str]
    means: dict[str, float | None]
    curves: Curves = field(default_factory=lambda: Curves(ACCURACY, "test", {}))
    forked: int | None = None
    samples: str = ""
    clients: dict[str, Any] | None = None
    last_means: dict[str, dict[str, float | None]] = field(default_factory=dict)
    summary: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.summary = {"models": {name: {"last_mean": mean} for name, mean in self.means.items()}}


def run(seed: int, labels: dict[str, str], **means: float | None) -> CollectedRun:
    return CollectedRun(f"{labels}-{seed}", {"seed": seed}, labels | {"seed": str(seed)}, means)


def only(rows: list[Row], model: str, **labels: str) -> Row:
    (row,) = (row for row in rows if row.model == model and row.labels == labels)
    return row


shares = st.floats(0, 1)


@given(st.lists(st.tuples(shares, shares), min_size=2, max_size=6))
def test_gain_and_interval_are_those_of_student_s_paired_test(pairs: list[tuple[float, float]]) -> None:
    from scipy.stats import ttest_rel

    rows = compare([run(seed, {}, model=a, wima=b) for seed, (a, b) in enumerate(pairs)])
    row = next(row for row in rows if row.model == "wima")
    test = ttest_rel([b for _, b in pairs], [a for a, _ in pairs])
    low, high = test.confidence_interval(0.95)
    assert row.gain is not None and row.interval is not None
    np.testing.assert_allclose([row.gain], np.mean([b - a for a, b in pairs]), atol=1e-12)
    if np.isfinite([low, high]).all():
        np.testing.assert_allclose([row.gain - row.interval, row.gain + row.interval], [low, high], atol=1e-9)


def test_mean_and_the_sample_s_deviation() -> None:
    (row,) = compare([run(0, {}, model=0.2), run(1, {}, model=0.4)])
    assert row.mean == pytest.approx(0.3) and row.std == pytest.approx(0.2 / np.sqrt(2))
    assert row.gain is None, "a model gains nothing over itself"


def test_runs_from_python_whose_folders_do_not_say_their_seeds_are_not_taken_for_one_experiment() -> None:
    rows = compare([CollectedRun(name, {}, {}, {"model": mean}) for name, mean in (("sgd-0", 0.25), ("sgd-1", 0.5))])
    assert [(row.labels["run"], row.mean) for row in rows] == [("sgd-0", 0.25), ("sgd-1", 0.5)]


def test_a_single_seed_has_no_deviation_and_no_interval() -> None:
    rows = compare([run(0, {}, model=0.25, wima=0.75)])
    wima = only(rows, "wima", run="{}-0")
    assert (wima.mean, wima.std, wima.gain, wima.interval) == (0.75, None, 0.5, None)


def test_against_another_label_gains_are_over_the_model_there() -> None:
    off = [run(s, {"m": "a", "ima": "off"}, model=0.5, ima=0.75) for s in (0, 1)]
    on = [run(s, {"m": "a", "ima": "on"}, model=0.25, ima=1.0) for s in (0, 1)]
    rows = compare([*off, *on], "ima=off")
    gains = {(row.labels["ima"], row.model): row.gain for row in rows}
    assert gains == {("off", "model"): None, ("off", "ima"): 0.25, ("on", "model"): -0.25, ("on", "ima"): 0.5}


def test_against_takes_an_axis_as_it_stands_in_the_names_of_runs() -> None:
    runs = [run(0, {"local.lr": lr}, model=mean) for lr, mean in (("0.1", 0.5), ("0.2", 0.75))]
    assert only(compare(runs, "lr=0.1"), "model", **{"local.lr": "0.2"}).gain == 0.25
    with pytest.raises(RunError, match=r"--against lr=0\.3: must be one of local\.lr=0\.1, local\.lr=0\.2"):
        compare(runs, "lr=0.3")


def test_only_seeds_that_both_have_are_compared() -> None:
    off = [run(s, {"ima": "off"}, model=0.5) for s in (0, 1)]
    rows = compare([*off, run(1, {"ima": "on"}, model=0.75)], "ima=off")
    assert only(rows, "model", ima="on").gain == 0.25
    assert only(rows, "model", ima="on").interval is None


def test_a_gain_over_fewer_pairs_than_seeds_says_how_many() -> None:
    off = [run(s, {"ima": "off"}, model=0.5) for s in (0, 1)]
    rows = compare([*off, *(run(s, {"ima": "on"}, model=0.75) for s in (0, 1, 2))], "ima=off")
    on = only(rows, "model", ima="on")
    assert on.pairs == 2 and on.plain()["pairs"] == 2 and on.gain_text(2) == "+25.00 ± 0.00 (2 of 3)"
    assert only(rows, "model", ima="off").gain_text(2) == UNKNOWN


def test_the_order_of_the_axes_is_no_difference() -> None:
    old = run(0, {"sweep": "old", "lr": "1", "m": "a"}, model=0.5)
    new = run(0, {"sweep": "new", "m": "a", "lr": "1"}, model=0.75)
    assert only(compare([old, new], "sweep=old"), "model", sweep="new", m="a", lr="1").gain == 0.25


def test_seeds_that_are_options_of_ones_own_function_are_combined() -> None:
    def own(seed: object) -> CollectedRun:
        config = {"built_by": "a:b", "options": {"seed": seed}}
        return CollectedRun(f"run {seed}", config, {"options.seed": str(seed)}, {"model": 0.5})

    (row,) = compare([own(0), own(1), own(2)])
    assert len(row.values) == 3
    with pytest.raises(RunError, match=r"run x: options.seed = x: must be a whole number"):
        compare([own("x")])


def test_an_undefined_mean_makes_the_group_s_undefined() -> None:
    (row,) = compare([run(0, {}, model=0.5), run(1, {}, model=None)])
    assert row.mean is None and row.std is None and row.gain is None


def test_runs_of_no_sweep_are_grouped_by_what_they_are_but_for_seed_and_engine() -> None:
    same = {"local": {"lr": 0.1}, "averages": {"w": {"name": "window", "size": 2, "storage": "memory"}}}
    saved = {"checkpoint": {"every": 5}, "averages": {"w": {"name": "window", "size": 2, "storage": "disk"}}}
    runs = [
        CollectedRun("a", {**same, "seed": 0, "engine": {"workers": 1}}, {}, {"model": 0.25}),
        CollectedRun("b", {**same, "seed": 1, "engine": {"workers": 2}} | saved, {}, {"model": 0.75}),
        CollectedRun("c", {"local": {"lr": 0.2}, "seed": 0}, {}, {"model": 1.0}),
    ]
    rows = compare(runs, "run=a")
    assert only(rows, "model", run="a").mean == 0.5
    assert only(rows, "model", run="c").gain == 0.75


def test_a_run_of_no_sweep_is_not_called_after_a_run_of_one() -> None:
    in_sweep = CollectedRun("s/lr=0.1", {"seed": 0}, {"lr": "0.1"}, {"model": 0.5})
    alone = CollectedRun("a", {"seed": 0}, {}, {"model": 0.5})
    assert [row.labels for row in compare([in_sweep, alone], "run=a")] == [{"lr": "0.1"}, {"run": "a"}]


def test_a_group_of_runs_is_called_after_all_of_its_seeds() -> None:
    runs = [CollectedRun(f"seed={seed},lr=0.1", {"seed": seed}, {}, {"model": 0.5}) for seed in range(3)]
    assert [row.labels["run"] for row in compare(runs)] == ["seed=*,lr=0.1"]
    assert [row.labels["run"] for row in compare(runs[1:2])] == ["seed=1,lr=0.1"]
    runs = [CollectedRun(f"seed={seed}_lr=0.1", {"seed": seed}, {}, {"model": 0.5}) for seed in range(3)]
    assert [row.labels["run"] for row in compare(runs)] == ["seed=*_lr=0.1"]


def test_two_experiments_are_two_rows_though_their_runs_are_called_after_seeds_alone() -> None:
    """They differ in a setting, or, as runs of a sweep over seeds, in their data."""
    by_hand = []
    of_sweep = []
    for seed, rate, data in ((0, 0.1, "old"), (1, 0.1, "old"), (2, 0.01, "new"), (3, 0.01, "new")):
        name = f"seed={seed}"
        settings = {"seed": seed, "local": {"lr": rate}}
        by_hand.append(CollectedRun(name, settings, {}, {"model": rate}))
        of_sweep.append(CollectedRun(name, {"seed": seed}, {"seed": str(seed)}, {"model": rate}, samples=data))
    for runs in (by_hand, of_sweep):
        assert {row.labels["run"]: row.mean for row in compare(runs)} == {"seed=0": 0.1, "seed=2": 0.01}


def test_seeds_may_have_their_data_in_different_places() -> None:
    data = [{"name": "cifar10", "path": path} for path in ("data/cifar10", "/scratch/cifar10")]
    runs = [CollectedRun(f"r{i}", {"seed": i, "data": data[i]}, {}, {"model": i / 2}) for i in (0, 1)]
    assert only(compare(runs), "model", run="r0").values == {0: 0.0, 1: 0.5}


def test_runs_of_another_precision_and_forks_are_no_seeds_of_one_experiment() -> None:
    low = {"seed": 1, "engine": {"precision": "bfloat16", "workers": 1}}
    runs = [
        CollectedRun("a", {"seed": 0, "engine": {"workers": 1}}, {}, {"model": 0.25}),
        CollectedRun("b", {"seed": 1, "engine": {"precision": "full"}}, {}, {"model": 0.75}),
        CollectedRun("low", low, {}, {"model": 0.5}),
        CollectedRun("fork", {"seed": 0}, {}, {"model": 1.0}, forked=2),
        CollectedRun("other", {"seed": 1}, {}, {"model": 0.0}, forked=2),  # its source may have had other settings
    ]
    rows = compare(runs)
    assert {row.labels["run"]: row.mean for row in rows} == {"a": 0.5, "low": 0.5, "fork": 1.0, "other": 0.0}


def test_what_can_t_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="there is another run of this experiment with seed 0"):
        compare([run(0, {"m": "a"}, model=0.5), run(0, {"m": "a"}, model=0.5)])
    with pytest.raises(ValueError, match="--against m=b: must be one of m=a"):
        compare([run(0, {"m": "a"}, model=0.5)], "m=b")


def decided(run: CollectedRun, criterion: Criterion, split: str = "test") -> CollectedRun:
    run.curves = Curves(criterion, split, {})
    return run


def test_of_what_should_be_low_the_gain_is_how_much_it_falls() -> None:
    rows = compare([decided(run(s, {}, model=4.0 + s, wima=1.5), RMSE) for s in (0, 1)])
    row = next(row for row in rows if row.model == "wima")
    assert (row.gain, row.mean_text(2), row.gain_text(1)[:7]) == (3.0, "1.5 ± 0", "+3 ± 6.")


def test_targets_may_differ_among_runs_that_are_compared() -> None:
    runs = [decided(run(s, {}, model=0.5), Criterion(target=0.5 + s / 10)) for s in (0, 1)]
    assert compare(runs)[0].mean == 0.5


def test_numbers_of_different_metrics_or_splits_are_not_mixed() -> None:
    accuracy, rmse = run(0, {"m": "a"}, model=0.5), decided(run(1, {"m": "a"}, model=7.0), RMSE)
    with pytest.raises(RunError, match="rmse on the test set decides, and accuracy on the test set in runs that"):
        compare([accuracy, rmse])
    with pytest.raises(RunError, match=r"accuracy on held-out data decides, and accuracy on the test set .* no split"):
        compare([accuracy, decided(run(1, {"m": "a"}, model=0.5), ACCURACY, "held_out")])
    other = decided(run(0, {"m": "b"}, model=7.0), RMSE)
    with pytest.raises(RunError, match=r"^m=a: accuracy on the test set decides, and rmse on the test set in runs"):
        compare([accuracy, other], "m=a")
    tables = [table(rows) for rows in by_decided(compare([accuracy, other]))]
    columns = [{str(column.header): list(column.cells) for column in one.columns} for one in tables]
    assert [column["mean ± std"] for column in columns] == [["50.00 %"], ["7"]]


def test_the_split_that_is_advised_is_one_that_all_runs_have() -> None:
    runs = [run(0, {"m": "a"}, model=0.5), decided(run(0, {"m": "b"}, model=0.5), ACCURACY, "held_out")]
    for one in runs:
        one.summary["over_clients"] = {"held_out": {}}
    with pytest.raises(RunError, match=r"compare all on one: --of held_out/client_mean$"):
        compare(runs, "m=a")


def tuned(seed: int, lr: str, test: float, held_out: float, **labels: str) -> CollectedRun:
    """A run whose window is worse on held-out data at the rates at which the model is good."""
    one = run(seed, {"local.lr": lr, **labels}, model=test, window=test + 0.125)
    one.last_means = {"test": {}, "held_out": {"model": held_out, "window": 1 - held_out}}
    return one


def test_the_best_rate_is_that_of_the_held_out_data_for_each_model_and_the_test_set_says_what_it_comes_to() -> None:
    """At the rate 0.1 the test set is better, which must not be seen."""
    runs = [tuned(seed, "0.1", 0.75, 0.25) for seed in (0, 1)] + [tuned(seed, "1", 0.5, 0.5) for seed in (0, 1)]
    model, window = compare_best(runs, "lr", "held_out")
    assert (model.labels, model.mean, model.gain) == ({"local.lr": "1"}, 0.5, None)
    assert (window.labels, window.mean, window.gain, window.pairs) == ({"local.lr": "0.1"}, 0.875, 0.375, 2)
    assert model.choice == Choice("local.lr", "held_out", 0.5)
    assert model.plain()["chosen_on"] == "held_out" and model.plain()["chosen_mean"] == 0.5


def test_a_rate_with_fewer_seeds_is_not_chosen_and_named() -> None:
    runs = [tuned(seed, "0.1", 0.75, 0.25) for seed in (0, 1)] + [tuned(0, "1", 0.5, 0.5)]
    rows = compare_best(runs, "lr", "held_out")
    assert [row.labels["local.lr"] for row in rows] == ["0.1", "0.1"]
    assert list(not_chosen(rows)) == ["local.lr=1 has fewer seeds than others, and is not chosen"]


def test_a_table_says_over_how_many_evaluations_its_own_runs_are_means() -> None:
    runs = [run(0, {"m": "a"}, model=0.5), decided(run(0, {"m": "b"}, model=0.5), RMSE, "test")]
    for one, averaged in zip(runs, (2, 4), strict=True):
        one.summary["averaged"] = averaged
    heads = [head(rows, runs) for rows in by_decided(compare(runs))]
    assert heads == [
        "accuracy on the test set, mean over the last 2 evaluations",
        "rmse on the test set, mean over the last 4 evaluations",
    ]


def test_each_method_has_its_own_best_rate_and_gains_are_over_the_other_at_its_best() -> None:
    runs = []
    for method, rates in {"a": {"0.1": 0.75, "1": 0.25}, "b": {"0.1": 0.25, "1": 0.5}}.items():
        runs += [tuned(0, lr, value / 2, value, m=method) for lr, value in rates.items()]
    rows = compare_best(runs, "local.lr", "held_out", "m=a")
    best = {row.labels["m"]: (row.labels["local.lr"], row.gain) for row in rows if row.model == "model"}
    assert best == {"a": ("0.1", None), "b": ("1", -0.125)}


def test_runs_of_no_sweep_are_tuned_over_a_setting_in_which_alone_they_differ() -> None:
    runs = []
    for name, lr, held_out in (("a", 0.1, 0.25), ("b", 0.2, 0.5)):
        config = {"local": {"lr": lr}, "server": {"lr": 1.0}}
        one = CollectedRun(name, config, {}, {"model": held_out / 2}, last_means={"held_out": {"model": held_out}})
        runs.append(one)
    (row,) = compare_best(runs, "lr", "held_out")
    assert row.labels == {"run": "a", "local.lr": "0.2"} and row.mean == 0.25


@pytest.mark.parametrize(
    ("key", "by", "words"),
    [
        ("lr", "test", "the test set is not for choosing"),
        ("lr", "clients", r"--by clients: must be another split than that of the results: held_out"),
        ("rate", "held_out", "--best-over rate: must be one of local.lr"),
        ("seed", "held_out", "--best-over seed: must be one of local.lr"),
    ],
)
def test_what_can_t_choose_is_refused(key: str, by: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compare_best([tuned(0, "0.1", 0.5, 0.5), tuned(0, "1", 0.5, 0.5)], key, by)


def sweep(
    out: Path,
    values: list[tuple[float, float]],
    failed: dict[str, str] | None = None,
    criterion: Criterion = ACCURACY,
) -> None:
    """A sweep's folder with a run for each seed: the criterion of its model and of its window."""
    index: dict[str, Any] = {"title": "t", "axes": {"seed": ["0"]}, "runs": {}, "failed": failed or {}}
    for seed, (model, wima) in enumerate(values):
        folder = out / "runs" / f"seed={seed}"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(tomli_w.dumps({"seed": seed, "rounds": 1}))
        rows = history({"model": [model], "wima": [wima]}, every=1, metric=criterion.name)
        write_json(folder / GOAL, goal_content(criterion, Evaluation()))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        index["runs"][folder.name] = {"seed": str(seed)}
    (out / "sweep.json").write_text(json.dumps(index))


def test_the_command_prints_every_model_and_names_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, [(0.5, 0.625), (0.25, 0.5)], {"seed=7": "no data"})
    assert main(["compare", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "56.25 ± 8.84 %" in printed.out and "+18.75 ±" in printed.out
    assert "seed=7 failed: no data" in printed.err


def test_runs_that_are_not_finished_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(tmp_path, [(0.5, 0.625), (0.25, 0.5)])
    (tmp_path / "runs" / "seed=1" / "config.toml").write_text("rounds = 5\nseed = 1\n")
    write_json(tmp_path / "runs" / "seed=0" / "summary.json", {"rounds": 1, "metric": {}, "models": {}, "averaged": 0})
    assert main(["compare", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    line, left = printed.err.splitlines()
    assert line.startswith("fedsash: run seed=1: not finished: running, or interrupted, after round 1 of 5")
    assert left == "fedsash: left out, since others are finished: seed=1" and "56.25" not in printed.out


def test_stuck_runs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(tmp_path, [(0.5, 0.625)])
    since = {"round": 1, "why": "every upload was not finite"}
    ended = {"rounds": 1, "metric": {}, "models": {}, "averaged": 0, "stuck": since}
    write_json(tmp_path / "runs" / "seed=0" / "summary.json", ended)
    assert main(["compare", str(tmp_path)]) == 0
    assert "run seed=0: stuck since round 1: every upload was not finite" in capsys.readouterr().err


def test_the_command_says_which_metric_it_is_unless_it_is_the_usual_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path / "usual", [(0.5, 0.625)])
    sweep(tmp_path / "rmse", [(8.5, 6.25), (2.5, 1.25)], criterion=RMSE)
    assert main(["compare", str(tmp_path / "usual")]) == 0
    usual = capsys.readouterr().out
    assert usual.startswith("accuracy on the test set, mean over the last 1 evaluation\n") and "better" not in usual
    assert main(["compare", str(tmp_path / "rmse")]) == 0
    out = capsys.readouterr().out
    assert "rmse on the test set; lower is better" in out and "3.75 ± 3.536" in out and "+1.75 ± " in out
    assert "%" not in out.replace("95%", "")


def test_the_same_runs_of_two_sweeps_are_told_apart_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path / "old", [(0.5, 0.625), (0.25, 0.5)])
    sweep(tmp_path / "new", [(0.75, 0.75), (0.5, 0.5)])
    folders = [str(tmp_path / name) for name in ("old", "new")]
    assert main(["compare", *folders, "--against", "sweep=old"]) == 0
    (new,) = [line for line in capsys.readouterr().out.splitlines() if "new" in line and "model" in line]
    assert "62.50 ± 17.68 %" in new and "+25.00 ± 0.00" in new


def test_runs_of_several_sweeps_stand_under_their_own_axes() -> None:
    rows = compare([run(0, {"ima": "off"}, model=0.5), run(0, {"method": "FedAvg", "lr": "0.1"}, model=0.25)])
    columns = {str(column.header): list(column.cells) for column in table(rows).columns}
    assert columns["ima"] == ["off", "-"] and columns["lr"] == ["-", "0.1"] and columns["model"] == ["model"] * 2


def test_damaged_runs_are_named_also_where_nothing_is_left_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(tmp_path, [(0.5, 0.75)])
    (tmp_path / "runs" / "seed=0" / GOAL).write_text("{}")
    assert main(["compare", str(tmp_path), "--against", "seed=0"]) == 2
    assert "run seed=0 is left out" in capsys.readouterr().err


def test_scores_on_the_test_set_and_on_held_out_data_are_in_tables_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "a", {"model": [0.5]})
    written(tmp_path / "b", {"model": [0.75]}, split="held_out")
    assert main(["compare", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    test, held_out = out.index("accuracy on the test set, mean"), out.index("accuracy on held-out data, mean")
    assert test < out.index("50.00 %") < held_out < out.index("75.00 %")


def test_two_runs_are_drawn_into_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, last in (("a", 0.5), ("b", 0.75)):
        written(tmp_path / name, {"model": [0.25, last], "ema": [0.25, last]}, f"rounds = 2\nnote = '{name}'\n")
    picture = tmp_path / "both.svg"
    assert main(["compare", str(tmp_path), "--picture", str(picture)]) == 0
    assert f"picture: {picture}" in capsys.readouterr().out
    assert picture.exists()
    drawn = of_settings(collect([tmp_path]).runs)
    assert drawn is not None
    (panel,) = drawn.panels
    assert [layer.name for layer in panel.layers if isinstance(layer, Line)] == [
        "a: ema", "a: model", "b: ema", "b: model",
    ]  # fmt: skip


def test_the_picture_has_the_means_over_seeds_and_a_panel_for_each_split(tmp_path: Path) -> None:
    for seed, last in ((0, 0.5), (1, 0.75)):
        written(tmp_path / f"s{seed}", {"model": [0.25, last]}, f"seed = {seed}\n")
    written(tmp_path / "other", {"model": [0.5]}, split="held_out")
    drawn = of_settings(collect([tmp_path]).runs)
    assert drawn is not None
    other, seeds = drawn.panels
    assert (other.name, seeds.name) == ("other: Accuracy on held-out data", "s0: Accuracy on the test set")
    (mean,) = (layer for layer in seeds.layers if isinstance(layer, Line))
    assert list(mean.y) == [25, 62.5]


def test_a_picture_that_can_t_be_drawn_is_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more, words in (
        (["--picture", "x.txt"], "must be a file that ends in .png"),
        (["--picture", str(tmp_path / "x.png"), "--of", "test/each"], "can't be given with --of"),
        (["--by", "held_out"], "needs --best-over KEY"),
    ):
        assert main(["compare", str(tmp_path), *more]) == 2
        assert words in capsys.readouterr().err


def test_runs_of_different_lengths_are_named() -> None:
    def lengths(**rounds: int) -> list[str]:
        runs = [SimpleNamespace(name=name, rounds=count) for name, count in rounds.items()]
        return list(of_other_lengths(cast(Any, runs)))

    assert lengths(a=60, b=15) == ["runs have different numbers of rounds, up to 60: b 15"]
    assert lengths(a=60, b=60) == lengths() == []
