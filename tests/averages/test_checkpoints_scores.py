"""The best checkpoints by a metric: from names, trainers' states or a file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from fedsash.averages.checkpoints import Merged, merge_checkpoints
from fedsash.settings.errors import RunError, SettingError


def save(path: Path, value: float, step: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content: dict[str, object] = {"state_dict": {"w": torch.tensor([value])}}
    if step is not None:
        content["global_step"] = step
    torch.save(content, path)


def named(folder: Path, scores: list[str], metric: str = "val_loss") -> Path:
    """Files as Lightning names them, whose names say the metric."""
    for i, score in enumerate(scores):
        save(folder / f"epoch={i}-{metric}={score}.ckpt", float(i), step=10 * i)
    return folder


def epochs(merged: Merged) -> list[int]:
    return [int(path.name.partition("-")[0].removeprefix("epoch=")) for path in merged.files]


def test_the_best_by_names_are_averaged_from_the_oldest_to_the_newest(tmp_path: Path) -> None:
    folder = named(tmp_path / "in", ["0.5", "0.12", "0.3", "1e-1", "0.4"])
    merged = merge_checkpoints(folder, tmp_path / "a.ckpt", best=2, by="val_loss")
    assert epochs(merged) == [1, 3]
    assert merged.notes[0] == "chosen by val_loss, the lower the better: 0.1, 0.12"
    assert epochs(merge_checkpoints(folder, tmp_path / "b.ckpt", best=2, by="val_loss", mode="max")) == [0, 4]
    assert epochs(merge_checkpoints(folder, tmp_path / "c.ckpt", last=3, best=2, by="val_loss")) == [2, 3]


def test_a_metric_with_a_slash_has_made_a_folder(tmp_path: Path) -> None:
    for i, accuracy in enumerate((0.5, 0.9, 0.7)):
        save(tmp_path / "in" / f"epoch={i}-val" / f"acc={accuracy}.ckpt", float(i), step=i)
    assert merge_checkpoints(tmp_path / "in", tmp_path / "mean.ckpt", best=2, by="val/acc").steps == (1, 2)


def test_of_equal_ones_the_newer_counts_and_nan_never(tmp_path: Path) -> None:
    folder = named(tmp_path / "in", ["0.90", "0.95", "nan", "0.95", "0.90"], "val_acc")
    merged = merge_checkpoints(folder, tmp_path / "mean.ckpt", best=3, by="val_acc")
    assert epochs(merged) == [1, 3, 4]
    assert "its val_acc is NaN" in merged.notes[0]
    assert "epoch=0-val_acc=0.90.ckpt is as good as the last of the best, and older" in merged.notes[1]
    with pytest.raises(SettingError, match="must be at most 4"):
        merge_checkpoints(folder, tmp_path / "again.ckpt", best=5, by="val_acc")


def test_trainers_states_say_the_metric(tmp_path: Path) -> None:
    history: list[dict[str, object]] = []
    for step, loss in ((500, 0.3), (1000, math.nan), (1500, 0.1), (2000, 0.2)):
        folder = tmp_path / "in" / f"checkpoint-{step}"
        save(folder / "pytorch_model.bin", float(step))
        history.append({"step": step, "loss": loss / 2, "epoch": 1.0})
        history.append({"step": step, "eval_loss": loss, "eval_runtime": 3.0})
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "mean", best=2, by="eval_loss")
    assert merged.steps == (1500, 2000)
    with pytest.raises(RunError, match="says its eval_accuracy; known: step, loss, epoch, eval_loss, eval_runtime"):
        merge_checkpoints(tmp_path / "in", tmp_path / "again", best=2, by="eval_accuracy")


def test_a_step_that_was_evaluated_after_it_was_saved_is_in_a_later_state(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "loss": 9.0},
        {"step": 1, "eval_loss": 2.0},
        {"step": 2, "loss": 8.0},
        {"step": 2, "eval_loss": 3.0},
    ]
    for step, known in ((1, 1), (2, 4)):
        folder = tmp_path / "in" / f"checkpoint-{step}"
        save(folder / "pytorch_model.bin", float(step))
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": rows[:known]}))
    assert merge_checkpoints(tmp_path / "in", tmp_path / "mean", best=1, by="eval_loss").steps == (1,)


def test_a_file_in_json_says_the_metric(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    file = tmp_path / "scores.json"

    def steps(content: object, number: int) -> tuple[int | None, ...]:
        file.write_text(json.dumps(content))
        return merge_checkpoints(tmp_path / "in", tmp_path / f"{number}.pt", best=2, by="bleu", scores=file).steps

    assert steps({"m1": {"bleu": 30}, "m2.pt": {"bleu": 10}, "3": {"bleu": 20.5}}, 1) == (1, 3)
    rows = [{"step": 1, "bleu": 3}, {"step": 2, "bleu": 5}, {"step": 2, "loss": 1.0}, {"step": 3, "bleu": 4}]
    assert steps(rows, 2) == (2, 3)
    assert steps({"log_history": rows}, 3) == (2, 3)
    with pytest.raises(
        RunError, match=r"m1\.pt: no entry of .*scores\.json says its bleu; known: nothing; an entry is"
    ):
        steps({"m2": {"bleu": 1}}, 4)
    with pytest.raises(RunError, match="m1 must be an object of metrics"):
        steps({"m1": 30}, 5)
    file.write_text("no JSON")
    with pytest.raises(RunError, match="is not in JSON"):
        merge_checkpoints(tmp_path / "in", tmp_path / "6.pt", best=2, by="bleu", scores=file)


def test_steps_may_be_written_as_whole_floats(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    file = tmp_path / "scores.json"
    file.write_text(json.dumps([{"step": float(step), "bleu": step} for step in (1, 2, 3)]))
    assert merge_checkpoints(tmp_path / "in", tmp_path / "mean.pt", best=2, by="bleu", scores=file).steps == (2, 3)


@pytest.mark.parametrize(("owner", "said"), [("ema", True), ("model", False)])
def test_a_metric_that_is_an_averages_is_said_to_be_so(tmp_path: Path, owner: str, said: bool) -> None:
    for step in (1, 2):
        save(tmp_path / "in" / f"m{step}.pt", float(step))
    file = tmp_path / "scores.json"
    file.write_text(json.dumps([{"step": step, "eval_loss": step, f"eval_loss_of_{owner}": step} for step in (1, 2)]))
    merged = merge_checkpoints(tmp_path / "in", tmp_path / "mean.pt", best=1, by="eval_loss", scores=file)
    assert any("eval_loss is that of the average ema" in note for note in merged.notes) == said


@pytest.mark.parametrize("metric", ["eval_loss", "val/top1_error", "WER", "test_perplexity"])
def test_of_errors_the_lowest_is_the_best(tmp_path: Path, metric: str) -> None:
    assert first_of_two(tmp_path, metric) == (1,)


@pytest.mark.parametrize("metric", ["eval_accuracy", "val-acc1", "macro_f1", "rougeL", "mAP50"])
def test_of_accuracies_the_highest_is_the_best(tmp_path: Path, metric: str) -> None:
    assert first_of_two(tmp_path, metric) == (2,)


def first_of_two(folder: Path, metric: str) -> tuple[int | None, ...]:
    """The step of the best of two checkpoints, of which the second has the higher number."""
    for step in (1, 2):
        save(folder / f"m{step}.pt", float(step))
    scores = folder / "scores.json"
    scores.write_text(json.dumps([{"step": step, metric: step} for step in (1, 2)]))
    paths = [folder / "m1.pt", folder / "m2.pt"]
    return merge_checkpoints(paths, folder / "mean.pt", best=1, by=metric, scores=scores).steps


@pytest.mark.parametrize("metric", ["score", "loss_accuracy", "val_lossy"])
def test_a_metric_that_does_not_say_what_is_better_needs_the_mode(tmp_path: Path, metric: str) -> None:
    folder = named(tmp_path / "in", ["1.0", "2.0"], metric)
    with pytest.raises(SettingError, match="add the mode, min or max"):
        merge_checkpoints(folder, tmp_path / "mean.ckpt", best=1, by=metric)
    assert epochs(merge_checkpoints(folder, tmp_path / "mean.ckpt", best=1, by=metric, mode="max")) == [1]


def test_best_and_by_need_each_other(tmp_path: Path) -> None:
    folder = named(tmp_path / "in", ["1.0", "2.0"])
    with pytest.raises(SettingError, match="must name the metric"):
        merge_checkpoints(folder, tmp_path / "mean.ckpt", best=1)
    with pytest.raises(SettingError, match="needs best"):
        merge_checkpoints(folder, tmp_path / "mean.ckpt", by="val_loss")
