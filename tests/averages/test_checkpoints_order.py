"""In which order checkpoints are averaged, and which of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedsash.averages.checkpoints import merge_checkpoints
from fedsash.averages.checkpoints.order import files_of, number_of
from fedsash.settings.errors import RunError, SettingError


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model-500", 500),
        ("checkpoint-1000", 1000),
        ("epoch=3-step=1000", 1000),
        ("step=20-loss=0.25", 20),
        ("resnet50_0007", 7),
        ("step_12_of_99", 12),
        ("epoch=10-val_loss=0.31", 10),
        ("Epoch_3_of_90", 3),
        ("epoch=3-iter=1200", 1200),
        ("model_1_loss0.90", 1),
        ("model-300-v1.2.3", 300),
        ("model-300-fp16", 300),
        ("lr=1e-3-m7", 7),
        ("model-20240530220059", 20240530220059),
        ("checkpoint-20240530", 20240530),
        ("acc=87", None),
        ("loss0.90", None),
        ("best", None),
    ],
)
def test_the_number_in_a_name_is_a_step_an_iteration_or_an_epoch_else_the_last_whole_one(
    name: str, number: int | None
) -> None:
    assert number_of(name) == number


@pytest.mark.parametrize(
    "names",
    [
        ["model-20240530-220000", "model-20240531-010000", "model-20240531-040000"],
        ["2024-05-30_22-05-59_resnet50", "2024-05-30_22-06-00_resnet50", "2024-05-31_01-00-00_resnet50"],
        ["2024-05-30T22:05", "2024-05-31T01:00"],
        ["2024-05-30_model", "2024-06-02_model", "2024-11-01_model"],
        ["20240530-model-900", "20240530-model-1300", "20240530-model-2500"],  # steps of one day
        ["2024_05_30-m9", "2024_05_30-m10", "2024_05_31-m1"],
    ],
)
def test_names_with_a_date_are_in_the_order_of_days_and_within_a_day_of_times_or_steps(names: list[str]) -> None:
    numbers = [number_of(name) for name in names]
    assert numbers == sorted(set(numbers))


def save(path: Path, value: float, **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": {"w": torch.tensor([value])}, **more}, path)


def names(folder: Path, out: Path, last: int | None = None, every: int = 1) -> list[str]:
    """The names of what is averaged, from the oldest on."""
    merged = merge_checkpoints(folder, out, last=last, every=every)
    return [path.stem for path in merged.files]


def test_the_step_in_the_file_goes_before_the_number_in_the_name(tmp_path: Path) -> None:
    save(tmp_path / "in" / "a-2.ckpt", 1.0, global_step=100)
    save(tmp_path / "in" / "a-1.ckpt", 2.0, global_step=200)
    assert names(tmp_path / "in", tmp_path / "out") == ["a-2", "a-1"]


def test_last_and_best_of_a_step_that_is_there_count_once(tmp_path: Path) -> None:
    for step in (100, 200):
        save(tmp_path / "in" / f"epoch=0-step={step}.ckpt", float(step), global_step=step)
    save(tmp_path / "in" / "last.ckpt", 200.0, global_step=200, callbacks={"saved": 2})
    save(tmp_path / "in" / "best-100.ckpt", 100.0, global_step=100, callbacks={"saved": 1})  # the first by its name
    assert names(tmp_path / "in", tmp_path / "out") == ["epoch=0-step=100", "epoch=0-step=200"]


def test_last_without_a_step_is_left_out_and_said(tmp_path: Path) -> None:
    for step in (9, 10):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    save(tmp_path / "in" / "last.pt", 10.5)
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "out")
    assert [path.stem for path in merged.files] == ["m9", "m10"]
    assert "nobody knows its step" in merged.notes[0]


def test_a_model_that_is_saved_again_under_another_name_counts_once(tmp_path: Path) -> None:
    for name, value in (("m1", 1.0), ("m2", 3.0), ("last", 3.0)):
        save(tmp_path / f"{name}.pt", value)
    paths = [tmp_path / "last.pt", tmp_path / "m1.pt", tmp_path / "m2.pt"]
    merged = merge_checkpoints(paths, tmp_path / "mean.pt")
    assert merged.files == (tmp_path / "m1.pt", tmp_path / "m2.pt")
    assert merged.notes == (f"{tmp_path / 'last.pt'} holds the model of {tmp_path / 'm2.pt'}, and counts once",)


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_equal_models_of_different_steps_count_each(tmp_path: Path, ending: str) -> None:
    for step, value in ((1, 1.0), (2, 1.0), (3, 4.0)):
        state = {"w": torch.tensor([value])}
        path = tmp_path / "in" / f"checkpoint-{step}" / f"model.{ending}"
        path.parent.mkdir(parents=True)
        if ending == "pt":
            torch.save(state, path)
        else:
            save_file(state, path)
    assert merge_checkpoints(tmp_path / "in", tmp_path / "mean").weights == (1 / 3, 1 / 3, 1 / 3)


def seeds(folder: Path) -> list[Path]:
    """The last checkpoints of three trainings of one length: different models of one step."""
    paths = [folder / f"seed{seed}" / "last.ckpt" for seed in range(3)]
    for seed, path in enumerate(paths):
        save(path, float(seed), global_step=1000)
    return paths


def test_a_plain_mean_of_named_files_needs_no_order(tmp_path: Path) -> None:
    paths = seeds(tmp_path)
    merged = merge_checkpoints(paths, tmp_path / "soup.ckpt")
    assert torch.load(merged.out, weights_only=True)["state_dict"]["w"] == 1.0
    assert merged.files == tuple(paths)
    assert "a plain mean needs none" in merged.notes[0]
    unnumbered = [tmp_path / "a" / "best.pt", tmp_path / "b" / "best.pt", tmp_path / "m-1.pt"]
    for value, path in enumerate(unnumbered):
        save(path, float(value))
    merged = merge_checkpoints(unnumbered, tmp_path / "soup.pt")
    assert torch.load(merged.out, weights_only=True)["state_dict"]["w"] == 1.0


def test_a_plain_mean_of_named_folders_needs_no_order(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for value, folder in enumerate(folders):
        save(folder / "pytorch_model.bin", float(value))
    merged = merge_checkpoints(folders, tmp_path / "soup")
    assert torch.load(merged.out / "pytorch_model.bin", weights_only=True)["state_dict"]["w"] == 0.5


def test_different_models_of_one_step_have_no_order(tmp_path: Path) -> None:
    paths = seeds(tmp_path)
    with pytest.raises(RunError, match=r"seed0.last\.ckpt and .*seed1.last\.ckpt are both from step 1000"):
        merge_checkpoints(paths, tmp_path / "soup.ckpt", ema=0.5)
    for value, name in enumerate(("a_best_10.pt", "b_best_10.pt")):
        save(tmp_path / "in" / name, float(value))
    with pytest.raises(RunError, match="are both from step 10"):
        merge_checkpoints(tmp_path / "in", tmp_path / "soup.pt")


def test_a_named_file_without_a_step_is_not_left_out(tmp_path: Path) -> None:
    for name in ("m1", "m2", "best"):
        save(tmp_path / f"{name}.pt", float(len(name)))
    paths = [tmp_path / f"{name}.pt" for name in ("m1", "m2", "best")]
    with pytest.raises(RunError, match=r"best\.pt: neither the file nor its name says its step"):
        merge_checkpoints(paths, tmp_path / "mean.pt", last=2)


def test_numbers_in_names_are_no_steps_beside_other_ones_in_the_files(tmp_path: Path) -> None:
    for epoch in (1, 2):
        save(tmp_path / "in" / f"epoch={epoch}.ckpt", float(epoch), global_step=100 * epoch)
    save(tmp_path / "in" / "start-0.ckpt", 0.0)
    with pytest.raises(RunError, match=r"start-0\.ckpt does not say its step; .*epoch=1\.ckpt is from 100, and"):
        merge_checkpoints(tmp_path / "in", tmp_path / "mean.ckpt")
    save(tmp_path / "steps" / "step=100.ckpt", 1.0, global_step=100)
    save(tmp_path / "steps" / "step=200.ckpt", 2.0)
    assert merge_checkpoints(tmp_path / "steps", tmp_path / "mean.ckpt").steps == (100, 200)


def test_last_and_every_count_back_from_the_newest(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    assert names(tmp_path / "in", tmp_path / "a", last=2) == ["m6", "m7"]
    assert names(tmp_path / "in", tmp_path / "b", every=3) == ["m1", "m4", "m7"]
    assert names(tmp_path / "in", tmp_path / "c", last=4, every=2) == ["m5", "m7"]
    assert len(names(tmp_path / "in", tmp_path / "all", last=7)) == 7
    with pytest.raises(SettingError, match="must be at most 7"):
        names(tmp_path / "in", tmp_path / "d", last=8)


def test_the_trainers_state_names_the_step_of_a_folder(tmp_path: Path) -> None:
    for folder, step in (("fold-1", 300), ("fold-2", 200)):
        place = tmp_path / "in" / folder
        save(place / "pytorch_model.bin", float(step))
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "out")
    assert merged.steps == (200, 300)


@pytest.mark.parametrize("kind", [int, float, np.int64, torch.tensor])
def test_a_step_may_be_of_any_kind_of_whole_numbers(tmp_path: Path, kind: Callable[[int], object]) -> None:
    save(tmp_path / "in" / "a.pt", 1.0, step=kind(20))
    save(tmp_path / "in" / "b.pt", 2.0, step=kind(10))
    assert names(tmp_path / "in", tmp_path / "out") == ["b", "a"]


def test_the_parts_of_zero_are_refused_with_what_puts_them_together(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "checkpoint-5"
    save(folder / "global_step5" / "zero_pp_rank_0_mp_rank_00_model_states.pt", 1.0)
    (folder / "zero_to_fp32.py").touch()
    with pytest.raises(RunError, match=r"parts of DeepSpeed's ZeRO: python .*zero_to_fp32\.py"):
        merge_checkpoints(tmp_path / "in", tmp_path / "out")


def test_a_trainers_state_beside_several_files_is_not_the_step_of_each(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    (tmp_path / "in" / "trainer_state.json").write_text(json.dumps({"global_step": 7}))
    assert names(tmp_path / "in", tmp_path / "out") == ["m1", "m2"]


def test_files_that_differ_in_one_entry_are_two(tmp_path: Path) -> None:
    for name, entry in (("m1", 1.0), ("best", 2.0)):
        values = torch.zeros(20_000)
        values[4_000] = entry
        save_file({"w": values}, tmp_path / f"{name}.safetensors")
    paths = [tmp_path / "m1.safetensors", tmp_path / "best.safetensors"]
    assert len(merge_checkpoints(paths, tmp_path / "mean.safetensors").files) == 2


def test_what_a_training_keeps_beside_its_model_is_no_checkpoint(tmp_path: Path) -> None:
    for name in ("m1", "m2", "optimizer", "scheduler", "rng_state_0", "training_args"):
        save(tmp_path / f"{name}.pt", 1.0)
    assert [path.stem for path in files_of([tmp_path], print)] == ["m1", "m2"]


def test_a_link_to_nothing_in_the_place_of_a_checkpoint_is_refused_and_one_beside_it_is_not(tmp_path: Path) -> None:
    for step in (100, 200):
        save(tmp_path / "in" / f"checkpoint-{step}" / "pytorch_model.bin", float(step))
    (tmp_path / "in" / "checkpoint-200" / "optimizer.pt").symlink_to("nowhere")
    (tmp_path / "in" / "latest").symlink_to("nowhere")
    assert len(files_of([tmp_path / "in"], print)) == 2
    (tmp_path / "in" / "checkpoint-200" / "pytorch_model.bin").unlink()
    for link in ("checkpoint-200/pytorch_model.bin", "checkpoint-300"):
        (tmp_path / "in" / link).symlink_to("nowhere")
        with pytest.raises(RunError, match=f"{link} is a link to nothing"):
            files_of([tmp_path / "in"], print)
        (tmp_path / "in" / link).unlink()


def test_a_path_that_does_not_exist_is_named_with_one_that_is_like_it(tmp_path: Path) -> None:
    save(tmp_path / "outputs" / "model-1.pt", 1.0)
    with pytest.raises(RunError, match=r"output does not exist; did you mean .*outputs\?"):
        files_of([tmp_path / "output"], print)


def test_a_folder_that_a_killed_training_left_without_weights_is_said(tmp_path: Path) -> None:
    for step in (500, 1000):
        save(tmp_path / f"checkpoint-{step}" / "pytorch_model.bin", float(step))
    killed = tmp_path / "checkpoint-1500"
    killed.mkdir()
    torch.save({}, killed / "optimizer.pt")
    (tmp_path / "events-12").mkdir()
    lines = list[str]()
    assert len(files_of([tmp_path], lines.append)) == 2
    assert lines == [f"left out, without weights: {killed}"]


def lines_of(folder: Path) -> tuple[list[Path], list[str]]:
    """The files that are taken in a folder, and what is said of them."""
    lines = list[str]()
    return files_of([folder], lines.append), lines


def test_files_beside_folders_that_are_not_called_checkpoints_are_not_passed_over(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / f"model-{step}.pt", float(step))
    save(tmp_path / "samples-100" / "latents.pt", 99.0)
    with pytest.raises(
        RunError, match=r"checkpoints in files and in folders \(model-1\.pt and samples-100\): name those"
    ):
        files_of([tmp_path], print)


def test_the_last_model_beside_folders_of_checkpoints_is_left_out_and_said(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / f"checkpoint-{step}" / "pytorch_model.bin", float(step))
    save(tmp_path / "pytorch_model.bin", 2.0)
    files, lines = lines_of(tmp_path)
    assert files == [tmp_path / f"checkpoint-{step}" / "pytorch_model.bin" for step in (1, 2)]
    assert lines == [f"left out, beside folders with checkpoints: {tmp_path / 'pytorch_model.bin'}"]


def test_a_model_beside_the_index_of_another_is_left_out_and_said(tmp_path: Path) -> None:
    for name in ("model.safetensors", "model-00001-of-00001.safetensors"):
        save_file({"w": torch.zeros(2)}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "model-00001-of-00001.safetensors"}}))
    (tmp_path / "._model.safetensors.index.json").write_bytes(b"what a Mac writes beside a file")
    assert lines_of(tmp_path) == ([index], [f"left out, beside {index}: model.safetensors"])


def test_deepspeeds_state_beside_a_model_is_no_checkpoint(tmp_path: Path) -> None:
    model = tmp_path / "checkpoint-500" / "pytorch_model.bin"
    save(model, 1.0)
    save(model.parent / "global_step500" / "mp_rank_00_model_states.pt", 9.0)
    assert files_of([model.parent], print) == [model]
    model.unlink()
    (model.parent / "zero_to_fp32.py").touch()
    with pytest.raises(RunError, match="parts of DeepSpeed's ZeRO"):
        files_of([model.parent], print)


def test_a_folder_of_weights_whose_step_nobody_knows_is_left_out_and_said(tmp_path: Path) -> None:
    for name in ("checkpoint-1", "checkpoint-2", "final"):
        save(tmp_path / name / "pytorch_model.bin", 1.0)
    (tmp_path / "logs").mkdir()
    files, lines = lines_of(tmp_path)
    assert len(files) == 2
    assert lines == [f"left out, since nobody knows its step: {tmp_path / 'final'}"]


def test_slices_of_one_model_are_no_checkpoints(tmp_path: Path) -> None:
    save(tmp_path / "consolidated.00.pth", 1.0)
    assert len(files_of([tmp_path], print)) == 1
    save(tmp_path / "consolidated.01.pth", 2.0)
    with pytest.raises(RunError, match=r"consolidated\.00.* are parts of one model"):
        files_of([tmp_path], print)


def test_a_second_file_beside_a_model_is_left_out_and_said(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(2)}, tmp_path / "model.safetensors")
    save(tmp_path / "pytorch_model.bin", 1.0)
    model = tmp_path / "model.safetensors"
    assert lines_of(tmp_path) == ([model], [f"left out, beside {model}: pytorch_model.bin"])


def test_means_alone_in_a_folder_can_be_named_one_by_one(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    means = [tmp_path / "means" / f"soup-{i}.pt" for i in (1, 2)]
    for i, mean in enumerate(means):
        merge_checkpoints(tmp_path / "in", mean, last=i + 1)
    with pytest.raises(RunError, match=r"no checkpoint but means of earlier merges: name those .*soup-1\.pt"):
        merge_checkpoints(tmp_path / "means", tmp_path / "out.pt")
    merged = merge_checkpoints(means, tmp_path / "out.pt")
    assert torch.load(merged.out, weights_only=True)["state_dict"]["w"] == 1.75


def test_a_folder_of_accelerate_that_is_named_is_one_checkpoint(tmp_path: Path) -> None:
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".metadata").touch()
    assert files_of([tmp_path], print) == [tmp_path / "pytorch_model_fsdp_0" / ".metadata"]
