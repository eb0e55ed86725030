"""A run's models have names, and what is not there is refused with what there is."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from fedsash.lab.config import ConfigError
from fedsash.lab.studies.averages import AveragesStudy
from fedsash.lab.studies.client_models import client_models
from fedsash.lab.studies.landscape import LandscapeStudy
from fedsash.lab.studies.opened import OpenRun, open_run, spaced
from fedsash.runs.checkpoints import load_run
from fedsash.runs.folder import write_config
from fedsash.settings.errors import RunError
from fedsash.vector.saved import place
from support.studies import SAVED, fedsash, refused


def test_models_have_their_names(opened: OpenRun) -> None:
    assert opened.rounds == SAVED
    same = (("model", "round:6"), ("model", "model@6"), ("w", "w@6"), ("ema", "ema@6"), ("late", "late@6"))
    assert all(torch.equal(opened.model(a), opened.model(b)) for a, b in same)
    assert torch.equal(opened.model(str(opened.folder / "models" / "w.safetensors")), opened.model("w"))
    _, tally = load_run(place(opened.folder / "state", 6), opened.federation.start())
    assert torch.equal(opened.model("w-best"), tally.best["w"].w)
    assert not torch.equal(opened.model("round:5"), opened.model("round:6"))


def test_the_mean_of_the_clients_at_which_a_round_arrives_is_the_next_model(opened: OpenRun) -> None:
    clients = client_models(opened.federation, opened.state(5))
    w = torch.stack([opened.model(f"client:{k}@5") for k in clients.ids])
    assert torch.equal(w, clients.w)
    torch.testing.assert_close(clients.p.float() @ w, opened.model("round:6"))


def test_samples_that_are_evenly_spaced_are_all_if_all_are_wanted() -> None:
    assert spaced(7, 7).tolist() == list(range(7))
    assert spaced(10, 4).tolist() == [0, 2, 5, 7]
    assert spaced(3, 1000).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "name, line",
    [
        ("nobody", "models/ has ema, ema-best, late,"),
        ("round:4", "no state of round 4; saved are the rounds: 1, 3, 5, 6 (checkpoint.keep keeps more)"),
        ("nobody@3", "round 3 has model, w, wide, ema; saved are"),
        ("late@3", "round 3 has model, w, wide, ema; saved are"),
        ("client:99@3", "in the round after 3 take part:"),
        ("there.safetensors", "there is no file there.safetensors"),
        ("model,w@6,w", "plane: height of w3"),
    ],
)
def test_unknown_models_are_refused_with_what_there_is(
    runs: list[Path], capsys: pytest.CaptureFixture[str], name: str, line: str
) -> None:
    assert line in refused(capsys, "landscape", runs[0], "--models", name, "--points", 3)


def test_damaged_states_and_models_and_empty_folders_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = run / "state" / "00000003" / "state.safetensors"
    tensors.unlink()
    line = f"{tensors} is missing or damaged"
    assert line in refused(capsys, "landscape", run, "--models", "round:3")
    assert line in refused(capsys, "decompose", run)
    (run / "models" / "w.safetensors").write_bytes(b"nothing")
    again = f"w.safetensors is damaged: write it again with fedsash resume {run}"
    assert again in refused(capsys, "landscape", run, "--models", "w")
    (tmp_path / "other.safetensors").write_bytes(b"nothing")
    assert "can't be read" in refused(capsys, "landscape", run, "--models", tmp_path / "other.safetensors")
    shutil.rmtree(run / "models")
    for name in ("model", "another"):
        assert f"has no model {name!r}; models/ has none" in refused(capsys, "landscape", run, "--models", name)
    shutil.rmtree(run / "state")
    assert "saved are the rounds: none" in refused(capsys, "window", run, "--average", "w")
    assert "no round of which all runs have a state" in refused(capsys, "decompose", run)
    assert "holds checkpoints and no run: fedsash merge" in refused(capsys, "flatness", tmp_path, "--models", "model")
    (tmp_path / "empty").mkdir()
    assert "holds no run" in refused(capsys, "flatness", tmp_path / "empty", "--models", "model")


def test_a_model_of_another_architecture_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wider.toml").write_text('rounds = 1\n[model]\nname = "mlp"\nhidden = [5]\n')
    assert fedsash("run", tmp_path / "wider.toml", "--out", tmp_path / "wider", "--no-progress") == 0
    other = tmp_path / "wider" / "models" / "model.safetensors"
    assert "as in the run's model" in refused(capsys, "landscape", run, "--models", other)
    assert "must have the model and the clients of" in refused(capsys, "decompose", run, tmp_path / "wider")


PERSONAL = """
rounds = 3
personal = "classifier"
[data]
name = "digits"
[partition]
name = "iid"
clients = 4
[model]
name = "mlp"
[evaluation]
held_out = 0.2
[engine]
kind = "sequential"
workers = 1
"""


def test_a_clients_own_model_can_be_had_by_its_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    (tmp_path / "own.toml").write_text(PERSONAL)
    fedsash("run", tmp_path / "own.toml", "--out", run, "--set", "trajectory.every=1")
    with open_run(run).federation:
        opened = open_run(run)
        state = opened.state(3)
        sharing = opened.federation.sharing
        own = state.client_state["own"]
        models = torch.stack([opened.model(f"client:{k}") for k in range(3)])
        assert torch.equal(models[:, sharing.own], own[:3])
        assert torch.equal(sharing.common_of(models), sharing.common_of(state.w).expand(3, -1))
        assert not caplog.records
        opened.module("client:1")
        assert not caplog.records
        LandscapeStudy(models=("model", "round:3"), points=2, split="train", samples=20).measure([opened])
        opened.module("model")
        AveragesStudy(window=2, out=tmp_path / "mean.safetensors").answer([opened])
        for name, record in zip(("model", "round:3", tmp_path / "mean.safetensors"), caplog.records, strict=True):
            assert f"stays with the clients, so '{name}' has it as it was at the start" in record.message
        with pytest.raises(RunError, match="has no model 'client:9999'; the clients are 0 to"):
            opened.model("client:9999")


def test_models_open_without_their_data_and_are_those_that_open_with_them(
    run: Path, opened: OpenRun, tmp_path: Path
) -> None:
    x = opened.samples("test", 5).x
    config = tomllib.loads((run / "config.toml").read_text())
    config["data"] = {"name": "table", "path": str(tmp_path / "gone.csv"), "label": "y"}
    write_config(run, config)
    alone = open_run(run)
    assert "models=10 items" in repr(alone)
    for name in ("model", "w", "w-best", str(run / "models" / "ema.safetensors")):
        assert torch.equal(alone.model(name), opened.model(name))
        assert torch.equal(alone.module(name)(x), opened.module(name)(x))
    alone.close()
    with pytest.raises(ConfigError, match=r"config.toml: data.path = .*gone.csv"):
        alone.model("round:6")
    (run / "model.json").write_text("{}")
    with pytest.raises(RunError, match=r"model.json is damaged"):
        open_run(run).module("model")
    (run / "model.json").unlink()
    with pytest.raises(ConfigError, match=r"config.toml: data.path = .*gone.csv"):
        open_run(run).module("model")


def test_without_a_personal_part_no_client_has_a_model_of_its_own(opened: OpenRun) -> None:
    with pytest.raises(RunError, match="nothing of this model stays with the clients: take model"):
        opened.model("client:0")
