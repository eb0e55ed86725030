"""What parts.toml and federation.toml name: a model, a sampling, an engine, a loss and a whole federation."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedsash as fs
from fedsash.client.messages import Answers, Executor, Request
from fedsash.engines import ClientWork, Engine


def small_cnn(width: int = 16, dropout: float = 0.0, classes: int = 10) -> nn.Module:
    """A small network for images of 1x8x8 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(dropout), nn.Linear(8 * width, classes)),
    )


def neighbours(round: int, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Ten neighbours on a ring, three places further each round: a pure function of its arguments."""
    return (seed + 3 * round + np.arange(10)) % len(sizes)


@dataclass(frozen=True)
class Aloud(Engine):
    """Trains one client after another in this process, and says who is at work."""

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        return Speaking(work), ["engine: aloud"]


class Speaking(Executor):
    """Answers a request client by client; where they live is its own affair."""

    def __init__(self, work: ClientWork) -> None:
        self.trainer = work.trainer()

    def work(self, request: Request) -> Answers:
        print(f"round {request.round}: clients {request.ids.tolist()} are asked to {request.job}")
        for place in range(len(request.ids)):
            yield self.trainer.answer(request.only(slice(place, place + 1)), np.array([place]))


def smoothed(output: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of each sample with smoothed labels."""
    return F.cross_entropy(output, y, reduction="none", label_smoothing=0.1)


def build(lr: float = 0.1, seed: int = 0) -> fs.Federation:
    """A federation of arrays, a model and a loss of one's own: here 20 clients with digits, sorted by label."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images / 16).reshape(-1, 1, 8, 8).astype("float32")
    order = np.argsort(labels[:1500], kind="stable")
    data = fs.FederatedData.from_arrays(
        *(x, labels, np.array_split(order, 20)),
        test=(x[1500:], labels[1500:]),
        task=fs.Classification(),
    )
    torch.manual_seed(seed)
    return fs.Federation(
        small_cnn(width=8),
        data,
        loss=smoothed,
        local=fs.LocalTraining(lr=lr, batch=10),
        averages={"window": fs.Window(10)},
        sampling=fs.Uniform(5),
        evaluation=fs.Evaluation(every=2, held_out=0.2),
        engine=fs.LocalEngine(workers=1),
        seed=seed,
    )
