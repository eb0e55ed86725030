"""`merge_checkpoints`: single files of safetensors and `torch.save`, folders of them, and what is refused."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fedsash as fs
from fedsash.averages.checkpoints import distributed, merge, merge_checkpoints
from fedsash.settings.errors import FedsashError, ModelError, RunError, SettingError
from support.children import status_of_child


def exact_mean(values: list[Tensor]) -> Tensor:
    """The mean by fractions, rounded to float64 (and through it, where that is exact, to the type of the values)."""
    rows = [value.double().flatten().tolist() for value in values]
    means = [float(sum(map(Fraction, column), Fraction()) / len(rows)) for column in zip(*rows, strict=True)]
    return torch.tensor(means, dtype=torch.float64).to(values[0].dtype).view(values[0].shape)


def models(n: int, dtype: torch.dtype = torch.float32) -> list[dict[str, Tensor]]:
    """n state dictionaries, of small multiples of 2^-6: their sums are exact in float64."""
    draws = torch.Generator().manual_seed(7)
    dicts = []
    for i in range(n):
        weight = torch.randint(-200, 200, (5, 3), generator=draws).to(dtype) / 64
        bias = torch.randint(-200, 200, (5,), generator=draws).to(dtype) / 64
        dicts.append({"weight": weight, "bias": bias, "num_batches_tracked": torch.tensor(100 * i)})
    return dicts


def check_means(found: Mapping[str, Tensor], states: list[dict[str, Tensor]]) -> None:
    assert list(found) == list(states[-1]) or sorted(found) == sorted(states[-1])
    for name in ("weight", "bias"):
        wanted = exact_mean([state[name] for state in states])
        assert found[name].dtype == wanted.dtype
        assert torch.equal(found[name], wanted)
    assert torch.equal(found["num_batches_tracked"], states[-1]["num_batches_tracked"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_mean_of_safetensors_is_that_of_fractions_and_has_the_newests_header(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    states = models(3, dtype)
    for step, state in zip((500, 1000, 2000), states, strict=True):
        save_file(state, tmp_path / f"model-{step}.safetensors", metadata={"step": str(step)})
    merge_checkpoints(tmp_path, tmp_path / "out" / "mean.safetensors")
    check_means(load_file(tmp_path / "out" / "mean.safetensors"), states)
    newest = (tmp_path / "model-2000.safetensors").read_bytes()
    length = 8 + int.from_bytes(newest[:8], "little")
    mean = (tmp_path / "out" / "mean.safetensors").read_bytes()
    assert mean[:length] == newest[:length] and len(mean) == len(newest)


@pytest.mark.parametrize("ending", ["pt", "pth", "bin", "ckpt"])
def test_the_mean_of_files_of_torch_save_is_that_of_fractions(tmp_path: Path, ending: str) -> None:
    states = models(2)
    for step, state in zip((500, 1000), states, strict=True):
        torch.save(state, tmp_path / f"model-{step}.{ending}")
    fs.merge_checkpoints(tmp_path, tmp_path / f"mean.{ending}")
    check_means(torch.load(tmp_path / f"mean.{ending}", weights_only=True), states)


def test_a_mean_goes_beyond_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "CHUNK", 65_536)
    rows = [torch.arange(200_003, dtype=torch.float32) * i for i in (1, 3)]
    for i, row in enumerate(rows):
        save_file({"w": row}, tmp_path / f"m{i}.safetensors")
    merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    assert torch.equal(load_file(tmp_path / "mean.safetensors")["w"], rows[0] * 2)


def test_tied_tensors_stay_tied_and_the_optimiser_is_left_out(tmp_path: Path) -> None:
    for step in (1, 2):
        weight = torch.full((4, 2), float(step)).t()
        state = {"embedding": weight, "head": weight}
        content = {"state_dict": state, "optimizer_states": [{"state": {}}], "global_step": step, "epoch": 3}
        torch.save(content, tmp_path / f"epoch={step}.ckpt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.ckpt")
    mean = torch.load(tmp_path / "mean.ckpt", weights_only=True)
    assert list(mean) == ["state_dict", "global_step", "epoch"]
    state = mean["state_dict"]
    assert torch.equal(state["head"], torch.full((2, 4), 1.5))
    assert state["head"].data_ptr() == state["embedding"].data_ptr()
    assert state["head"].stride() == (1, 2)
    assert merged.notes == ("left out of the mean: optimizer_states",)


def test_1000_comes_after_500_and_copies_count_once(tmp_path: Path) -> None:
    states = models(2)
    for step, state in zip((500, 1000), states, strict=True):
        save_file(state, tmp_path / f"step{step}.safetensors")
    save_file(states[0], tmp_path / "best.safetensors")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    assert merged.steps == (500, 1000)
    check_means(load_file(tmp_path / "mean.safetensors"), states)


def test_a_folder_of_checkpoints_gives_a_folder_with_configuration_and_card(tmp_path: Path) -> None:
    states = models(3)
    for step, state in zip((500, 1000, 1500), states, strict=True):
        folder = tmp_path / "outputs" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file(state, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"step": step}))
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        torch.save({}, folder / "optimizer.pt")
    merge_checkpoints(tmp_path / "outputs", tmp_path / "merged", last=2)
    assert {path.name for path in (tmp_path / "merged").iterdir()} == {"model.safetensors", "config.json", "merge.json"}
    check_means(load_file(tmp_path / "merged" / "model.safetensors"), states[1:])
    card = json.loads((tmp_path / "merged" / "merge.json").read_text())
    assert [row["step"] for row in card["checkpoints"]] == [1000, 1500]
    assert json.loads((tmp_path / "merged" / "config.json").read_text()) == {"step": 1500}


def test_a_merged_sentence_transformer_keeps_its_pooling(tmp_path: Path) -> None:
    modules = [{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Normalize"}]
    for step in (1, 2):
        folder = tmp_path / "in" / f"checkpoint-{step}"
        (folder / "1_Pooling").mkdir(parents=True)
        save_file({"w": torch.zeros(2)}, folder / "model.safetensors")
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    merge_checkpoints(tmp_path / "in", tmp_path / "merged")
    for name in ("modules.json", "1_Pooling/config.json"):
        assert (tmp_path / "merged" / name).read_bytes() == (folder / name).read_bytes()
    save_file({"w": torch.zeros(2)}, folder / "1_Pooling" / "model.safetensors")
    with pytest.raises(RunError, match=r"1_Pooling.model\.safetensors is a part of the model that a merge does not"):
        merge_checkpoints(tmp_path / "in", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_of_several_types_each_mean_is_rounded_once_to_the_newests(tmp_path: Path) -> None:
    """1 + 2^-9 + 2^-26 is above the middle of two bfloat16 numbers by less than float32 can tell."""
    old = torch.tensor([1 + 2.0**-8 + 2.0**-25, 1.0, -2.0], dtype=torch.float64)
    save_file({"w": torch.tensor([1.0, 2.0, -0.5], dtype=torch.bfloat16)}, tmp_path / "m3.safetensors")
    save_file({"w": torch.tensor([1.0, 0.0, 0.25], dtype=torch.float16)}, tmp_path / "m2.safetensors")
    torch.save({"w": 3 * old - 2 * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)}, tmp_path / "m1.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    mean = load_file(tmp_path / "mean.safetensors")["w"]
    assert mean.dtype == torch.bfloat16
    assert mean.tolist() == [1 + 2.0**-7, 1.6640625, -2.078125]
    assert "torch.float64 in" in merged.notes[0] and "rounded once" in merged.notes[0]
    save_file({"w": torch.ones(3).to(torch.float8_e5m2)}, tmp_path / "m2.safetensors")
    with pytest.raises(ModelError, match="these have no common mean"):
        merge_checkpoints(tmp_path, tmp_path / "again.safetensors")


def test_a_mean_that_lies_among_the_checkpoints_is_none_of_them(tmp_path: Path) -> None:
    for i, state in enumerate(models(3)):
        save_file(state, tmp_path / f"m{i}.safetensors")
    merge_checkpoints(tmp_path, tmp_path / "mean-of-the-last-2.safetensors", last=2)
    merge_checkpoints(tmp_path, tmp_path / "mean-of-3")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean")
    assert merged.steps == (0, 1, 2)


def test_prefixes_are_matched_and_said(tmp_path: Path) -> None:
    states = models(2)
    old = {f"module._orig_mod.{name}": tensor for name, tensor in states[0].items()}
    save_file(old, tmp_path / "m1.safetensors")
    save_file(states[1], tmp_path / "m2.safetensors")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    check_means(load_file(tmp_path / "mean.safetensors"), states)
    assert "matched without" in merged.notes[0]


def test_what_does_not_fit_is_refused_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    state = models(1)[0]
    save_file(state, tmp_path / "m2.safetensors")

    def refused(other: dict[str, Tensor], text: str) -> None:
        save_file(other, tmp_path / "m1.safetensors")
        with pytest.raises(ModelError, match=text):
            merge_checkpoints(tmp_path, tmp_path / "out.safetensors")

    refused({"weight": state["weight"], "bias": state["bias"]}, "lacks num_batches_tracked")
    refused(state | {"more": torch.zeros(2)}, "has more, which")
    refused(state | {"weight": torch.zeros(3, 5)}, r"weight has the shape \[3, 5\]")
    refused(state | {"weight": torch.zeros(5, 3, dtype=torch.int8)}, r"quantised weights \(weight\)")
    refused(state | {"up_proj_blocks": torch.zeros(5, 3, dtype=torch.uint8)}, r"up_proj_blocks")
    assert {path.name for path in tmp_path.iterdir()} == {"m1.safetensors", "m2.safetensors"}


def test_a_pickled_module_is_refused_by_its_class(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "m1.pt")
    with pytest.raises(ModelError, match=r"pickled torch.nn.modules.linear.Linear"):
        merge_checkpoints(tmp_path / "m1.pt", tmp_path / "out.pt")


def test_arguments_and_scores_beside_a_model_are_read(tmp_path: Path) -> None:
    """As timm saves them: PyTorch alone refuses such files, though nothing in them is run."""
    for i, state in enumerate(models(2)):
        beside = {"args": Namespace(lr=0.1, data=Path("/data")), "metric": np.float64(0.5), "scores": np.arange(3.0)}
        torch.save({"state_dict": state, "optimizer": {}, "epoch": i} | beside, tmp_path / f"checkpoint-{i}.pth.tar")
    merge_checkpoints(tmp_path, tmp_path / "mean.pth.tar")
    mean = torch.load(tmp_path / "mean.pth.tar", weights_only=False)
    check_means(mean["state_dict"], models(2))
    assert mean["args"].lr == 0.1 and mean["metric"] == 0.5 and mean["scores"].tolist() == [0.0, 1.0, 2.0]
    torch.save({"state_dict": models(1)[0], "hook": os.system}, tmp_path / "checkpoint-2.pth.tar")
    with pytest.raises(ModelError, match=r"holds a pickled posix\.system, which is code"):
        merge_checkpoints(tmp_path, tmp_path / "again.pth.tar")


def test_several_state_dictionaries_need_a_key(tmp_path: Path) -> None:
    for i, state in enumerate(models(2)):
        torch.save({"state_dict": state, "state_dict_ema": state, "epoch": i}, tmp_path / f"m{i}.pt")
    with pytest.raises(ModelError, match="choose one of state_dict, state_dict_ema"):
        merge_checkpoints(tmp_path, tmp_path / "out.pt")
    merge_checkpoints(tmp_path, tmp_path / "out.pt", key="state_dict_ema")
    mean = torch.load(tmp_path / "out.pt", weights_only=True)
    check_means(mean["state_dict_ema"], models(2))
    assert "state_dict" not in mean


def test_files_without_an_order_are_refused(tmp_path: Path) -> None:
    for name, state in zip("ab", models(2), strict=True):
        save_file(state, tmp_path / f"{name}.safetensors")
    with pytest.raises(RunError, match="says its step"):
        merge_checkpoints(tmp_path, tmp_path / "out.safetensors")


def test_an_output_that_is_there_is_refused(tmp_path: Path) -> None:
    save_file(models(1)[0], tmp_path / "m1.safetensors")
    with pytest.raises(RunError, match="is there already"):
        merge_checkpoints(tmp_path, tmp_path / "m1.safetensors")
    with pytest.raises(SettingError, match=r"must end in \.safetensors"):
        merge_checkpoints(tmp_path, tmp_path / "mean.pt")


def save_shards(state: dict[str, Tensor], folder: Path) -> None:
    """Two files, and the index that names them."""
    folder.mkdir(parents=True)
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    save_file({"weight": state["weight"]}, folder / one)
    save_file({name: tensor for name, tensor in state.items() if name != "weight"}, folder / two)
    places = {name: one if name == "weight" else two for name in state}
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_averaged_shard_by_shard(tmp_path: Path) -> None:
    states = models(3)
    for step, state in zip((5, 10), states[:2], strict=True):
        save_shards(state, tmp_path / "outputs" / f"checkpoint-{step}")
    last = tmp_path / "outputs" / "checkpoint-2"
    last.mkdir()
    save_file(states[2], last / "model.safetensors")  # an older one, in one piece
    merged = merge_checkpoints(tmp_path / "outputs", tmp_path / "merged")
    assert merged.steps == (2, 5, 10)
    newest = tmp_path / "outputs" / "checkpoint-10"
    index = "model.safetensors.index.json"
    assert (tmp_path / "merged" / index).read_bytes() == (newest / index).read_bytes()
    found = {}
    for path in (tmp_path / "merged").glob("*.safetensors"):
        found |= load_file(path)
    check_means(found, [states[2], states[0], states[1]])


def test_shards_of_torch_save_are_averaged_shard_by_shard(tmp_path: Path) -> None:
    """As `save_pretrained(safe_serialization=False)` leaves them: each loads where the newest's shards loaded."""
    states = models(2)
    index = "pytorch_model.bin.index.json"
    for step, state in zip((5, 10), states, strict=True):
        folder = tmp_path / "outputs" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        places = {}
        for number, names in enumerate((["weight"], ["bias", "num_batches_tracked"]), start=1):
            shard = f"pytorch_model-{number:05}-of-00002.bin"
            torch.save({name: state[name] for name in names}, folder / shard)
            places.update(dict.fromkeys(names, shard))
        (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": places}))
        torch.save({"lr": 1.0}, folder / "scheduler.pt")
    merge_checkpoints(tmp_path / "outputs", tmp_path / "merged")
    newest = tmp_path / "outputs" / "checkpoint-10"
    assert (tmp_path / "merged" / index).read_bytes() == (newest / index).read_bytes()
    found = {}
    for path in sorted((tmp_path / "merged").glob("*.bin")):
        shard_found = torch.load(path, weights_only=True)
        assert list(shard_found) == list(torch.load(newest / path.name, weights_only=True))
        found |= shard_found
    check_means(found, states)
    (newest / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(RunError, match=r"names the shard pytorch_model-00002-of-00002\.bin"):
        merge_checkpoints(tmp_path / "outputs", tmp_path / "again")


def test_a_shard_that_is_not_there_is_named(tmp_path: Path) -> None:
    save_shards(models(1)[0], tmp_path / "checkpoint-1")
    (tmp_path / "checkpoint-1" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(RunError, match="names the shard model-00002-of-00002"):
        merge_checkpoints(tmp_path, tmp_path / "merged")
    (tmp_path / "checkpoint-1" / "model.safetensors.index.json").unlink()
    with pytest.raises(RunError, match="has no index"):
        merge_checkpoints(tmp_path, tmp_path / "merged")


def test_shards_go_into_a_folder_and_into_no_file(tmp_path: Path) -> None:
    save_shards(models(1)[0], tmp_path / "checkpoint-1")
    with pytest.raises(SettingError, match="must name a folder"):
        merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def killed(done: int, total: int) -> None:
    os.kill(os.getpid(), 9)


def test_a_process_that_is_killed_leaves_no_half_output(tmp_path: Path) -> None:
    """It is killed when half of the entries are written; the next process removes what it left, and is right."""
    for i, state in enumerate(models(2)):
        save_file(state, tmp_path / f"m{i}.safetensors")
    out = tmp_path / "mean.safetensors"
    assert status_of_child(lambda: merge_checkpoints(tmp_path, out, progress=killed)) == -9
    assert not (tmp_path / "mean.safetensors").exists()
    assert len(list(tmp_path.glob(".mean*.tmp"))) == 1
    merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    check_means(load_file(tmp_path / "mean.safetensors"), models(2))
    assert not list(tmp_path.glob(".mean*.tmp"))


def test_a_killed_process_leaves_no_half_folder(tmp_path: Path) -> None:
    """What it left is removed by the next process."""
    for i, state in enumerate(models(2)):
        save_shards(state, tmp_path / f"checkpoint-{i}")
    assert status_of_child(lambda: merge_checkpoints(tmp_path, tmp_path / "mean", progress=killed)) == -9
    assert len(list(tmp_path.glob(".mean*.tmp"))) == 1
    merge_checkpoints(tmp_path, tmp_path / "mean")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-0", "checkpoint-1", "mean"]


def test_a_state_dictionary_keeps_its_kind_its_versions_and_its_size(tmp_path: Path) -> None:
    linear = nn.Linear(30, 20)
    module = nn.Sequential(linear, nn.BatchNorm1d(20))
    torch.save(module.state_dict(), tmp_path / "m1.pt")
    shutil.copyfile(tmp_path / "m1.pt", tmp_path / "best.pt")
    nn.init.ones_(linear.bias)
    torch.save(module.state_dict(), tmp_path / "m2.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    assert merged.files == (tmp_path / "m1.pt", tmp_path / "m2.pt") and "counts once" in merged.notes[0]
    mean = torch.load(tmp_path / "mean.pt", weights_only=True)
    assert vars(mean) == vars(module.state_dict())
    assert (tmp_path / "mean.pt").stat().st_size < (tmp_path / "m2.pt").stat().st_size + 2000
    module.load_state_dict(mean)


def test_parameters_stay_parameters(tmp_path: Path) -> None:
    for i in (1, 3):
        torch.save({"w": nn.Parameter(torch.full((2,), float(i)))}, tmp_path / f"m{i}.pt")
    merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    mean = torch.load(tmp_path / "mean.pt", weights_only=True)["w"]
    assert isinstance(mean, nn.Parameter) and mean.tolist() == [2.0, 2.0]


def test_generators_are_no_model(tmp_path: Path) -> None:
    for i, state in enumerate(models(2)):
        generators = {"torch": torch.zeros(3, dtype=torch.uint8)}
        torch.save({"net": state, "rng": generators, "epoch": i}, tmp_path / f"m{i}.pt")
    merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    mean = torch.load(tmp_path / "mean.pt", weights_only=True)
    assert list(mean) == ["net", "epoch"]
    check_means(mean["net"], models(2))


@pytest.mark.parametrize("name", ["generator", "torchRNG", "GradScaler", "random_state"])
def test_what_a_training_remembers_is_no_model(tmp_path: Path, name: str) -> None:
    for i, state in enumerate(models(2)):
        content = {"net": state, name: {"cpu": torch.zeros(3, dtype=torch.uint8)}, "epoch": i}
        torch.save(content, tmp_path / f"m{i}.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    assert merged.notes == (f"left out of the mean: {name}",)
    check_means(torch.load(merged.out, weights_only=True)["net"], models(2))


@pytest.mark.parametrize("name", ["generator", "netG_generator", "scaler"])
def test_a_model_that_is_called_like_what_a_training_remembers_is_one_of_several(tmp_path: Path, name: str) -> None:
    for i, state in enumerate(models(2)):
        torch.save({name: state, "discriminator": state}, tmp_path / f"m{i}.pt")
    with pytest.raises(ModelError, match=f"choose one of {name}, discriminator"):
        merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    merge_checkpoints(tmp_path, tmp_path / "mean.pt", key=name)
    check_means(torch.load(tmp_path / "mean.pt", weights_only=True)[name], models(2))


def test_a_word_within_another_says_nothing_of_a_training(tmp_path: Path) -> None:
    for i, state in enumerate(models(2)):
        torch.save({"upscaler": state, "step": i}, tmp_path / f"m{i}.pt")
    merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    check_means(torch.load(tmp_path / "mean.pt", weights_only=True)["upscaler"], models(2))


@pytest.mark.parametrize("form", ["shadow", "list", "averages"])
def test_a_copy_of_the_model_within_an_entry_is_left_out_and_said(tmp_path: Path, form: str) -> None:
    for i, state in enumerate(models(2)):
        copies: dict[str, object] = {
            "shadow": {"decay": 0.99, "shadow": state},
            "list": {"decay": 0.99, "shadow_params": list(state.values())},
            "averages": {"ema": {"model": state}},
        }
        settings = {"lr": 0.1, "loss": {"weight": torch.ones(2)}}
        content = {"model": state, "ema": copies[form], "hyper_parameters": settings, "step": i}
        torch.save(content, tmp_path / f"m{i}.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    assert merged.notes == ("left out of the mean: ema",)
    mean = torch.load(merged.out, weights_only=True)
    assert list(mean) == ["model", "hyper_parameters", "step"]
    check_means(mean["model"], models(2))


@pytest.mark.parametrize("newest", [1, 2])
def test_complex_numbers_and_real_ones_have_no_common_mean(tmp_path: Path, newest: int) -> None:
    torch.save({"w": torch.ones(1, dtype=torch.complex64)}, tmp_path / f"m{newest}.pt")
    torch.save({"w": torch.ones(1)}, tmp_path / f"m{3 - newest}.pt")
    with pytest.raises(
        ModelError, match=r"w is torch\.\w+ in .*m1\.pt, torch\.\w+ in .*m2\.pt: these have no common mean"
    ):
        merge_checkpoints(tmp_path, tmp_path / "mean.pt")


def test_a_type_without_a_mean_is_named_with_its_tensor_and_file(tmp_path: Path) -> None:
    for step in (1, 2):
        state = {"w": torch.ones(2), "scale": torch.ones(2).to(torch.float8_e4m3fnuz)}
        torch.save(state, tmp_path / f"m{step}.pt")
    with pytest.raises(ModelError, match=r"m1\.pt: scale is of the type torch\.float8_e4m3fnuz, which has no mean"):
        merge_checkpoints(tmp_path, tmp_path / "mean.pt")


def test_integers_are_quantised_weights_only_if_they_are_called_weight(tmp_path: Path) -> None:
    for step in (1, 2):
        torch.save({"w": torch.ones(2) * step, "loss.class_weight": torch.tensor([1, 2])}, tmp_path / f"m{step}.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    assert torch.load(merged.out, weights_only=True)["loss.class_weight"].tolist() == [1, 2]
    torch.save({"w": torch.ones(2), "weight": torch.tensor([1, 2])}, tmp_path / "m3.pt")
    with pytest.raises(ModelError, match=r"quantised weights \(weight\)"):
        merge_checkpoints(tmp_path / "m3.pt", tmp_path / "again.pt")


def test_numbers_that_the_newest_has_as_integers_do_not_count_and_that_is_said(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2), "scale": torch.tensor([3.5])}, tmp_path / "m1.pt")
    torch.save({"w": torch.ones(2), "scale": torch.tensor([1])}, tmp_path / "m2.pt")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.pt")
    assert torch.load(merged.out, weights_only=True)["scale"].tolist() == [1]
    assert merged.notes == (f"scale: integers in the newest, which are taken, and none in {tmp_path / 'm1.pt'}",)


def test_factors_of_lora_are_refused_unless_their_means_are_asked_for(tmp_path: Path) -> None:
    for i in (1, 3):
        save_file({"q.lora_A.weight": torch.full((2, 3), float(i))}, tmp_path / f"m{i}.safetensors")
    with pytest.raises(ModelError, match="not the mean of the products"):
        merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors", lora="factors")
    assert "not the mean" in merged.notes[0]
    assert load_file(tmp_path / "mean.safetensors")["q.lora_A.weight"].tolist() == [[2.0] * 3] * 2


def test_what_can_not_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    save_shards(models(1)[0], folder)
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"bits": 4}}))
    with pytest.raises(ModelError, match="quantization_config"):
        merge_checkpoints(tmp_path, tmp_path / "mean")
    (tmp_path / "half.safetensors").write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes()[:-1])
    with pytest.raises(RunError, match="no whole file of safetensors"):
        merge_checkpoints(tmp_path / "half.safetensors", tmp_path / "mean")
    (tmp_path / "half.pt").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(RunError, match="is damaged"):
        merge_checkpoints(tmp_path / "half.pt", tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_torch_save_with_any_damage_is_read_or_named(tmp_path: Path, zipped: bool) -> None:
    for i, state in enumerate(models(2), 1):
        torch.save(state, tmp_path / f"m-{i}.pt", _use_new_zipfile_serialization=zipped)
    damaged = tmp_path / "m-2.pt"
    content = damaged.read_bytes()
    draws = random.Random(0)
    refused = 0
    for i in range(30):
        place = draws.randrange(len(content))
        if i % 3 == 0:
            damaged.write_bytes(content[:place])
        else:
            damaged.write_bytes(content[:place] + draws.randbytes(3) + content[place + 3 :])
        try:
            merge_checkpoints(tmp_path, tmp_path / f"out-{i}")
        except FedsashError as error:
            refused += 1
            assert str(damaged) in str(error)
            assert "weights_only" not in str(error)  # with False, damage could run code
    assert refused > 10


def test_the_mean_of_complex_numbers_has_both_parts(tmp_path: Path) -> None:
    for i, value in enumerate((1 + 4j, 3 - 2j)):
        save_file({"w": torch.tensor([value, -value])}, tmp_path / f"m{i}.safetensors")
    merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    assert load_file(tmp_path / "mean.safetensors")["w"].tolist() == [2 + 1j, -2 - 1j]


def test_two_names_that_differ_in_their_prefix_alone_are_refused(tmp_path: Path) -> None:
    save_file({"module.w": torch.ones(1), "w": torch.ones(1)}, tmp_path / "m0.safetensors")
    save_file({"model.w": torch.ones(1)}, tmp_path / "m1.safetensors")
    with pytest.raises(ModelError, match="alike but for their prefixes"):
        merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")


def test_a_card_without_its_mean_does_not_stay(tmp_path: Path) -> None:
    """While the mean is written, somebody makes a folder of its name."""
    (tmp_path / "in").mkdir()
    for i, state in enumerate(models(2)):
        save_file(state, tmp_path / "in" / f"m{i}.safetensors")
    out = tmp_path / "mean.safetensors"
    with pytest.raises(RunError, match="there already"):
        merge_checkpoints(tmp_path / "in", out, progress=lambda done, total: out.mkdir(exist_ok=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "mean.safetensors"]


@pytest.mark.parametrize("name", ["mean.safetensors", "mean"])
def test_of_two_merges_into_one_output_the_later_is_refused_and_the_first_keeps_its_card(
    tmp_path: Path, name: str
) -> None:
    """While the first two of three are averaged, another call averages all of them, and is done before."""
    (tmp_path / "in").mkdir()
    for i, state in enumerate(models(3)):
        save_file(state, tmp_path / "in" / f"m{i}.safetensors")
    out = tmp_path / name

    def other(done: int, total: int) -> None:
        if done == total:
            merge_in_subprocess(tmp_path / "in", out)

    with pytest.raises(RunError, match="there already"):
        merge_checkpoints(tmp_path / "in", out, last=2, progress=other)
    card = out / "merge.json" if out.is_dir() else tmp_path / f"{name}.merge.json"
    assert len(json.loads(card.read_bytes())["checkpoints"]) == 3
    assert not list(tmp_path.glob(".*"))


def merge_in_subprocess(source: Path, out: Path) -> None:
    assert status_of_child(lambda: merge_checkpoints(source, out)) == 0


KINDS = ["file.safetensors", "file.pt", "dcp", "lora.safetensors", "lora.bin"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.8, 3.0])
def test_an_output_for_which_there_is_no_room_is_named_and_absent(tmp_path: Path, kind: str, share: float) -> None:
    """No file may be longer than a share of the model; what is pickled is written twice, and may fail in either."""
    values = torch.arange(30_000, dtype=torch.float32)
    for step in (1, 2):
        folder = tmp_path / "in" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        factors = {"a.lora_A.weight": values.view(2, -1) + step, "a.lora_B.weight": torch.ones(1, 2)}
        if kind == "file.safetensors":
            save_file({"w": values + step}, folder / "model.safetensors")
        elif kind == "file.pt":
            torch.save({"w": values + step}, folder / "model.pt")
        elif kind == "dcp":
            distributed.save(folder, {"w": values + step})
        elif kind == "lora.safetensors":
            save_file(factors, folder / "adapter_model.safetensors")
        else:
            torch.save(factors, folder / "adapter_model.bin")
        (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2, "lora_alpha": 4}')
    out = tmp_path / "out"
    lora = "exact" if kind.startswith("lora") else ""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * 4 * len(values)), limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large.*out|out.*os error 27") if share < 1 else nullcontext():
            merge_checkpoints(tmp_path / "in", out, lora=lora)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["in"] if share < 1 else ["in", "out"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_mean_that_is_not_finite_is_said_with_the_checkpoints_because_of_which(tmp_path: Path, value: float) -> None:
    states = models(3)
    states[1]["weight"][0, 1] = value
    for i, state in enumerate(states):
        save_file(state, tmp_path / f"m{i}.safetensors")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")
    assert f"the mean of weight is not finite, as it is not in {tmp_path / 'm1.safetensors'}" in merged.notes


def test_a_mean_that_overflows_is_said(tmp_path: Path) -> None:
    largest = torch.tensor([torch.finfo(torch.float32).max])
    save_file({"w": torch.zeros(1)}, tmp_path / "m0.safetensors")
    save_file({"w": largest}, tmp_path / "m1.safetensors")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors", weights=[-1.0, 2.0])
    assert merged.notes == ("the mean of w is not finite",)


@pytest.mark.parametrize("state", [{"n": torch.tensor(1)}, {}])
def test_checkpoints_without_a_floating_point_tensor_are_refused(tmp_path: Path, state: dict[str, Tensor]) -> None:
    save_file(state, tmp_path / "m.safetensors")
    with pytest.raises(ModelError, match=r"m\.safetensors has no floating-point tensor to average"):
        merge_checkpoints(tmp_path, tmp_path / "mean.safetensors")


def test_a_key_is_refused_where_there_is_a_single_state_dictionary(tmp_path: Path) -> None:
    save_file(models(1)[0], tmp_path / "m.safetensors")
    save_shards(models(1)[0], tmp_path / "sharded")
    for path in (tmp_path / "m.safetensors", tmp_path / "sharded"):
        with pytest.raises(ModelError, match="has no state dictionary 'state_dict_ema'; it holds a single one"):
            merge_checkpoints(path, tmp_path / "mean", key="state_dict_ema")


def test_the_last_progress_is_all_also_of_complex_numbers(tmp_path: Path) -> None:
    for i in range(2):
        save_file({"w": torch.full((3,), 1j + i), "v": torch.ones(2)}, tmp_path / f"m{i}.safetensors")
    progress = list[tuple[int, int]]()
    merge_checkpoints(
        tmp_path, tmp_path / "mean.safetensors", progress=lambda done, total: progress.append((done, total))
    )
    assert progress[-1] == (8, 8)


def test_tensors_that_are_one_in_the_newest_alone_are_refused_if_they_differ(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2), "b": torch.zeros(2)}, tmp_path / "m0.pt")
    tied = torch.ones(2)
    torch.save({"a": tied, "b": tied}, tmp_path / "m1.pt")
    with pytest.raises(ModelError, match="a and b are one tensor in the newest file, and two in"):
        merge_checkpoints(tmp_path, tmp_path / "mean.pt")


def test_weights_are_told_as_shares(tmp_path: Path) -> None:
    for i, state in enumerate(models(2)):
        save_file(state, tmp_path / f"m{i}.safetensors")
    merged = merge_checkpoints(tmp_path, tmp_path / "mean.safetensors", weights=[1.0, 3.0])
    assert merged.weights == (0.25, 0.75)
