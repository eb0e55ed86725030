"""Models, losses and metrics must be functions of what they are given.

State of their own, or draws without a seed, would give other numbers by engine, by the number of processes, and after a
resume. It is looked for before the first round: the same batch goes through twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..settings.errors import ModelError, SettingError, check, some
from ..settings.fingerprint import captured
from ..vector.randomness import draws_kept, no_draws

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""The attributes that PyTorch gives every module."""
_LEAVES = Tensor | np.ndarray | torch.Generator | random.Random | type | ModuleType
"""Types of objects that have attributes, but count as one value."""
_CURE = "make it anew in each pass, or give it to the model as an input"


def check_no_state(module: nn.Module, forward: Callable[[nn.Module], Any]) -> None:
    """Raise `ModelError` if a pass of a batch changes plain attributes, or what the module gives for it afterwards."""
    with torch.no_grad(), draws_kept():
        torch.manual_seed(0)
        first = _snapshot(forward(module))  # it may also make what all later passes share, such as a mask
        before = _attributes(module)
        torch.manual_seed(0)
        second = _snapshot(forward(module))
        after = _attributes(module)
    changed = [name for name in before if name in after and _differ(before[name], after[name])]
    if changed:
        raise ModelError(f"a forward pass of the model changes {some(changed)}, which no saved run knows: {_CURE}")
    if _differ(first, second):
        raise ModelError(f"the model's outputs for a batch depend on the batches before it: {_CURE}")


def check_loss_pure(loss: Callable[..., Tensor], user_loss: object, output: Any, y: Tensor) -> None:
    """Raise `SettingError` if a loss draws numbers of Python or NumPy, or keeps state from one batch to the next.

    `loss` is made of the `user_loss`. Numbers that it draws from PyTorch are seeded.
    """
    with draws_kept(), no_draws("Federation.loss", user_loss):
        torch.manual_seed(0)
        first = _snapshot(loss(output, y))
        before = _snapshot(user_loss)
        torch.manual_seed(0)
        second = _snapshot(loss(output, y))
        after = _snapshot(user_loss)
    changed = _differ(first, second) or _differ(before, after)
    requirement = "must give the same numbers for the same batch, and keep no state from one call to the next"
    check(not changed, "Federation.loss", user_loss, requirement)


def check_no_parameters(loss: object) -> None:
    """Raise `SettingError` if a loss has trainable parameters: they are none of the model's, so nothing trains them."""
    names: list[str] = []
    for name, value in _leaves(loss, "", set()):
        if isinstance(value, nn.Parameter) and value.requires_grad:
            names.append(name)
    if names:
        message = (
            f"has trainable parameters ({some(names)}), and only those of the model train: make them parameters of the "
            "model, whose forward returns them too, or freeze them by requires_grad_(False)"
        )
        raise SettingError.at("Federation.loss", loss, message)


def check_no_gradient_hooks(module: nn.Module) -> None:
    """Raise `ModelError` if a parameter has hooks on its gradient: copies of the model, which train, have none."""
    hooked: list[str] = []
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            hooked.append(name)
    if hooked:
        raise ModelError(
            f"hooks on the gradients of {some(hooked)} would not be called: put what they do into forward, as by "
            "torch.nn.utils.parametrize, or into a method's direction"
        )


def check_nothing_shared(losses: Tensor, losses_of_other: Tensor, model: nn.Module) -> None:
    """Raise `ModelError` if the losses of two copies of a model have a gradient at the same tensor.

    Copies share the functions of a model, with all that these hold. Copies train, so such a tensor never would.
    """
    variables_of_other = set(map(id, _variables(losses_of_other)))
    shared = [variable for variable in _variables(losses) if id(variable) in variables_of_other]
    if not shared:
        return
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    of_model = sorted(names[id(variable)] for variable in shared if id(variable) in names)
    if of_model:
        raise ModelError(
            f"{some(of_model)} would not train: a function that copies of the model share (a lambda, a hook, a "
            "compiled method or a loss) holds the model itself; use the layers of self in forward, and return there "
            "what a loss needs"
        )
    shapes = some(list(variable.shape) for variable in shared)
    raise ModelError(
        f"tensors of shape {shapes} that are none of the model's parameters would not train: make them parameters of "
        "the model, or freeze them by requires_grad_(False)"
    )


