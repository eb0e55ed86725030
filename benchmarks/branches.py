"""An engine for a GPU, to be measured: each client of a round trains as a branch of one CUDA graph, on its own stream.

A graph holds one local step (or `window` of them) of each client. All that a step depends on lies in tensors that stay
where they are: the clients' models and moments, the indices of their batches, their rates. A round copies into them,
replays a graph for each step, and copies the models out. Clients with more steps come first, and there is a graph for
each number of clients that still train, so nobody takes a step for nothing.

Where there is no CUDA the same code runs without graphs and streams, one branch after another, and so can be tested.
`python -m benchmarks.gpu_branches` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor

from fedsash.client import Batch, StepInputs
from fedsash.client.messages import Executor
from fedsash.client.steps import LocalSteps, Steps
from fedsash.data.inputs import call
from fedsash.engines import ClientWork, Engine
from fedsash.engines.batch_norm import RealSamples
from fedsash.engines.compiled import filled, tensors_of
from fedsash.engines.dropout import SeededDropout
from fedsash.engines.gradients import Objective, Precision
from fedsash.engines.in_process import InProcess
from fedsash.settings.errors import SettingError, check
from fedsash.system.paths import cache_folder
from fedsash.vector.arrays import Vectors
from fedsash.vector.layout import Layout
from fedsash.vector.norms import for_training, mixes_samples
from fedsash.vector.private_torch import compiled, keep_compiled_in, point

WARM = 3
"""How often kernels are launched before they are recorded, as PyTorch asks for."""

ALIGNMENT = 16
"""In bytes: compiled code copies a tensor that begins elsewhere than at a multiple of this."""

Compiled = Literal["nothing", "loss", "step"]


@dataclass(frozen=True)
class BranchEngine(Engine):
    """Trains the clients of a round at once, each as a branch of one graph.

    `block` is the largest number of branches, and `window` how many steps a graph holds. With `compile` "loss" PyTorch
    compiles the loss and its gradient (`torch.compile`), with "step" Inductor compiles the whole step of a client.

    `torch.compile` loses BatchNorm's number of batches in float64, so "loss" refuses models that count them.

    With `channels_last`, and without "step", images and the weights of convolutions lie so. Methods must then be
    element by element, as FedAvg, FedProx and SCAFFOLD are: in the vectors that they see, these weights have another
    order than in `layout`.
    """

    block: int = 10
    window: int = 1
    compile: Compiled = "nothing"
    channels_last: bool = True

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        x = self._samples(work)
        count = min(self.block, len(work.numbers))
        trainer = work.trainer(stacked=True, precision=self.precision)
        channels_last = self.channels_last and work.images and self.compile != "step"
        vector = BranchVector(work.training.sharing.layout, x, channels_last)
        steps: Sequence[Steps] = [CompiledStep(trainer.steps)] * count
        if self.compile != "step":
            steps = [self._plain_step(work, vector) for _ in range(count)]
        trainer.stepping(Branches(steps, vector, self.window), trainer.steps_alone, pad_to=0)
        executor = InProcess(trainer, block=count, threads=torch.get_num_threads(), described={})
        return executor, [f"engine: {count} branches of one graph, compiled: {self.compile}"]

    def _samples(self, work: ClientWork) -> Tensor:
        """All samples. Raises `SettingError` for a work that branches can't do."""
        sharing = work.training.sharing
        whole = sharing.common_size == sharing.layout.trained
        check(whole, "BranchEngine", self, "needs a model of which no parameter stays with the clients")
        counts = self.compile == "loss" and sharing.layout.size > sharing.layout.trained
        check(not counts, "BranchEngine.compile", self.compile, "can't compile a model with running statistics")
        x = work.data.train.x
        if not isinstance(x, Tensor):
            raise SettingError.at("BranchEngine", self, "needs samples that are one tensor, and no encoded images")
        return x

    def _plain_step(self, work: ClientWork, vector: BranchVector) -> Steps:
        """The local steps of one branch, with a module of its own."""
        training = work.training
        gradient = BranchGradient(work, vector, self.precision, compiled_loss=self.compile == "loss")
        return LocalSteps(
            method=training.method,
            local=training.local,
            gradient=gradient,
            transform=work.data.transform,
            prepares=work.data.transform.prepares(work.data.train.x, training.sharing.layout.dtype),
            layout=training.sharing.common,
        )


