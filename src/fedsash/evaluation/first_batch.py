"""A few samples go through the model, the loss and the metrics before the first round, to find mistakes there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..data.federated import FederatedData, Problem
from ..data.inputs import Inputs, ModelInput, call
from ..data.members import Members
from ..data.samples import Samples
from ..settings.errors import FedsashError, ModelError, SettingError, brief, check, one_line, raised_as, some
from ..tasks import Binary, Classification, MultiLabel, NextToken, Segmentation, Task
from ..vector.arrays import Ints
from ..vector.layout import Layout
from ..vector.norms import for_training, mixes_samples
from ..vector.randomness import draws_kept, global_states, no_draws
from .goal import Goal
from .purity import check_loss_pure, check_no_state, check_nothing_shared

UNCHANGED = "must not change its arguments in place: all that comes after it gets them, too; copy them first (.clone())"

TRIED = 32
"""At most so many samples are tried at once. Some code does something else in a batch of more than two."""


def suited(module: nn.Module, data: FederatedData) -> tuple[FederatedData, list[str]]:
    """The data on the module's device, of the types that the module takes, and lines that say what was chosen.

    Floating-point numbers get the type of the module's parameters. Integers become such numbers or stay, as
    `data.integers` says. If it is None, they become numbers unless the module takes only integers, as an embedding
    does. Raises `ModelError` if the module does not take the first samples, or those with the highest and the lowest
    integer, such as a token that an embedding has no row for.
    """
    dtype = Layout(module).dtype
    data = data.cast(dtype, integers=True)  # before they are moved: Apple's GPUs have no float64
    data = data.to(next(module.parameters()).device)
    data.transform.try_out(data.train.x)
    integers = _keeps_integers(module, data.problem, data.train, data.integers)
    index = torch.from_numpy(Members.of(data.clients).flat)
    _try_extremes(module, data.problem, "FederatedData.train.x", data.train, index, dtype, integers)
    if data.test is not None:
        index = torch.arange(len(data.test))
        _try_extremes(module, data.problem, "FederatedData.test.x", data.test, index, dtype, integers)
    lines: list[str] = []
    if data.integers is None and _has_integers(data.train):
        lines.append(_line_on_integers(integers, dtype))
    return data.cast(dtype, integers), lines


def suited_problem(module: nn.Module, problem: Problem) -> Problem:
    """The problem of clients that live elsewhere, with its test set as `suited` makes it."""
    if problem.test is None:
        return problem
    dtype = Layout(module).dtype
    test = problem.test.cast(dtype, integers=True).to(next(module.parameters()).device)
    problem.transform.try_out(test.x)
    integers = _keeps_integers(module, problem, test)
    _try_extremes(module, problem, "test.x", test, torch.arange(len(test)), dtype, integers)
    return replace(problem, test=test.cast(dtype, integers))


def _keeps_integers(module: nn.Module, problem: Problem, samples: Samples, chosen: bool | None = None) -> bool:
    """Whether integers reach the module as such; `chosen` says it, if it isn't None. Raises `ModelError`."""
    choices = [chosen is not False]
    if chosen is None and _has_integers(samples):
        choices = [False, True]
    errors: list[Exception] = []
    for integers in choices:
        try:
            _output(module, problem, _two(samples).cast(Layout(module).dtype, integers))
        except FedsashError:
            raise
        except Exception as error:  # its class depends on the model
            errors.append(error)
        else:
            return integers
    reasons = dict.fromkeys(one_line(error) for error in errors)  # each once
    raise ModelError(f"the model does not take {_description(samples)}: {'; '.join(reasons)}") from errors[-1]


def _try_extremes(
    module: nn.Module,
    problem: Problem,
    place: str,
    samples: Samples,
    index: Tensor,
    dtype: torch.dtype,
    integers: bool,
) -> None:
    """Try the samples with the highest and the lowest integer among those of `index`, cast as they will be.

    Raises `ModelError`, which calls the samples `place`.
    """
    for x in _tensors(samples):
        if x.dtype != torch.int64 or not len(index):
            continue
        rows = x.reshape(len(x), -1)[index.to(x.device)]
        highest = int(rows.amax(1).argmax())
        lowest = int(rows.amin(1).argmin())
        high = int(index[highest])
        low = int(index[lowest])
        extremes = f"{place}[{high}] or [{low}], which hold {rows[highest].max()} and {rows[lowest].min()}"
        two = samples[torch.tensor([high, low], device=samples.y.device)]
        with raised_as(partial(_not_taken, extremes)):
            _output(module, problem, two.cast(dtype, integers))