def _variables(losses: Tensor) -> list[Tensor]:
    """The tensors at which losses have a gradient: the leaves of their graph."""
    variables: list[Tensor] = []
    nodes: list[Any] = [losses.grad_fn]
    visited = {None}
    while nodes:
        node = nodes.pop()
        if node in visited:
            continue
        visited.add(node)
        if type(node).__name__ == "AccumulateGrad":
            variables.append(node.variable)
        nodes += [source for source, _ in node.next_functions]
    return variables


Snapshot = dict[str, Any]
"""The leaves of a value by their names in it, as they were: copies of tensors, states of generators, texts."""


def _attributes(module: nn.Module) -> dict[str, Snapshot]:
    """All attributes of a module and its layers that are neither parameters, buffers nor layers, by their names.

    What several of them hold, such as a configuration, is looked at once.
    """
    visited = {id(layer) for layer in module.modules()}
    attributes: dict[str, Snapshot] = {}
    for layer_name, layer in module.named_modules():
        for name, value in vars(layer).items():
            if name not in _OF_EVERY_MODULE:
                attributes[_joined(layer_name, name)] = _snapshot(value, visited)
    return attributes


def _snapshot(value: Any, visited: set[int] | None = None) -> Snapshot:
    """The leaves of a value as they are now, except those of objects that were `visited` before."""
    if visited is None:
        visited = set()
    return {name: _copied(leaf) for name, leaf in _leaves(value, "", visited)}


def _copied(leaf: Any) -> Any:
    """A leaf as it is now: a tensor, or a text that tells it from others."""
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf":
        return torch.from_numpy(leaf.copy())
    if isinstance(leaf, torch.Generator):
        return leaf.get_state()
    if isinstance(leaf, random.Random):
        return repr(leaf.getstate())
    if isinstance(leaf, np.random.Generator):
        return repr(leaf.bit_generator.state)
    return repr(leaf)


def _differ(before: Snapshot, after: Snapshot) -> bool:
    """Whether two snapshots differ by more than rounding, since some operations of a GPU add in no fixed order."""
    if before.keys() != after.keys():
        return True
    return any(_leaves_differ(before[name], after[name]) for name in before)


def _leaves_differ(before: Any, after: Any) -> bool:
    if isinstance(before, str) and isinstance(after, str):
        return before != after
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return True
    if before.shape != after.shape or before.dtype != after.dtype:
        return True
    if not before.is_floating_point():
        return not torch.equal(before, after)
    return not torch.allclose(before, after, rtol=1e-3, atol=1e-6, equal_nan=True)


def _leaves(value: Any, name: str, visited: set[int]) -> Iterator[tuple[str, Any]]:
    """All values without parts that an object, or a function by its closure, holds, with their names in it.

    The `name` is that of the value itself. A value with parts is entered once, and noted in `visited`: objects may hold
    each other.
    """
    parts = _parts(value)
    if parts is None:
        yield name, value
    elif id(value) not in visited:
        visited.add(id(value))
        for part_name, part in parts:
            yield from _leaves(part, _joined(name, part_name), visited)


def _joined(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _parts(value: Any) -> Iterable[tuple[str, Any]] | None:
    """The parts of a value, by name; None if it is a leaf."""
    if isinstance(value, nn.Module):
        plain = [(name, part) for name, part in vars(value).items() if name not in _OF_EVERY_MODULE]
        return [*value._parameters.items(), *value._buffers.items(), *value._modules.items(), *plain]
    if isinstance(value, Mapping):
        return [(str(name), part) for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [(str(index), part) for index, part in enumerate(value)]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, MethodType):
        return [("self", value.__self__)]
    if isinstance(value, FunctionType):
        return [*captured(value).items(), ("defaults", value.__defaults__ or ())]
    if isinstance(value, _LEAVES) or not hasattr(value, "__dict__"):
        return None
    return list(vars(value).items())
