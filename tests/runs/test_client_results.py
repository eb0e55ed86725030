"""A run whose clients score its models: what its folder, its summary and its tables say of each of them."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from fedsash import Evaluation, Fork, Window
from fedsash.evaluation import FineTuning
from fedsash.lab.cli import main
from fedsash.lab.report.collect import collect
from fedsash.lab.report.comparison import compare
from fedsash.lab.report.page import document
from fedsash.runs import Result, terminal
from fedsash.runs.client_results import CLIENTS, counted
from fedsash.runs.folder import RunFolder
from fedsash.runs.pictures import Bars
from fedsash.runs.pictures.clients import clients as picture_of
from fedsash.runs.table import tables
from fedsash.server.federation import Federation
from fedsash.settings.errors import RunError, SettingError
from fedsash.tasks import Criterion
from support.histories import history_of
from support.observing import final, go_on, rows, start
from support.worlds import data, federation

TESTED = [[0, 3, 4, 13], [5, 14, 15], [], [6, 7, 8, 9, 10], [11, 12, 17], [1, 2, 18, 19]]
EVALUATION = Evaluation(every=2, last=2, client_test=True, fine_tuning=FineTuning(epochs=2))
SPLITS = ["client_test", "client_test_tuned"]


def world(**settings: Any) -> Federation:
    given = replace(data(), client_test=TESTED)
    return federation(**{"data": given, "evaluation": EVALUATION, "averages": {"w3": Window(3)}} | settings)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    found: Result = start(world(), 6, tmp_path_factory.mktemp("whole") / "a")
    return found


def folder_of(result: Result) -> Path:
    assert result.folder is not None
    return result.folder


def test_the_folder_has_the_last_result_of_each_client(result: Result) -> None:
    found = json.loads((folder_of(result) / CLIENTS).read_text())
    assert found["round"] == 6 and list(found["splits"]) == SPLITS
    with world() as again:
        for m in again.evaluate(result.state):
            if m.each is not None:
                each = found["splits"][m.split][m.model]
                assert each == [None if math.isnan(value) else value for value in m.each] and each[2] is None
    assert (folder_of(result) / "clients.png").exists()


def test_a_fork_that_trains_no_round_has_the_clients_results_of_its_source(result: Result, tmp_path: Path) -> None:
    """As the runs of a sweep that differ in their averages only."""
    fork = Fork(folder_of(result), 6, names={"mine": "w3"})
    start(world(averages={"mine": Window(3)}), 6, tmp_path, fork=fork)
    theirs, ours = (json.loads((folder / CLIENTS).read_text()) for folder in (folder_of(result), tmp_path))
    assert ours["round"] == 6 and ours["splits"]["client_test"]["mine"] == theirs["splits"]["client_test"]["w3"]
    assert set(ours["splits"]["client_test"]) == {"model", "mine"}
    rows = compare(collect([tmp_path]).runs, of="client_test/each")
    assert [row.labels["client"] for row in rows if row.model == "mine"] == [*"012345"]


def test_a_fork_that_was_killed_as_it_began_begins_again(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had saved its source's state and its clients' results."""

    def killed(*arguments: object) -> None:
        raise SystemExit

    fork = Fork(folder_of(result), 6)
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(RunFolder, "write_beginning", killed)
        start(world(), 6, tmp_path, fork=fork)
    assert (tmp_path / CLIENTS).exists()
    assert start(world(), 6, tmp_path, fork=fork).state.round == 6


def test_a_fork_that_names_no_average_is_refused(result: Result, tmp_path: Path) -> None:
    for names, word in (({"mine": "w33"}, "w33"), ({"min": "w3"}, "min")):
        with pytest.raises(SettingError, match=f"^Fork.names = '{word}': must"):
            fork = Fork(folder_of(result), 6, names=names)
            start(world(averages={"mine": Window(3)}), 6, tmp_path / word, fork=fork)


def test_the_count_of_clients_says_for_which_model_more_are_left_out() -> None:
    some = {"scored": 3, "without_samples": 1, "undefined": 0}
    text = "3 clients (1 without samples left out)"
    assert counted({"model": some, "w3": some}) == text
    diverged = some | {"scored": 2, "undefined": 1}
    other = "2 clients (1 without samples and 1 where it is not defined left out)"
    assert counted({"model": diverged, "w3": some}) == f"model: {other}; w3: {text}"


