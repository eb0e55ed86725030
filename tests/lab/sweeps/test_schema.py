"""The JSON schema: it accepts what fedsash accepts, and refuses most of what fedsash refuses."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator
from torture.schema import keys

from fedsash.lab.cli import main
from fedsash.lab.config import parse
from fedsash.lab.config.template import template
from fedsash.lab.papers import reproductions
from fedsash.lab.sweeps.schema import schema, text
from fedsash.settings.errors import FedsashError
from support.places import ROOT
from support.settings_record import IN_FILES, put

FILE = ROOT / "src" / "fedsash" / "lab" / "sweeps" / "fedsash.schema.json"
VALIDATOR = Draft4Validator(schema())
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").rglob("*.toml"))
    if path.name not in ("pyproject.toml", "superlink.toml", "superlinks.toml")
]


def test_it_is_a_schema_of_draft_4() -> None:
    Draft4Validator.check_schema(schema())


def test_every_example_names_the_schema_for_editors() -> None:
    for path in EXAMPLES:
        first = path.read_text().partition("\n")[0]
        place = first.removeprefix("#:schema ")
        assert place.startswith(".") and (path.parent / place).resolve() == FILE, path


def test_all_examples_are_accepted() -> None:
    assert len(EXAMPLES) > 30
    for path in EXAMPLES:
        assert VALIDATOR.is_valid(tomllib.loads(path.read_text())), path


def test_a_new_file_has_the_line_for_editors_and_is_accepted() -> None:
    written = template("digits")
    assert written.startswith("#:schema ./fedsash.schema.json\n")
    assert VALIDATOR.is_valid(tomllib.loads(written))


@pytest.mark.full
def test_all_runs_of_the_papers_are_accepted() -> None:
    for reproduction in reproductions().values():
        for scale in ("full", *reproduction.scales):
            for run in reproduction.plan(scale).runs:
                table = json.loads(json.dumps(run.experiment.table()))
                assert VALIDATOR.is_valid(table), (reproduction.name, run.name)


def tried() -> list[tuple[dict[str, Any], bool]]:
    """A table for each key and each odd value, and whether fedsash takes it."""
    found = []
    for key in keys():
        for value in IN_FILES.values():
            table: dict[str, Any] = {}
            for place, needed in {**key.needs, key.place: value}.items():
                put(table, place, needed)
            try:
                parse(table)
                found.append((table, True))
            except FedsashError:
                found.append((table, False))
    return found


@pytest.mark.full
def test_it_accepts_every_table_that_fedsash_takes_and_refuses_most_others() -> None:
    """With not a number, which JSON has not, left out. Of 200 tables that fedsash refuses at least 190 are refused."""
    tables = [(table, right) for table, right in tried() if "nan" not in repr(table)]
    assert [table for table, right in tables if right and not VALIDATOR.is_valid(table)] == []
    broken = random.Random(0).sample([table for table, right in tables if not right], 200)
    assert sum(not VALIDATOR.is_valid(table) for table in broken) >= 190


@pytest.mark.parametrize(
    "line",
    [
        "rouns = 3",
        "rounds = 0",
        'rounds = "3"',
        'method.name = "fedprx"',
        'method = { name = "fedprox", nu = 1.0 }',
        "local.lr = -1.0",
        'averages.a = { name = "window", size = 0 }',
        'engine.kind = "fast"',
    ],
)
def test_slips_are_marked(line: str) -> None:
    assert not VALIDATOR.is_valid(tomllib.loads(line))


@pytest.mark.parametrize(
    "line",
    [
        'broadcast = "ima"',
        'method.name = "mine:Method"',
        'model.name = "timm:resnet18"',
        'engine.kind = "vectorised"',
        'scheduler = { name = "fedwindow", window = 2, order = [1, 0] }',
        'title = "a sweep"\nbase = "base.toml"\n[axes]\nseed = [0, 1]\n[axes.method.FedAvg]',
    ],
)
def test_short_forms_own_code_networks_and_sweeps_are_accepted(line: str) -> None:
    assert VALIDATOR.is_valid(tomllib.loads(line))


def test_meanings_defaults_and_limits_are_in_it() -> None:
    batch = schema()["anyOf"][0]["properties"]["local"]["properties"]["batch"]
    assert batch["minimum"] == 1 and batch["default"] == 32 and len(batch["description"]) > 10


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", str(tmp_path / "fedsash.schema.json")]) == 0
    assert (tmp_path / "fedsash.schema.json").read_text() == text()
    capsys.readouterr()
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


def test_the_file_in_the_package_is_the_schema() -> None:
    assert FILE.read_text() == text(), f"write it anew: fedsash schema {FILE.relative_to(ROOT)}"
