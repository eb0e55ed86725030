from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsash.data.federated import FederatedData
from fedsash.data.samples import Samples
from fedsash.data.transform import Transform
from fedsash.evaluation import Evaluation, Score
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.tasks import F1, MeanIoU
from fedsash.testing import FakeClients
from fedsash.vector.layout import Layout
from support.scoring import asking, cross_entropy, evaluator
from support.worlds import data, federation, mlp


def evaluate(data: FederatedData, model: nn.Module | None = None, **settings: Any) -> dict[str, Score]:
    """The metrics of each split, after round 4, of a model that is not the evaluator's own."""
    module = mlp(dropout=0.5) if model is None else model
    own = mlp(dropout=0.5, seed=1) if model is None else model
    w, judge = Layout(module).flatten(module), evaluator(data, own, cross_entropy, **settings)
    return {m.split: m for m in judge.evaluate(w, 4, "window", asking(data, own, cross_entropy))}


def outcomes(x: Tensor, y: Tensor) -> tuple[Any, Any]:
    """Hits and losses by NumPy alone: the network of `mlp` written out."""
    parameters = {name: p.detach().numpy() for name, p in mlp().named_parameters()}
    hidden = np.tanh(x.numpy() @ parameters["0.weight"].T + parameters["0.bias"])
    z = hidden @ parameters["3.weight"].T + parameters["3.bias"]
    labels = y.numpy()
    losses = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels]
    return (z.argmax(axis=1) == labels).astype(float), losses


def with_domains(names: tuple[str, ...], domains: list[int]) -> FederatedData:
    world = data()
    assert world.test is not None
    domain = torch.tensor(domains).repeat(len(world.test))[: len(world.test)]
    return replace(world, test=Samples(world.test.x, world.test.y, domain), domain_names=names)


def test_accuracy_loss_and_classes_are_numpys() -> None:
    world = data()
    assert world.test is not None
    hits, losses = outcomes(world.test.x, world.test.y)
    assert 0 < hits.mean() < 1
    metrics = evaluate(world)["test"]
    assert (metrics.round, metrics.model) == (4, "window") and metrics.more.keys() == {"classes"}
    assert metrics["accuracy"] == pytest.approx(hits.mean(), rel=1e-15)
    assert metrics.loss == pytest.approx(losses.mean(), rel=1e-12)
    y = world.test.y.numpy()
    assert metrics.more["classes"] == pytest.approx([hits[y == c].mean() for c in range(3)], rel=1e-15)


def test_a_class_without_test_samples_has_no_accuracy() -> None:
    world = replace(data(), classes=5)
    classes = evaluate(world)["test"].more["classes"]
    assert None not in classes[:3] and classes[3:] == [None, None]


def test_domains_are_named_and_each_has_its_own_accuracy() -> None:
    world = with_domains(("photo", "sketch"), [0, 1, 1])
    assert world.test is not None and world.test.domain is not None
    hits, _ = outcomes(world.test.x, world.test.y)
    domain = world.test.domain.numpy()
    expected = {"photo": hits[domain == 0].mean(), "sketch": hits[domain == 1].mean()}
    assert evaluate(world)["test"].more["domains"] == pytest.approx(expected)


def test_domains_without_names_are_numbered() -> None:
    assert list(evaluate(with_domains((), [0, 2]))["test"].more["domains"]) == ["0", "1", "2"]


def test_a_domain_without_test_samples_has_no_accuracy() -> None:
    """The test set need not contain every domain that is named: a domain may be held out, or be the last."""
    for domains, missing in (([0, 2], "b"), ([0, 1], "c")):
        shares = evaluate(with_domains(("a", "b", "c"), domains))["test"].more["domains"]
        assert [name for name, share in shares.items() if share is None] == [missing]


@settings(max_examples=20)
@given(batch=st.integers(1, 70))
def test_the_batch_size_does_not_matter(batch: int) -> None:
    one, other = evaluate(data(), clients=True, batch=batch), evaluate(data(), clients=True)
    for split in ("test", "clients"):
        assert one[split]["accuracy"] == other[split]["accuracy"] and one[split].more == other[split].more
        assert one[split].loss == pytest.approx(other[split].loss, rel=1e-12)


def test_every_client_counts_the_same_on_its_own_training_samples() -> None:
    world = data()
    hits, losses = outcomes(world.train.x, world.train.y)
    metrics = evaluate(world, clients=True)["clients"]
    assert metrics["accuracy"] == pytest.approx(np.mean([hits[own].mean() for own in world.clients]), rel=1e-14)
    assert metrics.loss == pytest.approx(np.mean([losses[own].mean() for own in world.clients]), rel=1e-12)


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (6, 1), (19, 1), (20, 2), (39, 3)])
def test_the_worst_tenth_is_the_mean_of_the_worst_of_them_and_of_at_least_one(clients: int, worst: int) -> None:
    """Client i of n has i hits among its n samples, so that no two are equal."""
    world = data()
    hits, _ = outcomes(world.train.x, world.train.y)
    wrong, right = int(hits.argmin()), int(hits.argmax())
    clients_of = [np.array([right] * i + [wrong] * (clients - i)) for i in range(clients)]
    shuffled = [clients_of[i] for i in np.random.default_rng(0).permutation(clients)]
    world = replace(world, clients=shuffled)
    expected = np.mean(np.arange(worst) / clients)
    assert evaluate(world, clients=True)["clients"].more["worst_tenth"] == pytest.approx(expected)


