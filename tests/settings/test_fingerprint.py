"""Fingerprints: equal for equal settings in every process, different for whatever changes a number."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsash.averages import Window
from fedsash.client import SGD, LocalTraining
from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.methods import FedGMA, FedNova, WeightedMean
from fedsash.methods.server_optimisers import FedAdam, ServerSGD
from fedsash.server.broadcast import Broadcast
from fedsash.settings.fingerprint import differences, text
from support.broadcasting import ALONE, noisy
from support.worlds import data, federation, mlp


def weighted(output: Tensor, y: Tensor, factor: float = 1.0) -> Tensor:
    return factor * F.cross_entropy(output, y, reduction="none")


class Weighted:
    """A loss with a setting, as people write it."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        return weighted(output, y, self.factor)

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return weighted(output, y, self.factor)


def closure(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda output, y: weighted(output, y, factor)


@dataclass(frozen=True)
class Settings:
    """Something with fields, one of which changes no number."""

    lr: float
    storage: str = field(default="auto", metadata={"numbers": False})


class Slotted:
    """An object without a dict."""

    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor


class OneSlot:
    """An object whose only slot is named by a text."""

    __slots__ = "factor"

    def __init__(self, factor: float) -> None:
        self.factor = factor


class PrivateSlot:
    """An object with a slot whose name Python changes."""

    __slots__ = ("__factor",)

    def __init__(self, factor: float) -> None:
        self.__factor = factor


class Counting(nn.Linear):
    """A layer that saves more than tensors."""

    def __init__(self, calls: int) -> None:
        torch.manual_seed(0)
        super().__init__(2, 2)
        self.seen = [calls]

    def get_extra_state(self) -> dict[str, list[int]]:
        return {"seen": self.seen}


def with_attribute(value: Any) -> nn.Module:
    layer = nn.Identity()
    layer.given = value
    return layer


def frozen(number: int) -> nn.Module:
    """Two equal layers, one of them frozen."""
    torch.manual_seed(0)
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[number].requires_grad_(False)
    return nn.Sequential(*layers)


PAIRS: dict[str, tuple[Any, Any]] = {
    "numbers": (0.1, 0.2),
    "functions with arguments": (partial(weighted, factor=2.0), partial(weighted, factor=3.0)),
    "methods of objects": (Weighted(1.0).loss, Weighted(9.0).loss),
    "objects": (Weighted(1.0), Weighted(2.0)),
    "lambdas": (lambda x: x, lambda x: x + 1),
    "what lambdas have captured": (closure(1.0), closure(2.0)),
    "settings": (Settings(0.1), Settings(0.2)),
    "long lists of arrays": ([np.zeros(2000), np.arange(2000)], [np.zeros(2000), np.arange(2000) + 1]),
    "losses that are modules": (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.3)),
    "activations": (nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Sequential(nn.Linear(2, 2), nn.ReLU())),
    "dropout": (mlp(0.0), mlp(0.5)),
    "defaults that have names": (lambda x, *, k=1: x * k, lambda x, *, k=2: x * k),
    "words in a lambda": (lambda x: x in {"cat", "dog", "bird"}, lambda x: x in {"cat", "dog", "bull"}),
    "types of numbers": (torch.float16, torch.float32),
    "ranges": (range(3), range(9)),
    "paths": (Path("/a"), Path("/b")),
    "slots": (Slotted(1), Slotted(2)),
    "a single slot": (OneSlot(1), OneSlot(2)),
    "private slots": (PrivateSlot(1), PrivateSlot(2)),
    "what a layer keeps beside tensors": (Counting(1), Counting(2)),
    "functions of a layer": (with_attribute(torch.tanh), with_attribute(torch.relu)),
    "lists of a layer": (with_attribute([1, 2]), with_attribute([3, 4])),
    "frozen layers": (frozen(0), frozen(1)),
    "weights in half precision": (torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_has_another_text(name: str) -> None:
    one, other = PAIRS[name]
    assert text(one) != text(other)
    assert text(one) == text(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0.1, np.float64(0.1)),
        (Settings(1, "disk"), Settings(1.0)),
        (Window(3, storage="host"), Window(3)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y"}, {"y", "x"}),
        (closure(2.0), closure(2.0)),
        (Weighted(2.0), Weighted(2.0)),
        (mlp(seed=1), mlp(seed=1)),
    ],
)
def test_equal_settings_have_equal_texts(one: Any, other: Any) -> None:
    assert text(one) == text(other)


@pytest.mark.full
def test_texts_are_the_same_in_another_process() -> None:
    """No address in memory, and no order of a set, gets into them."""
    program = "import sys; sys.path[:] = sys.argv[1:]; import test_fingerprint as t; print(t.everything())"
    command = [sys.executable, "-c", program, *sys.path]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert answer == everything() + "\n" and "0x" not in answer


def everything() -> str:
    given = [each for pair in PAIRS.values() for each in pair if not isinstance(each, nn.Module)]
    world = federation(loss=partial(weighted, factor=2.0), evaluation=Evaluation(held_out=0.3))
    return "\n".join([*map(text, given), text({"some", "words", "in", "a", "set"}), *world.fingerprint.values()])


OTHERS: dict[str, dict[str, Any]] = {
    "aggregation": {"aggregation": FedNova()},
    "server": {"server": ServerSGD(lr=0.5)},
    "loss": {"loss": partial(weighted, factor=2.0)},
    "engine.pieces": {"engine": LocalEngine(pieces=2)},
    "evaluation.held_out": {"evaluation": Evaluation(held_out=0.3)},
    "model": {"model": mlp(dropout=0.5)},
    "local": {"local": LocalTraining(lr=0.1, batch=5, epochs=3)},
    "seed": {"seed": 8},
    "partition": {"data": data().shard(range(5))},
    "averages": {"averages": {"w": Window(2)}, "broadcast": Broadcast("w", 2)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_changes_a_number_is_named(name: str) -> None:
    base: dict[str, Any] = {"averages": {"w": Window(3)}, "broadcast": Broadcast("w", 2)} if name == "averages" else {}
    found = differences(federation(**OTHERS[name]).fingerprint, federation(**base).fingerprint)
    assert any(line.startswith(f"{name} is ") for line in found)


def test_of_settings_the_fields_that_differ_are_named() -> None:
    here, there = (text(LocalTraining(lr=lr, batch=5, optimiser=SGD(momentum=m))) for lr, m in ((0.1, 0.5), (0.2, 0)))
    (line,) = differences({"local": here}, {"local": there})
    assert line == (
        "local is optimiser at its default, lr=0.2 there and optimiser=SGD(momentum=0.5), lr at its default here"
    )


def test_the_last_field_is_named_without_the_bracket_after_it() -> None:
    here, there = (text(Window(3, kept_as=kind)) for kind in ("model", "bfloat16"))  # type: ignore[arg-type]
    assert differences({"w": here}, {"w": there}) == ["w is kept_as='bfloat16' there and kept_as at its default here"]


def test_methods_written_in_c_and_arrays_of_objects_have_a_text_by_what_they_are() -> None:
    assert text(torch.Tensor.relu).endswith("TensorBase.relu") and text(str.lower) == "builtins.str.lower"
    ragged = [np.array(["xxx", 5000, None], dtype=object) for _ in range(2)]
    assert text(ragged[0]) == text(ragged[1]) == text(["xxx", 5000, None])


def test_how_often_is_evaluated_counts_only_where_a_broadcast_decides_by_it() -> None:
    often = Evaluation(every=1, held_out=0.4)
    seldom = Evaluation(every=5, held_out=0.4)
    plain = [federation(evaluation=evaluation).fingerprint for evaluation in (often, seldom)]
    assert not differences(*plain)
    fed = [noisy(broadcast=ALONE, evaluation=evaluation).fingerprint for evaluation in (often, seldom)]
    assert [line.split(" is ")[0] for line in differences(*fed)] == ["evaluation.every"]


def test_what_changes_no_number_is_no_difference() -> None:
    same = federation(engine=LocalEngine("vectorised", workers=1), averages={"w": Window(3)}, server=ServerSGD(lr=1))
    assert not differences(same.fingerprint, federation().fingerprint)
    assert differences(federation(server=FedAdam()).fingerprint, federation(aggregation=FedGMA()).fingerprint)
    assert not differences(federation(aggregation=WeightedMean(limit=1e6)).fingerprint, federation().fingerprint)


def test_a_model_among_its_own_settings_is_no_endless_text() -> None:
    model = with_attribute([])
    model.given += [model, model.extra_repr]  # type: ignore[operator]
    model.named = model.extra_repr
    assert text(model) == text(model) != text(with_attribute([]))


def test_a_variable_that_is_not_assigned_yet_is_left_out() -> None:
    def rule() -> float:
        return factor

    before = text(rule)
    factor = 2.0
    assert text(rule) != before


def test_a_scalar_of_numpy_has_the_text_of_pythons() -> None:
    assert text(np.bool_(True)) == text(True) and text(np.str_("a")) == text("a")
