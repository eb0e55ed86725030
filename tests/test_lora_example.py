"""The example of LoRA fine-tuning, where transformers and peft are installed; nothing is fetched."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import fedsash as fs
from fedsash.vector.layout import Layout
from support.places import ROOT

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")


@pytest.fixture(scope="module")
def lora() -> ModuleType:
    """The example, with two roles for pre-training and small rounds."""
    spec = spec_from_file_location("example_lora", ROOT / "examples" / "tasks" / "lora.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PRETRAINING = 2
    made = module.federation
    engine = fs.LocalEngine(kind="sequential", workers=1)
    module.federation = lambda *given: replace(made(*given), engine=engine, sampling=fs.Uniform(3))
    return module


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two long roles, eleven of 13 sequences, and one that is too short to be a client."""
    path = tmp_path_factory.mktemp("play") / "play.txt"
    lengths = [2000, 1900, *[1050] * 11, 100]
    lines = [
        f"Role {i}:\n" + ("I will speak of " + chr(97 + i) + ". ") * (length // 19) for i, length in enumerate(lengths)
    ]
    path.write_text("\n\n".join(lines))
    return path


@pytest.fixture(scope="module")
def folder(lora: ModuleType, play: Path) -> Path:
    train, data = lora.roles(play)
    lora.pretrain(train, data.classes, play.parent / "pretrained", epochs=1)
    return play.parent / "pretrained"


def test_roles_pre_train_or_are_clients(lora: ModuleType, play: Path) -> None:
    train, data = lora.roles(play)
    assert len(train.user.unique()) == 2 and len(data.clients) == 11
    assert data.test is not None and len(data.test) == 11 * 2


def test_only_adapters_are_in_the_layout_and_the_start_is_the_saved_model(
    lora: ModuleType, play: Path, folder: Path
) -> None:
    model = lora.adapted(folder, 0)
    layout = Layout(model)
    assert all("lora_" in name for name in layout.names)
    _, data = lora.roles(play)
    saved = transformers.GPT2LMHeadModel.from_pretrained(folder)
    x = data.train.x[:3]
    torch.testing.assert_close(model(x).logits, saved(x).logits)


@pytest.mark.parametrize("clients", ["sgd", "adamw_kept"])
def test_a_round_moves_the_mean_of_the_adapters_and_nothing_else(
    clients: str, lora: ModuleType, play: Path, folder: Path
) -> None:
    _, data = lora.roles(play)
    f = lora.federation(data, folder, clients, 0)
    before = f.evaluate(f.start())[0].loss
    result = fs.run(f, 2, progress=False)
    after_rounds = [row["loss"] for row in result.history.rows() if row["model"] == "model"]
    assert after_rounds[-1] < before
    frozen, after = f.module.state_dict(), result.model("window5").state_dict()
    assert all(torch.equal(frozen[name], after[name]) for name in frozen if "lora_" not in name)
    assert any(not torch.equal(frozen[name], after[name]) for name in frozen if "lora_" in name)


def weights(f: fs.Federation, w: Tensor) -> Tensor:
    """What the adapters of a model `[D]` add to the weights of its first layer."""
    f.layout.load(f.module, w)
    (layer, *_) = (m for name, m in f.module.named_modules() if name.endswith("c_attn"))
    added: Tensor = layer.get_delta_weight("default")
    return added.detach()


@pytest.mark.parametrize("frozen", [False, True])
def test_factors_are_averaged_and_only_with_a_frozen_factor_this_is_the_mean_of_the_products(
    frozen: bool, lora: ModuleType, play: Path, folder: Path
) -> None:
    model = lora.adapted(folder, 0)
    for name, parameter in model.named_parameters():
        if frozen and "lora_A" in name:
            parameter.requires_grad_(False)
    _, data = lora.roles(play)
    f = replace(lora.federation(data, folder, "adamw", 0), model=model, averages={"window": fs.Window(2)})
    state, products = f.start(), []
    for _ in range(2):
        state, _ = f.round(state)
        products.append(weights(f, state.w))
    windows = weights(f, f.models(state)["window"])
    assert torch.allclose(windows, sum(products) / 2, rtol=1e-4, atol=1e-7) == frozen


def test_its_command_compares_rates_on_held_out_samples_and_leaves_no_run(
    lora: ModuleType, play: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lora.main([str(play), str(folder.parent), "--clients", "sgd", "--rounds", "2", "--rates", "0", "0.3"])
    none, some = capsys.readouterr().out.splitlines()[-2:]
    assert none.startswith("lr = 0 ") and some.startswith("lr = 0.3 ") and none.split()[-2] != some.split()[-2]
    assert not (folder.parent / "sgd-0").exists()


def test_its_command_prints_a_table_and_leaves_runs(
    lora: ModuleType, play: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lora.main([str(play), str(folder.parent), "--clients", "adamw", "--seeds", "1", "--rounds", "1"])
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[-5:]] == [
        ["adamw", name] for name in ("pretrained", "model", "window5", "window20", "ema")
    ]
    assert json.loads((folder.parent / "adamw-1" / "summary.json").read_text())["models"]