class Branches:
    """Takes the local steps of several clients side by side.

    `steps[b]` takes those of the client in branch b, given its inputs alone (C = 1). `vector` is how branches hold the
    model.
    """

    def __init__(self, steps: Sequence[Steps], vector: BranchVector, window: int) -> None:
        self._steps = steps
        self._vector = vector
        self._window = window
        self._fixed: StepInputs | None = None
        self._of_branch: list[StepInputs] = []
        self._streams: list[torch.cuda.Stream] = []
        self._graphs: dict[tuple[int, int], Recording] = {}

    def __call__(self, inputs: StepInputs) -> None:
        # 1. Clients with more steps come first. Branches that are left over get the last client again, and rest.
        steps = steps_taken(inputs)
        places = sorted(range(len(steps)), key=lambda place: -steps[place])
        left_over = len(self._steps) - len(places)
        of_branches = torch.tensor(places + places[-1:] * left_over, device=inputs.w.device)
        ordered = self._vector.taken(of_clients(inputs, of_branches))
        if self._fixed is None:
            self._fixed = self._reserved(ordered)

        # 2. Record the graphs of this round: one for each number of clients that train, and of steps.
        windows: list[tuple[slice, Recording]] = []
        for first in range(0, max(steps), self._window):
            window = slice(first, min(first + self._window, max(steps)))
            training = sum(count > first for count in steps)
            windows.append((window, self._graph(training, window.stop - first)))

        # 3. Replay them on this round's numbers.
        self._put(ordered)
        for window, graph in windows:
            self._put_steps(ordered, window)
            graph.replay()

        # 4. Hand back what has moved.
        clients = of_branches[: len(places)]
        trained = self._vector.given_back(of_clients(self._fixed, slice(0, len(places))))
        for tensor, moved in zip(inputs.moved(), trained.moved(), strict=True):
            tensor.index_copy_(0, clients, moved)

    def _reserved(self, inputs: StepInputs) -> StepInputs:
        """Tensors like these inputs of one window, which the graphs read and write; the samples are not copied."""
        self._window = min(self._window, len(inputs.rates))
        first = inputs.only(slice(0, self._window))
        copies: list[Tensor] = []
        for tensor in tensors_of(first):
            if tensor is first.draws.x or tensor is first.draws.y:
                copies.append(tensor)
            else:
                copies.append(aligned(tensor))
        fixed: StepInputs = filled(first, iter(copies))
        for branch in range(len(self._steps)):
            self._of_branch.append(of_clients(fixed, slice(branch, branch + 1)))
        if fixed.w.is_cuda:
            self._streams = [torch.cuda.Stream() for _ in self._steps]  # type: ignore[no-untyped-call]
        return fixed

    def _graph(self, training: int, steps: int) -> Recording:
        """The graph of so many branches and steps. To record it changes the reserved tensors."""
        if (training, steps) not in self._graphs:
            branches = [partial(self._take, branch, steps) for branch in range(training)]
            if self._streams:
                self._graphs[training, steps] = Graph(partial(side_by_side, branches, self._streams))
            else:
                self._graphs[training, steps] = OneAfterAnother(branches)
        return self._graphs[training, steps]

    def _take(self, branch: int, steps: int) -> None:
        """Let the client in this branch take so many steps."""
        inputs = self._of_branch[branch]
        for k in range(steps):
            self._steps[branch](inputs.only(slice(k, k + 1)))

    def _put(self, inputs: StepInputs) -> None:
        """Copy what belongs to the whole round to where the graphs read it."""
        first = inputs.only(slice(0, 1))
        for fixed, tensor, of_step in zip(*map(tensors_of, (self._fixed, inputs, first)), strict=True):
            if of_step is tensor and fixed is not tensor:
                fixed.copy_(tensor)

    def _put_steps(self, inputs: StepInputs, window: slice) -> None:
        """Copy what belongs to these steps to where the graphs read it."""
        steps = inputs.only(window)
        for fixed, tensor, of_steps in zip(*map(tensors_of, (self._fixed, inputs, steps)), strict=True):
            if of_steps is not tensor:
                fixed[: len(of_steps)].copy_(of_steps)


class Recording(Protocol):
    """What can be done again at once."""

    def replay(self) -> None: ...


