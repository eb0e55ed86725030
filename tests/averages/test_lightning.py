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

from fedsash import EMA, SWA, SettingError, Window
from fedsash.errors import ModelError

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")

from fedsash.averages.trainers.lightning import Averages  # noqa: E402
from support.loops import ScheduleFree  # noqa: E402

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


def test_a_training_is_resumed_with_an_average_more_and_one_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fitted(tmp_path, Averages({"ema": EMA(0.9), "old": Window(2)}))
    callback = Averages({"new": Window(100), "ema": EMA(0.9)})
    fitted(tmp_path / "b", callback, epochs=3, ckpt_path=tmp_path / "epoch=1.ckpt")
    assert "Tracker: the saved state has no new: it begins with the next update" in caplog.messages
    assert "Tracker: old of the saved state is left out" in caplog.messages
    assert [callback.tracker.count(name) for name in callback.averages] == [6, 18]


class Manual(Net):
    """Steps its optimiser by itself: Lightning's, the one that it keeps, or Lightning's in a hook."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.where = where

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.own = torch.optim.SGD(self.parameters(), 0.05)
        return self.own

    def step(self, batch: tuple[Tensor, Tensor], optimiser: Any) -> None:
        optimiser.zero_grad()
        F.cross_entropy(self(batch[0]), batch[1]).backward()
        optimiser.step()

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        if self.where != "hook":
            self.step(batch, self.own if self.where == "attribute" else self.optimizers())

    def on_train_batch_end(self, outputs: Any, batch: Any, _: int) -> None:
        if self.where == "hook":
            self.step(batch, self.optimizers())
        super().on_train_batch_end()


def fit(net: Any, *callbacks: Any, **more: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    settings = {"max_epochs": 2, "enable_model_summary": False} | quiet | more
    trainer = lightning.Trainer(**settings, callbacks=[*callbacks])
    torch.manual_seed(7)
    trainer.fit(net, DataLoader(samples(), batch_size=4), DataLoader(samples(), batch_size=24))
    return trainer


@pytest.mark.parametrize("after", ["step", "epoch"])
@pytest.mark.parametrize("where", ["lightning", "attribute", "hook"])
def test_steps_are_counted_wherever_they_happen(where: str, after: Any) -> None:
    callback, net = Averages(Window(100), after=after), Manual(where)
    fit(net, callback)
    observed = net.trained if after == "step" else net.trained[5::6]
    assert callback.tracker.round == len(observed)
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(observed))
    assert torch.equal(net.evaluated[-1], mean(observed))


def test_two_optimisers_that_step_in_a_batch_give_one_model_and_those_of_others_none() -> None:
    class Both(Manual):
        other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)

        def configure_optimizers(self) -> Any:
            layers = (self.layers[0], self.layers[4])
            return [torch.optim.SGD(layer.parameters(), 0.1) for layer in layers]

        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
            self.other.step()
            for optimiser in self.optimizers() if index % 2 else ():
                self.step(batch, optimiser)

    callback, net = Averages(Window(100)), Both("")
    fit(net, callback)
    assert callback.tracker.round == 6
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(net.trained[1::2]))


def test_steps_of_an_optimiser_that_has_copies_of_the_parameters_are_counted() -> None:
    class Copies(Net):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            self.copies = [nn.Parameter(each.detach().clone()) for each in self.layers.parameters()]
            return torch.optim.SGD(self.copies, lr=0.1)

        def optimizer_step(self, epoch: int, index: int, optimiser: Any, closure: Any) -> None:  # type: ignore[override]
            optimiser.step(closure)
            with torch.no_grad():
                for own, each in zip(self.layers.parameters(), self.copies, strict=True):
                    own.sub_(own.grad, alpha=0.1)
                    each.copy_(own)

    callback, net = Averages(Window(4)), Copies()
    fit(net, callback)
    assert callback.tracker.round == 12
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(net.trained[-4:]))


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_scaler_skips_give_no_model(fused: bool) -> None:
    class Overflowing(Net):
        def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
            loss = super().training_step(batch, index)
            return loss * torch.inf if index % 3 == 0 else loss  # the first one, too

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.05, fused=fused)

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    callback, net = Averages(Window(100)), Overflowing()
    fit(net, callback, plugins=[lightning.plugins.MixedPrecision("16-mixed", "cpu", scaler)])
    stepped = [weight for index, weight in enumerate(net.trained) if index % 3]
    assert callback.tracker.round == len(stepped) == 8
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(stepped))


def test_a_checkpoint_of_a_compiled_part_has_the_averages_by_the_models_names(tmp_path: Path) -> None:
    class Compiled(Net):
        def __init__(self) -> None:
            super().__init__()
            self.layers[1] = torch.compile(self.layers[1], backend="eager")

    callback, net = Averages(Window(4)), Compiled()
    trainer = fit(net, callback)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    net.load_state_dict(saved["state_dict"] | saved["averages"]["average"])
    assert torch.equal(net.weight(), mean(net.trained[-4:]))


class Cut(Net):
    """Ends epochs before their last batch."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.ends: list[Tensor] = []

    def on_train_batch_start(self, batch: Any, index: int) -> int | None:
        return -1 if self.how == "skipped" and index == 4 else None

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        if self.how == "stopped" and self.current_epoch == 2 and index == 3:
            self.trainer.should_stop = True
        return super().training_step(batch, index)

    def on_train_epoch_end(self) -> None:
        self.ends.append(self.weight())


