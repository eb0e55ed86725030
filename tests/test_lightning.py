"""Averages in Lightning: right, without any effect on the training, resumed to the byte."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from fedsash import EMA, SWA, ModelError, SettingError, Window

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")

from fedsash.lightning import Averages  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def samples(count: int = 24) -> TensorDataset:
    draw = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(count, 4, generator=draw), torch.randint(0, 2, (count,), generator=draw))


class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """A small model with BatchNorm and dropout. It notes its weights after each batch, and in each validation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2))
        self.trained: list[Tensor] = []
        self.evaluated: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x.to(self.layers[0].weight.dtype))
        return found

    def weight(self) -> Tensor:
        return self.layers[0].weight.detach().clone()

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        return F.cross_entropy(self(batch[0]), batch[1])

    def on_train_batch_end(self, *_: Any) -> None:
        self.trained.append(self.weight())

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        self.evaluated.append(self.weight())
        self.log("loss", F.cross_entropy(self(batch[0]), batch[1]))

    test_step = predict_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.05)


class Seeded(lightning.Callback):  # type: ignore[misc, name-defined]
    """Begins each batch with draws of its own: Lightning's checkpoints have no state of random numbers."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        torch.manual_seed(trainer.global_step)


def fitted(
    folder: Path, *callbacks: Any, epochs: int = 2, ckpt_path: Path | None = None, shuffle: bool = True, **more: Any
) -> tuple[Net, Any]:
    net = Net()
    trainer = lightning.Trainer(
        default_root_dir=folder,
        max_epochs=epochs,
        callbacks=[*callbacks, lightning.callbacks.ModelCheckpoint(folder, save_top_k=-1, filename="{epoch}")],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )
    torch.manual_seed(7)
    validation = DataLoader(samples(), batch_size=24)
    trainer.fit(net, DataLoader(samples(), batch_size=4, shuffle=shuffle), validation, ckpt_path=ckpt_path)
    return net, trainer


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def mean(weights: list[Tensor]) -> Tensor:
    return torch.stack(weights).double().mean(0).float()


def test_the_training_is_the_same_with_averages_to_the_byte(tmp_path: Path) -> None:
    averages = {"window": Window(5, buffers="re-estimate"), "ema": EMA(0.9)}
    shuffled = DataLoader(samples(), batch_size=8, shuffle=True)
    with_averages, _ = fitted(tmp_path / "a", Averages(averages, batches=shuffled))
    without, _ = fitted(tmp_path / "b")
    assert same(with_averages.state_dict(), without.state_dict())
    saved = [torch.load(tmp_path / place / "epoch=1.ckpt", weights_only=True)["state_dict"] for place in "ab"]
    assert same(*saved)


def test_a_window_is_the_mean_of_the_last_steps_and_is_what_is_validated(tmp_path: Path) -> None:
    callback = Averages(Window(4))
    net, _ = fitted(tmp_path, callback)
    assert len(net.trained) == 12
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(net.trained[-4:]))
    start, *validated = net.evaluated
    assert torch.equal(start, Net().weight())  # Lightning validates a batch before the training
    assert all(map(torch.equal, validated, [mean(net.trained[2:6]), mean(net.trained[8:])]))


def test_after_an_epoch_its_last_model_is_averaged_before_it_is_validated(tmp_path: Path) -> None:
    net, _ = fitted(tmp_path, Averages(SWA(start=1), after="epoch"), epochs=3)
    ends = [net.trained[5], net.trained[11], net.trained[17]]
    assert all(map(torch.equal, net.evaluated[1:], [ends[0], mean(ends[:2]), mean(ends)]))


def test_the_model_itself_is_validated_on_demand(tmp_path: Path) -> None:
    net, _ = fitted(tmp_path, Averages(SWA(start=1), evaluate="model"))
    assert torch.equal(net.evaluated[-1], net.trained[-1])


def test_with_accumulated_gradients_an_update_follows_a_step_of_the_optimiser(tmp_path: Path) -> None:
    callback = Averages(SWA(start=1))
    net, _ = fitted(tmp_path, callback, accumulate_grad_batches=4)
    assert callback.tracker is not None and callback.tracker.count() == 4
    steps = [net.trained[i] for i in (3, 5, 9, 11)]  # also after the last batch of an epoch
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(steps))


@pytest.mark.parametrize("precision, kind", [("bf16-mixed", torch.float32), ("bf16-true", torch.bfloat16)])
def test_it_goes_with_mixed_precision(tmp_path: Path, precision: str, kind: torch.dtype) -> None:
    averages = {"ema": EMA(0.9), "window": Window(3, buffers="re-estimate")}
    callback = Averages(averages, batches=DataLoader(samples(), batch_size=8))
    net, _ = fitted(tmp_path, callback, precision=precision)
    averaged = callback.averaged_state_dict("window")["layers.0.weight"]
    assert averaged.dtype == kind == net.weight().dtype
    assert torch.equal(averaged, torch.stack(net.trained[-3:]).double().mean(0).to(kind))


@pytest.mark.parametrize("after", ["step", "epoch"])
def test_a_resumed_training_has_the_same_bytes(tmp_path: Path, after: Any) -> None:
    def averages() -> Averages:
        return Averages({"window": Window(8), "lawa": Window(2, every=2), "ema": EMA(0.9, warmup=True)}, after=after)

    whole, rest = averages(), averages()
    straight, _ = fitted(tmp_path / "whole", whole, Seeded(), epochs=4, shuffle=False)
    checkpoint = tmp_path / "whole" / "epoch=1.ckpt"
    resumed, _ = fitted(tmp_path / "rest", rest, Seeded(), epochs=4, shuffle=False, ckpt_path=checkpoint)
    assert len(resumed.trained) == 12 and whole.tracker is not None and rest.tracker is not None
    assert whole.tracker.round == rest.tracker.round == (24 if after == "step" else 4)
    assert same(straight.state_dict(), resumed.state_dict())
    assert same(whole.tracker.state_dict(), rest.tracker.state_dict())


def test_a_checkpoint_has_each_average_beside_the_model(tmp_path: Path) -> None:
    callback = Averages({"window": Window(3), "ema": EMA(0.9)})
    net, _ = fitted(tmp_path, callback)
    saved = torch.load(tmp_path / "epoch=1.ckpt", weights_only=True)
    assert same(saved["state_dict"], net.state_dict())
    assert all(same(saved["averages"][name], callback.averaged_state_dict(name)) for name in ("window", "ema"))
    Net().load_state_dict(saved["averages"]["ema"])


def test_a_checkpoint_is_tested_with_its_own_average_also_in_a_new_process(tmp_path: Path) -> None:
    net, trainer = fitted(tmp_path, Averages(Window(4)))
    loader = DataLoader(samples(), batch_size=24)
    trainer.test(net, loader, verbose=False)
    assert torch.equal(net.evaluated[-1], mean(net.trained[8:]))
    trainer.test(net, loader, ckpt_path=tmp_path / "epoch=0.ckpt", verbose=False)
    assert torch.equal(net.evaluated[-1], mean(net.trained[2:6]))
    new = Net()
    quiet = {"logger": False, "enable_progress_bar": False, "accelerator": "cpu", "enable_model_summary": False}
    fresh = lightning.Trainer(callbacks=[Averages(Window(4))], **quiet)
    fresh.test(new, loader, ckpt_path=tmp_path / "epoch=1.ckpt", verbose=False)
    assert torch.equal(new.evaluated[-1], mean(net.trained[8:]))
    assert torch.equal(new.weight(), net.trained[-1])


class SavesInside(lightning.Callback):  # type: ignore[misc, name-defined]
    """Saves a checkpoint in the middle of each validation."""

    def on_validation_epoch_end(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "inside.ckpt")


def test_a_checkpoint_from_the_middle_of_a_validation_has_the_model_and_not_its_average(tmp_path: Path) -> None:
    averages = Averages({"window": Window(3)})
    net, _ = fitted(tmp_path, averages, SavesInside())
    saved = torch.load(tmp_path / "inside.ckpt", weights_only=True)
    assert same(saved["state_dict"], net.state_dict())
    assert same(saved["averages"]["window"], averages.averaged_state_dict())
    assert torch.equal(net.evaluated[-1], mean(net.trained[-3:]))


def test_a_checkpoint_without_averages_is_said(tmp_path: Path) -> None:
    _, trainer = fitted(tmp_path)
    trainer.callbacks.append(Averages(EMA(0.9)))
    with pytest.warns(UserWarning, match="has no averages: they begin with the training that follows"):
        trainer.test(Net(), DataLoader(samples()), ckpt_path=tmp_path / "epoch=0.ckpt", verbose=False)


def test_averages_begin_anew_in_a_second_training_from_a_checkpoint_without_them(tmp_path: Path) -> None:
    net, trainer = fitted(tmp_path, epochs=1)
    averages = Averages(Window(100))
    trainer.callbacks.append(averages)
    trainer.fit_loop.max_epochs = 3
    loader = DataLoader(samples(), batch_size=4)
    trainer.fit(net, loader)
    steps = averages.tracker.count()
    trainer.fit_loop.max_epochs = 2
    with pytest.warns(UserWarning, match="has no averages: they begin with the training that follows"):
        trainer.fit(net, loader, ckpt_path=tmp_path / "epoch=0.ckpt")
    assert (steps, averages.tracker.count()) == (12, 6)


def test_a_model_whose_validation_fails_is_itself_again(tmp_path: Path) -> None:
    class Failing(lightning.Callback):  # type: ignore[misc, name-defined]
        def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step:
                raise ZeroDivisionError

    net, callback = Net(), Averages(Window(4))
    trainer = lightning.Trainer(
        max_epochs=1,
        callbacks=[callback, Failing()],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with pytest.raises(ZeroDivisionError):
        trainer.fit(net, DataLoader(samples(), batch_size=4), DataLoader(samples(), batch_size=24))
    assert torch.equal(net.weight(), net.trained[-1])
    assert torch.equal(net.evaluated[-1], mean(net.trained[-4:]))


@pytest.mark.parametrize(
    "wrong, why",
    [
        ({"averages": {"ema": EMA(0.9)}, "evaluate": "swa"}, "must be one of"),
        ({"averages": EMA(0.9), "after": "batch"}, "'step' or 'epoch'"),
        ({"averages": Window(3, buffers="re-estimate")}, "must be given"),
        ({"averages": {}}, "at least one"),
        ({"averages": 0.9}, "must be an average"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingError, match=why) as refused:
        Averages(**wrong)
    assert "\n" not in str(refused.value)


def test_batches_for_a_module_without_a_forward_are_refused_before_the_training(tmp_path: Path) -> None:
    class NoForward(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = DataLoader(samples(), batch_size=4)
    callback = Averages(Window(3, buffers="re-estimate"), batches=loader)
    trainer = lightning.Trainer(default_root_dir=tmp_path, max_epochs=1, callbacks=[callback], accelerator="cpu")
    with pytest.raises(ModelError, match="they pass through forward, which this module lacks"):
        trainer.fit(NoForward(), loader)


def test_a_search_for_a_learning_rate_is_no_resumed_training(tmp_path: Path) -> None:
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_epochs=1, callbacks=[Averages(EMA(0.9))], accelerator="cpu", logger=False
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*has no averages")
        lightning.tuner.Tuner(trainer).lr_find(Tuned(), DataLoader(samples(), batch_size=4), num_training=5)


class Tuned(Net):
    """A model whose learning rate can be searched."""

    lr = 0.05


def test_checkpoints_of_weights_only_are_said_to_have_no_averages(tmp_path: Path) -> None:
    """Lightning asks no callback for what it keeps, and tells none that it is loaded."""
    only = lightning.callbacks.ModelCheckpoint(tmp_path, filename="only", monitor="loss", save_weights_only=True)
    with pytest.warns(UserWarning, match=r"checkpoints of weights only \(save_weights_only\) have no averages"):
        net, trainer = fitted(tmp_path, Averages(EMA(0.9)), only)
    with pytest.warns(UserWarning, match="has no averages"):
        trainer.test(net, DataLoader(samples()), ckpt_path=only.best_model_path, verbose=False)


def test_after_a_broken_update_a_checkpoint_has_the_model_and_no_averages(tmp_path: Path) -> None:
    averages = Averages(EMA(0.9))
    net, trainer = fitted(tmp_path, averages)
    averages.tracker.torn = True
    with pytest.warns(UserWarning, match="an update of the averages was interrupted, so they are not saved"):
        trainer.save_checkpoint(tmp_path / "torn.ckpt")
    saved = torch.load(tmp_path / "torn.ckpt", weights_only=True)
    assert same(saved["state_dict"], net.state_dict()) and "averages" not in saved
