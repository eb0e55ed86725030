"""Folders of `torch.distributed.checkpoint`, written by it: read without running anything, averaged, written again."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from torch import Tensor

from fedsash.averages.checkpoints import merge_checkpoints
from fedsash.averages.checkpoints.distributed import DistributedFolder, _Chunk, _Joined, _Record, _Stored
from fedsash.settings.errors import FedsashError, ModelError, RunError, SettingError
from support.by_default import full
from support.children import status_of_child

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def model(i: int) -> dict[str, Tensor]:
    """Small multiples of 2^-6, of which one tensor does not lie row by row, one is empty and one a buffer."""
    draws = torch.Generator().manual_seed(i)
    weight = torch.randint(-200, 200, (5, 3), generator=draws).float() / 64
    bias = torch.randint(-200, 200, (5,), generator=draws).to(torch.bfloat16) / 64
    phase = torch.complex(weight[0], weight[1])
    return {"a.weight": weight.t(), "a.bias": bias, "phase": phase, "empty": torch.zeros(0), "seen": torch.tensor(i)}


def save(folder: Path, content: dict[str, Any]) -> None:
    checkpoint.save(content, checkpoint_id=folder, no_dist=True)


def loaded(folder: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The folder as `torch.distributed.checkpoint` loads it into such tensors."""
    checkpoint.load(content, checkpoint_id=folder, no_dist=True)
    return content


def check_mean(found: dict[str, Tensor], old: dict[str, Tensor], new: dict[str, Tensor]) -> None:
    for name in ("a.weight", "phase"):
        assert torch.equal(found[name], (old[name] + new[name]) / 2)
    wanted = (old["a.bias"].double() + new["a.bias"].double()) / 2
    assert torch.equal(found["a.bias"].double(), wanted.to(torch.float32).to(torch.bfloat16).double())
    assert found["seen"] == new["seen"]


def test_the_mean_of_folders_is_a_folder_that_loads_where_the_newest_loaded(tmp_path: Path) -> None:
    for step in (500, 1000):
        optimiser = {"state": {"a.weight": {"exp_avg": torch.zeros(3, 5), "step": torch.tensor(1)}}}
        content = {"model": model(step), "optim": optimiser, "global_step": step, "epoch": 3}
        save(tmp_path / "in" / f"part-{step}", content)
    (tmp_path / "in" / "part-1000" / "config.json").write_text("{}")
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "mean")
    assert merged.steps == (500, 1000)
    assert merged.notes == ("left out of the mean: optim, epoch",)
    target = {"model": {name: torch.zeros_like(x) for name, x in model(0).items()}, "global_step": 0}
    found = loaded(tmp_path / "mean", target)
    check_mean(found["model"], model(500), model(1000))
    assert found["global_step"] == 1000
    names = {path.name for path in (tmp_path / "mean").iterdir()}
    assert names == {".metadata", "__0_0.distcp", "config.json", "merge.json"}


def test_a_folder_and_a_file_are_averaged_and_the_newest_says_the_format(tmp_path: Path) -> None:
    save(tmp_path / "in-1", model(1))
    torch.save(model(2), tmp_path / "in-2.pt")
    merge_checkpoints([tmp_path / "in-1", tmp_path / "in-2.pt"], tmp_path / "mean.pt")
    check_mean(torch.load(tmp_path / "mean.pt", weights_only=True), model(1), model(2))


def test_one_of_several_models_is_chosen_by_its_key(tmp_path: Path) -> None:
    for i in (1, 2):
        save(tmp_path / f"in-{i}", {"app": {"model": model(i), "ema": model(i + 2), "optim": {"m": torch.zeros(2)}}})
    paths = [tmp_path / "in-1", tmp_path / "in-2"]
    with pytest.raises(ModelError, match=r"choose one of app\.model, app\.ema by its key"):
        merge_checkpoints(paths, tmp_path / "mean")
    with pytest.raises(ModelError, match=r"no state dictionary 'ema'; it has app\.model"):
        merge_checkpoints(paths, tmp_path / "mean", key="ema")
    merge_checkpoints(paths, tmp_path / "mean", key="app.ema")
    target = {name: torch.zeros_like(x) for name, x in model(0).items()}
    check_mean(loaded(tmp_path / "mean", {"app": {"ema": target}})["app"]["ema"], model(3), model(4))
    with pytest.raises(SettingError, match="must name a folder"):
        merge_checkpoints(paths, tmp_path / "mean.pt", key="app.ema")


def test_a_generator_with_weights_is_a_model_and_one_of_random_numbers_is_none(tmp_path: Path) -> None:
    for i in (1, 2):
        save(tmp_path / f"gan-{i}", {"generator": model(i), "discriminator": model(i + 2)})
        save(tmp_path / f"net-{i}", {"net": model(i), "generator": {"cpu": torch.zeros(3, dtype=torch.uint8)}})
    with pytest.raises(ModelError, match=r"choose one of generator, discriminator by its key"):
        merge_checkpoints([tmp_path / "gan-1", tmp_path / "gan-2"], tmp_path / "mean")
    merged = merge_checkpoints([tmp_path / "net-1", tmp_path / "net-2"], tmp_path / "mean")
    assert merged.notes == ("left out of the mean: generator",)


