"""For coding assistants: the skill's three tasks are done as it says; what AGENTS.md names is there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch

import fedsash as fs
from fedsash.lab.cli import main
from support.places import ROOT

PAGE = (ROOT / "AGENTS.md").read_text()
SKILL = ROOT / "skills" / "fedsash" / "SKILL.md"


def _section(title: str) -> str:
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", SKILL.read_text(), re.MULTILINE | re.DOTALL)
    return text


def _blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _section(title), re.MULTILINE | re.DOTALL)


def _commands(title: str) -> list[list[str]]:
    """The commands of a section that call fedsash, each as its arguments."""
    lines = [shlex.split(line, comments=True) for block in _blocks(title, "bash") for line in block.splitlines()]
    return [words[1:] for words in lines if words and words[0] == "fedsash"]


def test_the_folder_is_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("outputs").mkdir()
    for step in (500, 1000, 1500, 2000):
        torch.save({"weight": torch.full((2,), float(step))}, f"outputs/model-{step}.pt")
    (command,) = _commands("Merge a folder of checkpoints")
    assert main(command) == 0
    assert torch.load("mean.pt")["weight"].tolist() == [1500.0, 1500.0]
    assert "model-2000.pt" in Path("mean.pt.merge.json").read_text()


def test_the_tracker_keeps_the_mean_of_the_last_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = _blocks("Add a Tracker to a training loop", "python")
    models: list[torch.Tensor] = []
    seen = code.replace("tracker.update()", "tracker.update(); models.append(model.weight.detach().double())")
    names = {"models": models}
    exec(compile(seen, SKILL.name, "exec"), names)
    tracker = names["tracker"]
    assert isinstance(tracker, fs.Tracker)
    mean = tracker.averaged_state_dict("window")["weight"]
    torch.testing.assert_close(mean, torch.stack(models[-10:]).mean(0).float())
    assert torch.load("ema.pt").keys() == {"weight", "bias"}
    saved = torch.load("checkpoint.pt")
    assert torch.equal(saved["model"]["weight"].double(), models[-1])


def test_the_experiment_runs_and_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (table,) = _blocks("Run an experiment", "toml")
    Path("experiment.toml").write_text(
        table.replace("rounds = 100", "rounds = 1").replace("clients = 20", "clients = 6")
    )
    run, resume, other, compare = _commands("Run an experiment")
    for command in (run, resume, other, compare):
        assert main(command) == 0, capsys.readouterr().err
    assert json.loads(Path("runs/a/summary.json").read_text())["rounds"] == 1
    assert "window20" in capsys.readouterr().out


def test_what_is_there_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text(_blocks("Run an experiment", "toml")[0])
    for command in _commands("What is there"):
        arguments = ["schema.json" if word == "FILE" and command[0] == "schema" else word for word in command]
        assert main(arguments) == 0


def test_the_skill_says_its_name_and_what_it_is_for() -> None:
    _, front, _ = SKILL.read_text().split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields.keys() == {"name", "description"}
    assert fields["name"] == SKILL.parent.name
    assert len(fields["description"]) <= 1024  # assistants read no more
    assert ": " not in fields["description"]  # it would need quotes in YAML


def test_the_targets_of_make_that_it_names_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([\w-]+)", PAGE, re.MULTILINE)) <= targets


def test_the_files_that_it_links_exist() -> None:
    assert [file for file in re.findall(r"\]\(([^)]+)\)", PAGE) if not (ROOT / file).exists()] == []