def _not_taken(samples: str, why: str) -> ModelError:
    return ModelError(f"the model does not take {samples}: {why}")


def _line_on_integers(integers: bool, dtype: torch.dtype) -> str:
    if integers:
        return "integer features reach the model as integers, since it does not take them as floating-point numbers"
    return f"integer features reach the model as {str(dtype).removeprefix('torch.')} numbers"


@torch.no_grad()
def try_out(
    module: nn.Module,
    problem: Problem,
    samples: Samples,
    goal: Goal,
    batch: int | Literal["full"],
    loss: object = None,
    model: nn.Module | None = None,
) -> None:
    """Raise one clear line unless the module's output, the loss and all metrics fit the task and the labels.

    It also raises one if the loss does not depend on the module's parameters, or depends on what its copies share, or
    if a forward pass, the loss or a metric changes what no engine and no saved state knows. `batch` is that of the
    training, of which the first samples are tried. `loss` is the user's own, of which the goal's is made, and `model`
    that of which the module is a copy, if it is there.
    """
    first_batch = _first(samples, tried(batch))
    last_batch = _first(samples, 1)  # of many clients, or of a test set: a `squeeze()` drops its first dimension
    samples = _two(samples)
    y = samples.y
    output = _output(module, problem, samples)
    answer = goal.task.answer(output, y)
    _check_shape(problem, goal.task, answer, y)
    _check_logits(module, problem, samples, goal, own_loss=loss is not None)
    losses = _checked_losses(goal, loss, output, y)
    if model is None:
        model = module
    _check_gradient(module, problem, samples, goal, model)
    for others in (first_batch, last_batch):
        try:
            output_of_others = _output(module, problem, others)
        except ValueError:  # BatchNorm's, of a single sample (see `check_single`)
            continue
        _check_shape(problem, goal.task, goal.task.answer(output_of_others, others.y), others.y)
        _checked_losses(goal, loss, output_of_others, others.y)
    inputs = partial(_inputs, module, problem, first_batch)
    _check_forward(module, inputs)
    check_no_state(_evaluated(module), lambda model: call(model, inputs()))
    for name, metric in goal.metrics.items():
        scored = goal.task.scored(output, y, losses)
        arguments = [scored.output, scored.predicted, scored.y, scored.losses]
        before = _versions(*arguments)
        not_computable = partial(_not_computable, name, _metric_inputs(problem, answer, y))
        with no_draws(f"metrics.{name}", metric), raised_as(not_computable):
            metric.check_for(scored)
        check(_versions(*arguments) == before, f"metrics.{name}", metric, UNCHANGED)


def tried(batch: int | Literal["full"]) -> int:
    """How many samples of a batch are tried at once: two at least, since some code draws only from there on."""
    if batch == "full":
        return TRIED
    return min(max(batch, 2), TRIED)


def _check_shape(problem: Problem, task: Task, answer: Tensor, y: Tensor) -> None:
    """Raise `ModelError` unless the task's outputs have the shape that it needs for the labels."""
    if task.fits(answer, y, problem.classes):
        return
    shape = list(task.right(y, problem.classes))
    requirement = f"the task {type(task).__name__} needs outputs of shape {shape} for {len(y)} samples"
    if isinstance(task, NextToken):
        requirement += ", as of shakespeare_lstm or a transformer"
    raise ModelError(f"the model's outputs have the shape {list(answer.shape)}: {requirement}")


def _checked_losses(goal: Goal, loss: object, output: Any, y: Tensor) -> Tensor:
    """The losses of the samples. Raises `SettingError` unless the loss gives one number for each, and nothing else.

    `loss` is the user's own, or None.
    """
    shapes = f"outputs ({_shape(output)}) and labels {list(y.shape)} of type {y.dtype}"
    before = _versions(output, y)
    with raised_as(lambda why: SettingError("Federation", "loss", goal.loss, f"does not take {shapes}: {why}")):
        losses = goal.loss(output, y)
    check(_versions(output, y) == before, "Federation.loss", goal.loss, UNCHANGED)
    check_loss_pure(goal.loss, goal.loss if loss is None else loss, output, y)
    shape = _shape(losses)
    requirement = f"must return one number for each of {len(y)} samples, returned {shape}: use reduction='none'"
    check(shape == [len(y)], "Federation.loss", goal.loss, requirement)
    return losses


