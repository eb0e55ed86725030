"""Only plain files are read, and errors in writing name the file."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsash.lab.config import ConfigError, load
from fedsash.runs.records import Records
from fedsash.settings.errors import RunError
from fedsash.system.files import replace_file
from fedsash.system.paths import inside, naming, plain_file
from support.histories import history_of


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of more than 1,000 bytes can be written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_plain_file_and_a_link_to_one_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "file"
    link = tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    assert plain_file(file) == file and plain_file(str(link)) == link
    with pytest.raises(FileNotFoundError, match="nothing"):
        plain_file(tmp_path / "nothing")


def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a named pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(OSError, match=f"{path} is {kind}, and must be a file"):
            plain_file(path)


def test_pipes_in_a_run_and_in_place_of_an_experiment_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(OSError, match=r"metrics\.jsonl is a named pipe"):
        Records(tmp_path).load().rows()
    with pytest.raises(ConfigError, match=r"config\.toml: can't be read: .* is a named pipe, and must be a file"):
        load(tmp_path / "config.toml")


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "x\0", "a/.."])
def test_a_name_that_leads_out_of_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="which is not in this folder"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", ["x", "a/b", "...", ".hidden", "a..b"])
def test_a_name_in_a_folder_is_a_path_there(name: str, tmp_path: Path) -> None:
    assert inside(tmp_path, name) == tmp_path / name


def test_an_error_in_writing_names_the_file(tmp_path: Path, small_files: None) -> None:
    for write in (
        lambda: replace_file(tmp_path / "page", b"x" * 2000),
        lambda: Records(tmp_path).append(history_of([LONG])),
    ):
        with pytest.raises(OSError, match=r"File too large: '.*(page|metrics\.jsonl)'"):
            write()
    assert not (tmp_path / "page").exists() and not list(tmp_path.glob(".*.tmp"))


def test_other_errors_keep_their_words(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"^12 rows are too many$"), naming(tmp_path):
        raise OSError("12 rows are too many")
    with pytest.raises(FileNotFoundError, match="elsewhere"), naming(tmp_path):
        (tmp_path / "elsewhere").read_bytes()


LONG = {"round": 1, "model": "model", "split": "test", "accuracy": 0.5, "loss": 1.0, "text": "x" * 2000}
