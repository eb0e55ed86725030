"""Code that the recorded runs name: models, a sampling, and federations over nodes in this process."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedsash as fs


def with_batch_norm() -> nn.Module:
    """A perceptron for the digits whose hidden layer has a BatchNorm."""
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))


def with_instance_norm() -> nn.Module:
    """A small network for digits of 1x8x8 pixels with running statistics of each channel."""
    norm = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    return nn.Sequential(nn.Conv2d(1, 3, 3), norm, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, 10))


def with_dropout() -> nn.Module:
    """A perceptron for the digits that draws in training."""
    return nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 10))


class Convolutional(nn.Module):
    """A small network for digits of 1x8x8 pixels, with GroupNorm and a classifier of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.classifier = nn.Linear(36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def convolutional() -> nn.Module:
    return Convolutional()


def neighbours(round: int, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Three neighbours on a ring, further on in each round."""
    return (seed + 2 * round + np.arange(3)) % len(sizes)


def digits() -> fs.FederatedData:
    """Scikit-learn's digits in six unequal parts, sorted by label."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = (images / 16).astype("float32")
    order = np.argsort(labels[:1500], kind="stable")
    clients = np.split(order, [150, 450, 600, 1000, 1200])
    return fs.FederatedData.from_arrays(x, labels, clients, test=(x[1500:], labels[1500:]))


def sequential() -> fs.LocalEngine:
    """The engine of all runs here, without a setting that is measured."""
    return fs.LocalEngine(kind="sequential", workers=1, block=1, threads=1, compile=False, memory_format="contiguous")


def all_right(output: Tensor, y: Tensor) -> float:
    """The share of samples all of whose labels are right."""
    return float(((output > 0) == y).all(1).double().mean())


def several_labels() -> fs.Federation:
    """Three labels for each digit: is it even, is it above 4, has it a closed loop? The loss has weights of its own."""
    from sklearn.datasets import load_digits

    images, digit = load_digits(return_X_y=True)
    x = (images / 16).astype("float32")
    y = np.stack([digit % 2 == 0, digit > 4, np.isin(digit, (0, 6, 8, 9))], axis=1).astype("int64")
    clients = fs.Dirichlet(clients=10, alpha=0.3)(digit[:1400], 0)
    data = fs.FederatedData.from_arrays(
        x[:1400], y[:1400], clients, test=(x[1400:], y[1400:]), task=fs.tasks.MultiLabel()
    )
    torch.manual_seed(0)
    return fs.Federation(
        nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)),
        data,
        method=fs.methods.FedACG(),
        local=fs.LocalTraining(lr=0.1, batch=20),
        sampling=fs.Uniform(4),
        averages={"w3": fs.Window(3)},
        metrics={"f1": fs.tasks.F1(), "all_right": all_right},
        evaluation=fs.Evaluation(every=2, client_test=True),
        engine=sequential(),
        device="cpu",
    )


