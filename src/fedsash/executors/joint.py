"""Local steps of several runs at once: the runs are one more axis of the steps that their clients take.

A run of small models leaves a machine idle: its matrices are too small. R runs of C clients that agree in all that
their steps compute with are trained as R times C clients. The method still sees one run, `[C, D]`: `torch.func.vmap`
adds the axis around the steps. So every method is right by construction, and code that vmap can't follow raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ..basics.arrays import Vectors, stacked
from ..local import Begun, Draws, StepInputs, Trainer
from ..methods import Method
from .compiled import CompiledSteps, filled, tensors_of, unrolled

CACHED_BYTES = 2**21
"""The size in bytes of all models that compiled steps train at a time on a CPU, approximately. With more of them the
processor's caches no longer hold what a step reads again."""


@dataclass(frozen=True)
class Shape:
    """What the compiled or stacked steps of R runs depend on, beside what all of them share.

    `runs` R; `clients` C, to which a request is padded; `samples` B of a batch; `varied`, the method's numbers that
    differ between the runs; `unrolled`, how many steps are compiled at a time, 0 if none are; `at_once`, how many runs
    take their steps at once, 0 for all.
    """

    runs: int
    clients: int
    samples: int
    varied: tuple[str, ...] = ()
    unrolled: int = 0
    at_once: int = 0

    @classmethod
    def of(cls, trainers: Sequence[Trainer], clients: int) -> Shape:
        """The shape for these runs, uncompiled, with at most so many `clients` in a round."""
        samples = max(trainer.batches.width for trainer in trainers)
        return cls(len(trainers), clients, samples, _varied([trainer.method for trainer in trainers]))

    def compiled(self, trainers: Sequence[Trainer]) -> Shape:
        """The same with compiled steps."""
        counts, layout = {unrolled(trainer) for trainer in trainers}, trainers[0].sharing.layout
        fit = max(CACHED_BYTES // (self.clients * layout.size * layout.dtype.itemsize), 1)
        parts = -(-self.runs // fit) if trainers[0].data.train.y.device.type == "cpu" else 1
        return replace(self, unrolled=counts.pop() if len(counts) == 1 else 1, at_once=-(-self.runs // parts))


class Joint:
    """Takes the local steps of several runs at once. `trainers[i]` is that of run i, whose place is `places[i]`.

    They must agree in all that their steps depend on beside their inputs and the numbers that are `varied`.
    """

    def __init__(self, trainers: Sequence[Trainer], shape: Shape, places: Sequence[int]) -> None:
        self._shape, self._places = shape, places
        self._numbers = [_numbers(trainer, shape.varied) for trainer in trainers]
        steps = JointSteps(trainers[0].local_steps)
        self._steps: Callable[[StepInputs], None] = CompiledSteps(steps, shape.unrolled) if shape.unrolled else steps

    def take(self, begun: Mapping[int, Begun]) -> None:
        """Take the steps of some runs, in place. In the places of all others one of them is repeated."""
        own = {self._places[i]: replace(one.inputs, varied=self._numbers[i]) for i, one in begun.items()}
        size = self._shape.at_once or self._shape.runs
        for first in range(0, self._shape.runs, size):
            part = {run: own[first + run] for run in range(size) if first + run in own}
            if part:
                self._take(part, size)

    def _take(self, part: Mapping[int, StepInputs], size: int) -> None:
        """Take the steps of some runs at once, by their places among so many."""
        some = next(iter(part.values()))
        joint = joined([part.get(run, some) for run in range(size)], self._shape)
        self._steps(joint)
        for run, inputs in part.items():
            _give_back(joint, run, inputs)


def joined(parts: Sequence[StepInputs], shape: Shape) -> StepInputs:
    """The inputs of all runs as one: `[R, ...]`, and `[K, R, ...]` where there is a row for each step."""
    steps, first = max(len(part.rates) for part in parts), parts[0]
    draws = [_padded(part.draws, steps, shape.samples) for part in parts]
    numbers = None
    if first.numbers is not None:
        own = [_lengthened(_tensor(part.numbers), steps, stays=True) for part in parts]
        numbers = _by_step([each.expand(-1, shape.clients, -1) for each in own])
    return StepInputs(
        w=torch.stack([part.w for part in parts]),
        moments=stacked([part.moments for part in parts]),
        statistics=None if first.statistics is None else torch.stack([_tensor(part.statistics) for part in parts]),
        sent=torch.stack([part.sent for part in parts]),
        rates=_by_step([_lengthened(_tensor(part.rates), steps, stays=False) for part in parts]),
        numbers=numbers,
        draws=replace(
            draws[0],
            index=_by_step([own.index for own in draws]),
            weights=_by_step([own.weights for own in draws]),
            keys=_by_step([own.keys for own in draws]),
        ),
        server_state=stacked([part.server_state for part in parts]),
        client_state=stacked([part.client_state for part in parts]),
        round_state=stacked([part.round_state for part in parts]),
        varied=stacked([part.varied for part in parts]),
        received=None if first.received is None else torch.stack([_tensor(part.received) for part in parts]),
    )


class JointSteps:
    """Takes the local steps of R runs, given those of one run.

    Tensors of the inputs begin with the axis of the runs. Those with a row for each step have it second. The samples
    are the same for all runs.
    """

    def __init__(self, steps: Callable[[StepInputs], None]) -> None:
        self._steps = steps

    def __call__(self, inputs: StepInputs) -> None:
        tensors, draws = tensors_of(inputs), inputs.draws
        shared = {id(draws.x), id(draws.y)}
        by_step = {id(own) for own in (inputs.rates, inputs.numbers, draws.index, draws.weights, draws.keys)}
        axes = tuple(None if id(own) in shared else int(id(own) in by_step) for own in tensors)

        def steps(*flat: Tensor) -> Tensor:
            self._steps(filled(inputs, iter(flat)))
            return flat[0]  # vmap wants a tensor

        torch.func.vmap(steps, in_dims=axes)(*tensors)


def numbers_of(method: Method) -> list[str]:
    """The fields of a method that may differ between runs that are trained jointly: its numbers.

    There are none if the method has an `objective`, which reads them where they can't be replaced.
    """
    return [] if "objective" in method.overridden else [n for n, own in vars(method).items() if isinstance(own, float)]


def _varied(methods: Sequence[Method]) -> tuple[str, ...]:
    """The numbers that differ between the methods."""
    return tuple(n for n in numbers_of(methods[0]) if len({vars(method)[n] for method in methods}) > 1)


def _numbers(trainer: Trainer, names: Sequence[str]) -> Vectors:
    dtype, method = trainer.sharing.layout.dtype, vars(trainer.method)
    return {name: torch.tensor(method[name], dtype=dtype, device=trainer.data.train.y.device) for name in names}


def _tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value


_by_step = partial(torch.stack, dim=1)


def _give_back(joint: StepInputs, run: int, own: StepInputs) -> None:
    """Copy what the steps of a run have changed."""
    for there, here in zip(joint.moved(), own.moved(), strict=True):
        here.copy_(there[run])


def _lengthened(rows: Tensor, steps: int, *, stays: bool) -> Tensor:
    """Rows `[K, ...]` for so many steps: the last row again, or zeros."""
    more = steps - len(rows)
    if not more:
        return rows
    last = rows[-1:].expand(more, *rows.shape[1:])
    return torch.cat([rows, last if stays else torch.zeros_like(last)])


def _padded(draws: Draws, steps: int, samples: int) -> Draws:
    """The draws for so many steps of so many samples. Padding has a client's own sample and the weight 0."""
    index, weights = draws.index, draws.weights
    if more := samples - index.shape[2]:
        index = torch.cat([index, index[:, :, :1].expand(-1, -1, more)], dim=2)
        weights = torch.nn.functional.pad(weights, (0, more))
    return replace(
        draws,
        index=_lengthened(index, steps, stays=True),
        weights=_lengthened(weights, steps, stays=False),
        keys=_lengthened(draws.keys, steps, stays=True),
        widths=[samples] * steps,
    )