def _check_logits(module: nn.Module, problem: Problem, samples: Samples, goal: Goal, *, own_loss: bool) -> None:
    """Raise `ModelError` if the outputs are probabilities where the task takes logits.

    They are if they lie between 0 and 1 with weights a thousand times as large, too. A loss of one's own may take
    those of classes, since the highest one decides in either case; a logit of yes or no is compared with 0.
    """
    of_classes = isinstance(goal.task, Classification | Segmentation | NextToken)
    yes_or_no = isinstance(goal.task, Binary | MultiLabel)
    if not yes_or_no and (own_loss or not of_classes):
        return
    extreme = copy.deepcopy(module)
    for parameter in extreme.parameters():
        parameter.mul_(1000)
    with torch.enable_grad():
        answer = goal.task.answer(call(extreme.eval(), _inputs(module, problem, samples)), samples.y)
    if not answer.requires_grad:  # which is refused for another reason
        return
    probabilities = bool(((answer >= 0) & (answer <= 1)).all() and (answer > 0).any())
    if probabilities and of_classes:
        total = answer.sum(1)
        probabilities = torch.allclose(total, torch.ones_like(total), atol=1e-3)
    if probabilities:
        raise ModelError(
            f"the model's outputs are probabilities, and the task {type(goal.task).__name__} takes logits: leave the "
            "sigmoid or softmax at the model's end out, and take a loss of logits, such as the task's own"
        )


@torch.enable_grad()
def _check_gradient(module: nn.Module, problem: Problem, samples: Samples, goal: Goal, model: nn.Module) -> None:
    """Raise `ModelError` unless the loss depends on the parameters of the module, and on nothing that its copies share.

    `model` is that of which the module is a copy.
    """
    for copied in (_evaluated, for_training):  # a model may go without a graph in eval mode
        output = call(copied(module), _inputs(module, problem, samples))
        losses = goal.loss(output, samples.y)
        if losses.requires_grad:
            output_of_other = call(copied(module), _inputs(module, problem, samples))
            check_nothing_shared(losses, goal.loss(output_of_other, samples.y), model)
            return
    line = "the loss does not depend on the model's parameters, so there is nothing to learn"
    if isinstance(output, tuple | list):
        line += "; of several outputs the first one counts"
    raise ModelError(line)


def _check_forward(module: nn.Module, inputs: Callable[[], ModelInput]) -> None:
    """Raise `ModelError` if a pass in train mode has an effect on later ones, beside running statistics.

    It must not change parameters or other buffers, and must not draw numbers that have no seed here.
    """
    model = for_training(module)
    statistics = set(Layout(module).names)
    with draws_kept():
        before = _versions_of(model.named_parameters())
        try:
            call(model, inputs())  # it may also make what all later passes share, such as a mask
        except ValueError:  # BatchNorm's, of a single sample (see `check_single`)
            return
        changed = _changed(before, model.named_parameters())
        before = _versions_of(model.named_buffers())
        draws = global_states()
        call(model, inputs())
        for name in _changed(before, model.named_buffers()):
            if name not in statistics:
                changed.append(name)
        seeded = draws == global_states()
    if changed:
        requirement = "only the running statistics of BatchNorm may move there"
        raise ModelError(f"a forward pass of the model changes {some(changed)}: {requirement}")
    if not seeded:
        cure = "which have no seed here: use PyTorch's, as in torch.rand"
        raise ModelError(f"a forward pass of the model draws numbers of Python or NumPy, {cure}")
    check_no_state(for_training(module), lambda model: call(model, inputs()))


@dataclass(frozen=True)
class _Version:
    """A tensor as it was: `writes` and `address` change when it is written to, or gets other memory."""

    tensor: Tensor
    writes: int
    address: int


def _versions_of(named: Iterable[tuple[str, Tensor]]) -> dict[str, _Version]:
    return {name: _Version(tensor, tensor._version, tensor.data_ptr()) for name, tensor in named}


def _changed(before: Mapping[str, _Version], named: Iterable[tuple[str, Tensor]]) -> list[str]:
    """The names of the tensors that were written to or replaced since."""
    changed: list[str] = []
    for name, now in _versions_of(named).items():
        if name not in before:
            continue
        old = before[name]
        if now.tensor is not old.tensor or now.writes != old.writes or now.address != old.address:
            changed.append(name)
    return changed


def _versions(*values: Any) -> list[int]:
    """How often each tensor in these values, such as an output of several parts, was written to."""
    versions = []
    for value in values:
        if isinstance(value, Tensor):
            if not value.is_inference():  # those of inference mode count nothing
                versions.append(value._version)
        elif isinstance(value, Mapping):
            versions += _versions(*value.values())
        elif isinstance(value, tuple | list):
            versions += _versions(*value)
    return versions


