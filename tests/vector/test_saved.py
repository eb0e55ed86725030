"""Saved states on the disk: what a power cut may not take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from fedsash.vector.saved import place, save, saved_rounds


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The files and folders, by number, of which the system has said that they are on the disk."""
    inodes = set[int]()
    fsync_of_system = os.fsync

    def fsync(handle: int) -> None:
        fsync_of_system(handle)
        inodes.add(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    return inodes


def test_a_state_is_removed_only_when_the_one_after_it_is_on_the_disk(tmp_path: Path, synced: set[int]) -> None:
    for round in range(1, 6):
        parts = {f"past-{round}.safetensors": {"w": torch.ones(3)}}
        save(tmp_path, round, {"w": torch.ones(3)}, parts, {"format": 1})
        if round == 1:
            assert saved_rounds(tmp_path) == [1]
            continue
        assert saved_rounds(tmp_path) == [round - 1, round]
        before = place(tmp_path, round - 1)
        assert {path.stat().st_ino for path in (*before.iterdir(), before, tmp_path)} <= synced


def test_a_state_that_is_removed_while_it_is_brought_to_the_disk_ends_nothing(tmp_path: Path) -> None:
    for round in (1, 2):
        path = save(tmp_path, round, {"w": torch.ones(3)}, {}, {"format": 1})
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    assert saved_rounds(tmp_path) == []
