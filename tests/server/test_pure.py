"""People's models, losses, samplings, schedules and methods: state and draws are seeded, or refused by name."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.client import LocalTraining, Optimiser
from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.methods import Aggregation, Effort, FedAvg, RoundMean, Step, Upload
from fedsash.methods.sampling import Function
from fedsash.methods.schedules import Schedule
from fedsash.methods.server_optimisers import Server
from fedsash.server.federation import Federation
from fedsash.settings.errors import ModelError, SettingError
from fedsash.tasks import Binary
from fedsash.vector.arrays import Vectors
from support.by_default import rotated

RNG = np.random.default_rng(0)
X = RNG.random((120, 6))
Y = (X[:, 0] * 3).astype(np.int64)
ONE = LocalEngine("sequential", workers=1)
ENGINES = {
    "sequential": ONE,
    "workers": LocalEngine("sequential", workers=2),
    "threads": LocalEngine("sequential", workers=1, threads=2),
}


def world(model: nn.Module | None = None, engine: LocalEngine = ONE, **settings: Any) -> Federation:
    torch.manual_seed(0)
    data = FederatedData.from_arrays(X[:80], Y[:80], clients=np.array_split(np.arange(80), 4), test=(X[80:], Y[80:]))
    return Federation(model or nn.Linear(6, 3).double(), data, engine=engine, **settings)


class WithState(nn.Module):
    """A linear layer, and an attribute that `change` moves in each pass."""

    def __init__(self, kept: Any, change: Callable[[Any], Any], *, used: bool) -> None:
        super().__init__()
        self.classifier = nn.Linear(6, 3)
        self.kept, self.change, self.used = kept, change, used

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.classifier(x)
        result = self.change(self)
        return output * (1 + result) if self.used else output


def counted(layer: Any) -> float:
    layer.kept += 1
    return float(layer.kept)


def queued(layer: Any) -> float:
    layer.kept.append(len(layer.kept))
    return float(len(layer.kept))


def drawn(layer: Any) -> float:
    return float(torch.rand(1, generator=layer.kept))


STATEFUL = {
    "a counter": (0, counted),
    "a tensor": (torch.zeros(1), counted),
    "a list": ([], queued),
    "a queue": (deque[int](maxlen=1000), queued),
    "a generator of PyTorch": (torch.Generator(), drawn),
    "a generator of NumPy": (np.random.default_rng(0), lambda layer: float(layer.kept.random())),
    "a generator of Python": (random.Random(0), lambda layer: layer.kept.random()),
    "an iterator": (itertools.count(), lambda layer: next(layer.kept)),
}


@pytest.mark.parametrize("kind, used", rotated(STATEFUL, [True, False]))
def test_a_model_with_state_in_plain_attributes_is_refused_by_name(kind: str, used: bool) -> None:
    kept, change = STATEFUL[kind]
    model = nn.Sequential(WithState(kept, change, used=used)).double()
    with pytest.raises(ModelError, match=r"a forward pass of the model changes 0\.kept, which no saved run knows"):
        world(model)


def test_state_that_moves_in_training_alone_is_refused() -> None:
    class Annealed(nn.Linear):
        steps = 0

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.steps = self.steps + 1
            return super().forward(x) * (1 + 0.1 * self.steps)

    model = Annealed(6, 3).double()
    model.steps = 1
    with pytest.raises(ModelError, match="changes steps"):
        world(model)


def test_running_statistics_behind_an_attribute_are_no_state() -> None:
    class Behind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.classifier = nn.BatchNorm1d(6), nn.Linear(6, 3)
            self.unregistered = [self.norm]

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.classifier(self.unregistered[0](x))
            return output

    world(Behind().double(), buffers="average")


class Node:
    """An object that holds all others of its kind."""

    def __init__(self) -> None:
        self.others: list[Node] = []

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y, reduction="none")


def test_a_loss_of_objects_that_hold_each_other_is_looked_at_in_no_time() -> None:
    nodes = [Node() for _ in range(40)]
    for node in nodes:
        node.others = nodes.copy()
    world(loss=nodes[0].loss)


def test_a_hidden_state_that_goes_on_into_the_next_batch_is_refused() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.classifier = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 3)
            self.hidden: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            output, hidden = self.gru(x.unsqueeze(1), self.hidden)
            self.hidden = hidden.detach()
            answer: Tensor = self.classifier(output[:, -1])
            return answer

    with pytest.raises(ModelError, match="changes hidden"):
        world(Recurrent().double())


def test_state_outside_of_the_model_is_refused() -> None:
    passes: list[int] = []

    class Outside(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            passes.append(0)
            return super().forward(x) * len(passes)

    with pytest.raises(ModelError, match="outputs for a batch depend on the batches before it"):
        world(Outside(6, 3).double())


def test_a_model_that_keeps_what_it_made_of_the_last_batch_is_trained() -> None:
    class Watched(nn.Linear):
        features: Any = None

        def forward(self, x: Tensor) -> Tensor:
            self.features = {"last": [x.detach()]}
            return super().forward(x)

    federation = world(Watched(6, 3).double())
    federation.round(federation.start())


def noisy(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none") * (1 + torch.rand(len(y), dtype=output.dtype))


class Mixup(nn.Module):
    """Draws only for batches of several samples."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        if self.training and len(hidden) > 1:
            hidden = 0.8 * hidden + 0.2 * hidden[torch.randperm(len(hidden))]
        output: Tensor = self.classifier(hidden.relu())
        return output