class Graph:
    """The kernels that `run` launches on a GPU, as one CUDA graph. To record it runs it, too."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                run()
            with torch.cuda.graph(self._graph, stream=aside):
                run()
        torch.cuda.current_stream().wait_stream(aside)

    def replay(self) -> None:
        self._graph.replay()


class OneAfterAnother:
    """Stands in for a graph where there is no CUDA: it runs the branches, the last one first, since none waits for
    another."""

    def __init__(self, branches: Sequence[Callable[[], None]]) -> None:
        self._branches = branches

    def replay(self) -> None:
        for branch in reversed(self._branches):
            branch()


def side_by_side(branches: Sequence[Callable[[], None]], streams: Sequence[torch.cuda.Stream]) -> None:
    """Run each branch on a stream of its own. The current stream goes on when all have ended."""
    current = torch.cuda.current_stream()
    used = streams[: len(branches)]
    for stream in used:
        stream.wait_stream(current)
    for branch, stream in zip(branches, used, strict=True):
        with torch.cuda.stream(stream):
            branch()
    for stream in used:
        current.wait_stream(stream)


class BranchVector:
    """How a branch holds the model `[D]`: with `channels_last` the weights of convolutions are O x H x W x I.

    Images that are numbers already lie in the device's memory as N x H x W x C then, so that a batch is channels-last
    as it is gathered.
    """

    def __init__(self, layout: Layout, x: Tensor, channels_last: bool) -> None:
        self.layout = layout.between(0, layout.trained)
        self.images_turned = channels_last and x.is_floating_point()
        self._channels_last = channels_last
        self._x = x
        if self.images_turned:
            self._x = x.permute(0, 2, 3, 1).contiguous()
        places = torch.arange(layout.trained)
        self._order = self.flat(list(self.layout.views(places).values())).to(x.device)
        self._inverse = self._order.argsort()

    def views(self, w: Tensor) -> list[Tensor]:
        """The parameters as views of a branch's vector `[D]`."""
        views: list[Tensor] = []
        for piece, shape in zip(torch.split(w, list(self.layout.lengths)), self.layout.shapes, strict=True):
            if self._turns(len(shape)):
                outputs, inputs, height, width = shape
                views.append(piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2))
            else:
                views.append(piece.view(shape))
        return views

    def flat(self, pieces: Sequence[Tensor]) -> Tensor:
        """A branch's vector `[D]` of tensors with the shapes of the parameters, as a new tensor."""
        flat: list[Tensor] = []
        for piece in pieces:
            if self._turns(piece.dim()):
                flat.append(piece.permute(0, 2, 3, 1).reshape(-1))
            else:
                flat.append(piece.reshape(-1))
        return torch.cat(flat)

    def taken(self, inputs: StepInputs) -> StepInputs:
        """The inputs with their vectors in the branches' order, as new tensors, and with the images as they lie."""
        return replace(self._reordered(inputs, self._order), draws=replace(inputs.draws, x=self._x))

    def given_back(self, inputs: StepInputs) -> StepInputs:
        """The inputs with their vectors in the order of the layout, as new tensors."""
        return self._reordered(inputs, self._inverse)

    def _reordered(self, inputs: StepInputs, order: Tensor) -> StepInputs:
        """The inputs with the entries of all vectors `[..., D]` in this order."""

        def vectors(named: Vectors) -> Vectors:
            reordered: Vectors = {}
            for name, tensor in named.items():
                reordered[name] = tensor
                if tensor.shape[-1:] == order.shape:
                    reordered[name] = tensor[..., order]
            return reordered

        return replace(
            inputs,
            w=inputs.w[..., order],
            sent=inputs.sent[..., order],
            moments=vectors(inputs.moments),
            server_state=vectors(inputs.server_state),
            client_state=vectors(inputs.client_state),
            round_state=vectors(inputs.round_state),
        )

    def _turns(self, dimensions: int) -> bool:
        """Whether a parameter of so many dimensions has another order in a branch."""
        return self._channels_last and dimensions == 4


