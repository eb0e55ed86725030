"""The permit of a run's folder: it holds for this folder, this working directory, this user and these names only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedsash.runs import own_code
from fedsash.settings.resolve import resolve
from fedsash.system import files

PLACE = "support.experiments:linear"
CONFIG = {"model": {"name": PLACE, "options": ["x:y", {"deep": PLACE}]}, "method": {"name": "never.resolved:Mine"}}


def write(folder: Path, config: Mapping[str, Any] = CONFIG) -> None:
    """Write the permit, if there is one."""
    for name, content in own_code.permit(folder, config).items():
        files.replace_file(folder / name, content)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder for such things."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fedsash"


@pytest.fixture
def run(state: Path, tmp_path: Path) -> Path:
    """A folder with a permit."""
    resolve(PLACE)
    (tmp_path / "run").mkdir()
    write(tmp_path / "run")
    return tmp_path / "run"


def test_it_allows_the_code_that_the_config_names_and_this_process_has_used(run: Path) -> None:
    assert own_code.of(run) == [PLACE]
    assert own_code.of(Path(os.path.relpath(run))) == [PLACE]


def test_a_copied_a_moved_or_a_changed_folder_has_none(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    assert own_code.of(tmp_path / "copy") == []
    file = run / "own_code.json"
    file.write_text(file.read_text().replace(PLACE, "os:system"))
    assert own_code.of(run) == []
    run.rename(tmp_path / "moved")
    assert own_code.of(tmp_path / "moved") == own_code.of(run) == []


def test_it_holds_in_the_working_directory_in_which_it_was_given(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert own_code.of(run) == []


def test_it_is_worth_nothing_with_another_key_or_none(run: Path, state: Path) -> None:
    key = state / "key"
    secret = key.read_bytes()
    assert len(secret) == 32 and key.stat().st_mode & 0o777 == 0o600
    assert secret.hex() not in (run / "own_code.json").read_text()
    for other in (b"", b"0" * 32, secret + b"0"):
        key.write_bytes(other)
        assert own_code.of(run) == []
    key.unlink()
    assert own_code.of(run) == [] and not key.exists(), "asking makes no key"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no such modes")
def test_a_key_that_others_can_read_counts_for_nothing(run: Path, state: Path, tmp_path: Path) -> None:
    (state / "key").chmod(0o640)
    assert own_code.of(run) == []
    write(tmp_path)
    assert not (tmp_path / "own_code.json").exists()


@pytest.mark.parametrize(
    "content", ["", "[]", "3", "{}", '{"places": 3, "signature": ""}', "[" * 100_000, '{"places": []}']
)
def test_a_damaged_permit_is_none(content: str, run: Path) -> None:
    (run / "own_code.json").write_text(content)
    assert own_code.of(run) == []


def test_a_pipe_in_its_place_is_none(run: Path) -> None:
    (run / "own_code.json").unlink()
    os.mkfifo(run / "own_code.json")
    assert own_code.of(run) == []


def test_without_code_of_ones_own_there_is_neither_a_permit_nor_a_key(state: Path, tmp_path: Path) -> None:
    write(tmp_path, {"model": {"name": "mlp"}, "method": {"name": "never.resolved:Mine"}})
    assert not (tmp_path / "own_code.json").exists() and not state.exists()


def test_a_key_that_can_not_be_written_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(PLACE)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    write(tmp_path)
    assert own_code.of(tmp_path) == [] and not (tmp_path / "own_code.json").exists()


def test_a_power_cut_leaves_a_whole_key_or_none(synced: list[Path], run: Path, state: Path) -> None:
    """It has its name once its bytes are on the disk: half a key would be nobody's for ever."""
    assert [path.parent for path in synced if path.name.startswith(".key.")] == [state]


def test_all_permits_have_one_key(run: Path, tmp_path: Path, state: Path) -> None:
    secret = (state / "key").read_bytes()
    write(tmp_path)
    assert own_code.of(tmp_path) == own_code.of(run) == [PLACE]
    assert (state / "key").read_bytes() == secret and [path.name for path in state.iterdir()] == ["key"]
    assert json.loads((run / "own_code.json").read_text())["places"] == [PLACE]


def test_code_that_has_changed_since_is_named(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(run)
    assert not caplog.messages
    file = run / "own_code.json"
    found = json.loads(file.read_text())
    (module,) = found["code"]
    file.write_text(json.dumps(found | {"code": {module: 1}}))
    write(run)
    assert caplog.messages == [f"{module} has changed since rounds of this run were trained with it"]
    assert module.endswith("experiments.py") and own_code.of(run) == [PLACE]