class Variational(nn.Module):
    """Draws in evaluations, too."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean(x)
        output: Tensor = self.classifier(F.dropout(mean, 0.3) + 0.5 * torch.randn_like(mean))
        return output


DRAWING = {
    "a loss": (lambda: nn.Linear(6, 3).double(), noisy),
    "a model, for several samples": (lambda: Mixup().double(), None),
    "a model, in evaluations": (lambda: Variational().double(), None),
}


@pytest.mark.parametrize(("kind", "engine"), rotated(DRAWING, ENGINES))
def test_draws_from_pytorch_are_seeded_in_every_engine(kind: str, engine: str) -> None:
    build, loss = DRAWING[kind]
    ends = []
    for seed, chosen in ((0, "sequential"), (1, engine)):
        torch.manual_seed(0)
        evaluation = Evaluation(clients=True, held_out=0.2)
        with world(build(), ENGINES[chosen], loss=loss, evaluation=evaluation) as federation:
            torch.manual_seed(seed)  # what is drawn elsewhere has no effect
            state, _ = federation.round(federation.start())
            torch.manual_seed(seed + 2)
            metrics = federation.evaluate(state)
            ends.append((state.w, [(m.split, m.loss, m.values) for m in metrics]))
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def by_numpy(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none") * (1 + float(np.random.rand()))


class Counting:
    """A loss whose weight grows with every call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return F.cross_entropy(output, y, reduction="none")


def test_a_loss_with_draws_of_numpy_or_state_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Federation.loss = by_numpy: draws numbers from a global generator"):
        world(loss=by_numpy)
    with pytest.raises(SettingError, match=r"Federation.loss .*keep no state from one call to the next"):
        world(loss=Counting())


class Centers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.zeros(3, 3, dtype=torch.float64))

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y, reduction="none") + ((output - self.centers[y]) ** 2).sum(1)


