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
from importlib import metadata
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

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
    beside.add("hatch_build.py")
    assert held == {f"src/{name}" for name in OWN} | beside


def test_the_metadata_are_valid() -> None:
    with zipfile.ZipFile(WHEEL) as wheel:
        text = wheel.read(f"{NAME}.dist-info/METADATA")
    assert str(Metadata.from_email(text, validate=True).version) == PROJECT["version"]
    headers: Message = HeaderParser().parsestr(text.decode())
    assert headers["License-Expression"] == "Apache-2.0" and headers["Requires-Python"] == PROJECT["requires-python"]


def test_an_index_takes_both_files_and_their_readme() -> None:
    pytest.importorskip("twine", reason="twine is not installed; the workflow of a release has it")
    call(sys.executable, "-m", "twine", "check", "--strict", WHEEL, SOURCE, folder=ROOT)


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


def closure(names: list[str]) -> set[str]:
    """The distributions of these names, and all that they need here, without extras."""
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return needed


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python in an environment with the wheel and the five libraries that the core needs, and what these need."""
    home = tmp_path_factory.mktemp("core")
    venv.create(home / "env", with_pip=False, symlinks=True)
    python = home / "env" / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", WHEEL)
    call(sys.executable, "-m", "pip", "--python", python, *install, folder=home)
    where = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=home).strip())
    for name in closure([Requirement(text).name for text in PROJECT["dependencies"]]):
        distribution = metadata.distribution(name)
        for first in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            place = where / first
            if not place.exists():
                place.symlink_to(Path(str(distribution.locate_file(first))))
    return python


CORE = """
import torch
import fedsash as fs

torch.manual_seed(0)
x = torch.randn(90, 4)
y = (x[:, 0] > 0).long()
clients = [list(range(30)), list(range(30, 60)), list(range(60, 90))]
data = fs.FederatedData.from_arrays(x, y, clients, test=(x, y))
model = torch.nn.Linear(4, 2)
federation = fs.Federation(model, data, averages={"window": fs.Window(2)})
result = fs.run(federation, 2, out="run")
result = fs.resume(federation, 3, "run")
print(result.summary["rounds"], sorted(result.vectors()))

tracker = fs.Tracker({"ema": fs.EMA(0.9)}, model)
tracker.update()
with tracker.applied("ema"):
    print("applied", model(x).shape[0])
for name in ("load", "open_run"):
    try:
        getattr(fs, name)
    except fs.errors.LibraryError as error:
        print(error)
try:
    result.plot().save("curves.png")
except fs.errors.LibraryError as error:
    print(error)
"""


def test_the_core_trains_saves_resumes_and_tracks_with_five_libraries(core: Path, tmp_path: Path) -> None:
    assert len(PROJECT["dependencies"]) == 5
    lines = call(core, "-c", CORE, folder=tmp_path).splitlines()
    assert "3 ['model', 'window']" in lines and "applied 90" in lines
    assert any(line.startswith("round 3/3") for line in lines)
    assert 'matplotlib is needed for pictures: pip install "fedsash[lab]"' in "\n".join(lines)
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"summary.json", "metrics.jsonl", "state", "models"}
    assert not (tmp_path / "run" / "curves.png").exists()


def test_the_command_says_in_one_line_what_the_core_lacks(core: Path, tmp_path: Path) -> None:
    fedsash = core.parent / "fedsash"
    assert call(fedsash, "--version", folder=tmp_path).strip() == f"fedsash {PROJECT['version']}"
    done = subprocess.run([fedsash, "list"], cwd=tmp_path, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith("fedsash: commands need") and line.endswith('pip install "fedsash[lab]"')
