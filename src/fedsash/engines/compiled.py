"""The local steps of a stacked block as one compiled function."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..client import RoundPlan, StepInputs, Trainer
from ..settings.errors import SettingError, one_line
from ..system.paths import cache_folder
from ..vector.private_torch import compiled, keep_compiled_in
from .replayed import Replayed, replayed

log = logging.getLogger("fedsash")

UNROLLED = 4
"""All local steps of a round become one function if every client always takes the same number, at most this one."""


Forms: TypeAlias = tuple[tuple[str, str, torch.Size, torch.dtype], ...]
"""Whose a vector is, its name, its shape and its type, for each in order."""


class CompiledSteps:
    """Runs local steps as machine code for one shape, that of padded blocks, `unrolled` steps at a time.

    The steps are first recorded as a flat graph of tensor operations, so methods may use any Python. PyTorch's Inductor
    then compiles the graph, and keeps the code on disk for later runs. With CUDA the kernels of this code become one
    CUDA graph. A method's vectors may be others than in the rounds before; for these the steps are compiled anew.
    """

    def __init__(self, steps: Callable[[StepInputs], None], unrolled: int) -> None:
        self._steps = steps
        self._unrolled = unrolled
        self._functions: dict[Forms, CompiledFunction] = {}

    def __call__(self, inputs: StepInputs) -> None:
        forms = forms_of(inputs)
        if forms not in self._functions:
            self._functions[forms] = self._compiled(inputs)
        function = self._functions[forms]
        if not isinstance(function.run, Replayed):
            function.take(tensors_of(inputs), len(inputs.rates))
            return
        lent = function.run.lend(tensors_of(inputs), function.by_step)
        function.take(lent, len(inputs.rates))
        for tensor, moved in zip(inputs.moved(), filled(inputs, iter(lent)).moved(), strict=True):
            tensor.copy_(moved)

    def _compiled(self, inputs: StepInputs) -> CompiledFunction:
        """The compiled function for inputs of these shapes; on a GPU a recording of its kernels."""
        first = inputs.only(slice(0, self._unrolled))
        parts = tensors_of(first)
        by_step = [part is not whole for part, whole in zip(parts, tensors_of(inputs), strict=True)]
        run = _compile(lambda *flat: self._steps(filled(first, iter(flat))), parts)
        if all(part.is_cuda for part in parts):  # a number on the CPU would stay as it was recorded
            run = replayed(run, parts, shared=tensors_of({"x": inputs.draws.x, "y": inputs.draws.y}))
        return CompiledFunction(run, self._unrolled, by_step)


@dataclass(frozen=True)
class CompiledFunction:
    """Runs `unrolled` steps at a time; `by_step` says which tensors have a row for each step."""

    run: Callable[..., Any]
    unrolled: int
    by_step: list[bool]

    def take(self, tensors: list[Tensor], count: int) -> None:
        """Take so many steps with these tensors."""
        if count == self.unrolled:
            self.run(*tensors)
            return
        for k in range(0, count, self.unrolled):
            steps = slice(k, k + self.unrolled)
            parts: list[Tensor] = []
            for tensor, by_step in zip(tensors, self.by_step, strict=True):
                if by_step:
                    parts.append(tensor[steps])
                else:
                    parts.append(tensor)
            self.run(*parts)


def forms_of(inputs: StepInputs) -> Forms:
    """The forms of the vectors that the method chooses in each round."""
    vectors_of = {"server": inputs.server_state, "client": inputs.client_state, "round": inputs.round_state}
    forms: list[tuple[str, str, torch.Size, torch.dtype]] = []
    for holder, vectors in vectors_of.items():
        for name, value in vectors.items():
            forms.append((holder, name, value.shape, value.dtype))
    return tuple(forms)


def compile_steps(trainer: Trainer, block: int) -> None:
    """Replace the steps of a trainer of stacked blocks by compiled ones, for blocks padded to `block` clients."""
    steps = CompiledSteps(trainer.steps, unrolled(trainer))
    trainer.stepping(steps, CompiledSteps(trainer.steps_alone, 1), pad_to=block)


def unrolled(trainer: Trainer) -> int:
    """How many local steps are compiled together: those of a round, or 1."""
    local = trainer.local
    steps = RoundPlan.mean(local, trainer.method, trainer.batches.sizes).steps
    most = int(steps.max())
    same = steps.min() == most and not local.schedule.moves_epochs and local.equal
    if same and most <= UNROLLED:
        return most
    return 1


def tensors_of(value: Any) -> list[Tensor]:
    """All tensors in a dataclass or a dictionary, also nested ones, in the order of its fields."""
    fields = value
    if not isinstance(value, dict):
        fields = vars(value)
    tensors: list[Tensor] = []
    for field in fields.values():
        if isinstance(field, Tensor):
            tensors.append(field)
        elif isinstance(field, dict) or is_dataclass(field):
            tensors += tensors_of(field)
    return tensors


def filled(value: Any, tensors: Iterator[Tensor]) -> Any:
    """The value with its tensors replaced by `tensors`, in the order of `tensors_of`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return {name: filled(field, tensors) for name, field in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **filled(vars(value), tensors))
    return value


def _compile(steps: Callable[..., None], tensors: list[Tensor]) -> Callable[..., Any]:
    """The steps as machine code. Without a C++ compiler it logs a warning and returns the steps unchanged.

    Raises `SettingError` if PyTorch fails at them: its compiler can't do everything, and has errors of its own.
    """
    keep_compiled_in(str(cache_folder() / "compiled"))
    try:
        return compiled(steps, tensors)
    except RuntimeError as error:  # its class depends on PyTorch's version
        if "C++ compiler" not in str(error) and "Compiler: " not in str(error):  # the second one on Windows
            message = f"PyTorch can't compile these steps ({one_line(error)}): choose 'auto' or False"
            raise SettingError("LocalEngine", "compile", True, message) from error
        log.warning("no C++ compiler was found, so local steps run uncompiled: install g++ (or set CXX)")
        return steps