class NextByte(nn.Module):
    """A small recurrent network over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(128, 4)
        self.hidden = nn.Linear(8, 8)
        self.classifier = nn.Linear(8, 128)

    def forward(self, tokens: Tensor) -> Tensor:
        token = self.token(tokens)
        before = torch.cat([torch.zeros_like(token[:, :1]), token[:, :-1]], dim=1)
        return self.classifier(torch.relu(self.hidden(torch.cat([token, before], dim=2))))


def texts(loss: nn.Module | None = None) -> fs.Federation:
    """The next byte in three descriptions of data sets; each client holds one of them."""
    from sklearn.datasets import load_diabetes, load_iris, load_wine

    descriptions = [load().DESCR[:1500] for load in (load_iris, load_wine, load_diabetes)]
    x, y, user = fs.data.next_tokens(descriptions, lambda text: list(text.encode("ascii", "replace")), 16)
    test = torch.arange(len(x)) % 5 == 0
    data = fs.FederatedData.from_arrays(
        x[~test], y[~test], users=user[~test], test=(x[test], y[test]), task=fs.tasks.NextToken(), classes=128
    )
    torch.manual_seed(0)
    return fs.Federation(
        NextByte(),
        data,
        method=fs.FedProx(mu=0.1),
        loss=loss,
        local=fs.LocalTraining(lr=0.1, batch=8),
        sampling=fs.Uniform(2),
        averages={"w3": fs.Window(3)},
        evaluation=fs.Evaluation(every=2, metric="perplexity"),
        engine=sequential(),
        device="cpu",
    )


def texts_with_a_loss_of_pytorch() -> fs.Federation:
    """The same with smoothed labels."""
    return texts(nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1))


def colours() -> fs.Federation:
    """Images of bytes that are cropped and flipped in training; clients train stacked."""
    draws = np.random.default_rng(0)
    y = np.arange(200) % 4
    noise = draws.integers(0, 120, (200, 8, 8, 3))
    pattern = 30 * draws.random((1, 8, 8, 1))
    x = (noise + y[:, None, None, None] * pattern).astype("uint8")
    data = fs.FederatedData.from_arrays(
        x[:160],
        y[:160],
        np.split(np.arange(160), [20, 50, 90, 120]),
        test=(x[160:], y[160:]),
        transform=fs.extend.Transform(mean=(0.4, 0.4, 0.4), std=(0.2, 0.3, 0.2), crop=1, flip=True),
    )
    torch.manual_seed(0)
    return fs.Federation(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 4)),
        data,
        method=fs.methods.FedASAM(),
        local=fs.LocalTraining(lr=0.1, batch=10),
        sampling=fs.Uniform(3),
        averages={"ema": fs.EMA(0.7)},
        evaluation=fs.Evaluation(every=2),
        engine=replace(sequential(), kind="vectorised", block=3),
        device="cpu",
    )


def tracked() -> None:
    """Averages of a loop of one's own, saved and continued; writes each one's tensors."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    averages = {
        "window": fs.Window(4),
        "lawa": fs.Window(3, every=2, kept_as="bfloat16"),
        "ema": fs.EMA(0.9),
        "double": fs.EMA(0.9, precision="double", warmup=True),
        "swa": fs.SWA(start=3, buffers="re-estimate"),
        "last": fs.Window(2, part="classifier", buffers="latest"),
    }
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    tracker = fs.Tracker(averages, model, trajectory_every=5)
    x = torch.randn(64, 6)
    y = (x[:, 0] > 0).long()
    for step in range(15):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[step % 4 :: 4]), y[step % 4 :: 4]).backward()
        optimiser.step()
        tracker.update()
        if step == 8:
            saved = tracker.state_dict()
            tracker = fs.Tracker(averages, model, trajectory_every=5)
            tracker.load_state_dict(saved)
    values = {name: tracker.value(name) for name in averages}
    values["of sums"] = tracker.window(10, at=15)
    model.register_buffer("expanded", torch.ones(1).expand(3))
    with tracker.applied("swa", batches=[x]):
        values["re-estimated"] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    values |= enormous()
    for name, tensors in values.items():
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, f"{name}.safetensors")


def enormous() -> dict[str, dict[str, Tensor]]:
    """Windows over models of which some are a billion times larger: their sums need more than float64."""
    torch.manual_seed(1)
    values = {}
    for dtype in (torch.float32, torch.float64):
        model = nn.Linear(5, 3).to(dtype)
        tracker = fs.Tracker({"window": fs.Window(3), "swa": fs.SWA(start=1), "ema": fs.EMA(0.5)}, model)
        for step in range(12):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.randn(parameter.shape) * (3e17 if step % 5 == 2 else 1.0) / 3)
            tracker.update()
            if step % 3 == 0:
                values[f"enormous {dtype} {step}"] = tracker.value("window")
        values |= {f"enormous {dtype} {name}": tracker.value(name) for name in ("window", "swa", "ema")}
    return values


def over_nodes(remember: bool = False) -> fs.Federation:
    """SCAFFOLD with a window over three nodes of Flower in this process, which have three, two and one client."""
    from fedsash.testing.grid import InProcessGrid

    logging.getLogger("flwr").setLevel(logging.WARNING)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    data = digits()
    here = fs.Federation(
        model,
        data,
        method=fs.Scaffold(option="raw"),
        local=fs.LocalTraining(lr=0.05, batch=16, optimiser=fs.SGD(momentum=0.5), keep_moments=True),
        averages={"w3": fs.Window(3), "ema": fs.EMA(0.8)},
        broadcast=fs.Broadcast("w3", start=2),
        sampling=fs.Uniform(3),
        evaluation=fs.Evaluation(every=2, held_out=0.2),
        device="cpu",
    )
    states = Path(tempfile.mkdtemp())
    parts = [data.shard([1, 3, 4]), data.shard([0, 5]), data.shard([2])]

    def of_node(context: Any) -> fs.FederatedData:
        return parts[context.node_config["partition-id"]]

    app = fs.flower.client_app(of_node, model=model, engine=sequential(), folder=states)
    grid = InProcessGrid(app, {100 - 7 * node: {"partition-id": node} for node in range(len(parts))})
    clients = fs.flower.FlowerClients(
        grid,
        here.clients.problem,
        len(here.sizes),
        evaluation=here.evaluation,
        seed=here.seed,
        waiting=fs.flower.Waiting(deadline=0.01, roll_call=0.01, poll=0.001),
        remember=remember,
    )
    return replace(here, data=clients)


def over_nodes_that_remember() -> fs.Federation:
    """The same, where the nodes keep the clients' state."""
    return over_nodes(remember=True)
