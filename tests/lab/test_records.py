from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsash.evaluation import Evaluation, Metrics
from fedsash.lab.files import replace_file, write_json
from fedsash.lab.records import Records, TensorBoard, accuracies, chosen, diverged, summarise

no_deadline = settings(deadline=None, max_examples=30)
shares = st.floats(0, 1)


def row(round: int, accuracy: float | None, model: str = "model", split: str = "test") -> dict[str, Any]:
    return {"round": round, "model": model, "split": split, "accuracy": accuracy, "loss": 1.0}


def refused(round: int) -> dict[str, Any]:
    return {"round": round, "model": "model", "split": "guard", "refused": [3, 8], "skipped": ""}


def strictly(line: str | bytes) -> Any:
    """What a JSON parser makes of it that knows no NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(line, parse_constant=refuse)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    records = Records(tmp_path / "new" / "run")
    assert records.load() == []
    metrics = Metrics(
        round=1,
        model="fenêtre",
        split="test",
        accuracy=0.1 + 0.2,
        loss=2e-17,
        more={"classes": [0.5, None], "domains": {"photo": 1.0}},
    )
    records.append([metrics.row(), refused(1)])
    records.append([row(2, 0.5)])
    assert records.load() == [metrics.row(), refused(1), row(2, 0.5)]


def test_appending_nothing_still_makes_the_file(tmp_path: Path) -> None:
    Records(tmp_path).append([])
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    rows = [row(1, math.nan), row(2, math.inf), row(3, 0.5) | {"classes": [math.nan, 1.0], "domains": {"a": -math.inf}}]
    records = Records(tmp_path)
    records.append(rows)
    lines = [strictly(line) for line in records.path.read_bytes().splitlines()]
    assert [line["accuracy"] for line in lines] == [None, None, 0.5]
    assert lines[2]["classes"] == [None, 1.0] and lines[2]["domains"] == {"a": None}
    assert records.load() == lines


def test_numpy_values_become_plain_ones(tmp_path: Path) -> None:
    values = {"a": np.float32("nan"), "b": np.int64(3), "c": np.array([1.0, np.inf]), "d": (np.float64(0.5), True)}
    write_json(tmp_path / "x.json", values)
    assert strictly((tmp_path / "x.json").read_text()) == {"a": None, "b": 3, "c": [1.0, None], "d": [0.5, True]}


@no_deadline
@given(data=st.data())
def test_whatever_was_half_written_leaves_the_lines_before_it(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = Records(tmp_path_factory.mktemp("run"))
    rows = [row(1, 0.25), refused(2), row(3, None)]
    records.append(rows)
    content = records.path.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    records.path.write_bytes(content[:length])
    whole = content[:length].count(b"\n")
    assert records.load() == rows[:whole]
    records.cut(100)
    records.append([row(4, 0.5)])
    assert records.load() == [*rows[:whole], row(4, 0.5)]


@no_deadline
@given(rounds=st.lists(st.integers(0, 9)), last=st.integers(-1, 10))
def test_cut_drops_what_came_after_a_round_and_nothing_else(
    rounds: list[int], last: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = Records(tmp_path_factory.mktemp("run"))
    records.append([row(round, 0.1) for round in rounds])
    before = records.path.read_bytes().splitlines(keepends=True)
    records.cut(last)
    assert records.path.read_bytes().splitlines(keepends=True) == [
        line for line, round in zip(before, rounds, strict=True) if round <= last
    ]
    assert names(records.path.parent) == ["files.json", "metrics.jsonl"]


@pytest.mark.parametrize("line", ["{", "[1]", "3", "\xff", "[" * 5000])
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.append([row(1, 0.5)])
    records.path.write_bytes(records.path.read_bytes() + line.encode("latin-1") + b"\n")
    for read in (records.load, lambda: records.cut(1)):
        with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: must be a JSON object"):
            read()


def test_a_killed_process_leaves_at_most_one_half_line(tmp_path: Path) -> None:
    code = (
        "import sys; from fedsash.lab.records import Records\n"
        "records, n = Records(sys.argv[1]), 0\n"
        "while True:\n"
        "    n += 1; records.append([dict(round=n, model='m', split='s', part=i, text='x' * 500) for i in range(40)])\n"
        "    n == 20 and print('going', flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, env=os.environ)
    assert process.stdout is not None and process.stdout.readline() == b"going\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    rows = Records(tmp_path).load()
    assert len(rows) >= 800
    assert [(r["round"], r["part"]) for r in rows] == [(1 + i // 40, i % 40) for i in range(len(rows))]


def test_writing_fails_with_the_old_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"rounds": 1})
    with pytest.raises(TypeError):
        write_json(path, {"rounds": object()})
    with pytest.raises(TypeError):
        replace_file(path, "no bytes")  # type: ignore[arg-type]
    assert json.loads(path.read_text()) == {"rounds": 1}
    assert names(tmp_path) == ["summary.json"]


def test_what_an_earlier_crash_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".summary.json.tmp").write_text('{"rou')
    write_json(tmp_path / "summary.json", {"rounds": 2})
    assert names(tmp_path) == ["summary.json"]


def test_the_summary_by_hand() -> None:
    history = [row(10, 0.2), row(10, 0.3, "w"), refused(11), row(20, 0.6), row(20, 0.8, "w")]
    history += [row(30, 0.4), row(30, 0.8, "w"), row(30, 0.99, "w", split="clients")]
    summary = summarise(history, Evaluation(last=2, target=0.8))
    assert list(summary) == ["model", "w"]
    model, window = summary["model"], summary["w"]
    assert model["accuracy"] == 0.4 and window["accuracy"] == 0.8
    assert model["last_mean"] == pytest.approx(0.5) and window["last_mean"] == pytest.approx(0.8)
    assert model["last_std"] == pytest.approx(0.1) and window["last_std"] == 0  # population: half the distance
    assert model["best"] == {"round": 20, "accuracy": 0.6} and window["best"] == {"round": 20, "accuracy": 0.8}
    assert model["rounds_to_target"] is None and window["rounds_to_target"] == 20
    assert model["gain"] == 0 and window["gain"] == pytest.approx(0.3)


@no_deadline
@given(values=st.lists(shares, min_size=1, max_size=30), last=st.integers(1, 40), target=st.floats(0.01, 1))
def test_the_summary_is_what_numpy_says(values: list[float], last: int, target: float) -> None:
    history = [row(5 * i, value) for i, value in enumerate(values)]
    summary = summarise(history, Evaluation(last=last, target=target))["model"]
    assert summary["last_mean"] == pytest.approx(np.mean(values[-last:]), abs=1e-12)
    assert summary["last_std"] == pytest.approx(np.std(values[-last:]), abs=1e-7)
    assert summary["best"] == {"round": 5 * int(np.argmax(values)), "accuracy": max(values)}
    reached = np.flatnonzero(np.array(values) >= target)
    assert summary["rounds_to_target"] == (5 * reached[0] if len(reached) else None)


@no_deadline
@given(values=st.lists(st.one_of(shares, st.just(math.nan)), max_size=12), order=st.randoms())
def test_the_file_and_the_memory_give_the_same_summary_in_any_order(
    values: list[float], order: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = [row(i, value, model) for i, value in enumerate(values) for model in ("model", "w")]
    records = Records(tmp_path_factory.mktemp("run"))
    records.append(history)
    expected = summarise(history, Evaluation(last=3))
    assert summarise(records.load(), Evaluation(last=3)) == expected
    order.shuffle(history)
    assert summarise(history, Evaluation(last=3)) == expected


def test_nan_leaves_undefined_only_what_it_touches() -> None:
    history = [row(1, 0.9), row(2, math.nan), row(3, 0.5), row(1, 0.5, "w"), row(2, 0.5, "w"), row(3, None, "w")]
    summary = summarise(history, Evaluation(last=2))
    model, window = summary["model"], summary["w"]
    assert (model["accuracy"], model["last_mean"], model["last_std"]) == (0.5, None, None)
    assert (model["best"], model["rounds_to_target"]) == ({"round": 1, "accuracy": 0.9}, 1)
    assert (window["accuracy"], window["gain"], model["gain"]) == (None, None, None)
    only = summarise([row(1, math.nan)], Evaluation())["model"]
    assert only["best"] is None and only["rounds_to_target"] is None


def test_without_a_test_set_there_is_nothing_to_sum_up() -> None:
    assert summarise([], Evaluation()) == {}
    assert summarise([refused(1), row(1, 0.5, split="clients")], Evaluation()) == {}
    alone = summarise([row(1, 0.5, "w")], Evaluation())
    assert alone["w"]["gain"] is None, "there is no model to compare with"


def test_a_round_evaluated_twice_counts_once() -> None:
    assert accuracies([row(2, 0.1), row(1, 0.2), row(2, 0.3)]) == {"model": {1: 0.2, 2: 0.3}}


def tensorboard_points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(e.step, round(e.value, 6)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_gets_every_number_and_a_resumed_run_replaces_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")

    def train(rounds: range, accuracy: float) -> None:
        board = TensorBoard(tmp_path)
        for t in rounds:
            more = {"classes": [0.1, 0.2]}
            same = {"round": t, "accuracy": accuracy, "loss": 2.0}
            board(t, [Metrics(model=name, split="test", more=more, **same) for name in ("model", "w")])
            board(t, [Metrics(model="w", split="clients", more={"worst_tenth": 0.125}, **same)])
        board.close()

    train(range(1, 5), 0.25)
    train(range(3, 6), 0.5)
    points = tensorboard_points(tmp_path / "w")
    assert set(points) == {"test/accuracy", "test/loss", "clients/accuracy", "clients/loss", "clients/worst_tenth"}
    assert points["test/accuracy"] == [(1, 0.25), (2, 0.25), (3, 0.5), (4, 0.5), (5, 0.5)]
    assert points["clients/worst_tenth"] == [(t, 0.125) for t in range(1, 6)]
    assert set(tensorboard_points(tmp_path / "model")) == {"test/accuracy", "test/loss"}


def test_without_tensorboard_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['tensorboard'] = None\n"
        "from fedsash.lab.records import TensorBoard\n"
        "try: TensorBoard(sys.argv[1])\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and "pip install 'tensorboard'" in done.stdout


def skipped(round: int, why: str = "overflow") -> dict[str, Any]:
    return {"round": round, "model": "model", "split": "guard", "refused": [], "skipped": why}


def test_a_run_has_diverged_if_it_ends_in_rounds_without_a_usable_update() -> None:
    history = [skipped(3), row(5, 0.5), skipped(7, "first"), skipped(8), skipped(9), row(9, 0.1)]
    assert diverged(history, 9) == {"round": 7, "why": "first"}
    assert diverged(history, 10) is None
    assert diverged([*history, refused(10)], 10) is None
    assert diverged([], 5) is None
    assert diverged([skipped(1), skipped(2)], 2) == {"round": 1, "why": "overflow"}


def test_the_chosen_model_is_the_best_in_the_mean_of_the_last_evaluations_on_held_out_data() -> None:
    accuracies = {"model": (0.9, 0.2, 0.6), "w": (0.1, 0.5, 0.5), "new": (None, None, 0.45)}
    history = [
        row(10 * (i + 1), accuracy, name, split="held_out")
        for name, values in accuracies.items()
        for i, accuracy in enumerate(values)
        if accuracy is not None
    ]
    assert chosen(history, Evaluation(last=2)) == "w"
    assert chosen(history, Evaluation(last=3)) == "model"
    assert chosen([row(1, 0.5)], Evaluation()) is None
