"""Averages in Hugging Face's Trainer: right, without any effect on the training, resumed to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash import EMA, SWA, RunError, SettingError, Window

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

from fedsash.averages.trainers.transformers import Averages  # noqa: E402
from support.loops import ScheduleFree  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

Samples = list[dict[str, Tensor]]


def samples(count: int = 24) -> Samples:
    draw = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(4, generator=draw), "labels": torch.randint(0, 2, (), generator=draw)} for _ in range(count)
    ]


class Net(nn.Module):
    """A small model with BatchNorm and dropout. It notes the weights with which it evaluates."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2))
        self.evaluated: list[Tensor] = []

    def weight(self) -> Tensor:
        return self.layers[0].weight.detach().clone()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if not self.training and not any(layer.training for layer in self.layers):
            self.evaluated.append(self.weight())
        logits = self.layers(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Noted(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Notes the weights after each step."""

    def __init__(self) -> None:
        self.trained: list[Tensor] = []

    def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
        self.trained.append(next(model.parameters()).detach().clone())


def trainer(
    folder: Path,
    model: nn.Module | None = None,
    optimizers: Any = (None, None),
    kind: Any = transformers.Trainer,
    **more: Any,
) -> Any:
    chosen = {"save_strategy": "epoch", "eval_strategy": "epoch", "num_train_epochs": 2, "learning_rate": 0.05} | more
    quiet = {"report_to": [], "disable_tqdm": True, "logging_strategy": "no", "use_cpu": True}
    sizes = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 24}
    args = transformers.TrainingArguments(str(folder), **quiet, **sizes, **chosen)
    data: dict[str, Any] = {"train_dataset": samples(), "eval_dataset": samples()}
    made = kind(model or Net(), args, optimizers=optimizers, **data)
    made.add_callback(noted := Noted())
    made.trained = noted.trained
    return made


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def mean(weights: list[Tensor]) -> Tensor:
    return torch.stack(weights).double().mean(0).float()


def test_the_training_is_the_same_with_averages_to_the_byte(tmp_path: Path) -> None:
    without = trainer(tmp_path / "b")
    without.train()
    with_averages = trainer(tmp_path / "a")  # which seeds all draws anew
    batches = torch.utils.data.DataLoader(samples(), batch_size=8, shuffle=True)
    Averages(with_averages, {"window": Window(5, buffers="re-estimate"), "ema": EMA(0.9)}, batches=batches)
    with_averages.train()
    assert same(with_averages.model.state_dict(), without.model.state_dict())
    files = [(tmp_path / place / "checkpoint-12" / "model.safetensors").read_bytes() for place in "ab"]
    assert files[0] == files[1]


def test_a_window_is_the_mean_of_the_last_steps_and_is_what_is_evaluated(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    averages = Averages(made, Window(4))
    made.train()
    assert torch.equal(averages.averaged_state_dict()["layers.0.weight"], mean(made.trained[8:]))
    assert all(map(torch.equal, made.model.evaluated, [mean(made.trained[2:6]), mean(made.trained[8:])]))
    made.evaluate({"one": samples(), "other": samples(5)})
    made.predict(samples())
    assert len(made.model.evaluated) == 5
    assert all(torch.equal(each, mean(made.trained[8:])) for each in made.model.evaluated[2:])
    assert torch.equal(made.model.weight(), made.trained[-1])


def test_after_an_epoch_its_last_model_is_averaged_before_it_is_evaluated(tmp_path: Path) -> None:
    made = trainer(tmp_path, gradient_accumulation_steps=4)
    averages = Averages(made, SWA(start=1), after="epoch")
    made.train()
    assert len(made.trained) == 4 and averages.tracker is not None and averages.tracker.count() == 2
    assert all(map(torch.equal, made.model.evaluated, [made.trained[1], mean(made.trained[1::2])]))


def test_the_model_itself_is_evaluated_on_demand_and_before_the_training(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    Averages(made, SWA(start=1), evaluate="model")
    made.evaluate()
    made.train()
    assert torch.equal(made.model.evaluated[0], Net().weight())
    assert torch.equal(made.model.evaluated[-1], made.trained[-1])


def test_it_goes_with_mixed_precision(tmp_path: Path) -> None:
    made = trainer(tmp_path, bf16=True)
    averages = Averages(made, Window(4))
    made.train()
    assert torch.equal(averages.averaged_state_dict()["layers.0.weight"], mean(made.trained[-4:]))


@pytest.mark.parametrize("after", ["step", "epoch"])
@pytest.mark.parametrize("step", [4, 6], ids=["within an epoch, moved", "at its end"])
def test_a_resumed_training_has_the_same_bytes(tmp_path: Path, after: Any, step: int) -> None:
    def made(**more: Any) -> tuple[Any, Averages]:
        saved = {"save_strategy": "steps", "save_steps": step, "eval_strategy": "no"}
        one = trainer(tmp_path / "runs", num_train_epochs=3, lr_scheduler_type="constant", **saved | more)
        kinds = {"window": Window(8), "lawa": Window(2, every=2), "ema": EMA(0.9, warmup=True)}
        return one, Averages(one, kinds, after=after)

    whole, expected = made()
    whole.train()
    (tmp_path / "runs").rename(tmp_path / "whole")
    made(max_steps=step)[0].train()
    if moved := step == 4:
        (tmp_path / "runs").rename(tmp_path / "elsewhere")
    rest, found = made()
    rest.train(resume_from_checkpoint=str(tmp_path / "elsewhere" / "checkpoint-4") if moved else True)
    assert len(rest.trained) == 18 - step and same(whole.model.state_dict(), rest.model.state_dict())
    assert expected.tracker is not None and found.tracker is not None
    assert same(expected.tracker.state_dict(), found.tracker.state_dict())


def test_a_checkpoint_without_averages_is_said_and_they_begin_there(tmp_path: Path) -> None:
    trainer(tmp_path).train()
    rest = trainer(tmp_path, num_train_epochs=3)
    averages = Averages(rest, SWA(start=1))
    with pytest.warns(UserWarning, match="has no averages: they begin with the training that follows"):
        rest.train(resume_from_checkpoint=True)
    assert averages.tracker is not None and averages.tracker.count() == 6


@pytest.mark.parametrize("keep", [0, 100, 400])
def test_damaged_averages_of_a_checkpoint_are_named_in_one_line(tmp_path: Path, keep: int) -> None:
    made = trainer(tmp_path)
    Averages(made, EMA(0.9))
    made.train()
    file = tmp_path / "checkpoint-12" / "averages" / "tracker.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    rest = trainer(tmp_path, num_train_epochs=3)
    Averages(rest, EMA(0.9))
    with pytest.raises(RunError, match=r"tracker.safetensors can't be read: \w+ .*$"):
        rest.train(resume_from_checkpoint=True)


def test_to_add_it_to_the_callbacks_once_more_has_no_effect(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    averages = Averages(made, SWA(start=1))
    made.add_callback(averages)
    made.train()
    assert averages.tracker is not None and averages.tracker.count() == 12


def test_averages_of_a_trainer_that_has_some_are_refused(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    Averages(made, EMA(0.9))
    with pytest.raises(RunError, match="this trainer has averages already: give all of them to one Averages"):
        Averages(made, EMA(0.5))


class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """Samples whose number nobody knows."""

    def __iter__(self) -> Any:
        return iter(samples())


def test_epochs_of_a_training_set_without_a_length_are_refused(tmp_path: Path) -> None:
    made = trainer(tmp_path, max_steps=8)
    made.train_dataset = Stream()
    Averages(made, EMA(0.9), after="epoch")
    with pytest.raises(SettingError, match=r"^Averages.after = 'epoch': needs a training set with a length"):
        made.train()


def test_the_best_model_at_the_end_comes_with_the_averages_of_its_checkpoint(tmp_path: Path) -> None:
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    made = trainer(tmp_path, num_train_epochs=3, **best)
    averages = Averages(made, Window(3))
    made.train()
    step = made.state.best_global_step
    assert torch.equal(averages.averaged_state_dict()["layers.0.weight"], mean(made.trained[step - 3 : step]))


def test_an_average_in_a_checkpoint_is_a_model_for_from_pretrained(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=4, patch_size=2
    )
    images = [{"pixel_values": torch.randn(3, 4, 4), "labels": torch.tensor(i % 2)} for i in range(8)]
    made = trainer(tmp_path, transformers.ViTForImageClassification(config), eval_strategy="no")
    made.train_dataset = images
    averages = Averages(made, {"window": Window(2), "ema": EMA(0.5)})
    made.train()
    for name in ("window", "ema"):
        place = tmp_path / "checkpoint-4" / "averages" / name
        loaded = transformers.ViTForImageClassification.from_pretrained(place)
        assert same(loaded.state_dict(), averages.averaged_state_dict(name))


def test_a_model_whose_evaluation_fails_is_itself_again(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    Averages(made, SWA(start=1))
    made.compute_metrics = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        made.train()
    assert torch.equal(made.model.weight(), made.trained[-1])
    assert torch.equal(made.model.evaluated[-1], mean(made.trained))


def test_what_changes_the_model_for_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="bf16_full_eval"):
        Averages(trainer(tmp_path, bf16_full_eval=True), EMA(0.9))


def test_each_trial_of_a_search_has_its_averages_in_its_own_checkpoints(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    made = trainer(tmp_path, load_best_model_at_end=True)
    made.model_init = lambda trial=None: Net()
    Averages(made, EMA(0.9))
    made.hyperparameter_search(hp_space=lambda trial: {"seed": trial.suggest_int("seed", 0, 9)}, n_trials=2)
    places = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("tracker.safetensors"))
    assert places == [f"run-{run}/checkpoint-{at}/averages/tracker.safetensors" for run in (0, 1) for at in (12, 6)]


def test_a_model_in_place_of_its_trainer_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Averages\.trainer = Net\(.*must be a Trainer, which has the model"):
        Averages(Net(), EMA(0.9))


def test_an_adapter_of_a_compiled_model_is_saved_with_its_averages(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=4, patch_size=2
    )
    torch.manual_seed(0)
    inner = transformers.ViTForImageClassification(config)
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"] if "q_proj" in str(inner) else ["query"])
    model = peft.get_peft_model(torch.compile(inner, backend="eager"), lora)
    made = trainer(tmp_path, model, eval_strategy="no", label_names=["labels"], remove_unused_columns=False)
    made.train_dataset = [{"pixel_values": torch.randn(3, 4, 4), "labels": torch.tensor(i % 2)} for i in range(8)]
    averages = Averages(made, Window(2))
    made.train()
    saved = load_file(tmp_path / "checkpoint-4" / "averages" / "average" / "adapter_model.safetensors")
    value = averages.tracker.value() if averages.tracker else {}
    assert len(saved) == len(value) > 0
    assert all(torch.equal(a, b) for a, b in zip(saved.values(), (value[n] for n in sorted(value)), strict=True))


def test_a_schedule_free_optimiser_moves_its_own_model_and_not_the_average(tmp_path: Path) -> None:
    ends = []
    for kept in (False, True):
        model = Net()
        optimizer = ScheduleFree(model.parameters(), lr=0.05)
        made = trainer(tmp_path / str(kept), model, optimizers=(optimizer, None))
        averages = Averages(made, Window(4)) if kept else None
        made.train()
        ends.append(model.weight())
        if averages is not None:
            made.evaluate()
            assert torch.equal(model.evaluated[-1], averages.tracker.value()["layers.0.weight"])
    assert torch.equal(*ends)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_gives_no_model(tmp_path: Path, fused: bool) -> None:
    class Overflowing(Net):
        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            output = super().forward(x, labels)
            if self.training and made.state.global_step % 3 == 0:
                output["loss"] = output["loss"] * torch.inf
            return output

    model, noted = Overflowing(), Noted()
    made = trainer(tmp_path, model, optimizers=(torch.optim.AdamW(model.parameters(), lr=0.05, fused=fused), None))
    made.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)  # as with fp16 on a GPU
    made.add_callback(noted)
    averages = Averages(made, Window(100), evaluate="model")
    made.train()
    stepped = [weight for index, weight in enumerate(noted.trained) if index % 3]
    assert averages.tracker.count() == len(stepped)
    assert torch.equal(averages.averaged_state_dict()["layers.0.weight"], mean(stepped))


def test_an_epoch_that_ends_early_is_averaged_before_it_is_evaluated(tmp_path: Path) -> None:
    ends: list[Tensor] = []

    class Ends(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_epoch_end(self, *_: Any, model: Any, **__: Any) -> None:
            ends.append(model.weight())

    made = trainer(tmp_path, num_train_epochs=2.5, save_strategy="no")
    made.add_callback(Ends())
    averages = Averages(made, Window(10), after="epoch")
    made.train()
    assert len(ends) == 3 == averages.tracker.round
    assert torch.equal(made.model.evaluated[-1], mean(ends))


def test_an_evaluation_of_the_trainers_own_has_the_average(tmp_path: Path) -> None:
    class Own(transformers.Trainer):  # type: ignore[misc, name-defined]
        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            self.model.evaluated.append(self.model.weight())
            return super().evaluate() if again else {}

        predict = evaluate

    for again in (False, True):
        made = trainer(tmp_path, save_strategy="no", kind=Own)
        Averages(made, Window(4))
        made.train()
        made.predict()
        assert len(made.model.evaluated) == (6 if again else 3)
        assert torch.equal(made.model.evaluated[0], mean(made.trained[2:6]))
        assert torch.equal(made.model.evaluated[-1], mean(made.trained[-4:]))
        assert torch.equal(made.model.weight(), made.trained[-1])


def test_metrics_say_how_many_models_are_in_the_average_that_they_are_of(tmp_path: Path) -> None:
    made = trainer(tmp_path, save_strategy="no")
    Averages(made, {"ema": EMA(0.9), "window": Window(4)}, evaluate="window")
    made.train()
    rows = [row for row in made.state.log_history if "eval_loss" in row]
    assert [row["eval_models_in_window"] for row in rows] == [4, 4]
    assert made.predict(samples()).metrics["test_models_in_window"] == 4
    other = trainer(tmp_path, save_strategy="no")
    Averages(other, EMA(0.9), evaluate="model")
    assert not any("models_in" in name for name in other.evaluate())


def test_the_model_in_an_averages_place_is_said(tmp_path: Path) -> None:
    made = trainer(tmp_path, save_strategy="no")
    Averages(made, SWA(100))
    with pytest.warns(UserWarning, match="there are no averages before the training.*: the model itself is evaluated"):
        made.evaluate()
    with pytest.warns(UserWarning, match="the average average has no model yet: the model itself is evaluated"):
        made.train()


class Swaps(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Writes a parameter after each evaluation, as a callback does that gives the model its own values back."""

    def on_evaluate(self, *_: Any, model: Any, **__: Any) -> None:
        model.layers[4].bias.data.add_(1.0)


def test_a_parameter_that_somebody_else_has_moved_since_is_named(tmp_path: Path) -> None:
    made = trainer(tmp_path, save_strategy="no")
    Averages(made, EMA(0.9))
    made.add_callback(Swaps())
    with pytest.warns(UserWarning, match=r"layers\.4\.bias was changed since .*: the training goes on") as warned:
        made.train()
    assert sum("was changed since" in str(each.message) for each in warned) == 1


def test_an_optimiser_that_is_switched_inside_an_evaluation_moves_its_own_model(tmp_path: Path) -> None:
    ends = []
    for kept in (False, True):
        model = Net()
        made = trainer(
            tmp_path, model, optimizers=(ScheduleFree(model.parameters(), lr=0.05), None), save_strategy="no"
        )
        made.compute_metrics = lambda _, made=made: made.optimizer.optimizer.train() or {}
        if kept:
            Averages(made, Window(4))
        made.train()
        ends.append(model.weight())
    assert torch.equal(*ends)


def test_each_metric_is_there_under_a_name_that_says_whose_it_is(tmp_path: Path) -> None:
    made = trainer(tmp_path, save_strategy="no", eval_strategy="no")
    averages = Averages(made, {"ema": EMA(0.9)}, trajectory_every=2)
    made.train()
    of_ema = made.evaluate()
    averages.evaluate = "model"
    of_model = made.evaluate()
    assert of_ema["eval_loss_of_ema"] == of_ema["eval_loss"] != of_model["eval_loss"] == of_model["eval_loss_of_model"]
    assert "eval_loss_of_model" not in of_ema and "eval_loss_of_ema" not in of_model
    assert made.predict(samples()).metrics["test_loss_of_model"] == of_model["eval_loss"]
    assert torch.equal(averages.tracker.window(4, at=8)["layers.0.weight"], mean(made.trained[4:8]))


def test_the_best_score_is_kept_by_a_resumed_training(tmp_path: Path) -> None:
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss_of_ema", "greater_is_better": False}
    scores = iter([1.0, 2.0, 3.0, 4.0])

    def scored(one: Any) -> Any:
        loop = one.evaluation_loop

        def with_score(*arguments: Any, **keywords: Any) -> Any:
            output = loop(*arguments, **keywords)
            output.metrics["eval_loss"] = next(scores)
            return output

        one.evaluation_loop = with_score
        Averages(one, {"ema": EMA(0.9)})
        return one

    scored(trainer(tmp_path, **best)).train()
    rest = scored(trainer(tmp_path, num_train_epochs=4, **best))
    rest.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert (rest.state.best_metric, rest.state.best_global_step) == (1.0, 6)