def test_each_client_has_a_row_with_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("Basel", "Bern", "Chur", "Davos", "Enge", "Flims")
    for seed in range(2):
        given = replace(data(), client_test=TESTED, client_names=names)
        config = {"seed": seed, "rounds": 2, "evaluation": {"client_test": True}}
        start(world(data=given, seed=seed), 2, tmp_path / f"{seed}", config=config)
    content = [json.loads((tmp_path / f"{seed}" / CLIENTS).read_text()) for seed in range(2)]
    assert content[0]["clients"] == [*names]
    found = compare(collect([tmp_path / "0", tmp_path / "1"]).runs, of="client_test/each")
    by_client = {(row.labels["client"], row.model): row for row in found}
    for i, name in enumerate(names):
        for model in ("model", "w3"):
            each = [of["splits"]["client_test"][model][i] for of in content]
            assert [*by_client[name, model].values.values()] == each
    assert main(["compare", str(tmp_path / "0"), "--of", "client_test/each"]) == 0
    assert "Davos" in capsys.readouterr().out
    assert "Davos" in document(collect([tmp_path / "0"]), "")


def test_the_summary_has_the_means_over_the_last_evaluations(result: Result) -> None:
    found = result.summary["over_clients"]
    assert list(found) == SPLITS
    for split, models in found.items():
        for model, of in models.items():
            own = [r for r in rows(folder_of(result)) if (r["split"], r["model"]) == (split, model)][-2:]
            for name in ("client_mean", "worst_tenth", "client_std", "worst_client"):
                assert of[name] == pytest.approx(fmean(r[name] for r in own))
            assert (of["scored"], of["without_samples"], of["undefined"]) == (5, 1, 0)


def test_a_number_that_is_undefined_or_missing_in_an_evaluation_has_no_mean() -> None:
    row: dict[str, Any] = {
        "split": "client_test",
        "model": "model",
        "client_mean": 0.5,
        "worst_tenth": 0.25,
        "round": 1,
    }
    values = [row | {"client_std": math.nan}, row | {"client_std": 0.5, "worst_tenth": None, "round": 2}]
    [of] = history_of([*values, row | {"split": "else"}]).over_clients(5)["client_test"].values()
    assert (of["client_mean"], of["worst_tenth"], of["client_std"], of["worst_client"]) == (0.5, None, None, None)


def test_a_model_that_begins_among_the_last_evaluations_has_no_means() -> None:
    row: dict[str, Any] = {"split": "client_test", "model": "model", "client_mean": 0.5, "round": 1}
    rows = [row, row | {"round": 2}, row | {"round": 2, "model": "late"}]
    assert [of["client_mean"] for of in history_of(rows).over_clients(2)["client_test"].values()] == [0.5, None]
    assert [of["client_mean"] for of in history_of(rows).over_clients(1)["client_test"].values()] == [0.5, 0.5]


@pytest.mark.parametrize("values", [[None, None, 0.5], [None, None, None]])
def test_a_client_for_which_the_model_has_no_result_keeps_its_other_bars(values: list[float | None]) -> None:
    content = {"round": 3, "clients": [0, 1, 2], "splits": {"test": {"model": values, "w": [0.1, 0.9, 0.4]}}}
    (panel,) = picture_of(content, Criterion()).panels
    (bars,) = panel.layers
    assert isinstance(bars, Bars) and bars.heights[1] == [10, 90, 40] and len(bars.heights[0]) == 3
    assert panel.name.endswith(", after round 3")


def test_a_stopped_run_goes_on_to_the_same_bytes_of_all_results(result: Result, tmp_path: Path) -> None:
    start(world(), 6, tmp_path / "b", until=3, every=1)
    go_on(world(), 6, tmp_path / "b")
    expected = final(folder_of(result))
    assert {name: content for name, content in final(tmp_path / "b").items()} == expected
    assert (tmp_path / "b" / CLIENTS).read_bytes() == (folder_of(result) / CLIENTS).read_bytes()


