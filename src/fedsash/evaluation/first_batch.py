"""Two samples go through the model, the loss and the metrics before the first round, to find mistakes there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..data.federated import FederatedData, Problem
from ..data.inputs import Inputs, ModelInput, call
from ..data.members import Members
from ..data.samples import Samples
from ..settings.errors import FedsashError, ModelError, SettingError, brief, check, one_line, raised_as, some
from ..tasks import Binary, Classification, MultiLabel, NextToken, Segmentation
from ..vector.arrays import Ints
from ..vector.layout import Layout
from ..vector.norms import for_training, mixes_samples
from ..vector.randomness import draws_kept, global_states, no_draws
from .goal import Goal
from .purity import check_loss_pure, check_no_state

UNCHANGED = "must not change its arguments in place: all that comes after it gets them, too; copy them first (.clone())"


def suited(module: nn.Module, data: FederatedData) -> tuple[FederatedData, list[str]]:
    """The data on the module's device, of the types that the module takes, and lines that say what was chosen.

    Floating-point numbers get the type of the module's parameters. Integers become such numbers or stay, as
    `data.integers` says. If it is None, they become numbers unless the module takes only integers, as an embedding
    does. Raises `ModelError` if the module does not take the first samples, or those with the highest and the lowest
    integer, such as a token that an embedding has no row for.
    """
    data = data.to(next(module.parameters()).device)
    data.transform.try_out(data.train.x)
    dtype = Layout(module).dtype
    open_choice = data.integers is None and _has_integers(data.train)
    integers = _integers(module, data.problem, data.train, data.integers)
    used = {"train": (data.train, torch.from_numpy(Members.of(data.clients).flat))}
    used |= {} if data.test is None else {"test": (data.test, torch.arange(len(data.test)))}
    for name, those in used.items():
        _try_extremes(module, data.problem, f"FederatedData.{name}.x", *those, dtype=dtype, integers=integers)
    return data.cast(dtype, integers), [_chosen(integers, dtype)] if open_choice else []


def suited_problem(module: nn.Module, problem: Problem) -> Problem:
    """The problem of clients that live elsewhere, with its test set as `suited` makes it."""
    if problem.test is None:
        return problem
    test = problem.test.to(next(module.parameters()).device)
    problem.transform.try_out(test.x)
    how: dict[str, Any] = {"dtype": Layout(module).dtype, "integers": _integers(module, problem, test)}
    _try_extremes(module, problem, "test.x", test, torch.arange(len(test)), **how)
    return replace(problem, test=test.cast(**how))


def _integers(module: nn.Module, problem: Problem, samples: Samples, chosen: bool | None = None) -> bool:
    """Whether integers reach the module as such; `chosen` says it, if it isn't None. Raises `ModelError`."""
    wrong: list[Exception] = []
    for integers in (False, True) if chosen is None and _has_integers(samples) else (chosen is not False,):
        try:
            _output(module, problem, _two(samples).cast(Layout(module).dtype, integers))
        except FedsashError:
            raise
        except Exception as error:  # its class depends on the model
            wrong.append(error)
        else:
            return integers
    why = "; ".join(dict.fromkeys(map(one_line, wrong)))
    raise ModelError(f"the model does not take {_sample(samples)}: {why}") from wrong[-1]


def _try_extremes(module: nn.Module, problem: Problem, place: str, samples: Samples, used: Tensor, **how: Any) -> None:
    """Try the samples with the highest and the lowest integer among those that are `used`, cast as `how` says."""
    for x in _tensors(samples):
        if x.dtype != torch.int64 or not len(used):
            continue
        rows = x.reshape(len(x), -1)[used.to(x.device)]
        ends = rows.amax(1).argmax(), rows.amin(1).argmin()
        high, low = (int(used[int(end)]) for end in ends)
        found = f"{place}[{high}] or [{low}], which hold {rows[ends[0]].max()} and {rows[ends[1]].min()}"
        with raised_as(partial(_untaken, found)):
            _output(module, problem, samples[torch.tensor([high, low], device=samples.y.device)].cast(**how))


def _untaken(found: str, why: str) -> ModelError:
    return ModelError(f"the model does not take {found}: {why}")


def _chosen(integers: bool, dtype: torch.dtype) -> str:
    if integers:
        return "integer features reach the model as integers, since it does not take them as floating-point numbers"
    return f"integer features reach the model as {str(dtype).removeprefix('torch.')} numbers"


