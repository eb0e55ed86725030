"""A file of a run that holds something else is a note on the page, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedsash.lab.report.collect import CollectedRun, collect
from fedsash.lab.report.page.pictures import clients, partitions, sound
from support.pages import put, written

INTERVALS = [[0, "train", 0, 1]]
LINK: dict[str, Any] = {"intervals": INTERVALS, "until": 2, "carried": [], "window": []}


def time_lines(runs: Sequence[CollectedRun], notes: list[str]) -> None:
    assert not [run for run in runs if sound(run, notes)]


DAMAGED: dict[str, tuple[str, Any, Any]] = {
    "no model": ("clients.json", clients, {"round": 1, "clients": ["a"], "splits": {"client_test": {}}}),
    "fewer clients than values": (
        "clients.json",
        clients,
        {"round": 1, "clients": ["a"], "splits": {"client_test": {"model": [0.5, 0.5]}}},
    ),
    "a list": ("clients.json", clients, {"round": 1, "clients": 3, "splits": []}),
    "counts that add up to nothing": ("partition.json", partitions, {"classes": ["a", "b"], "counts": [[-1, 1]]}),
    "an endless window": ("timeline.json", time_lines, LINK | {"window": [[0, 1e999]]}),
}


NAMED = {"clients.json": "the clients' own results of r", "partition.json": "the partition of r"}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_a_note_that_names_it(case: str, tmp_path: Path) -> None:
    file, draw, content = DAMAGED[case]
    folder, notes = written(tmp_path / "r", {"model": [0.5]}), list[str]()
    put(folder, file, content)
    draw(collect([folder]).runs, notes)
    named = NAMED.get(file, str(folder / file))
    assert len(notes) == 1 and notes[0].startswith(f"left out: {named}: ") and "(" in notes[0]