@pytest.mark.parametrize("how, more", [("whole", {}), ("skipped", {}), ("stopped", {}), ("steps", {"max_steps": 15})])
def test_an_epoch_that_ends_early_is_averaged_before_it_is_validated(how: str, more: dict[str, int]) -> None:
    callback, net = Averages(Window(10), after="epoch"), Cut(how)
    fit(net, callback, max_epochs=3, **more)
    assert len(net.ends) == 3 == callback.tracker.round
    assert torch.equal(callback.averaged_state_dict()["layers.0.weight"], mean(net.ends))
    if how in ("whole", "stopped"):
        assert torch.equal(net.evaluated[-1], mean(net.ends))


class Frozen(Net):
    def __init__(self, drops: bool) -> None:
        super().__init__()
        self.backbone = nn.Linear(200, 200).requires_grad_(False)
        self.drops = drops

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.drops:
            kept = {name: t for name, t in checkpoint["state_dict"].items() if not name.startswith("backbone")}
            checkpoint["state_dict"] = kept


@pytest.mark.parametrize("drops", [False, True])
def test_frozen_weights_are_not_saved_with_each_average(tmp_path: Path, drops: bool) -> None:
    net = Frozen(drops)
    callback = Averages({"ema": EMA(0.9), "window": Window(3), "head": EMA(0.9, part="classifier", buffers="latest")})
    trainer = fit(net, callback)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    size = (tmp_path / "x.ckpt").stat().st_size
    assert size < 60_000 if drops else 160_000 < size < 220_000
    saved = torch.load(tmp_path / "x.ckpt", weights_only=True)
    for name in callback.averages:
        whole = net.state_dict() | saved["state_dict"] | saved["averages"][name]
        assert same(whole, callback.averaged_state_dict(name))
    shared = saved["averages"]["head"]["layers.0.weight"].data_ptr()
    assert shared == saved["state_dict"]["layers.0.weight"].data_ptr()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_schedule_free_optimiser_that_is_switched_in_hooks_moves_its_own_model(wrapped: bool) -> None:
    class Switching(Net):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return ScheduleFree(self.parameters(), lr=0.05)

        def switched(self, name: str) -> None:
            getattr(self.optimizers() if wrapped else self.optimizers().optimizer, name)()

        def on_train_epoch_start(self) -> None:
            self.switched("train")

        def on_validation_epoch_start(self) -> None:
            self.switched("eval")

    without, net, callback = Switching(), Switching(), Averages(Window(4))
    fit(without)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was changed since")
        trainer = fit(net, callback)
    assert same(without.state_dict(), net.state_dict())
    assert torch.equal(net.evaluated[-1], mean(net.trained[-4:]))
    assert "eval" not in vars(trainer.optimizers[0])


def test_the_model_in_an_averages_place_is_said() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*the model itself is evaluated")
        fit(net := Net(), Averages(EMA(0.9)))
        fit(Net(), Averages(SWA(100), evaluate="model"))
    with pytest.warns(UserWarning, match="the average average has no model yet: the model itself is evaluated"):
        fit(Net(), Averages(SWA(100)))
    loader = DataLoader(samples(), batch_size=24)
    callback = Averages(EMA(0.9))
    fresh = lightning.Trainer(callbacks=[callback], logger=False, enable_progress_bar=False, accelerator="cpu")
    with pytest.warns(UserWarning, match="there are no averages before the training"):
        fresh.validate(net, loader, verbose=False)
    callback._begin(Net())
    with pytest.warns(UserWarning, match="is of another module"):
        fresh.test(net, loader, verbose=False)


def test_logs_say_how_many_models_are_in_the_average_that_they_are_of() -> None:
    net = Net()
    trainer = fit(net, Averages({"ema": EMA(0.9), "window": Window(4)}, evaluate="window"))
    assert trainer.callback_metrics["models_in_window"] == 4.0
    row = trainer.test(net, DataLoader(samples(), batch_size=24), verbose=False)[0]
    assert row.keys() == {"loss", "loss_of_window", "models_in_window"}
    assert row["loss"] == row["loss_of_window"]
    trainer = fit(net, Averages(EMA(0.9), evaluate="model"))
    assert trainer.callback_metrics.keys() == {"loss", "loss_of_model"}


