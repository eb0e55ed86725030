"""People's code that works in place changes neither what is kept nor what comes after it, or is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.data import Transform
from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.methods import FedAvg, FedSAM, Method, Scaffold
from fedsash.methods.sampling import Sampling
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.vector.norms import batch_norms
from support.by_default import rotated

ENGINES = {
    "sequential": LocalEngine("sequential", workers=1),
    "stacked": LocalEngine("vectorised", workers=1, compile=False),
    "workers": LocalEngine("sequential", workers=2),
}
RNG = np.random.default_rng(0)
X = RNG.random((120, 6))
Y = (X[:, 0] * 3).astype(np.int64)
CLIENTS = np.array_split(np.arange(80), 4)


class Pure(nn.Module):
    """Normalises its input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.classifier = nn.Linear(6, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier((x - 0.5) / 2)


class InPlace(Pure):
    """The same, in its input itself; right in a loop with a loader, where a batch is a copy."""

    def forward(self, x: Tensor) -> Tensor:
        x -= 0.5
        x /= 2
        return self.classifier(x)


class Normed(Pure):
    """With statistics to be estimated."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.norm((x - 0.5) / 2))


class NormedInPlace(Normed):
    def forward(self, x: Tensor) -> Tensor:
        x -= 0.5
        return self.classifier(self.norm(x.div_(2)))


def trained(model: nn.Module, data: FederatedData | None = None, **settings: Any) -> tuple[Tensor, list[Any]]:
    """The averages after three rounds, and what three evaluations say of them."""
    x = X.copy()
    y = Y.copy()
    data = data or FederatedData.from_arrays(x[:80], y[:80], CLIENTS, test=(x[80:], y[80:]))
    averages = {"w": Window(2, buffers="re-estimate" if batch_norms(model) else "average")}
    local = LocalTraining(lr=0.5, batch=7, epochs=2)
    settings = {"local": local, "averages": averages} | settings
    with Federation(model, data, device="cpu", **settings) as federation:
        state = federation.start()
        for _ in range(3):
            state, _ = federation.round(state)
        scores = [[metrics.values for metrics in federation.evaluate(state)] for _ in range(3)]
        models = torch.stack(list(federation.models(state).values()))
    assert np.array_equal(x, X) and np.array_equal(y, Y), "the arrays of the user"
    return models, scores


@pytest.mark.parametrize(
    ("method", "engine"),
    rotated([Scaffold(option="I"), FedSAM(), FedAvg()], ENGINES, turns=1),
    ids=lambda each: str(each),
)
def test_a_model_that_changes_its_input_trains_and_is_scored_as_one_that_does_not(method: Method, engine: str) -> None:
    """Some methods ask for several gradients over one batch; clients fine-tune and score on samples of their own."""
    evaluation = Evaluation(held_out=0.2, client_test=True, clients=True, fine_tuning=FineTuning(epochs=1))
    settings = {"method": method, "engine": ENGINES[engine], "evaluation": evaluation}
    expected, right = trained(Pure(), **settings)
    models, scores = trained(InPlace(), **settings)
    torch.testing.assert_close(models, expected, rtol=1e-12, atol=1e-12)
    assert scores[0] == scores[1] == scores[2]
    for one, other in zip(scores[0], right[0], strict=True):
        assert one == pytest.approx(other, rel=1e-9)


def test_statistics_are_re_estimated_from_the_samples_as_they_are() -> None:
    expected, _ = trained(Normed(), buffers="average")
    for _ in range(2):
        models, scores = trained(NormedInPlace(), buffers="average")
        torch.testing.assert_close(models, expected, rtol=1e-12, atol=1e-12)
        assert scores[0] == scores[2]


@dataclass(frozen=True)
class Scaled(Transform):
    """A transform that works in place."""

    def prepare(self, x: Any) -> Any:
        return x.mul_(2)


def test_a_transform_that_works_in_place_changes_no_sample() -> None:
    data = FederatedData.from_arrays(X[:80], Y[:80], CLIENTS, test=(X[80:], Y[80:]), transform=Scaled())
    before = data.train.x.clone(), data.problem.test.x.clone()  # type: ignore[union-attr]
    _, scores = trained(Pure(), data)
    assert scores[0] == scores[1] == scores[2]
    assert torch.equal(data.train.x, before[0])  # type: ignore[arg-type]
    assert torch.equal(data.problem.test.x, before[1])  # type: ignore[union-attr]


def sure(output: Tensor, y: Tensor) -> Tensor:
    """A loss that changes outputs."""
    return F.cross_entropy(output.clamp_(-1, 1), y, reduction="none")


def shifted(output: Tensor, y: Tensor) -> Tensor:
    """A loss that changes labels."""
    y[y == 2] = 1
    return F.cross_entropy(output, y, reduction="none")


@pytest.mark.parametrize("loss", [sure, shifted])
def test_a_loss_that_changes_its_arguments_is_refused(loss: Any) -> None:
    with pytest.raises(SettingError, match=r"^Federation.loss = .*must not change its arguments in place.*clone"):
        trained(Pure(), loss=loss)


def rounded(output: Tensor, y: Tensor) -> float:
    return float(output.round_().argmax(-1).eq(y).double().mean())


def test_a_metric_that_changes_its_arguments_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^metrics.rounded = .*must not change its arguments in place.*clone"):
        trained(Pure(), metrics={"rounded": rounded})


def sorted_by_label(labels: Any, seed: int) -> list[Any]:
    """A partition that shuffles the labels that it is given."""
    order = np.argsort(labels, kind="stable")
    np.random.default_rng(seed).shuffle(labels)
    return np.array_split(order, 4)


def test_a_partition_that_changes_the_labels_changes_no_sample() -> None:
    y = Y[:80].copy()
    data = FederatedData.from_arrays(X[:80], y, partition=sorted_by_label)
    assert np.array_equal(y, Y[:80]) and np.array_equal(data.train.y, Y[:80])


@dataclass(frozen=True)
class Largest(Sampling):
    """Takes the two clients with most samples, and sorts the sizes for that."""

    def draw(self, round: int, sizes: Any, seed: int) -> Any:
        largest = np.argsort(sizes)[-2:]
        sizes.sort()
        return largest


def test_a_sampling_that_changes_the_sizes_changes_no_weight() -> None:
    clients = [np.arange(40, 80), np.arange(40), np.arange(3)]
    data = FederatedData.from_arrays(X[:80], Y[:80], clients)
    trained(Pure(), data, sampling=Largest())
    assert data.sizes.tolist() == [40, 40, 3]
