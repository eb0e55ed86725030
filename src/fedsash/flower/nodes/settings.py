"""What a node must know to train, as a text that travels with each request: registered names and plain values.

A node builds what has a name in fedsash's registries. Code of one's own is named by its place, `"package.module:name"`,
and the node's owner says whether it may be imported (see `settings.resolve`). Nothing is pickled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import nn

from ... import models
from ...client import OPTIMISERS, LocalTraining
from ...data import TRANSFORMS
from ...data.federated import Problem
from ...engines import Training
from ...evaluation import Evaluation, FineTuning, Goal
from ...methods import METHODS, WeightedMean
from ...methods.schedules import LOCAL_SCHEDULES, SCHEDULES
from ...settings.errors import SettingError, check
from ...settings.fingerprint import fingerprint
from ...settings.resolve import Allowed, allowed_only, resolve
from ...tasks import METRICS, TASKS, Criterion, OnlyLoss, as_metric
from ...tasks.losses import PerSample
from ...vector.sharing import Personal, Sharing

CLASS = "$class"
"""The key of a dataclass's name."""
FUNCTION = "$function"
"""The key of a function's place."""

_REGISTRIES = (METHODS, OPTIMISERS, SCHEDULES, LOCAL_SCHEDULES, TASKS, METRICS, TRANSFORMS)
_CLASSES = [cls for registry in _REGISTRIES for cls in registry.values()]
_CLASSES += [LocalTraining, Personal, FineTuning, Criterion, OnlyLoss]

REGISTERED: dict[str, Any] = {cls.__name__: cls for cls in _CLASSES}
"""All classes that a node builds without its owner's leave, by name."""