class Swaps(lightning.Callback):  # type: ignore[misc, name-defined]
    """Keeps the bias when a validation begins, and puts it back when it ends, as another average's callback does."""

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self.kept = pl_module.layers[4].bias.detach().clone()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.layers[4].bias.data.copy_(self.kept)


def test_a_parameter_that_somebody_else_has_moved_since_is_named() -> None:
    with pytest.warns(UserWarning, match=r"layers\.4\.bias was changed since .*: the training goes on") as warned:
        fit(Net(), Averages(EMA(0.9)), Swaps())
    assert sum("was changed since" in str(each.message) for each in warned) == 1  # no batch follows the last one
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was changed since")
        fit(Net(), Averages(EMA(0.9)))


def test_a_strategy_with_processes_of_its_own_is_said_to_lose_the_averages() -> None:
    from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

    callback = Averages(EMA(0.9))
    trainer = lightning.Trainer(
        callbacks=[callback], strategy="ddp_fork", devices=1, accelerator="cpu", logger=False, enable_progress_bar=False
    )
    trainer.strategy._launcher = _MultiProcessingLauncher(trainer.strategy, start_method="fork")
    with pytest.warns(UserWarning, match="this strategy trains in other processes: where fit was called the averages"):
        callback.on_train_start(trainer, Net())
    callback._stop_watching()
    with pytest.raises(SettingError, match="nor where fit was called if the strategy starts processes"):
        Averages(EMA(0.9)).averaged_state_dict()


def best_of(folder: Path, epochs: int, ckpt_path: Path | None = None) -> Any:
    """The `ModelCheckpoint` of a training that keeps the checkpoint with the lowest loss."""
    best = lightning.callbacks.ModelCheckpoint(folder, filename="best-{epoch}", monitor="loss", save_last=True)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=[Averages(Window(3), trajectory_every=2), best, Worse()],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    validation = DataLoader(samples(), batch_size=24)
    trainer.fit(Net(), DataLoader(samples(), batch_size=4), validation, ckpt_path=ckpt_path)
    return best


class Worse(lightning.Callback):  # type: ignore[misc, name-defined]
    """Lets each epoch's loss be higher than the one before, and that of the sanity check the lowest."""

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        score = 0.0 if trainer.sanity_checking else 1.0 + trainer.current_epoch
        pl_module.log("loss", torch.tensor(score))


def test_the_best_score_is_not_of_a_sanity_check_and_is_kept_by_a_resumed_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Net, "validation_step", lambda *_: None)  # the score is that of `Worse`
    first = best_of(tmp_path, epochs=2)
    assert first.best_model_score == 1.0
    second = best_of(tmp_path, epochs=4, ckpt_path=tmp_path / "last.ckpt")
    assert second.best_model_score == 1.0 and second.best_model_path == str(tmp_path / "best-epoch=0.ckpt")


@pytest.mark.parametrize("evaluate", ["ema", "model"])
def test_each_metric_is_there_under_a_name_that_says_whose_it_is(evaluate: str) -> None:
    net = Net()
    averages = Averages({"ema": EMA(0.9)}, evaluate=evaluate)
    trainer = fit(net, averages)
    found = trainer.callback_metrics
    assert found[f"loss_of_{evaluate}"] == found["loss"]
    other = {"ema": "model", "model": "ema"}[evaluate]
    averages.evaluate = other
    row = trainer.validate(net, DataLoader(samples(), batch_size=24), verbose=False)[0]
    assert row[f"loss_of_{other}"] == row["loss"] != found["loss"]
    assert f"loss_of_{evaluate}" not in row
    assert "log" not in vars(net)  # it logs each metric once again


def test_windows_after_the_fact_are_there_in_a_trainer_and_in_its_checkpoints(tmp_path: Path) -> None:
    whole = Averages(EMA(0.9), trajectory_every=2)
    net, _ = fitted(tmp_path, whole)
    assert torch.equal(whole.tracker.window(4, at=8)["layers.0.weight"], mean(net.trained[4:8]))
    rest = Averages(EMA(0.9), trajectory_every=2)
    fitted(tmp_path / "rest", rest, ckpt_path=tmp_path / "epoch=0.ckpt", epochs=2)
    assert rest.tracker.window(4, at=6).keys() == whole.tracker.window(4, at=6).keys()
    assert same(rest.tracker.window(4, at=6), whole.tracker.window(4, at=6))
    with pytest.raises(TypeError, match="unexpected keyword argument 'trajectory'"):
        Averages(EMA(0.9), trajectory=2)