def test_the_folders_of_accelerate_keep_their_layout(tmp_path: Path) -> None:
    """The model's folder lies in that of the checkpoint, where the trainer's state is, too."""
    for step in (900, 1000):
        folder = tmp_path / "in" / f"checkpoint-{step}"
        save(folder / "pytorch_model_fsdp_0", {"model": model(step)})
        save(folder / "optimizer_0", {"optimizer": {"state": torch.zeros(2)}})
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": 2 * step}))
        (folder / "config.json").write_text("{}")
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "mean")
    assert merged.steps == (1800, 2000)
    assert {path.name for path in (tmp_path / "mean").iterdir()} == {
        "pytorch_model_fsdp_0",
        "config.json",
        "merge.json",
    }
    target = {"model": {name: torch.zeros_like(x) for name, x in model(0).items()}}
    check_mean(loaded(tmp_path / "mean" / "pytorch_model_fsdp_0", target)["model"], model(900), model(1000))


def test_a_process_that_is_killed_leaves_no_half_folder(tmp_path: Path) -> None:
    for i in (1, 2):
        save(tmp_path / f"in-{i}", model(i))
    paths = [tmp_path / "in-1", tmp_path / "in-2"]

    def killed(done: int, total: int) -> None:
        os.kill(os.getpid(), 9)

    assert status_of_child(lambda: merge_checkpoints(paths, tmp_path / "mean", progress=killed)) == -9
    assert not (tmp_path / "mean").exists()
    merge_checkpoints(paths, tmp_path / "mean")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in-1", "in-2", "mean"]


class Harm:
    """An object whose pickle calls a function when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("it was run",))


def test_metadata_that_names_another_class_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".metadata").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(ModelError, match=r"\.metadata names _pytest\.outcomes\.\w+, which does not belong there"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean")


def test_what_is_damaged_or_missing_is_named(tmp_path: Path) -> None:
    save(tmp_path / "in", model(1))
    data = tmp_path / "in" / "__0_0.distcp"
    whole = data.read_bytes()

    def refused(text: str) -> None:
        with pytest.raises(RunError, match=text):
            merge_checkpoints(tmp_path / "in", tmp_path / "mean")
        assert not (tmp_path / "mean").exists()

    data.write_bytes(whole[:-1])
    refused(r"__0_0\.distcp is shorter than")
    data.write_bytes(bytes(len(whole)))
    refused(r"__0_0\.distcp is damaged")
    data.unlink()
    refused(r"names the file __0_0\.distcp, which is not there")
    metadata = (tmp_path / "in" / ".metadata").read_bytes()
    (tmp_path / "in" / ".metadata").write_bytes(metadata[: len(metadata) // 2])
    refused(r"\.metadata is damaged")


@pytest.mark.parametrize("name", [".metadata", full("__0_0.distcp")])
def test_whatever_bytes_are_damaged_the_mean_is_made_or_refused_in_one_line(tmp_path: Path, name: str) -> None:
    save(tmp_path / "in", {"model": model(1), "global_step": 7})
    file = tmp_path / "in" / name
    whole = file.read_bytes()
    draws = random.Random(1)
    refused = 0
    for _ in range(100):
        content = bytearray(whole)
        content[draws.randrange(len(content))] = draws.randrange(256)
        file.write_bytes(content)
        try:
            merge_checkpoints(tmp_path / "in", tmp_path / "mean")
            shutil.rmtree(tmp_path / "mean")
        except FedsashError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("shape", [(7,), (7, 5), (4, 5, 3)])
def test_any_piece_of_a_tensor_is_put_together_from_its_chunks(shape: tuple[int, ...]) -> None:
    whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
    chunks = []
    for first in (slice(0, 3), slice(3, shape[0])):
        for second in (slice(0, 2), slice(2, 5)) if len(shape) > 1 else (slice(None),):
            part = whole[first, second] if len(shape) > 1 else whole[first]
            start = second.start or 0
            offsets = (first.start, start, 0)[: len(shape)]
            chunks.append(_Chunk(offsets, tuple(part.shape), _Record(Path(), 0, 0)))

    def mapped(chunk: _Chunk, dtype: torch.dtype) -> Tensor:
        part = whole.to(dtype)
        for axis, (offset, length) in enumerate(zip(chunk.offsets, chunk.shape, strict=True)):
            part = part.narrow(axis, offset, length)
        return part

    joined = _Joined(_Stored(torch.float32, shape, chunks), mapped)
    for start in range(whole.numel()):
        for length in (1, 4, 100):
            assert torch.equal(joined[start : start + length], whole.view(-1)[start : start + length])


TWO_PROCESSES = """
import sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
for step in (1, 2):
    rows = torch.arange(35.0).view(5, 7) * step
    model = {"rows": distribute_tensor(rows, mesh, [Shard(0)]), "columns": distribute_tensor(rows, mesh, [Shard(1)])}
    checkpoint.save({"model": model, "step": step}, checkpoint_id=f"{folder}/step-{step}")
dist.destroy_process_group()
"""


@pytest.mark.full
def test_what_two_processes_have_saved_is_put_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO_PROCESSES]
    processes = [subprocess.Popen([*command, str(rank), str(tmp_path)]) for rank in (0, 1)]
    assert [process.wait() for process in processes] == [0, 0]
    rows = torch.arange(35.0).view(5, 7)
    for name in ("rows", "columns"):
        folder = DistributedFolder(tmp_path / "step-1" / ".metadata")
        assert len(folder.stored[f"model.{name}"].chunks) == 2
        assert torch.equal(folder.tensor(name), rows)
    merge_checkpoints([tmp_path / "step-1", tmp_path / "step-2"], tmp_path / "mean")
    target = {"model": {"rows": torch.zeros(5, 7), "columns": torch.zeros(5, 7)}}
    found = loaded(tmp_path / "mean", target)["model"]
    assert torch.equal(found["rows"], 1.5 * rows)
    assert torch.equal(found["columns"], 1.5 * rows)