@torch.no_grad()
def try_out(module: nn.Module, problem: Problem, samples: Samples, goal: Goal, loss: object = None) -> None:
    """Raise one clear line unless the module's output, the loss and all metrics fit the task and the labels.

    So it does if the loss does not depend on the module's parameters, or if a forward pass, the loss or a metric
    changes what no engine and no saved state knows. `loss` is the user's own, of which the goal's is made.
    """
    samples = _two(samples)
    shown = goal.loss if loss is None else loss
    output = _output(module, problem, samples)
    y = samples.y
    task = goal.task
    answer = task.answer(output, y)
    if not task.fits(answer, y, problem.classes):
        shape = list(task.right(y, problem.classes))
        line = f"the task {type(task).__name__} needs outputs of shape {shape} for {len(y)} samples"
        line += ", as of shakespeare_lstm or a transformer" if isinstance(task, NextToken) else ""
        raise ModelError(f"the model's outputs have the shape {list(answer.shape)}: {line}")
    _check_logits(module, problem, samples, goal, ours=loss is None)
    shapes = f"outputs ({_shape(output)}) and labels {list(y.shape)} of type {y.dtype}"
    before = _versions(output, y)
    with raised_as(lambda why: SettingError("Federation", "loss", goal.loss, f"does not take {shapes}: {why}")):
        losses = goal.loss(output, y)
    check(_versions(output, y) == before, "Federation.loss", goal.loss, UNCHANGED)
    check_loss_pure(goal.loss, shown, output, y)
    found = _shape(losses)
    right = f"must return one number for each of {len(y)} samples, returned {found}: use reduction='none'"
    check(found == [len(y)], "Federation.loss", goal.loss, right)
    _check_gradient(module, problem, samples, goal)
    inputs = partial(_inputs, module, problem, samples)
    _check_forward(module, inputs)
    check_no_state(copy.deepcopy(module).eval(), lambda model: call(model, inputs()))
    for name, metric in goal.metrics.items():
        scored = task.scored(output, y, losses)
        arguments = scored.output, scored.predicted, scored.y, scored.losses
        before = _versions(*arguments)
        with no_draws(f"metrics.{name}", metric), raised_as(partial(_uncomputable, name, _scored(problem, answer, y))):
            metric.check_for(scored)
        check(_versions(*arguments) == before, f"metrics.{name}", metric, UNCHANGED)


def _check_logits(module: nn.Module, problem: Problem, samples: Samples, goal: Goal, *, ours: bool) -> None:
    """Raise `ModelError` if the outputs are probabilities where the task takes logits.

    They are if they lie between 0 and 1 with weights a thousand times as large, too. A loss of one's own may take
    those of classes, since the highest one decides in either case; a logit of yes or no is compared with 0.
    """
    of_classes = isinstance(goal.task, Classification | Segmentation | NextToken)
    if not isinstance(goal.task, Binary | MultiLabel) and not (of_classes and ours):
        return
    extreme = copy.deepcopy(module)
    for parameter in extreme.parameters():
        parameter.mul_(1000)
    with torch.enable_grad():
        answer = goal.task.answer(call(extreme.eval(), _inputs(module, problem, samples)), samples.y)
    if not answer.requires_grad:  # which is refused for another reason
        return
    between = bool(((answer >= 0) & (answer <= 1)).all() and (answer > 0).any())
    total = answer.sum(1) if of_classes else None
    if between and (total is None or torch.allclose(total, torch.ones_like(total), atol=1e-3)):
        raise ModelError(
            f"the model's outputs are probabilities, and the task {type(goal.task).__name__} takes logits: leave the "
            "sigmoid or softmax at the model's end out, and take a loss of logits, such as the task's own"
        )


@torch.enable_grad()
def _check_gradient(module: nn.Module, problem: Problem, samples: Samples, goal: Goal) -> None:
    for tried in (copy.deepcopy(module).eval(), for_training(module)):  # a model may go without a graph in eval mode
        output = call(tried, _inputs(module, problem, samples))
        if goal.loss(output, samples.y).requires_grad:
            return
    first = "; of several outputs the first one counts" if isinstance(output, tuple | list) else ""
    raise ModelError(f"the loss does not depend on the model's parameters, so there is nothing to learn{first}")


def _check_forward(module: nn.Module, inputs: Callable[[], ModelInput]) -> None:
    """Raise `ModelError` if a pass in train mode changes parameters, or other buffers than running statistics, draws
    numbers that have no seed here, or has an effect on later passes."""
    trained = for_training(module)
    statistics = {*Layout(module).names}
    with draws_kept():
        before = _tensors_now(trained.named_parameters())
        try:
            call(trained, inputs())  # it may also make a mask
        except ValueError:  # BatchNorm's, of a single sample (see `check_single`)
            return
        moved = _moved(before, _tensors_now(trained.named_parameters()))
        before = _tensors_now(trained.named_buffers())
        draws = global_states()
        call(trained, inputs())
        moved += [name for name in _moved(before, _tensors_now(trained.named_buffers())) if name not in statistics]
        seeded = draws == global_states()
    if moved:
        right = "only the running statistics of BatchNorm may move there"
        raise ModelError(f"a forward pass of the model changes {some(moved)}: {right}")
    if not seeded:
        right = "which have no seed here: use PyTorch's, as in torch.rand"
        raise ModelError(f"a forward pass of the model draws numbers of Python or NumPy, {right}")
    check_no_state(for_training(module), lambda model: call(model, inputs()))


