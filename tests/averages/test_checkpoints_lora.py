"""Adapters of LoRA: the mean of the products of their factors, exact or cut to a rank."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedsash.averages.checkpoints import merge_checkpoints
from fedsash.lab.cli import main
from fedsash.settings.errors import ModelError, RunError, SettingError

BASE = "base_model.model.layers.0."
MODULES = {
    f"{BASE}q_proj.lora_A.weight": f"{BASE}q_proj.lora_B.weight",
    f"{BASE}conv.lora_A.weight": f"{BASE}conv.lora_B.weight",
    f"{BASE}embed.lora_embedding_A": f"{BASE}embed.lora_embedding_B",
}
RANK = 4


def adapter(i: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Factors of a matrix, a convolution and an embedding of small multiples of 2^-4, and a module that is trained."""
    draws = torch.Generator().manual_seed(i)

    def numbers(*shape: int) -> Tensor:
        return torch.randint(-8, 9, shape, generator=draws).to(dtype) / 16

    q_proj, conv, embed = MODULES
    return {
        q_proj: numbers(RANK, 6),
        MODULES[q_proj]: numbers(5, RANK),
        conv: numbers(RANK, 2, 3, 3),
        MODULES[conv]: numbers(7, RANK, 1, 1),
        embed: numbers(RANK, 30),
        MODULES[embed]: numbers(6, RANK),
        f"{BASE}head.weight": numbers(2, 2),
    }


def save(folder: Path, n: int = 3, dtype: torch.dtype = torch.float64, **config: Any) -> Path:
    """Folders with adapters as PEFT saves them."""
    for i in range(n):
        place = folder / f"checkpoint-{i}"
        place.mkdir(parents=True)
        save_file(adapter(i, dtype), place / "adapter_model.safetensors", metadata={"format": "pt"})
        known = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "use_rslora": False, "lora_dropout": 0.1} | config
        (place / "adapter_config.json").write_text(json.dumps(known))
    return folder


