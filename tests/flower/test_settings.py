"""Settings that travel to nodes: what was sent is what is built, and nothing that a node's owner has not allowed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.client import OPTIMISERS, LocalTraining
from fedsash.data import Transform
from fedsash.engines import Training
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.flower import NamedModel
from fedsash.flower.nodes.settings import checksum, decoded, encoded
from fedsash.methods import FedProx
from fedsash.methods.schedules import LOCAL_SCHEDULES, SCHEDULES, Chained, Cosine, Warmup
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from fedsash.tasks import F1, TorchMetric
from fedsash.testing import examples
from support.by_default import some
from support.choices import METHODS
from support.worlds import data, federation, mlp

NAMED = NamedModel("mlp", {"hidden": (8,)}, shape=(4,), outputs=3, seed=3)


def training_of(world: Federation) -> Training:
    return world.training()


def sent(world: Federation, model: Any = None, module: Any = None, allowed: Any = False) -> Training:
    return decoded(encoded(training_of(world), model, Evaluation()), module, allowed).training


CHOICES: dict[str, dict[str, Any]] = {
    **{f"method {name}": {"method": method} for name, method in METHODS.items()},
    **{f"optimiser {n}": {"local": LocalTraining(optimiser=o)} for n, o in examples(OPTIMISERS).items()},
    **{f"schedule {n}": {"local": LocalTraining(schedule=s)} for n, s in examples(SCHEDULES).items()},
    **{f"local {n}": {"local": LocalTraining(local_schedule=s)} for n, s in examples(LOCAL_SCHEDULES).items()},
    "nested": {"local": LocalTraining(schedule=Chained((Warmup(3), Cosine(20))), epochs=2, stragglers=0.2)},
    "evaluation": {"evaluation": Evaluation(clients=True, client_test=True, fine_tuning=FineTuning(2), batch=7)},
    "personal": {"personal": "classifier"},
    "metrics": {"metrics": {"f1": F1()}},
    "a metric called class": {"metrics": {"class": F1()}},
}
"""Settings of which each has something of its own to travel."""


def chosen(name: str) -> dict[str, Any]:
    """Settings by their name; those with a metric of torchmetrics are only made here, which imports the library."""
    if name != "library":
        return CHOICES[name]
    pytest.importorskip("torchmetrics")
    return {"metrics": {"auroc": TorchMetric("classification.MulticlassAUROC", {"num_classes": 3})}}


SHOWN = ("method scaffold-I", "method fedmoswa-II", "optimiser adamw", "schedule cyclic")
SHOWN += ("nested", "evaluation", "personal", "metrics", "a metric called class", "library")


@pytest.mark.parametrize("name", some([*CHOICES, "library"], *SHOWN))
def test_what_is_sent_is_what_is_built(name: str) -> None:
    world = federation(**chosen(name))
    right, found = training_of(world), sent(world, module=mlp())
    assert checksum(found) == checksum(right)
    for part in ("method", "local", "seed", "batch", "asked", "fine_tuning"):
        assert getattr(found, part) == getattr(right, part)
    assert found.goal.criterion == right.goal.criterion and found.goal.metrics == right.goal.metrics
    assert found.problem.task == right.problem.task and found.problem.classes == right.problem.classes


def test_a_named_model_has_the_same_bits_on_every_node() -> None:
    world = federation(model=NAMED.build().double())
    found = sent(world, NAMED)
    for one, other in zip(found.module.parameters(), NAMED.build().parameters(), strict=True):
        assert torch.equal(one, other)


def test_without_a_name_a_node_needs_a_model_of_its_own() -> None:
    with pytest.raises(SettingError, match=r"client_app\(data, model=...\)"):
        sent(federation())


def test_another_model_of_the_nodes_own_has_another_checksum() -> None:
    world = federation()
    assert checksum(sent(world, module=mlp(seed=7))) == checksum(training_of(world))
    assert checksum(sent(world, module=mlp(dropout=0.5))) != checksum(training_of(world))
    assert checksum(sent(federation(method=FedProx(0.1)), module=mlp())) != checksum(training_of(world))


def a_loss(output: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(output, y, reduction="none", label_smoothing=0.1)


def test_code_of_ones_own_is_built_only_where_its_place_is_allowed() -> None:
    world = federation(loss=a_loss, data=data())
    place = f"{__name__}:a_loss"
    for allowed in (False, {"elsewhere:a_loss"}):
        with pytest.raises(SettingError, match="names code outside fedsash"):
            sent(world, module=mlp(), allowed=allowed)
    assert sent(world, module=mlp(), allowed={place}).goal.loss is a_loss


def test_a_loss_of_pytorch_is_refused_by_its_name() -> None:
    for loss, name in ((F.cross_entropy, "cross_entropy"), (nn.CrossEntropyLoss(), "CrossEntropyLoss")):
        with pytest.raises(SettingError, match=rf"Federation\.loss = {name}.*does not travel: .* name the task"):
            sent(federation(loss=loss), module=mlp())


def test_what_has_no_name_is_refused_where_it_is_sent() -> None:
    with pytest.raises(SettingError, match="has no name by which a node could find it"):
        sent(federation(loss=lambda output, y: a_loss(output, y)), module=mlp())


@pytest.mark.parametrize("name", ["Popen", "subprocess:Popen", "os:system", "Transform.__class__", ""])
def test_a_name_that_is_not_registered_is_never_built(name: str) -> None:
    table = json.loads(encoded(training_of(federation()), None, Evaluation()))
    table["method"] = {"$class": name, "args": ["true"]}
    with pytest.raises(SettingError):
        decoded(json.dumps(table), mlp(), False)


def test_a_transform_travels_with_its_numbers() -> None:
    images = Transform(mean=(0.1, 0.2, 0.3), std=(0.5, 0.5, 0.25), crop=2, flip=True)
    training = training_of(federation())
    given = replace(training, problem=replace(training.problem, transform=images))
    assert decoded(encoded(given, None, Evaluation()), mlp(), False).training.problem.transform == images