def _tensors_now(named: Iterable[tuple[str, Tensor]]) -> dict[str, tuple[Tensor, int, int]]:
    """Tensors by their names, with what changes when they are written to."""
    return {name: (tensor, tensor._version, tensor.data_ptr()) for name, tensor in named}


def _moved(before: dict[str, tuple[Tensor, int, int]], after: dict[str, tuple[Tensor, int, int]]) -> list[str]:
    """The names of the tensors that were written to or replaced."""
    both = {name: (before[name], after[name]) for name in before if name in after}
    return [name for name, (a, b) in both.items() if a[0] is not b[0] or a[1:] != b[1:]]


def _versions(*values: Any) -> list[int]:
    """How often each tensor in these values, such as an output of several parts, was written to."""
    versions = []
    for value in values:
        if isinstance(value, Tensor):
            versions.append(0 if value.is_inference() else value._version)  # those of inference mode count nothing
        elif isinstance(value, Mapping):
            versions += _versions(*value.values())
        elif isinstance(value, tuple | list):
            versions += _versions(*value)
    return versions


def _uncomputable(name: str, given: str, why: str) -> SettingError:
    return SettingError("", "metrics", name, f"can't be computed: {why}; {given}")


def _scored(problem: Problem, answer: Tensor, y: Tensor) -> str:
    """What the task gives metrics, in words."""
    outputs, labels = (f"[B{''.join(f', {n}' for n in tensor.shape[1:])}]" for tensor in (answer, y))
    below = "" if y.is_floating_point() else f" below {problem.classes}"
    return f"the task {type(problem.task).__name__} gives it outputs {outputs} and labels {labels}{below}"


@torch.no_grad()
def check_single(module: nn.Module, problem: Problem, samples: Samples, clients: Ints, right: str) -> None:
    """Raise `ModelError` if `clients` have a batch of one sample, and the module can't be trained on one.

    `right` says what to set instead.
    """
    if not len(clients) or not mixes_samples(module):
        return
    try:
        first = torch.zeros(1, dtype=torch.int64, device=samples.y.device)
        call(for_training(module), _inputs(module, problem, samples[first]))
    except ValueError as error:  # PyTorch's own
        raise ModelError(
            f"BatchNorm has no variance over the batches of one sample of clients {brief(clients[:10].tolist())}: set "
            f"{right}, and give every client two samples ({one_line(error)})"
        ) from error


def last_linear(module: nn.Module, problem: Problem, samples: Samples) -> tuple[str, list[int]]:
    """The name of the linear layer that the module uses last, and the shape of its output for two samples.

    The name is empty if the module calls none.
    """
    used = [("", list[int]())]
    twin = copy.deepcopy(module)
    for name, layer in twin.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda *said, name=name: used.append((name, list(said[-1].shape))))
    _output(twin, problem, _two(samples))
    return used[-1]


@torch.no_grad()
def _output(module: nn.Module, problem: Problem, samples: Samples) -> Any:
    return call(copy.deepcopy(module).eval(), _inputs(module, problem, samples))


def _inputs(module: nn.Module, problem: Problem, samples: Samples) -> ModelInput:
    """The inputs of the module for all these samples."""
    x = samples.x[torch.arange(len(samples), device=samples.y.device)]
    return problem.transform.inputs(x, Layout(module).dtype)


def _two(samples: Samples) -> Samples:
    """The first sample, and the first one with another label: some metrics are not defined without."""
    other = (samples.y != samples.y[0]).flatten(1).any(1) if samples.y.dim() > 1 else samples.y != samples.y[0]
    second = int(other.int().argmax()) or 1
    return samples[torch.tensor([0, second][: len(samples)], device=samples.y.device)]


def _has_integers(samples: Samples) -> bool:
    return any(x.dtype in (torch.int64, torch.bool) for x in _tensors(samples))


def _tensors(samples: Samples) -> Iterable[Any]:
    return samples.x.tensors.values() if isinstance(samples.x, Inputs) else (samples.x,)


def _sample(samples: Samples) -> str:
    """The form of the samples in words."""
    x = samples.x
    if isinstance(x, Inputs):
        parts = [f"{name} {list(tensor.shape[1:])} {tensor.dtype}" for name, tensor in x.tensors.items()]
        return f"samples of {', '.join(parts)}"
    images = x.dtype == torch.uint8
    shape = (x.shape[3], *x.shape[1:3]) if images else x.shape[1:]
    return f"samples of shape {list(shape)}{' (images: channels, height, width)' if images else ''}"


def _shape(output: Any) -> object:
    return list(output.shape) if isinstance(output, Tensor) else f"an object of class {type(output).__name__}"