TRAINING_FIELDS = ("method", "local", "seed", "batch", "asked", "fine_tuning")
"""The fields of a `Training` that travel as they are."""


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A model by its name, so that every node can build it.

    `name` and `options` are those of an experiment file's `[model]`, `shape` is that of one input without the batch,
    and `outputs` the number of outputs. Initial values, also those of frozen parameters, depend on `seed`.
    """

    name: str
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    outputs: int
    seed: int = 0

    def build(self) -> nn.Module:
        """The model. Raises `SettingError` or `ModelError` as `models.build` does."""
        return models.build(self.name, self.options, shape=self.shape, classes=self.outputs, seed=self.seed)


def encoded(training: Training, model: NamedModel | None, evaluation: Evaluation) -> str:
    """The settings of a training as a text, and what an evaluation sets aside.

    Without a `model` by name, nodes need one of their own. Raises `SettingError` for a setting that has no name, such
    as a lambda.
    """
    goal = training.goal
    problem = {name: _plain(value, name) for name, value in vars(training.problem).items() if name != "test"}
    table = {
        "model": None if model is None else _plain_fields(model),
        "problem": problem,
        "loss": _plain_loss(goal),
        "metrics": _plain(goal.metrics, "metrics"),
        "criterion": _plain(goal.criterion, "criterion"),
        "buffers": training.sharing.buffers,
        "personal": _plain(training.sharing.personal, "personal"),
        "held_out": evaluation.held_out,
        "client_test": evaluation.client_test,
    }
    for name in TRAINING_FIELDS:
        table[name] = _plain(getattr(training, name), name)
    return json.dumps(table, sort_keys=True)


@dataclass(frozen=True, eq=False)
class Decoded:
    """The settings of a training at a node: the training, and what an evaluation sets aside of its samples."""

    training: Training
    evaluation: Evaluation


def decoded(settings: str, module: nn.Module | None, allowed: Allowed) -> Decoded:
    """The settings in a text, with a `module` of the node's own, or the model that the text names.

    The aggregation is the server's own affair. Raises `SettingError` for names that are not registered, and not among
    the `allowed` places.
    """
    with allowed_only(allowed):
        table = json.loads(settings)
        training_fields = {name: _built(table[name]) for name in TRAINING_FIELDS}
        metrics = _built(table["metrics"])
        criterion = _built(table["criterion"])
        personal = _built(table["personal"])
        problem = Problem(test=None, **_built(table["problem"]))
        if module is None:
            requirement = "the server names no model: the node needs one of its own, client_app(data, model=...)"
            check(table["model"] is not None, "model", None, requirement)
            module = NamedModel(**_built(table["model"])).build()
        loss = _built(table["loss"])
    task = problem.task
    if loss is None:
        loss = task.loss_of
    goal = Goal(task, loss, {name: as_metric(metric, name, task) for name, metric in metrics.items()}, criterion)
    training = Training(
        module=module,
        problem=problem,
        goal=goal,
        aggregation=WeightedMean(),
        sharing=Sharing.of(module, table["buffers"], personal),
        sample=(),
        **training_fields,
    )
    return Decoded(training, Evaluation(held_out=table["held_out"], client_test=table["client_test"]))


def checksum(training: Training) -> str:
    """A checksum of what a server and a node must agree on: the model's tensors, and all settings of the training.

    Of the model it has the layers, the names, shapes and types, and the values of what is not trained.
    """
    layout = training.sharing.layout
    fixed = {name: value for name, value in training.module.state_dict().items() if name not in layout.names}
    agreement = {name: getattr(training, name) for name in TRAINING_FIELDS}
    # The order counts: the checksum is that of the text.
    agreement |= {
        "layers": repr(training.module),
        "layout": (layout.names, [list(shape) for shape in layout.shapes], str(layout.dtype)),
        "fixed": fixed,
        "personal": training.sharing.personal,
        "buffers": training.sharing.buffers,
        "task": training.problem.task,
        "classes": training.problem.classes,
        "transform": training.problem.transform,
    }
    return f"{zlib.crc32(repr(fingerprint(agreement)).encode()):08x}"


def _plain_loss(goal: Goal) -> Any:
    """The loss as plain values; None if it is the task's own."""
    if goal.loss == goal.task.loss_of:
        return None
    right = "is PyTorch's own, which does not travel: leave it out and name the task, or give a function of your own"
    check(not isinstance(goal.loss, PerSample), "Federation.loss", goal.loss, right)
    return _plain(goal.loss, "loss")


def _plain(value: Any, place: str) -> Any:
    """A setting as plain values; raises `SettingError`, naming its place, if it has none."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(one, place) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one, place) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {CLASS: _class_name(type(value))} | _plain_fields(value)
    path = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    named = callable(value) and "<" not in path and not path.endswith(":")
    check(named, place, value, "has no name by which a node could find it: use a registered one, or a named function")
    return {FUNCTION: path}


def _plain_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that its constructor takes, as plain values."""
    return {field.name: _plain(getattr(value, field.name), field.name) for field in fields(value) if field.init}


def _class_name(cls: type[Any]) -> str:
    """The name of a registered class, or else its place, `"package.module:Class"`."""
    if REGISTERED.get(cls.__name__) is cls:
        return str(cls.__name__)
    return f"{cls.__module__}:{cls.__qualname__}"


def _built(value: Any) -> Any:
    """The setting that plain values describe; lists become tuples."""
    if isinstance(value, list):
        return tuple(map(_built, value))
    if not isinstance(value, dict):
        return value
    if FUNCTION in value:
        return resolve(str(value[FUNCTION]))
    arguments = {str(name): _built(argument) for name, argument in value.items() if name != CLASS}
    if CLASS not in value:
        return arguments
    name = str(value[CLASS])
    cls = REGISTERED.get(name)
    if cls is None:
        check(":" in name, CLASS, name, "must be registered in fedsash, or the place of a class, package.module:Class")
        cls = resolve(name)
    try:
        return cls(**arguments)
    except TypeError as error:
        raise SettingError("", CLASS, name, f"can't be made of {', '.join(arguments)}: {error}") from error