def _not_computable(name: str, inputs: str, why: str) -> SettingError:
    return SettingError("", "metrics", name, f"can't be computed: {why}; {inputs}")


def _metric_inputs(problem: Problem, answer: Tensor, y: Tensor) -> str:
    """The outputs and labels that the task gives a metric, in words."""
    labels = _batch_shape(y)
    if not y.is_floating_point():
        labels += f" below {problem.classes}"
    return f"the task {type(problem.task).__name__} gives it outputs {_batch_shape(answer)} and labels {labels}"


def _batch_shape(tensor: Tensor) -> str:
    """The shape of a tensor with B in place of the number of samples."""
    lengths = ["B", *map(str, tensor.shape[1:])]
    return f"[{', '.join(lengths)}]"


@torch.no_grad()
def check_single(module: nn.Module, problem: Problem, samples: Samples, clients: Ints, cure: str) -> None:
    """Raise `ModelError` if `clients` have a batch of one sample, and the module can't be trained on one.

    `cure` says what to set instead.
    """
    if not len(clients) or not mixes_samples(module):
        return
    try:
        first = torch.zeros(1, dtype=torch.int64, device=samples.y.device)
        call(for_training(module), _inputs(module, problem, samples[first]))
    except ValueError as error:  # PyTorch's own
        raise ModelError(
            f"BatchNorm has no variance over the batches of one sample of clients {brief(clients[:10].tolist())}: set "
            f"{cure}, and give every client two samples ({one_line(error)})"
        ) from error


def last_linear(module: nn.Module, problem: Problem, samples: Samples) -> tuple[str, list[int]]:
    """The name of the linear layer that the module uses last, and the shape of its output for two samples.

    The name is empty if the module calls none.
    """
    calls: list[tuple[str, list[int]]] = [("", [])]
    model = copy.deepcopy(module)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(_noting(calls, name))
    _output(model, problem, _two(samples))
    return calls[-1]


def _noting(calls: list[tuple[str, list[int]]], name: str) -> Callable[[nn.Module, Any, Tensor], None]:
    """A forward hook that adds a layer's calls to a list, also those of a copy of the layer: functions are not copied.

    (A `partial` would be, with its list.)
    """

    def note(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        calls.append((name, list(output.shape)))

    return note


@torch.no_grad()
def _output(module: nn.Module, problem: Problem, samples: Samples) -> Any:
    return call(_evaluated(module), _inputs(module, problem, samples))


def _evaluated(module: nn.Module) -> nn.Module:
    """A copy of the module in eval mode."""
    return copy.deepcopy(module).eval()


def _inputs(module: nn.Module, problem: Problem, samples: Samples) -> ModelInput:
    """The inputs of the module for all these samples."""
    x = samples.x[torch.arange(len(samples), device=samples.y.device)]
    return problem.transform.inputs(x, Layout(module).dtype)


def _first(samples: Samples, count: int) -> Samples:
    """Copies of the first samples."""
    return samples[torch.arange(min(count, len(samples)), device=samples.y.device)]


def _two(samples: Samples) -> Samples:
    """The first sample, and the first one with another label: some metrics are not defined without."""
    y = samples.y
    differs = y != y[0]
    if y.dim() > 1:
        differs = differs.flatten(1).any(1)
    second = int(differs.int().argmax()) or 1  # 0 if all labels are the same
    rows = [0, second][: len(samples)]
    return samples[torch.tensor(rows, device=y.device)]


def _has_integers(samples: Samples) -> bool:
    return any(x.dtype in (torch.int64, torch.bool) for x in _tensors(samples))


def _tensors(samples: Samples) -> Iterable[Any]:
    """The tensors of the samples' features; encoded images count as one."""
    if isinstance(samples.x, Inputs):
        return samples.x.tensors.values()
    return (samples.x,)


def _description(samples: Samples) -> str:
    """The shape of the samples' features in words."""
    x = samples.x
    if isinstance(x, Inputs):
        parts = [f"{name} {list(tensor.shape[1:])} {tensor.dtype}" for name, tensor in x.tensors.items()]
        return f"samples of {', '.join(parts)}"
    if x.dtype == torch.uint8:
        shape = [x.shape[3], *x.shape[1:3]]
        return f"samples of shape {shape} (images: channels, height, width)"
    return f"samples of shape {list(x.shape[1:])}"


def _shape(output: Any) -> object:
    if isinstance(output, Tensor):
        return list(output.shape)
    return f"an object of class {type(output).__name__}"