def weighted(output: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none") * weight


def with_penalty(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss with a penalty on a model outside, which the copies that train are not."""
    return lambda output, y: F.cross_entropy(output, y, reduction="none") + sum(p.norm() for p in model.parameters())


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (Centers(), "centers"),
        (partial(weighted, weight=nn.Parameter(torch.ones((), dtype=torch.float64))), "keywords.weight"),
        (Centers().forward, "self.centers"),
        (with_penalty(nn.Linear(6, 3)), "model.weight, model.bias"),
    ],
    ids=["module", "partial", "method", "closure"],
)
def test_a_loss_with_trainable_parameters_is_refused(loss: Any, name: str) -> None:
    with pytest.raises(SettingError, match=rf"Federation.loss .*has trainable parameters \({name}\)"):
        world(loss=loss)


def test_a_loss_with_frozen_parameters_is_taken() -> None:
    world(loss=Centers().requires_grad_(False))


def test_hooks_on_gradients_are_refused() -> None:
    model = nn.Linear(6, 3).double()
    model.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(ModelError, match="hooks on the gradients of weight would not be called"):
        world(model)
    model = nn.Linear(6, 3).double()
    model.bias.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(ModelError, match="hooks on the gradients of bias would not be called"):
        world(model)


def by_global_numpy(round: int, sizes: Any, seed: int) -> Any:
    return np.random.choice(len(sizes), 2, replace=False)


def by_global_python(round: int, sizes: Any, seed: int) -> Any:
    return random.sample(range(len(sizes)), 2)


def by_global_torch(round: int, sizes: Any, seed: int) -> Any:
    return torch.randperm(len(sizes))[:2].numpy()


SHARED = np.random.default_rng(0)


def by_shared_generator(round: int, sizes: Any, seed: int) -> Any:
    return SHARED.choice(len(sizes), 2, replace=False)


@pytest.mark.parametrize("draw", [by_global_numpy, by_global_python, by_global_torch, by_shared_generator])
def test_a_sampling_that_does_not_repeat_is_refused(draw: Any) -> None:
    with pytest.raises(SettingError, match=r"Federation.sampling .*must give the same answer for the same arguments"):
        world(sampling=Function(draw))


@dataclass(frozen=True)
class Jitter(Schedule):
    def lr(self, round: int, lr: float) -> float:
        return lr * (1 + float(np.random.rand()))


def test_a_schedule_that_draws_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"LocalTraining.schedule .*must give the same answer for the same arguments"
    ):
        world(local=LocalTraining(schedule=Jitter()))


def by_python() -> float:
    return random.random()


def by_numpy_once() -> float:
    return float(np.random.rand())


def by_torch() -> float:
    return float(torch.rand(()))


@dataclass(frozen=True)
class Perturbed(FedAvg):
    draw: Any = by_torch

    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w) + self.draw()


@dataclass(frozen=True)
class PerturbedMean(Perturbed):
    def direction(self, step: Step) -> Tensor:
        return step.grad(step.w)

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update * self.draw(), {}


@dataclass(frozen=True)
class PerturbedSent(FedAvg):
    draw: Any = by_torch

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        return w * self.draw(), {}


@dataclass(frozen=True)
class PerturbedOptimiser(Optimiser):
    draw: Any = by_torch

    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Any, n: Any) -> None:
        w.sub_(lr * g * self.draw())


@dataclass(frozen=True)
class PerturbedServer(Server):
    draw: Any = by_torch

    def init(self, w: Tensor) -> Vectors:
        return {}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return sent + self.draw() * delta, state


@dataclass(frozen=True)
class PerturbedRule(Aggregation):
    draw: Any = by_torch

    def update(self, mean: Vectors, updates: list[Tensor]) -> Tensor:
        return mean["delta"] * self.draw()


@dataclass(frozen=True)
class PerturbedUploads(Aggregation):
    draw: Any = by_torch

    def derive(self, upload: Upload, effort: Effort, memory: Vectors) -> Upload:
        return {"delta": upload["delta"] * self.draw()}


DRAWING_HOOKS: list[tuple[str, Callable[[Any], dict[str, Any]]]] = [
    ("Federation.method", lambda draw: {"method": Perturbed(draw=draw)}),
    ("Federation.method", lambda draw: {"method": PerturbedMean(draw=draw)}),
    ("Federation.method", lambda draw: {"method": PerturbedSent(draw=draw)}),
    ("LocalTraining.optimiser", lambda draw: {"local": LocalTraining(optimiser=PerturbedOptimiser(draw))}),
    ("Federation.server", lambda draw: {"server": PerturbedServer(draw)}),
    ("Federation.aggregation", lambda draw: {"aggregation": PerturbedRule(draw=draw)}),
    ("Federation.aggregation", lambda draw: {"aggregation": PerturbedUploads(draw=draw)}),
]


@pytest.mark.parametrize("hook, draw", rotated(DRAWING_HOOKS, [by_python, by_numpy_once, by_torch]))
def test_a_hook_that_draws_is_refused_in_its_first_round(
    hook: tuple[str, Callable[[Any], dict[str, Any]]], draw: Any
) -> None:
    place, settings = hook
    federation = world(**settings(draw))
    message = rf"^{place} = Perturbed.*draws numbers from a global generator of Python, NumPy or PyTorch"
    with pytest.raises(SettingError, match=message):
        federation.round(federation.start())


def test_a_hook_may_draw_from_a_generator_of_its_own_and_a_model_from_pytorchs() -> None:
    def draw() -> float:
        return float(torch.rand((), generator=torch.Generator().manual_seed(3)))

    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.1), nn.RReLU()).double()
    federation = world(model, method=Perturbed(draw=draw), server=PerturbedServer(draw))
    federation.round(federation.start())


def test_a_class_in_place_of_a_loss_is_refused_with_what_would_do() -> None:
    with pytest.raises(SettingError, match=r"is a class: give an object of it, CrossEntropyLoss\(\)"):
        world(loss=nn.CrossEntropyLoss)


def test_tensors_of_inference_mode_are_data_and_no_model() -> None:
    with torch.inference_mode():
        x, model = torch.from_numpy(X) + 0, nn.Linear(6, 3).double()
    data = FederatedData.from_arrays(x, Y, clients=[range(60), range(60, 120)])
    federation = Federation(nn.Linear(6, 3).double(), data, engine=ONE)
    federation.round(federation.start())
    with pytest.raises(ModelError, match=r"made in torch.inference_mode\(\)"):
        world(model)


def binary(model: nn.Module, **settings: Any) -> Federation:
    data = FederatedData.from_arrays(X, (Y > 0).astype(np.float64), clients=[range(60), range(60, 120)], task=Binary())
    return Federation(model.double(), data, engine=ONE, **settings)


def by_bce(output: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy(output.squeeze(-1), y.double(), reduction="none")


PROBABILITIES: dict[str, Callable[[], Any]] = {
    "softmax": lambda: world(nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)).double()),
    "sigmoid": lambda: binary(nn.Sequential(nn.Linear(6, 1), nn.Sigmoid(), nn.Flatten(0))),
    "sigmoid with a loss of its own": lambda: binary(
        nn.Sequential(nn.Linear(6, 1), nn.Sigmoid(), nn.Flatten(0)), loss=by_bce
    ),
}


@pytest.mark.parametrize("kind", PROBABILITIES)
def test_probabilities_in_place_of_logits_are_refused(kind: str) -> None:
    with pytest.raises(ModelError, match=r"outputs are probabilities, and the task .* takes logits: leave the sigmoid"):
        PROBABILITIES[kind]()


def zeros() -> nn.Module:
    model = nn.Linear(6, 3).double()
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


@pytest.mark.parametrize("build", [zeros, lambda: nn.Sequential(nn.Linear(6, 3), nn.LogSoftmax(1)).double()])
def test_logits_near_zero_and_logarithms_are_no_probabilities(build: Callable[[], nn.Module]) -> None:
    world(build())


def test_a_loss_of_ones_own_may_take_probabilities_of_classes() -> None:
    def by_nll(output: Tensor, y: Tensor) -> Tensor:
        return F.nll_loss(output.log(), y, reduction="none")

    world(nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)).double(), loss=by_nll)
