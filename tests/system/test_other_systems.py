"""What macOS and Windows lack is taken away on Linux: each branch for them runs, though not on their systems."""

from __future__ import annotations

import getpass
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsash.engines.processes import pick_device, signals_wait
from fedsash.engines.workers import can_fork
from fedsash.lab.sweeps import job
from fedsash.system import lock, machine, posix
from fedsash.system.host import Disk, host, sync_folder
from fedsash.system.paths import clear_beside
from fedsash.vector import randomness, storage
from fedsash.vector.saved import _to_disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")


def no_file(*_: Any, **__: Any) -> str:
    raise FileNotFoundError


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_workers_are_forked_on_linux_only(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert not can_fork()


def test_auto_takes_apples_gpu_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("auto") == torch.device("mps")


def test_the_generator_of_apples_gpu_is_among_those_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    state = torch.ones(4, dtype=torch.uint8)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state)
    assert randomness.torch_states()[-1] is state


def test_the_free_memory_of_apples_gpu_is_what_is_recommended_less_what_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 1000)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 300)
    assert storage.free(torch.device("mps")) == 700


def test_without_masks_of_signals_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    monkeypatch.delattr(signal, "pthread_sigmask")
    with signals_wait():
        monkeypatch.undo()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_without_poll_a_job_of_a_sweep_does_not_watch_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "poll")
    monkeypatch.setattr(job.Messages, "stream", None)
    job._stop_unheard()


def test_without_affinity_a_job_has_as_many_threads_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    job._keep_to([0, 1, 2])
    assert counts == [3]


def test_without_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert machine.cores() == [0, 1, 2]


def test_space_that_can_not_be_reserved_is_mapped_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    rows = storage.mapped(2, torch.zeros(3), tmp_path, reserve=True)
    assert torch.equal(rows, torch.zeros(2, 3))


def test_windows_syncs_files_that_can_be_written_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    modes: list[int] = []

    class Noting(Disk):
        def open(self, path: Path, flags: int, permissions: int = 0o666) -> int:
            modes.append(flags)
            return super().open(path, flags, permissions)

    monkeypatch.setattr(host, "disk", Noting())
    monkeypatch.setattr(os, "name", "nt")
    _to_disk(tmp_path)
    sync_folder(tmp_path)
    monkeypatch.undo()
    assert modes == [os.O_RDWR]


def test_windows_keeps_what_killed_processes_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f".file.{2**31}.tmp"
    left.touch()
    monkeypatch.setattr(os, "name", "nt")
    clear_beside(tmp_path / "file")
    monkeypatch.undo()
    assert left.exists()
    clear_beside(tmp_path / "file")
    assert not left.exists()


def test_a_lock_whose_file_can_not_be_removed_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "unlink", refused)
    with lock.locked(tmp_path):
        pass
    assert (tmp_path / lock.NAME).exists()
    lock.check_free(tmp_path)


def test_without_names_and_numbers_of_users_somebody_holds_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", no_file)
    monkeypatch.delattr(os, "getuid")
    assert lock._user() == "somebody"


def test_without_resource_peak_memory_is_not_told_and_models_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", no_file)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert posix.peak_memory() is None
    with pytest.raises(OSError, match="keep models in memory"):
        posix.allow_open_files(10, "models on the disk need")


def test_macos_tells_peak_memory_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", no_file)
    kibibytes = posix.peak_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    in_bytes = posix.peak_memory()
    assert kibibytes is not None and in_bytes is not None
    assert kibibytes // 1024 == pytest.approx(in_bytes, rel=0.05)


def test_without_proc_half_of_the_memory_counts_as_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert storage._available() == posix.half_of_memory()
    monkeypatch.delattr(os, "sysconf")
    assert storage._available() == posix.UNKNOWN_MEMORY


def test_without_fork_nothing_is_called_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "register_at_fork")
    monkeypatch.setattr(posix, "after_fork", [])
    posix.after_fork_in_child(no_file)