def test_what_is_not_there_or_not_asked_for_is_not_reported() -> None:
    without = replace(data(), test=None)
    assert evaluate(without) == {}
    assert list(evaluate(without, clients=True)) == ["clients"]
    assert list(evaluate(data())) == ["test"]


def test_evaluating_changes_neither_the_module_nor_the_vector() -> None:
    module = mlp(dropout=0.5).train()
    before = {name: p.clone() for name, p in module.state_dict().items()}
    judge, ask = evaluator(data(), module, cross_entropy, clients=True), asking(data(), module, cross_entropy)
    w = torch.randn(Layout(module).size).double()
    given = w.clone()
    one, other = judge.evaluate(w, 1, "model", ask), judge.evaluate(w, 1, "model", ask)
    assert one == other, "dropout is off"
    assert module.training and torch.equal(w, given)
    assert all(torch.equal(before[name], p) for name, p in module.state_dict().items())


def test_images_are_prepared_but_not_augmented() -> None:
    rng = np.random.default_rng(0)
    images, y = rng.integers(0, 256, (12, 4, 4), dtype=np.uint8), rng.integers(0, 3, 12)
    transform = Transform(mean=(0.4,), std=(0.2,), crop=2, flip=True)
    world = FederatedData.from_arrays(images, y, [range(12)], test=(images, y), classes=3, transform=transform)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    metrics = evaluate(world, model, clients=True)
    x = torch.from_numpy((images / 255 - 0.4) / 0.2).float()
    with torch.no_grad():
        output = model(x)
    assert metrics["test"]["accuracy"] == metrics["clients"]["accuracy"] == (output.argmax(1).numpy() == y).mean()
    assert metrics["test"].loss == pytest.approx(float(F.cross_entropy(output, torch.from_numpy(y))), rel=1e-5)


@given(every=st.integers(1, 20), last=st.integers(1, 20), rounds=st.integers(1, 60))
def test_due_every_so_many_rounds_and_in_each_of_the_last(every: int, last: int, rounds: int) -> None:
    evaluation = Evaluation(every=every, last=last)
    due = {round for round in range(1, rounds + 1) if evaluation.due(round, rounds)}
    assert due == set(range(every, rounds + 1, every)) | set(range(max(rounds - last, 0) + 1, rounds + 1))
    assert rounds in due


def test_a_record_is_flat() -> None:
    row = Score(
        round=3, model="ema", split="clients", values={"accuracy": 0.5}, loss=1.25, more={"worst_tenth": 0.25}
    ).row()
    common = {"round": 3, "model": "ema", "split": "clients"}
    assert row == common | {"accuracy": 0.5, "loss": 1.25, "worst_tenth": 0.25}


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("target", float("inf"), "must be finite"),
        ("best_on", "clients", "must be 'held_out' or 'test'"),
    ],
)
def test_impossible_settings_are_refused(field: str, value: Any, right: str) -> None:
    with pytest.raises(ValueError, match=f"Evaluation.{field} = {value!r}: {right}"):
        Evaluation(**{field: value})


@pytest.mark.parametrize("decides, by_class", [("accuracy", True), ("f1", False), ("iou", False)])
def test_a_mean_over_classes_has_no_number_of_one_class(decides: str, by_class: bool) -> None:
    world = federation(metrics={"f1": F1(), "iou": MeanIoU()}, evaluation=Evaluation(metric=decides))
    (found,) = (m for m in world.evaluate(world.start()) if (m.split, m.model) == ("test", "model"))
    assert ("classes" in found.more) == by_class


def test_clients_that_do_not_score_a_model_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    clients = FakeClients(lambda request: "asleep")
    with Federation(nn.Linear(2, 2), clients, evaluation=Evaluation(clients=True), device="cpu") as world:
        for _ in range(2):
            assert world.evaluate(world.start()) == []
    said = "evaluation after round 0: no answer from client 0 (asleep), client 1 (asleep), client 2 (asleep)"
    assert [record.getMessage() for record in caplog.records] == [said]


@pytest.mark.parametrize("wrong", [
    {"data": replace(data(), test=None, client_test=())},
    {"personal": "classifier", "evaluation": Evaluation(best_on="test", held_out=0.3)},
], ids=["no test set", "a personal part"])  # fmt: skip
def test_the_best_model_is_not_chosen_on_a_test_set_that_the_server_does_not_score(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"evaluation.best_on = 'test': needs a test set on which the server scores"):
        federation(**{"evaluation": Evaluation(best_on="test")} | wrong)