class BranchGradient:
    """The gradient of one client (C = 1) by ordinary autograd, in which nothing waits for the device.

    As for stacked clients a batch may be padded by samples of weight 0.
    """

    one = False

    def __init__(self, work: ClientWork, vector: BranchVector, precision: Precision, compiled_loss: bool) -> None:
        training = work.training
        whole = training.sharing.layout
        self.dropout = work.draws_dropout
        self._module = for_training(training.module)
        self._vector = vector
        self._parameters = vector.layout.tensors(self._module)
        self._statistics = whole.between(whole.trained, whole.size)
        self._counted = self._statistics.tensors(self._module)
        self._spare = whole.flatten(training.module)[whole.trained :]
        self._mixes = mixes_samples(training.module)
        self._objective = Objective(self._module, training.goal.loss, training.method, precision)
        self._loss: Callable[..., Tensor] = self._objective
        if compiled_loss:
            self._loss = torch.compile(self._objective.__call__, dynamic=False)
        self._bound: Tensor | None = None

    def __call__(self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None) -> Tensor:
        # 1. Parameters and statistics are views of the vectors. A branch has the same ones in every step; a method may
        #    ask for a gradient elsewhere.
        if self._bound is not w:
            self._point(self._parameters, self._vector.views(w[0]))
            self._bound = w
        moved = self._spare
        if statistics is not None:
            moved = statistics[0].clone()
        self._point(self._counted, list(self._statistics.views(moved).values()))

        # 2. The gradient, over the real samples of the batch.
        masks: AbstractContextManager[object] = nullcontext()
        if self.dropout:
            masks = SeededDropout(batch.keys[0])
        real_samples: AbstractContextManager[object] = nullcontext()
        if self._mixes:
            real_samples = RealSamples(batch.weights[0] > 0)
        assert isinstance(batch.x, Tensor)
        x = batch.x[0]
        if self._vector.images_turned:
            x = x.permute(0, 3, 1, 2)
        with torch.enable_grad(), masks, real_samples:
            loss = self._loss(batch.y[0], batch.weights[0], server_state, call, self._module, x)
        pieces = torch.autograd.grad(loss, self._parameters, materialize_grads=True)

        # 3. A client whose batch is padding alone keeps its statistics.
        if statistics is not None:
            has_samples = batch.weights[0].sum() > 0
            statistics.copy_(torch.where(has_samples, moved, statistics))
        return self._vector.flat(pieces).unsqueeze(0)

    def views(self, w: Tensor) -> Sequence[Tensor]:
        return (w,)

    def pieces(
        self, w: Tensor, batch: Batch, server_state: Vectors, statistics: Tensor | None = None
    ) -> Sequence[Tensor]:
        return (self(w, batch, server_state, statistics),)

    def features(self) -> Tensor:
        return self._objective.features.detach().unsqueeze(0)

    def _point(self, tensors: Sequence[Tensor], views: Sequence[Tensor]) -> None:
        """Let parameters or statistics be views."""
        for tensor, view in zip(tensors, views, strict=True):
            point(tensor, view)


class CompiledStep:
    """A step of one client as machine code, which all branches share: they have the same shapes."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._run: Callable[..., object] | None = None

    def __call__(self, inputs: StepInputs) -> None:
        tensors = tensors_of(inputs)
        if self._run is None:
            keep_compiled_in(str(cache_folder() / "compiled"))
            self._run = compiled(lambda *flat: self._steps(filled(inputs, iter(flat))), tensors)
        self._run(*tensors)


def steps_taken(inputs: StepInputs) -> list[int]:
    """How many steps each client takes. It waits for the device; an engine of the package would ask the plan."""
    has_samples = inputs.draws.weights.sum(2) > 0
    steps: list[int] = has_samples.sum(0).tolist()
    return steps


def of_clients(inputs: StepInputs, places: Tensor | slice) -> StepInputs:
    """The inputs of the clients at these places: views for a slice, new tensors for numbers."""
    draws = inputs.draws
    numbers = inputs.numbers
    if numbers is not None and numbers.shape[1] > 1:
        numbers = numbers[:, places]
    statistics = inputs.statistics
    if statistics is not None:
        statistics = statistics[places]
    return replace(
        inputs,
        w=inputs.w[places],
        moments=_rows(inputs.moments, places),
        statistics=statistics,
        rates=inputs.rates[:, places],
        numbers=numbers,
        draws=replace(
            draws,
            index=draws.index[:, places],
            weights=draws.weights[:, places],
            keys=draws.keys[:, places],
        ),
        client_state=_rows(inputs.client_state, places),
        round_state=_rows(inputs.round_state, places),
    )


def _rows(vectors: Vectors, places: Tensor | slice) -> Vectors:
    return {name: rows[places] for name, rows in vectors.items()}


def aligned(tensor: Tensor) -> Tensor:
    """A copy of a tensor `[..., n]` whose rows begin at multiples of `ALIGNMENT` bytes."""
    width = tensor.shape[-1]
    unit = ALIGNMENT // tensor.itemsize
    padded = tensor.new_zeros(*tensor.shape[:-1], -(-width // unit) * unit)
    return padded[..., :width].copy_(tensor)
