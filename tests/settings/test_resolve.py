"""Code of one's own by its place: what is found, what is refused before it is imported, where it is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsash.settings.errors import SettingError
from fedsash.settings.resolve import allowed_only, libraries_first, resolve, was_resolved


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of the test's own, and a path without it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))])
    return tmp_path


def test_what_is_not_allowed_is_refused_before_it_is_imported(here: Path) -> None:
    (here / "resolve_one.py").write_text("open('ran', 'w')\ndef f(): pass\ndef g(): pass\n")
    for allowed in (False, ["resolve_one:g"]):
        with allowed_only(allowed), pytest.raises(SettingError, match=r"'resolve_one:f': names code .* --own-code"):
            resolve("resolve_one:f")
    assert not (here / "ran").exists() and str(here) not in sys.path
    with allowed_only(["resolve_one:f"]):
        resolve("resolve_one:f")
    assert (here / "ran").exists()


def test_the_name_of_a_file_is_not_that_of_its_module(here: Path) -> None:
    (here / "resolve_file.py").write_text("def f(): pass\n")
    with pytest.raises(SettingError, match=r"'resolve_file\.py:f': must be 'resolve_file:f'"):
        resolve("resolve_file.py:f")


def test_what_was_allowed_once_stays_allowed_in_this_process(here: Path) -> None:
    (here / "resolve_two.py").write_text("def f(): pass\ndef g(): pass\n")
    found = resolve("resolve_two:f")
    with allowed_only(False):
        assert resolve("resolve_two:f") is found
        with pytest.raises(SettingError):
            resolve("resolve_two:g")
    assert was_resolved("resolve_two:f") and not was_resolved("resolve_two:g")


@pytest.mark.parametrize("place", ["os:system", "subprocess:run", "builtins:exec", "os.path:join", "pty:spawn"])
def test_the_standard_library_is_refused(place: str) -> None:
    with pytest.raises(SettingError, match="is of Python's standard library"):
        resolve(place)


@pytest.mark.parametrize(
    "path",
    ["os.system", "os", "system", "run", "Popen", "call", "number", "hypot", "part", "Inner.os", "Inner.os.system"],
)
def test_only_classes_and_functions_of_modules_of_ones_own_are_found(path: str, here: Path) -> None:
    (here / "resolve_three.py").write_text(
        "import os\nfrom functools import partial\nfrom os import system\nfrom subprocess import Popen, run\n"
        "from subprocess import run as call\nfrom numpy import hypot\nnumber = 3\npart = partial(run, ['true'])\n"
        "class Inner:\n    import os\n    def f(self): pass\n"
    )
    assert resolve("resolve_three:Inner.f").__name__ == "f"
    with pytest.raises(SettingError, match=r"must be defined in that module|must be a class or a function"):
        resolve(f"resolve_three:{path}")


def test_the_working_directory_comes_last_and_only_when_it_is_needed(here: Path) -> None:
    assert str(here) not in sys.path
    (here / "safetensors.py").write_text("raise SystemExit(3)\n")
    (here / "resolve_four.py").write_text("def f(): pass\n")
    resolve("resolve_four:f")
    assert sys.path[-1] == str(here)
    sys.modules.pop("safetensors", None)
    import safetensors

    assert Path(str(safetensors.__file__)).parent != here
    resolve("resolve_four:f")
    assert sys.path.count(str(here)) == 1


def test_a_process_started_with_libraries_first_looks_for_nothing_in_the_working_directory(here: Path) -> None:
    (here / "random.py").write_text("raise SystemExit(3)\n")
    command = [sys.executable, "-c", "import random"]
    assert subprocess.run(command).returncode == 3
    with libraries_first():
        assert subprocess.run(command).returncode == 0
    assert "PYTHONSAFEPATH" not in os.environ
