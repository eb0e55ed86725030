"""Averages of sharded models (FSDP2) in Lightning and in Hugging Face's Trainer: two processes over gloo."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.utils.data import DataLoader, TensorDataset

from fedsash.averages import EMA, Tracker, Window
from fedsash.errors import ModelError
from support.loops import make_model

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]


def in_processes(count: int, work: Callable[..., None], folder: Path) -> None:
    """Let processes `work` as a launcher starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_processes(_one_of, (count, port, str(folder), work), nprocs=count)  # type: ignore[no-untyped-call]


def _one_of(rank: int, count: int, port: int, folder: str, work: Callable[..., None]) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in (place | address).items()})
    work(rank, count, Path(folder))
    torch.distributed.barrier()
    os._exit(0)  # on a busy machine Gloo's threads may abort a process that ends in the usual way


def gathered(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.full_tensor().clone() for name, value in model.state_dict().items()}  # type: ignore[operator]


def mean(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([m[name].double() for m in models]).mean(0).float() for name in models[0]}


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def in_lightning(count: int, folder: Path, epochs: int, ckpt_path: Path | None = None) -> tuple[Any, list[Any], Any]:
    """Train a module that Lightning's `ModelParallelStrategy` shards; the callback, all its models, the trainer."""
    import lightning.pytorch as lightning
    from lightning.pytorch.strategies import ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard

    from fedsash.averages.trainers.lightning import Averages

    trained: list[dict[str, Tensor]] = []

    class Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = make_model()

        def configure_model(self) -> None:
            fully_shard(self.layers, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

        def on_train_batch_end(self, *_: Any) -> None:
            trained.append(gathered(self))

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            self.log("loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]), sync_dist=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.05)

    draw = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(24, 4, generator=draw), torch.randint(0, 2, (24,), generator=draw))
    averages = Averages({"window": Window(3), "ema": EMA(0.9)})
    trainer = lightning.Trainer(
        strategy=ModelParallelStrategy(data_parallel_size=count, tensor_parallel_size=1),
        accelerator="cpu",
        devices=count,
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[averages, lightning.callbacks.ModelCheckpoint(folder, save_top_k=-1, filename="{epoch}")],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(data, batch_size=4), DataLoader(data, batch_size=12), ckpt_path=ckpt_path)
    return averages, trained, trainer


def straight(rank: int, count: int, folder: Path) -> None:
    averages, trained, trainer = in_lightning(count, folder / "whole", epochs=2)
    assert trainer.callback_metrics["models_in_window"] == 3
    assert trainer.callback_metrics["loss_of_window"] == trainer.callback_metrics["loss"]
    window = averages.averaged_state_dict("window")
    state = averages.state_dict()["tracker"]
    if rank == 0:
        close(window, mean(trained[-3:]))
        saved = torch.load(folder / "whole" / "epoch=1.ckpt" / "meta.pt", weights_only=True)
        close(saved["averages"]["window"], window)
        torch.save(state, folder / "state.pt")
    else:
        assert window == state == {}


def resumed(rank: int, count: int, folder: Path) -> None:
    checkpoint = folder / "whole" / "epoch=0.ckpt"
    averages, trained, _ = in_lightning(count, folder / "rest", epochs=2, ckpt_path=checkpoint)
    state = averages.state_dict()["tracker"]
    assert averages.tracker.round == 6 and len(trained) == 3
    if rank == 0:
        close(state, torch.load(folder / "state.pt"))


def test_a_sharded_module_in_lightning_is_averaged_saved_and_resumed_to_the_byte(tmp_path: Path) -> None:
    pytest.importorskip("lightning.pytorch")
    in_processes(2, straight, tmp_path)
    in_processes(2, resumed, tmp_path)


def in_trainer(folder: Path, epochs: int, version: int = 2) -> tuple[Any, Any, list[dict[str, Tensor]]]:
    """A `Trainer` whose model accelerate's FSDP2 shards, its averages, and the list of its models.

    On a CPU accelerate trains by DDP whatever the settings of FSDP are. It is told here that FSDP is meant; the rest is
    its own code.
    """
    import transformers
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    from fedsash.averages.trainers.transformers import Averages

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=version,
        state_dict_type="FULL_STATE_DICT",
        auto_wrap_policy="TRANSFORMER_BASED_WRAP",
        transformer_cls_names_to_wrap=["ViTLayer"],
        cpu_ram_efficient_loading=False,
    )
    AcceleratorState.distributed_type = property(lambda _: DistributedType.FSDP, lambda *_: None)
    AcceleratorState.fsdp_plugin = property(lambda _: plugin, lambda *_: None)
    trained: list[dict[str, Tensor]] = []

    class Noted(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
            trained.append(gathered(model))

    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=4, patch_size=2
    )
    torch.manual_seed(0)
    images = [{"pixel_values": torch.randn(3, 4, 4), "labels": torch.tensor(i % 2)} for i in range(16)]
    args = transformers.TrainingArguments(
        str(folder),
        use_cpu=True,
        ddp_backend="gloo",
        report_to=[],
        disable_tqdm=True,
        num_train_epochs=epochs,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        per_device_train_batch_size=4,
        eval_strategy="epoch",
        save_strategy="epoch",
    )
    model = transformers.ViTForImageClassification(config)
    trainer = transformers.Trainer(model, args, train_dataset=images, eval_dataset=images, callbacks=[Noted()])
    return trainer, Averages(trainer, {"window": Window(3), "ema": EMA(0.9)}), trained


def trained_and_resumed(rank: int, count: int, folder: Path) -> None:
    import transformers

    trainer, averages, trained = in_trainer(folder, epochs=2)
    trainer.train()
    assert averages.tracker.round == len(trained) == 4
    window = averages.averaged_state_dict("window")
    rows = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert [row["eval_models_in_window"] for row in rows] == [2, 3]
    if rank == 0:
        close(window, mean(trained[-3:]))
        place = folder / "checkpoint-4" / "averages" / "window"
        close(transformers.ViTForImageClassification.from_pretrained(place).state_dict(), window)
    torch.distributed.barrier()
    again, rest, later = in_trainer(folder, epochs=2)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert len(later) == 2
    found = rest.averaged_state_dict("ema")
    expected = averages.averaged_state_dict("ema")
    if rank == 0:
        close(found, expected)
    with pytest.raises(ModelError, match=r"^Averages: FSDP1 keeps whole tensors .* use FSDP2 \(fsdp_config=.*$"):
        in_trainer(folder, epochs=2, version=1)


def test_a_sharded_model_in_the_trainer_is_averaged_saved_and_resumed_to_the_byte(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    in_processes(2, trained_and_resumed, tmp_path)


def refused_by_deepspeed(rank: int, count: int, folder: Path) -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"
    deepspeed = pytest.importorskip("deepspeed")
    torch.distributed.init_process_group("gloo")
    with deepspeed.zero.Init(config_dict_or_path={"train_batch_size": 1, "zero_optimization": {"stage": 3}}):
        model = make_model()
    assert all(parameter.numel() == 0 for parameter in model.parameters())
    with pytest.raises(ModelError, match=r"^DeepSpeed's ZeRO-3 keeps 0\.weight as an empty tensor .*FSDP2\)$"):
        Tracker(EMA(0.9), model)


def test_a_module_of_zero_3_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    in_processes(1, refused_by_deepspeed, tmp_path)
