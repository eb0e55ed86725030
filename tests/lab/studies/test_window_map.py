"""`fedsash map`: every window between two sums, with the numbers that a run which observed it has recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedsash.averages.sum_files import place
from fedsash.lab.cli import main
from fedsash.lab.studies.opened import open_run
from fedsash.lab.studies.window_map import MapStudy, best_at_the_end, grid_of
from fedsash.runs.records import Records
from fedsash.runs.running_sums import FOLDER
from support.histories import ACCURACY
from support.studies import ENGINE, refused

SIZES = (2, 4, 6)
EXPERIMENT = f"""
rounds = 6
[partition]
name = "iid"
clients = 6
[local]
batch = 50
[sampling]
count = 3
[evaluation]
every = 1
[trajectory]
every = 2
{ENGINE}""" + "".join(f'[averages.w{size}]\nname = "window"\nsize = {size}\n' for size in SIZES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    assert main(["run", str(folder / "experiment.toml"), "--out", str(folder / "a"), "--no-progress"]) == 0
    return folder / "a"


def test_every_window_has_the_value_that_the_run_recorded_when_it_ended(run: Path) -> None:
    ticks: list[tuple[int, int]] = []
    found = MapStudy().measure([open_run(run)], lambda *tick: ticks.append(tick))
    recorded = {
        (row["model"], row["round"]): row["accuracy"] for row in Records(run).load().rows() if row["split"] == "test"
    }
    assert found["ends"] == [2, 4, 6] and found["sizes"] == [[2], [2, 4], [2, 4, 6]]
    for end, sizes, values in zip(found["ends"], found["sizes"], found["value"], strict=True):
        assert values == [recorded[f"w{size}", end] for size in sizes]
    assert found["model"] == [recorded["model", end] for end in found["ends"]]
    assert ticks == [(1, 6), (3, 6), (6, 6)]


def test_every_takes_the_sums_of_its_multiples_only(run: Path) -> None:
    found = MapStudy(every=4).measure([open_run(run)])
    assert found["ends"] == [4] and found["sizes"] == [[4]]
    assert [panel.name for panel in MapStudy.picture(found).panels] == ["by the end"], "one window is no map"


def test_the_command_writes_draws_and_tells_the_best_window_of_each_end(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["map", str(run)]) == 0
    out = capsys.readouterr().out
    found: dict[str, Any] = json.loads((run / "analyses" / "map.json").read_text())
    assert found["command"] == f"fedsash map {run}"
    assert {path.name for path in (run / "analyses").glob("map*")} == {"map.json", "map.png", "map.pdf"}
    for end, sizes, values in zip(found["ends"], found["sizes"], found["value"], strict=True):
        (line,) = [line.split() for line in out.splitlines() if line.split()[:1] == [str(end)]]
        best = max(values)
        assert line[1:4] == [str(len(sizes)), str(sizes[values.index(best)]), f"{100 * best:.2f}"]


def test_the_grid_has_a_gap_where_there_is_no_window() -> None:
    found = {"sizes": [[1], [1, 3]], "value": [[0.25], [0.5, 0.75]], "metric": vars(ACCURACY)}
    assert grid_of(found) == ([1, 3], [[25, 50], [None, 75]]) and best_at_the_end(found) == 3
    assert best_at_the_end(found | {"value": [[0.25], [None, None]]}) == 1


def test_what_can_not_be_had_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--every = 7: the sums are of the rounds 2 to 6" in refused(capsys, "map", run, "--every", 7)
    assert "--every = 0: must be at least 1" in refused(capsys, "map", run, "--every", 0)
    copy = Path(shutil.copytree(run, tmp_path / "a"))
    place(copy / FOLDER, 4).write_bytes(b"x")
    assert f"{place(copy / FOLDER, 4)} is missing or damaged" in refused(capsys, "map", copy)