def test_a_run_without_such_splits_writes_no_such_file(tmp_path: Path) -> None:
    found = start(world(evaluation=Evaluation(every=2)), 2, tmp_path / "a")
    assert not (tmp_path / "a" / CLIENTS).exists() and found.summary["over_clients"] == {}
    assert len(tables(found.summary)) == 1


def test_the_terminals_table_says_it_for_every_model(result: Result) -> None:
    file = io.StringIO()
    for one in tables(result.summary)[1:]:
        terminal.console(file=file, width=80).print(one)
    text = file.getvalue()
    of = result.summary["over_clients"]["client_test"]
    gain = 100 * (of["w3"]["worst_tenth"] - of["model"]["worst_tenth"])
    [line] = [line for line in text.splitlines() if line.startswith("w3 ")][:1]
    assert f"{100 * of['w3']['worst_tenth']:.1f}" in line and f"{gain:+.1f}" in line
    assert "the clients' own test samples, after fine-tuning" in " ".join(text.split())
    assert "1 without samples left out" in " ".join(text.split())


def test_the_page_shows_each_client(result: Result) -> None:
    text = document(collect([folder_of(result)]), "")
    assert "Each client&#x27;s own results" in text and "Accuracy of each client" in text


def test_a_damaged_file_is_named(result: Result, tmp_path: Path) -> None:
    found = start(world(), 2, tmp_path / "a")
    assert found.folder is not None
    (found.folder / CLIENTS).write_text("{}")
    with pytest.raises(RunError, match=r"clients\.json is damaged"):
        collect([found.folder])


def test_seeds_are_compared_by_any_number_over_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        config = {"seed": seed, "evaluation": {"every": 2, "last": 2, "client_test": True}}
        start(world(seed=seed), 4, tmp_path / f"{seed}", config=config)
    found = collect([tmp_path / f"{seed}" for seed in range(3)]).runs
    rows = {row.model: row for row in compare(found, of="client_test_tuned/worst_tenth")}
    for i, run in enumerate(found):
        own = run.summary["over_clients"]["client_test_tuned"]["w3"]["worst_tenth"]
        assert rows["w3"].values[i] == own
    gains = [rows["w3"].values[i] - rows["model"].values[i] for i in range(3)]  # type: ignore[operator]
    assert rows["w3"].gain == pytest.approx(np.mean(gains))
    spread = {row.model: row for row in compare(found, of="client_test/client_std")}
    assert spread["w3"].decided.criterion.better == "lower"
    assert main(["compare", *(str(run.folder) for run in found), "--of", "client_test/worst_tenth"]) == 0
    assert "accuracy (worst tenth) on the clients' own test samples" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(RunError, match=r"--of test/mean: must be one of client_test/client_mean, "):
        compare(found, of="test/mean")


def test_an_experiment_file_deals_out_the_test_set_and_tunes(tmp_path: Path) -> None:
    from fedsash.lab.config import parse

    evaluation = {"client_test": True, "fine_tuning": {"steps": 3, "lr": 0.01}, "every": 1}
    table = {"partition": {"name": "shards", "clients": 20}, "evaluation": evaluation}
    experiment = parse(table)
    assert experiment.evaluation.fine_tuning == FineTuning(steps=3, lr=0.01)
    assert parse(experiment.table()) == experiment
    world = experiment.federated_data()
    assert world.test is not None and sum(map(len, world.client_test)) == len(world.test)


def test_clients_without_names_are_compared_by_seed(tmp_path: Path) -> None:
    for seed in range(2):
        config = {"seed": seed, "evaluation": {"every": 2, "last": 2, "client_test": True}}
        start(world(seed=seed), 2, tmp_path / f"{seed}", config=config)
    found = collect([tmp_path / "0", tmp_path / "1"]).runs
    rows = compare(found, of="client_test/each")
    assert {row.labels["seed"] for row in rows} == {"0", "1"} and all(len(row.values) == 1 for row in rows)
    named = [replace(run, clients=run.clients and run.clients | {"clients": list("abcdef")}) for run in found]
    rows = compare(named, of="client_test/each")
    assert {row.labels["client"] for row in rows} == set("abcdef")
    assert all(row.labels.keys() == {"run", "client"} and len(row.values) == 2 for row in rows)
