"""The commands of studies: what they say, which options they have, and what they refuse in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from fedsash.lab.cli import main
from fedsash.lab.studies import STUDIES, kinds
from fedsash.lab.studies.study import names_of
from support.places import ROOT
from support.studies import analysis, fedsash, refused


def test_a_command_says_what_it_found_and_where_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["landscape", str(run), "--models", "model,w", "--points", "3"]
    assert main(given) == 0
    out, place = capsys.readouterr().out, run / "analyses" / "line_model_w_points-3"
    assert f"{place}.png" in out and f"{place}.json" in out and "lowest" in out
    assert {path.suffix for path in place.parent.iterdir()} == {".json", ".png", ".pdf"}
    before = Path(f"{place}.json").read_bytes()
    command = analysis(run, "line_model_w_points-3")["command"]
    assert command == f"fedsash {' '.join(given)} --split test --samples all --seed 0"
    assert main(command.split()[1:]) == 0 and Path(f"{place}.json").read_bytes() == before


@pytest.mark.parametrize(
    "options, line",
    [
        (["landscape", "--models", "model", "--samples", 0], "--samples = 0: must be"),
        (
            ["landscape", "--models", "model", "--points", 1],
            "--points = 1: must be at least 2 and at most 1,000 in",
        ),
        (["landscape", "--models", "model", "--name", "../x"], "--name = '../x': must be letters"),
        (["window", "--average", "ema"], "has no window 'ema'; it has w, wide, late"),
        (["window", "--average", "late", "--round", 3], "late holds no model after round 3"),
        (["window", "--average", "w", "--round", 2], "no state of round 2"),
        (["decompose", "--rounds", "1,2"], "no state of round 2"),
        (["flatness", "--models", "model", "--rho", "-1"], "--rho = -1.0: must be a positive number"),
        (["flatness", "--models", "model", "--eigenvalues", 0], "--eigenvalues = 0: must be from 1 to 100"),
    ],
)
def test_what_can_not_be_done_is_refused(
    runs: list[Path], capsys: pytest.CaptureFixture[str], options: list[object], line: str
) -> None:
    assert line in refused(capsys, options[0], runs[0], *options[1:])


@pytest.mark.parametrize("name", STUDIES)
def test_every_setting_is_an_option_with_its_default(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for setting in fields(STUDIES[name].study()):
        assert f"--{setting.name}" in out
        if isinstance(setting.default, int | float) and not isinstance(setting.default, bool):
            assert f"(default: {setting.default})" in out
    assert "examples: fedsash" in out


@pytest.mark.parametrize(
    "options, right",
    [
        (["landscape", "--points", "many"], "argument --points: 'many' must be an integer"),
        (["landscape", "--samples", "few"], "argument --samples: 'few' must be an integer, or all"),
        (["landscape", "--split", "both"], 'argument --split: \'both\' must be "test" or "train"'),
        (["flatness", "--rho", "0.1,x"], "argument --rho: '0.1,x' must be a list of numbers"),
        (["average", "--window", "x"], "argument --window: 'x' must be an integer or \"auto\""),
        (["flatness"], "the following arguments are required: --models"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_it_must_be(
    options: list[str], right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([options[0], "a", *options[1:]])
    assert stopped.value.code == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and right in error


def test_each_kind_of_finding_has_one_study_and_its_entry_names_it() -> None:
    for entry in STUDIES.values():
        assert entry.kinds == entry.study().kinds
    every = [kind for entry in STUDIES.values() for kind in entry.kinds]
    assert sorted(every) == sorted(kinds()) and all(re.fullmatch(r"\w+", kind) for kind in every)


@pytest.mark.parametrize("study", ["ensemble", "decompose"])
def test_studies_of_classes_refuse_another_task(
    study: str, regression: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "task = 'Regression': must be Classification" in refused(capsys, study, regression)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regression")
    rows = [f"{i},{i % 7},{i / 4}" for i in range(60)]
    (folder / "houses.csv").write_text("\n".join(["size,rooms,price", *rows]) + "\n")
    file = folder / "houses.toml"
    assert fedsash("init", file, "--data", "table", "--path", folder / "houses.csv", "--label", "price") == 0
    assert fedsash("run", file, "--rounds", 2, "--out", folder / "run", "--no-progress") == 0
    return folder / "run"


def test_two_models_of_one_name_keep_their_folders() -> None:
    names = names_of(["model", "other/models/model.safetensors", "a/w.safetensors"])
    assert names == ["model", "other/models/model", "w"]


@pytest.mark.parametrize("study", [["ensemble"], ["decompose"], ["window", "--average", "w"]])
def test_studies_of_rounds_refuse_a_run_without(
    study: list[str], asynchronous: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "must be a run in rounds; here every client" in refused(capsys, study[0], asynchronous, *study[1:])


@pytest.fixture(scope="module")
def asynchronous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("asynchronous") / "run"
    file = ROOT / "examples" / "network" / "fedwindow.toml"
    window = ["--set", 'averages={w={name="window", size=3}}']
    assert fedsash("network", file, "--out", out, "--no-progress", "--set", "rounds=4", *window) == 0
    return out


def test_findings_on_another_split_have_files_of_their_own(run: Path) -> None:
    for split in ("test", "train"):
        assert fedsash("ensemble", run, "--rounds", 5, "--samples", 9, "--orders", 1, "--split", split) == 0
    found = [analysis(run, f"ensemble_5_orders-1{split}_samples-9")["split"] for split in ("", "_split-train")]
    assert found == ["test", "train"]


@pytest.mark.full
def test_a_page_without_findings_imports_no_study(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("rounds = 1\n[partition]\nname = 'iid'\nclients = 2\n")
    run = str(tmp_path / "run")
    program = f"""
import sys
from fedsash.lab.cli import main
assert main(["run", "e.toml", "--out", {run!r}, "--no-progress"]) == 0
assert main(["report", {run!r}, "--out", "page.html"]) == 0
print([name for name in sys.modules if name.startswith("fedsash.lab.studies.")])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
