"""A vector in a file of its own: its bytes are those of a saved state, and only a whole one ever has a name."""

from __future__ import annotations

import os
import resource
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from safetensors.torch import save as saved_bytes
from torch import Tensor

from fedsash.vector.vector_files import VectorFile, allow, let_go
from support.limits import short_files
from support.trajectories import same_bits

ELSEWHERE = Path("/dev/shm")


def written(w: Tensor, folder: Path, pieces: int = 3) -> VectorFile:
    return VectorFile.write(torch.tensor_split(w, pieces), len(w), w.dtype, folder)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@given(d=st.integers(0, 40), pieces=st.integers(1, 5))
def test_its_bytes_are_those_that_safetensors_writes(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, d: int, pieces: int
) -> None:
    place = tmp_path_factory.mktemp("vector")
    w = torch.randn(d, dtype=torch.float64).to(dtype)
    file = written(w, place, pieces)
    checksum = file.save(place / "saved")
    found = (place / "saved").read_bytes()
    assert found == saved_bytes({"w": w}) and checksum == zlib.crc32(found) == file.settle()
    assert same_bits(file.vector(), w) and same_bits(VectorFile.of(place / "saved", d, dtype).vector(), w)


def test_it_has_no_name_until_it_is_saved_and_then_it_is_the_same_file(tmp_path: Path) -> None:
    file = written(torch.ones(9), tmp_path)
    assert not list(tmp_path.iterdir())
    for name in "ab":
        file.save(tmp_path / name)
    (tmp_path / "c").write_text("")
    assert (tmp_path / "a").samefile(tmp_path / "b")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"}
    assert modes == {tmp_path.stat().st_mode & 0o666}


def test_an_opened_file_may_lose_its_name_and_is_saved_again(tmp_path: Path) -> None:
    """Also where the operating system refuses a link to a file that has lost its last name."""
    w = torch.randn(9)
    written(w, tmp_path).save(tmp_path / "a")
    again = VectorFile.of(tmp_path / "a", 9, w.dtype)
    (tmp_path / "a").unlink()
    assert same_bits(again.vector(), w)
    assert again.save(tmp_path / "b") == zlib.crc32((tmp_path / "b").read_bytes())
    assert same_bits(load_file(tmp_path / "b")["w"], w)


@pytest.mark.skipif(not os.access(ELSEWHERE, os.W_OK), reason="the system has no second file system at /dev/shm")
def test_on_another_file_system_it_is_a_copy(tmp_path: Path) -> None:
    w = torch.randn(9)
    file = written(w, tmp_path)
    there = ELSEWHERE / f"fedsash-{os.getpid()}"
    try:
        file.save(there)
        assert there.read_bytes() == saved_bytes({"w": w})
    finally:
        there.unlink(missing_ok=True)


def test_without_nameless_files_it_has_no_name_either_and_is_saved_as_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)  # as on macOS
    w = torch.randn(9)
    file = written(w, tmp_path)
    assert not list(tmp_path.iterdir())
    file.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == saved_bytes({"w": w})


def test_whoever_changes_the_vector_changes_no_file(tmp_path: Path) -> None:
    file = written(torch.ones(9), tmp_path)
    file.vector().zero_()
    file.save(tmp_path / "saved")
    assert torch.equal(file.vector(), torch.ones(9)) and torch.equal(load_file(tmp_path / "saved")["w"], torch.ones(9))


def test_a_file_for_which_there_is_no_room_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    opened = len(os.listdir("/dev/fd"))
    with short_files(1000), pytest.raises(OSError, match="a past model can't be written: File too large") as error:
        written(torch.ones(1000), tmp_path)
    assert str(tmp_path) in str(error.value)
    assert not list(tmp_path.iterdir()) and len(os.listdir("/dev/fd")) == opened
    assert same_bits(written(torch.ones(1000), tmp_path).vector(), torch.ones(1000))


def test_a_forked_process_lets_go_of_the_files_and_the_first_one_keeps_them(tmp_path: Path) -> None:
    file = written(torch.ones(9), tmp_path)
    file.settle()
    before = len(os.listdir("/dev/fd"))
    child = os.fork()
    if not child:
        let_go()
        os._exit(0 if len(os.listdir("/dev/fd")) < before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(file.vector(), torch.ones(9))


def test_a_forked_process_waits_for_no_thread_of_the_first_one(tmp_path: Path) -> None:
    file = written(torch.ones(9), tmp_path)
    file.settle()
    file._settled = Future()  # as if the thread were still at work
    child = os.fork()
    if not child:
        os._exit(0 if file.save(tmp_path / "saved") == file.settle() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert same_bits(load_file(tmp_path / "saved")["w"], torch.ones(9))


def test_what_ends_in_the_middle_of_a_vector_leaves_no_open_file(tmp_path: Path) -> None:
    def chunks() -> Iterator[Tensor]:
        yield torch.ones(4)
        raise KeyboardInterrupt

    opened = len(os.listdir("/dev/fd"))
    with pytest.raises(KeyboardInterrupt):
        VectorFile.write(chunks(), 9, torch.float32, tmp_path)
    assert len(os.listdir("/dev/fd")) == opened


def test_a_file_that_can_not_be_opened_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="a past model can't be written: Too many open files") as error:
            written(torch.ones(9), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert error.value.filename == str(tmp_path)


def test_more_files_than_a_process_may_usually_have_open_are_allowed(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/dev/fd")) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        allow(100)
        files = [written(torch.ones(2), tmp_path) for _ in range(100)]
        assert len({file.settle() for file in files}) == 1
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
        with pytest.raises(OSError, match=rf"needs {hard + 513} open files, and this process may have {hard}"):
            allow(hard + 1)
    finally:
        del files
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
