"""A run's records: what is written comes back, and what is no row is refused."""

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

from fedsash.evaluation import Problems, Score
from fedsash.runs.records import Records
from fedsash.settings.errors import RunError
from fedsash.system.files import replace_file
from support.by_default import rotated
from support.json_files import content_of, write_json

no_deadline = settings(deadline=None, max_examples=30)


def score(round: int, accuracy: float, model: str = "model", split: str = "test", **more: Any) -> Score:
    return Score(round=round, model=model, split=split, values={"accuracy": accuracy}, loss=1.0, more=more)


def refused(round: int) -> Problems:
    return Problems(round=round, refused=[3, 8])


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
    metrics = Score(
        round=1,
        model="fenêtre",
        split="test",
        loss=2e-17,
        values={"accuracy": 0.1 + 0.2, "f1": math.pi},
        more={"classes": [0.5, None], "domains": {"photo": 1.0}},
    )
    records.append([metrics, refused(1)])
    records.append([score(2, 0.5)])
    assert records.load() == [metrics, refused(1), score(2, 0.5)]


def test_appending_nothing_still_makes_the_file(tmp_path: Path) -> None:
    Records(tmp_path).append([])
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    more = {"classes": [math.nan, 1.0], "domains": {"a": -math.inf}}
    rows = [score(1, math.nan), score(2, math.inf), score(3, 0.5, **more)]
    records = Records(tmp_path)
    records.append(rows)
    lines = [strictly(line) for line in records.path.read_bytes().splitlines()]
    assert [line["accuracy"] for line in lines] == [None, None, 0.5]
    assert lines[2]["classes"] == [None, 1.0] and lines[2]["domains"] == {"a": None}
    assert [math.isnan(record["accuracy"]) for record in records.load().scores()] == [True, True, False]


def test_numpy_values_become_plain_ones(tmp_path: Path) -> None:
    values = {"a": np.float32("nan"), "b": np.int64(3), "c": np.array([1.0, np.inf]), "d": (np.float64(0.5), True)}
    write_json(tmp_path / "x.json", values)
    content = strictly((tmp_path / "x.json").read_text())
    del content["checksum"]
    assert content == {"a": None, "b": 3, "c": [1.0, None], "d": [0.5, True]}


@no_deadline
@given(data=st.data())
def test_whatever_was_half_written_leaves_the_lines_before_it(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = Records(tmp_path_factory.mktemp("run"))
    rows = [score(1, 0.25), refused(2), score(3, math.nan)]
    records.append(rows)
    content = records.path.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    records.path.write_bytes(content[:length])
    whole = content[:length].count(b"\n")
    assert records.load() == rows[:whole]
    records.cut(100)
    records.append([score(4, 0.5)])
    assert records.load() == [*rows[:whole], score(4, 0.5)]


@no_deadline
@given(rounds=st.lists(st.integers(0, 9)), last=st.integers(-1, 10))
def test_cut_drops_what_came_after_a_round_and_nothing_else(
    rounds: list[int], last: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = Records(tmp_path_factory.mktemp("run"))
    records.append([score(round, 0.1) for round in rounds])
    before = records.path.read_bytes().splitlines(keepends=True)
    records.cut(last)
    assert records.path.read_bytes().splitlines(keepends=True) == [
        line for line, round in zip(before, rounds, strict=True) if round <= last
    ]
    assert names(records.path.parent) == ["metrics.jsonl"]


@pytest.mark.parametrize("line", ["{", "[1]", "3", "\xff", "[" * 5000])
def test_a_damaged_line_is_named(line: str, tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.append([score(1, 0.5)])
    records.path.write_bytes(records.path.read_bytes() + line.encode("latin-1") + b"\n")
    for read in (records.load, lambda: records.cut(1)):
        with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: must be a JSON object"):
            read()


HOSTILE_ROWS = {
    "a text": ({"rmse": "0.5"}, "rmse = '0.5': must be a number, or null"),
    "a list": ({"f1": [0.5]}, "f1 = [0.5]: must be a number, or null"),
    "a table": ({"accuracy": {"a": 1}}, "accuracy = {'a': 1}: must be a number, or null"),
    "a truth": ({"accuracy": True}, "accuracy = True: must be a number, or null"),
    "infinite": ({"rmse": math.inf}, "rmse = inf: must be a number, or null"),
    "a text as loss": ({"loss": "small"}, "loss = 'small': must be a number, or null"),
    "a long name": ({"x" * 5000: ""}, "must be a number, or null"),
}


@pytest.mark.parametrize("name, split", rotated(HOSTILE_ROWS, ["test", "held_out", "clients"]))
def test_a_metric_that_is_no_number_is_named_in_one_short_line(name: str, split: str, tmp_path: Path) -> None:
    changes, words = HOSTILE_ROWS[name]
    lines = [json.dumps(line) + "\n" for line in (score(1, 0.5).row(), score(2, 0.5, split=split).row() | changes)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    with pytest.raises(RunError) as refused:
        Records(tmp_path).load()
    assert "metrics.jsonl, line 2: " in str(refused.value) and words in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000


@pytest.mark.full
def test_a_killed_process_leaves_at_most_one_half_line(tmp_path: Path) -> None:
    code = (
        "import sys; from fedsash.evaluation import Problems; from fedsash.runs.records import Records\n"
        "records, n = Records(sys.argv[1]), 0\n"
        "while True:\n"
        "    n += 1; records.append([Problems(round=n, refused=[i], skipped='x' * 500) for i in range(40)])\n"
        "    n == 20 and print('going', flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, env=os.environ)
    assert process.stdout is not None and process.stdout.readline() == b"going\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    history = Records(tmp_path).load()
    assert len(history) >= 800
    places = [(problems.round, problems.refused) for problems in history if isinstance(problems, Problems)]
    assert places == [(1 + i // 40, [i % 40]) for i in range(len(history))]


@pytest.mark.parametrize("problem", [{"refused": 3}, {"missing": {"Basel": "late"}}, {"missing": [1]}])
def test_a_row_that_is_no_record_is_named(problem: dict[str, Any], tmp_path: Path) -> None:
    line = json.dumps(refused(1).row() | problem)
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 1: must be a record of a run"):
        Records(tmp_path).load()


def test_writing_fails_with_the_old_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_json(path, {"rounds": 1})
    with pytest.raises(TypeError):
        write_json(path, {"rounds": object()})
    with pytest.raises(TypeError):
        replace_file(path, "no bytes")  # type: ignore[arg-type]
    assert content_of(path) == {"rounds": 1}
    assert names(tmp_path) == ["summary.json"]
