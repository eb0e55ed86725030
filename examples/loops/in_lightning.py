"""Averages in Lightning with one line more: handwritten digits, BatchNorm.

pip install "fedsash[lightning]"; python examples/loops/in_lightning.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedsash as fs
from fedsash.averages.trainers.lightning import Averages


class Digits(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main(epochs: int = 30) -> dict[str, float]:
    """Train, and give the accuracy of an average, and of the model itself, on images that were not trained on."""
    L.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels))
    x = torch.tensor(images, dtype=torch.float32)[order] / 16
    y = torch.tensor(labels)[order]
    train = DataLoader(TensorDataset(x[:600], y[:600]), batch_size=20, shuffle=True)
    test = DataLoader(TensorDataset(x[600:], y[600:]), batch_size=1197)

    averages = {"window": fs.Window(100, buffers="re-estimate"), "ema": fs.EMA(0.99, warmup=True)}
    model = Digits()
    with TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=epochs,
            callbacks=[Averages(averages, batches=train)],  # the line
            default_root_dir=folder,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, train, test)  # which validates the window
        found = {"window": float(trainer.callback_metrics["accuracy"])}
        saved = torch.load(next(Path(folder).rglob("*.ckpt")), weights_only=True)
    for name, state in {"ema": saved["averages"]["ema"], "model": saved["state_dict"]}.items():
        model.load_state_dict(state)
        model.eval()
        found[name] = float((model(x[600:]).argmax(1) == y[600:]).float().mean())
    return found


if __name__ == "__main__":
    for name, share in main().items():
        print(f"{name:10} {share:.2%}")
