"""The workflows in .github: they say that they have never run, name what exists, and give away no rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.places import ROOT

yaml = pytest.importorskip("yaml")
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _read(file: Path) -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(file.read_text())
    return table


def _steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in _read(file)["jobs"].values() for step in job["steps"]]


def test_both_are_there() -> None:
    assert [file.name for file in FILES] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_rights_are_given_job_by_job_and_actions_are_named_by_their_commit(file: Path) -> None:
    table = _read(file)
    assert table["permissions"] == {}
    assert all("permissions" in job and "timeout-minutes" in job for job in table["jobs"].values())
    used = [step["uses"] for step in _steps(file) if "uses" in step]
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)
    assert "secrets." not in file.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_targets_of_make_that_it_runs_exist(file: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [step["run"] for step in _steps(file) if step.get("run", "").startswith("make ")]
    assert {name for line in lines for name in line.split()[1:]} <= targets


def test_a_release_passes_the_test_index_first() -> None:
    jobs = _read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "test-index": "build",
        "try": "test-index",
        "index": "try",
    }
    assert {name for name, job in jobs.items() if "id-token" in job["permissions"]} == {"test-index", "index"}


def test_the_page_on_releases_names_both_and_the_environments() -> None:
    page = (ROOT / "RELEASE.md").read_text()
    assert all(f"`{name}`" in page for name in ("release.yml", "pypi", "testpypi")) and "ci.yml" in page
