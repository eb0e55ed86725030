"""Two samples go through the model, the loss and the metrics before the first round, to find mistakes there."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..basics.errors import FedsashError, ModelError, SettingError, check, one_line
from ..basics.layout import Layout
from ..data.federated import FederatedData, Problem, Samples
from ..data.inputs import Inputs, call
from .goal import Goal


def suited(module: nn.Module, data: FederatedData) -> FederatedData:
    """The data with features and labels of the types that the module takes.

    Floating-point numbers get the type of the module's parameters. Integers become such numbers, too, unless the module
    takes only integers, as an embedding does. Raises `ModelError` if the module takes neither.
    """
    dtype, several = Layout(module).dtype, _has_integers(data.train)
    wrong: list[Exception] = []
    for integers in (False, True) if several else (True,):
        try:
            _output(module, data.problem, _two(data.train).cast(dtype, integers))
        except FedsashError:
            raise
        except Exception as error:  # its class depends on the model
            wrong.append(error)
        else:
            return data.cast(dtype, integers)
    raise ModelError(f"the model does not take {_sample(data)}: {'; '.join(map(one_line, wrong))}") from wrong[-1]


@torch.no_grad()
def try_out(module: nn.Module, problem: Problem, samples: Samples, goal: Goal) -> None:
    """Raise one clear line unless the module's output, the loss and all metrics fit the task and the labels."""
    samples = _two(samples)
    output, y, task = _output(module, problem, samples), samples.y, goal.task
    answer = task.answer(output, y)
    if not task.fits(answer, y, problem.classes):
        shape = list(task.right(y, problem.classes))
        line = f"a {type(task).__name__} needs outputs of shape {shape} for {len(y)} samples"
        raise ModelError(f"the model's outputs have the shape {list(answer.shape)}: {line}")
    try:
        losses = goal.loss(output, y)
    except FedsashError:
        raise
    except Exception as error:
        shapes = f"outputs ({_shape(output)}) and labels {list(y.shape)} of type {y.dtype}"
        raise SettingError("Federation", "loss", goal.loss, f"does not take {shapes}: {one_line(error)}") from error
    found = _shape(losses)
    right = f"must return one number for each of {len(y)} samples, returned {found}: use reduction='none'"
    check(found == [len(y)], "Federation.loss", goal.loss, right)
    for name, metric in goal.metrics.items():
        try:
            metric.check_sums(task.scored(output, y, losses))
        except FedsashError:
            raise
        except Exception as error:
            raise SettingError("", f"metrics.{name}", metric, f"can't be computed: {one_line(error)}") from error


@torch.no_grad()
def _output(module: nn.Module, problem: Problem, samples: Samples) -> Any:
    x = samples.x[torch.arange(len(samples), device=samples.y.device)]
    return call(copy.deepcopy(module).eval(), problem.transform.inputs(x, Layout(module).dtype))


def _two(samples: Samples) -> Samples:
    return samples[torch.arange(min(2, len(samples)), device=samples.y.device)]


def _has_integers(samples: Samples) -> bool:
    several = samples.x.tensors.values() if isinstance(samples.x, Inputs) else (samples.x,)
    return any(x.dtype == torch.int64 for x in several)


def _sample(data: FederatedData) -> str:
    """The form of the samples in words."""
    x = data.train.x
    if isinstance(x, Inputs):
        parts = [f"{name} {list(tensor.shape[1:])} {tensor.dtype}" for name, tensor in x.tensors.items()]
        return f"samples of {', '.join(parts)}"
    images = x.dtype == torch.uint8
    shape = (x.shape[3], *x.shape[1:3]) if images else x.shape[1:]
    return f"samples of shape {list(shape)}{' (images: channels, height, width)' if images else ''}"


def _shape(output: Any) -> object:
    return list(output.shape) if isinstance(output, Tensor) else f"an object of class {type(output).__name__}"
