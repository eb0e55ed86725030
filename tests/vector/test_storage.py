"""How much memory and disk there is: limits of groups of processes, and files that saved states share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedsash.vector import storage


def limited(group: Path, limit: str, used: int, cached: int = 0) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nactive_file 2\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of groups; this process is in `job/step`."""
    monkeypatch.setattr(storage, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(storage, "GROUPS", tmp_path / "own")
    (tmp_path / "own").write_text("1:cpu:/else\n0::/job/step\n")
    return tmp_path / "cgroup"


def test_the_smallest_limit_of_a_process_and_the_groups_above_it_counts(groups: Path) -> None:
    plenty = storage.free(torch.device("cpu"))
    limited(groups, "max", 5)
    limited(groups / "job" / "step", "3000", 1000)
    assert storage.free(torch.device("cpu")) == 2000 < plenty
    limited(groups / "job", "2500", 1000)
    assert storage.free(torch.device("cpu")) == 1500


def test_files_that_the_system_can_drop_are_no_memory_in_use(groups: Path) -> None:
    limited(groups, "8000", 7900, cached=7000)
    assert storage.free(torch.device("cpu")) == 7100


def test_files_with_several_names_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(bytes(4000))
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    usage = storage.shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: usage)
    storage.check_room(4, torch.zeros(256), tmp_path, already=True)
    with pytest.raises(OSError, match="has only 4,100 free"):
        storage.check_room(5, torch.zeros(256), tmp_path, already=True)
