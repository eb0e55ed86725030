"""What `make dist` has built: what is in it, and that the wheel runs by itself.

The wheel is installed into an empty environment outside this checkout. The libraries that fedsash needs are those of
the environment in which the tests run, so nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.metadata import Metadata

from fedsash.lab.papers import names
from support.places import ROOT
from support.release import PROJECT

pytestmark = pytest.mark.dist
NAME = f"fedsash-{PROJECT['version']}"
WHEEL = ROOT / "dist" / f"{NAME}-py3-none-any.whl"
SOURCE = ROOT / "dist" / f"{NAME}.tar.gz"
OWN = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.*") if path.suffix != ".pyc"}


def call(*command: str | Path, folder: Path) -> str:
    """What a command prints in `folder`, where nothing leads to this checkout."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment into which only the wheel is installed."""
    home = tmp_path_factory.mktemp("empty")
    venv.create(home / "env", with_pip=False, symlinks=True)
    python = home / "env" / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", WHEEL)
    call(sys.executable, "-m", "pip", "--python", python, *install, folder=home)
    where = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=home).strip()
    (Path(where) / "needed.pth").write_text("\n".join(place for place in sys.path if place.endswith("-packages")))
    return python.parent


def test_only_these_two_files_are_built() -> None:
    assert sorted((ROOT / "dist").iterdir()) == [WHEEL, SOURCE]


def test_the_wheel_has_the_package_and_nothing_else() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        held = set(wheel.namelist())
    about = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert held == OWN | {f"{NAME}.dist-info/{name}" for name in about}


def test_the_source_distribution_has_what_the_wheel_is_built_from() -> None:
    with tarfile.open(SOURCE) as source:
        held = {member.name.removeprefix(f"{NAME}/") for member in source.getmembers() if member.isfile()}
    beside = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert held == {f"src/{name}" for name in OWN} | beside


def test_the_metadata_are_valid() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        text = wheel.read(f"{NAME}.dist-info/METADATA")
    assert str(Metadata.from_email(text, validate=True).version) == PROJECT["version"]
    headers: Message = HeaderParser().parsestr(text.decode())
    assert headers["License-Expression"] == "Apache-2.0" and headers["Requires-Python"] == PROJECT["requires-python"]


def test_the_installed_wheel_trains_and_reports(commands: Path, tmp_path: Path) -> None:
    fedsash = commands / "fedsash"
    assert call(fedsash, "--version", folder=tmp_path).strip() == f"fedsash {PROJECT['version']}"
    call(fedsash, "init", folder=tmp_path)
    call(fedsash, "run", "experiment.toml", "--rounds", "3", folder=tmp_path)
    call(fedsash, "report", "runs/experiment", "--out", "page.html", folder=tmp_path)
    assert json.loads((tmp_path / "runs/experiment/summary.json").read_text())["rounds"] == 3
    assert "Plotly" in (tmp_path / "page.html").read_text()


def test_the_installed_wheel_is_what_is_run(commands: Path, tmp_path: Path) -> None:
    where = call(commands / "python", "-c", "import fedsash; print(fedsash.__file__)", folder=tmp_path)
    assert Path(where).is_relative_to(commands.parent)


def test_the_installed_wheel_lists_the_reproductions(commands: Path, tmp_path: Path) -> None:
    listed = call(commands / "fedsash", "list", "reproductions", folder=tmp_path)
    assert [name for name in names() if name not in listed] == []