def changes(tensors: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    """What each pair of factors changes: alpha / r times B A, where `rslora` takes the root of r."""
    found = {}
    for first, second in MODULES.items():
        a = tensors[first].double().flatten(1)
        b = tensors[second].double().flatten(1)
        module = first.split(".lora_")[0].removeprefix("base_model.model.")
        r = (config.get("rank_pattern") or {}).get(module, config["r"])
        alpha = (config.get("alpha_pattern") or {}).get(module, config["lora_alpha"])
        assert r == a.shape[0]
        found[first] = alpha / (math.sqrt(r) if config["use_rslora"] else r) * (b @ a)
    return found


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return load_file(folder / "adapter_model.safetensors"), json.loads((folder / "adapter_config.json").read_text())


def mean_change(folder: Path, n: int, weights: list[float]) -> dict[str, Tensor]:
    total = sum(weights)
    rows = [changes(*read(folder / f"checkpoint-{i}")) for i in range(n)]
    means = {}
    for name in MODULES:
        means[name] = sum((row[name] * weight for row, weight in zip(rows, weights, strict=True)), 0 * rows[0][name])
        means[name] /= total
    return means


def test_the_exact_mean_is_that_of_the_products_bitwise(tmp_path: Path) -> None:
    """Of four adapters, so that the mean of the products itself is exact in float64."""
    folder = save(tmp_path / "in", n=4)
    merged = merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    tensors, config = read(tmp_path / "mean")
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (16, 16, 0.1)
    wanted = mean_change(folder, 4, [1.0] * 4)
    for name, change in changes(tensors, config).items():
        assert torch.equal(change, wanted[name])
    heads = [adapter(i)[f"{BASE}head.weight"] for i in range(4)]
    assert torch.equal(tensors[f"{BASE}head.weight"], torch.stack(heads).mean(0))
    assert merged.notes == ("the mean of the products of LoRA's factors has the rank 4 x 4 = 16",)
    assert json.loads((tmp_path / "mean" / "merge.json").read_text())["notes"] == list(merged.notes)


def test_the_factors_bits_are_kept_in_every_type(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", dtype=torch.bfloat16)
    merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    tensors, _ = read(tmp_path / "mean")
    for first, second in MODULES.items():
        assert torch.equal(tensors[first], torch.cat([adapter(i, torch.bfloat16)[first] for i in range(3)]))
        assert torch.equal(tensors[second], torch.cat([adapter(i, torch.bfloat16)[second] for i in range(3)], 1))


@pytest.mark.parametrize("weights", [[1.0, 2.0, 5.0], [0.3, 0.3, 0.1]])
def test_weights_multiply_the_factors_b(tmp_path: Path, weights: list[float]) -> None:
    folder = save(tmp_path / "in")
    merge_checkpoints(folder, tmp_path / "mean", lora="exact", weights=weights)
    wanted = mean_change(folder, 3, weights)
    for name, change in changes(*read(tmp_path / "mean")).items():
        torch.testing.assert_close(change, wanted[name], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "config",
    [
        {"use_rslora": True},
        {"use_rslora": True, "lora_alpha": 7},
        {"alpha_pattern": {"layers.0.conv": 8}, "rank_pattern": {"layers.0.embed": RANK}},
    ],
)
def test_the_scale_of_the_exact_mean_is_that_of_its_configuration(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = save(tmp_path / "in", **config)
    merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    wanted = mean_change(folder, 3, [1.0] * 3)
    for name, change in changes(*read(tmp_path / "mean")).items():
        torch.testing.assert_close(change, wanted[name], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_a_cut_mean_is_the_nearest_of_its_rank_and_its_error_is_said(tmp_path: Path, rank: int, rslora: bool) -> None:
    folder = save(tmp_path / "in", use_rslora=rslora)
    merged = merge_checkpoints(folder, tmp_path / "mean", lora=rank, weights=[1.0, 2.0, 1.0])
    tensors, config = read(tmp_path / "mean")
    assert config["r"] == rank
    wanted = mean_change(folder, 3, [1.0, 2.0, 1.0])
    lost = 0.0
    for name, change in changes(tensors, config).items():
        u, values, v = torch.linalg.svd(wanted[name], full_matrices=False)
        nearest = (u[:, :rank] * values[:rank]) @ v[:rank]
        torch.testing.assert_close(change, nearest, rtol=0, atol=1e-12)
        lost += float((change - wanted[name]).square().sum())
    error = math.sqrt(lost / sum(float(change.square().sum()) for change in wanted.values()))
    assert f"cut to the rank {rank}: the relative error of the mean change is {error:.2e}" in merged.notes[0]


def test_a_mean_that_has_the_rank_loses_nothing_but_the_rounding(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", n=2, dtype=torch.float32)
    merged = merge_checkpoints(folder, tmp_path / "mean", lora=2 * RANK)
    error = float(merged.notes[0].split(" is ")[1].split(",")[0])
    assert 0 < error < 1e-7


def test_adapters_in_files_of_torch_save(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", n=2)
    for place in folder.iterdir():
        torch.save(load_file(place / "adapter_model.safetensors"), place / "adapter_model.bin")
        (place / "adapter_model.safetensors").unlink()
    merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    mean = torch.load(tmp_path / "mean" / "adapter_model.bin", weights_only=True)
    assert set(mean) == set(adapter(0))
    assert [mean[first].shape[0] for first in MODULES] == [2 * RANK] * 3


def test_what_has_no_mean_of_products_is_refused_in_one_line(tmp_path: Path) -> None:
    number = 0

    def refused(error: type[Exception], text: str, lora: Any = "exact", n: int = 2, **config: Any) -> None:
        nonlocal number
        number += 1
        folder = save(tmp_path / f"in{number}", n=n, **config)
        with pytest.raises(error, match=text):
            merge_checkpoints(folder, tmp_path / f"mean{number}", lora=lora)
        assert not (tmp_path / f"mean{number}").exists()

    refused(ModelError, "take lora = 'exact', a rank to which", lora="")
    refused(SettingError, "must be 'exact', a rank, or 'factors'", lora="mean")
    refused(SettingError, "must be at most 8, the rank of the exact mean", lora=9)
    refused(SettingError, "must be at least 1", lora=0)
    refused(ModelError, "has use_dora", use_dora=True)
    refused(ModelError, "has lora_bias", lora_bias=True)
    refused(ModelError, "of the kind LOHA", peft_type="LOHA")
    refused(ModelError, r"has the rank 4, and adapter_config\.json says r = 8", r=8)
    refused(SettingError, "do not go with use_rslora", use_rslora=True, rank_pattern={"q_proj": RANK})
    refused(SettingError, "do not go with a rank", lora=2, rank_pattern={"q_proj": RANK})
    refused(RunError, "must be a JSON object with numbers r and lora_alpha", lora_alpha=None)


def test_adapters_must_agree_and_need_a_folder(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", n=2)
    with pytest.raises(SettingError, match="must name a folder"):
        merge_checkpoints(folder, tmp_path / "mean.safetensors", lora="exact")
    file = folder / "checkpoint-0" / "adapter_config.json"
    file.write_text(file.read_text().replace('"lora_alpha": 16', '"lora_alpha": 8'))
    with pytest.raises(ModelError, match=r"the adapters differ in lora_alpha: 8 in .*checkpoint-0.*, 16 in .*"):
        merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    file.unlink()
    with pytest.raises(RunError, match=r"has no adapter_config\.json beside it"):
        merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    save_file({"w": torch.zeros(2)}, tmp_path / "m1.safetensors")
    with pytest.raises(SettingError, match="has no factors"):
        merge_checkpoints(tmp_path / "m1.safetensors", tmp_path / "mean", lora="exact")


@pytest.mark.parametrize("weights", [None, [1.0, 3.0]])
def test_of_several_types_the_exact_mean_has_the_newests(tmp_path: Path, weights: list[float] | None) -> None:
    folder = save(tmp_path / "in", n=2)
    file = folder / "checkpoint-1" / "adapter_model.safetensors"
    save_file({name: tensor.to(torch.float16) for name, tensor in load_file(file).items()}, file)
    merge_checkpoints(folder, tmp_path / "mean", lora="exact", weights=weights)
    tensors, config = read(tmp_path / "mean")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    wanted = mean_change(folder, 2, weights or [1.0, 1.0])
    for name, change in changes(tensors, config).items():
        assert torch.equal(change, wanted[name])  # the entries are multiples of 2^-5, which float16 holds


def test_a_factor_that_the_newests_type_does_not_hold_is_said(tmp_path: Path) -> None:
    folder = save(tmp_path / "in", n=2)
    name = next(iter(MODULES))
    for i, (value, dtype) in enumerate(((1e6, torch.float32), (1.0, torch.float16))):
        file = folder / f"checkpoint-{i}" / "adapter_model.safetensors"
        tensors = {key: tensor.to(dtype) for key, tensor in load_file(file).items()}
        tensors[name].fill_(value)
        save_file(tensors, file)
    merged = merge_checkpoints(folder, tmp_path / "mean", lora="exact")
    assert f"the mean of {name} is not finite" in merged.notes


@pytest.mark.parametrize(("key", "value"), [("lora_alpha", 8), ("use_rslora", True), ("rank_pattern", {"q_proj": 2})])
def test_factors_of_other_scales_have_no_mean(tmp_path: Path, key: str, value: object) -> None:
    folder = save(tmp_path / "in", n=2)
    file = folder / "checkpoint-0" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
    with pytest.raises(ModelError, match=rf"the adapters differ in {key}: .* in .*checkpoint-0.*, .*checkpoint-1"):
        merge_checkpoints(folder, tmp_path / "mean", lora="factors")


@pytest.mark.parametrize("lora", ["exact", 2])
def test_an_adapter_that_is_not_finite_is_named(tmp_path: Path, lora: Literal["exact"] | int) -> None:
    folder = save(tmp_path / "in")
    file = folder / "checkpoint-2" / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if "lora_B" in name)
    tensors[name].view(-1)[0] = float("nan")
    save_file(tensors, file)
    with pytest.raises(ModelError, match=f"{file}: {name} is not finite: leave this adapter out"):
        merge_checkpoints(folder, tmp_path / "out", lora=lora)


@pytest.mark.parametrize("name", ["unet.lora_down.weight", "unet.lora.up.weight", "x.hada_w1_a", "x.lokr_w1"])
def test_factors_of_other_libraries_are_refused_too(tmp_path: Path, name: str) -> None:
    for i in (1, 3):
        save_file({name: torch.full((2, 3), float(i))}, tmp_path / f"m{i}.safetensors")
    with pytest.raises(ModelError, match="not the mean of the products"):
        merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")


def test_the_command_takes_a_rank_or_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "in", n=2)
    assert main(["merge", str(folder), "--out", str(tmp_path / "a"), "--lora", "exact"]) == 0
    assert main(["merge", str(folder), "--out", str(tmp_path / "b"), "--lora", "2"]) == 0
    assert "cut to the rank 2: the relative error" in capsys.readouterr().out
    assert main(["merge", str(folder), "--out", str(tmp_path / "c")]) == 2
    assert "not the mean of the products" in capsys.readouterr().err
