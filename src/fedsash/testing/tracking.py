"""Properties of whatever averages a module while it is trained: what `check_tracking` asks of it."""

from __future__ import annotations

import copy
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from ..settings.errors import one_line
from ..vector.wrapped import unwrapped
from .equality import close, expect, identical, in_one_sentence, record

STEPS = 6
"""How long most trainings are."""
WIDTH = 64
"""The width of the small network. Its largest tensor has so many entries that a sample of them misses most."""


PLAIN = SimpleNamespace(tied=False, buffers=False)
TIED = SimpleNamespace(tied=True, buffers=False)
WITH_BUFFERS = SimpleNamespace(tied=False, buffers=True)
"""What the small network has: two layers that share a weight, a mask and whole numbers."""


class TrackingAdapter(ABC):
    """How `check_tracking` drives something that averages a module: some 20 lines for each.

    It is made for a module, which may be wrapped, and the optimiser of its parameters, before the training begins. It
    should average such that the first 20 of equal models count more than half: an EMA with a decay of 0.9, say.
    """

    promises: ClassVar[Collection[str] | None] = None
    """The properties that the averager's documentation promises; None: all."""

    extrapolates: ClassVar[bool] = False
    """Whether its average may lie outside the range of the models, as BEMA's."""

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        self.module = module
        self.optimiser = optimiser

    @abstractmethod
    def update(self) -> None:
        """A batch is done; the optimiser may have stepped or not. It has nothing to do if it has hooked the latter."""

    @abstractmethod
    def applied(self) -> AbstractContextManager[nn.Module]:
        """A context in which a module with the average can be evaluated."""

    @abstractmethod
    def state_dict(self) -> Mapping[str, Any]:
        """What a checkpoint has beside the states of module and optimiser."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the module and the optimiser have already been loaded."""

    @abstractmethod
    def final_model(self) -> nn.Module:
        """What the user has when the training is over."""


Outcome = Literal["right", "wrong", "error", "not checked"]


@dataclass(frozen=True)
class TrackingResult:
    """What came out for one property."""

    name: str
    outcome: Outcome
    promised: bool
    """whether the documentation promises the property"""
    sentence: str
    """what is wrong, what was raised, or why it was not checked"""


class NotCheckedError(Exception):
    """A property can't be checked here; the message says why."""


class SmallNet(nn.Module):
    """A network of its `config`, from 4 features to 2 outputs, with BatchNorm."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.first = nn.Linear(4, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, WIDTH)
        if config.tied:
            self.last.weight = self.middle.weight
        if config.buffers:
            self.register_buffer("mask", torch.ones(2, dtype=torch.bool))
            self.register_buffer("codes", torch.tensor([10, 20]))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm(self.first(x)))
        outputs: Tensor = self.last(torch.tanh(self.middle(hidden)))[:, :2].clone()
        return outputs


Wrapper = Callable[[nn.Module], nn.Module]


class Loop:
    """A training of the small network, step by step, and its averager."""

    def __init__(
        self,
        adapter: type[TrackingAdapter],
        seed: int = 0,
        config: SimpleNamespace = PLAIN,
        prepared: Callable[[SmallNet], object] = lambda module: None,
        wrapped: Wrapper = lambda module: module,
        fused: bool = False,
    ) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = SmallNet(config)
        prepared(self.module)
        self.wrapped = wrapped(self.module)
        self.optimiser = torch.optim.SGD(self.wrapped.parameters(), lr=0.1, momentum=0.9, fused=fused)
        self.averager = adapter(self.wrapped, self.optimiser)
        self.step = 0

    def loss(self) -> Tensor:
        """The loss of the next batch, whose features have the mean 5."""
        rng = torch.Generator().manual_seed(self.step)
        self.step += 1
        x = torch.randn(8, 4, generator=rng) + 5
        y = torch.randn(8, 2, generator=rng)
        device = self.module.first.weight.device
        return nn.functional.mse_loss(self.wrapped(x.to(device)), y.to(device))

    def train(self, steps: int) -> Loop:
        """Make steps of the optimiser, each followed by an update. Returns itself."""
        for _ in range(steps):
            self.optimiser.zero_grad()
            torch.autograd.backward(self.loss())
            self.optimiser.step()
            self.averager.update()
        return self

    def observe(self, times: int = 1) -> None:
        """Let the averager see the module as it is: as after a step that changes nothing."""
        self.optimiser.zero_grad()
        for _ in range(times):
            self.optimiser.step()
            self.averager.update()

    def average(self) -> dict[str, Tensor]:
        """The average: copies of its parameters and of its buffers that are floating-point numbers."""
        with self.averager.applied() as module:
            return tensors_of(module)

    def saved(self) -> bytes:
        """A checkpoint."""
        parts = [self.module.state_dict(), self.optimiser.state_dict(), dict(self.averager.state_dict())]
        file = io.BytesIO()
        torch.save([*parts, self.step], file)
        return file.getvalue()

    def load(self, checkpoint: bytes) -> Loop:
        """Go on from a checkpoint. Returns itself."""
        module, optimiser, averager, step = torch.load(io.BytesIO(checkpoint), weights_only=True)
        self.module.load_state_dict(module)
        self.optimiser.load_state_dict(optimiser)
        self.averager.load_state_dict(averager)
        self.step = step
        return self


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Copies of a module's parameters and floating-point buffers by their names without wrappers, whole ones."""
    inner = unwrapped(module)
    copies: dict[str, Tensor] = {}
    for name, tensor in (*inner.named_parameters(), *inner.named_buffers()):
        if tensor.is_floating_point():
            whole: Any = tensor.detach()
            if hasattr(whole, "full_tensor"):
                whole = whole.full_tensor()
            copies[name] = whole.cpu().clone()
    return copies


def before_the_first_update(adapter: type[TrackingAdapter]) -> None:
    """The average is the model as it is then, not as it was when the averager was made."""
    loop = Loop(adapter)
    with torch.no_grad():
        loop.module.first.weight.add_(1)
    is_model = identical(loop.average(), tensors_of(loop.module))
    expect(is_model, adapter.__name__, "before the first update the average must be the current model")


def validation(adapter: type[TrackingAdapter]) -> None:
    """Module, modes, optimiser and average are as before, bitwise; the training goes on as without it."""
    plain = Loop(adapter).train(STEPS)
    loop = Loop(adapter).train(STEPS // 2)
    before = _all_of(loop)
    with loop.averager.applied() as module, torch.no_grad():
        was_training = module.training
        module.eval()
        module(torch.ones(3, 4))
        module.train(was_training)
    expect(identical(_all_of(loop), before), adapter.__name__, "validation must change nothing")
    loop.train(STEPS - STEPS // 2)
    is_same = identical(_all_of(loop), _all_of(plain)) and identical(loop.average(), plain.average())
    expect(is_same, adapter.__name__, "after a validation the training must go on as without it")


def _all_of(loop: Loop) -> dict[str, Any]:
    modes = [layer.training for layer in loop.module.modules()]
    return record([loop.module.state_dict(), modes, loop.optimiser.state_dict()])


def an_error_in_validation(adapter: type[TrackingAdapter]) -> None:
    """The module has its own values again, bitwise."""
    loop = Loop(adapter).train(STEPS)
    before = record(loop.module.state_dict())
    with suppress(_ValidationError), loop.averager.applied():
        raise _ValidationError
    is_restored = identical(loop.module.state_dict(), before)
    expect(is_restored, adapter.__name__, "after an error in a validation the module must be as before")


class _ValidationError(Exception):
    """What somebody's validation raises."""


def validation_in_half_precision(adapter: type[TrackingAdapter]) -> None:
    """Module and average are as before, bitwise, when it was `half()` and `float()` again meanwhile."""
    loop = Loop(adapter).train(STEPS)
    before = record([loop.module.state_dict(), loop.average()])
    with loop.averager.applied() as module:
        module.half()
        module.float()
    is_same = identical([loop.module.state_dict(), loop.average()], before)
    expect(is_same, adapter.__name__, "a validation in half precision must round neither the module nor the average")


def resumed(adapter: type[TrackingAdapter]) -> None:
    """Saved after any step and loaded into new objects, it ends bitwise as without a stop."""
    whole = Loop(adapter).train(STEPS)
    for steps in range(STEPS):
        checkpoint = Loop(adapter).train(steps).saved()
        loop = Loop(adapter, seed=1).load(checkpoint).train(STEPS - steps)
        is_same = identical(loop.module.state_dict(), whole.module.state_dict())
        expect(is_same, adapter.__name__, f"resumed after step {steps}, the training must be that without a stop")
        is_same = identical(loop.average(), whole.average())
        expect(is_same, adapter.__name__, f"resumed after step {steps}, the average must be that without a stop")


def a_step_that_is_not_finite(adapter: type[TrackingAdapter]) -> None:
    """It is left out, whichever entry it is: the average stays a finite mean of the models."""
    for value in (float("nan"), float("inf"), -float("inf")):
        for name, entry in (("middle.weight", 1234), ("first.bias", 0), ("norm.running_var", WIDTH - 1)):
            loop = Loop(adapter)
            models = [tensors_of(loop.module)]
            for step in range(STEPS):
                loop.train(1)
                models.append(tensors_of(loop.module))
                if step == STEPS // 2:
                    before = copy.deepcopy(loop.module.state_dict())
                    loop.module.state_dict()[name].reshape(-1)[entry] = value
                    loop.observe()
                    loop.module.load_state_dict(before)
            average = loop.average()
            entries = sum(int((~tensor.isfinite()).sum()) for tensor in average.values())
            message = (
                f"one update with {value} in one entry of {name} must be left out; {entries} entries are not finite"
            )
            expect(not entries, adapter.__name__, message)
            is_among = _is_among(adapter, average[name], torch.stack([model[name] for model in models]))
            message = (
                f"after one update with {value} in one entry of {name} the average must be a mean of the other models"
            )
            expect(is_among, adapter.__name__, message)


def a_skipped_step(adapter: type[TrackingAdapter]) -> None:
    """A step that a gradient scaler skips does not count."""
    for optimiser, fused in (("an optimiser", False), ("a fused optimiser, whose step is called all the same", True)):
        skipped_by_scaler = _overflowing(Loop(adapter, fused=fused), steps_all=True)
        left_out = _overflowing(Loop(adapter, fused=fused), steps_all=False)
        message = f"a step that a gradient scaler skips must not count: of {optimiser}"
        expect(identical(skipped_by_scaler, left_out), adapter.__name__, message)


def _overflowing(loop: Loop, steps_all: bool) -> dict[str, Tensor]:
    """The average of a training with one overflowing gradient: the scaler skips the step, or the loop leaves it out."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(STEPS):
        overflows = step == STEPS // 2
        loss = loop.loss()
        if overflows and not steps_all:
            continue
        if overflows:
            loss = loss * float("inf")
        loop.optimiser.zero_grad()
        torch.autograd.backward(scaler.scale(loss))
        scaler.step(loop.optimiser)
        scaler.update()
        loop.averager.update()
    return loop.average()


def accumulated_gradients(adapter: type[TrackingAdapter]) -> None:
    """Steps of the optimiser count, not batches."""
    averages: list[dict[str, Tensor]] = []
    for updates_after_every_batch in (True, False):
        loop = Loop(adapter)
        for step in range(STEPS):
            steps_now = step % 2 == 1
            torch.autograd.backward(loop.loss())
            if steps_now:
                loop.optimiser.step()
                loop.optimiser.zero_grad()
            if updates_after_every_batch or steps_now:
                loop.averager.update()
        averages.append(loop.average())
    expect(identical(*averages), adapter.__name__, "a batch after which the optimiser does not step must not count")


def frozen_parameters(adapter: type[TrackingAdapter]) -> None:
    """A parameter that does not train stays what it is, and the others are averaged as ever."""
    loop = Loop(adapter, prepared=_frozen)
    models = [loop.module.last.weight.detach().clone()]
    for _ in range(STEPS):
        loop.train(1)
        models.append(loop.module.last.weight.detach().clone())
    average = loop.average()
    is_frozen = close(average["first.weight"], loop.module.first.weight, 1e-6)
    expect(is_frozen, adapter.__name__, "a frozen parameter must be the module's")
    is_among = _is_among(adapter, average["last.weight"], torch.stack(models))
    expect(is_among, adapter.__name__, "beside a frozen parameter the others must be averaged")


def _frozen(module: SmallNet) -> None:
    module.first.weight.requires_grad_(False)


def _is_among(adapter: type[TrackingAdapter], average: Tensor, models: Tensor) -> bool:
    """Whether each entry of an average lies between the smallest and the largest of the models, but for rounding."""
    if adapter.extrapolates:
        return True
    low = models.amin(0) - 1e-6
    high = models.amax(0) + 1e-6
    return bool(((average >= low) & (average <= high)).all())


def parameters_unfrozen_later(adapter: type[TrackingAdapter]) -> None:
    """The average follows them from then on."""
    loop = Loop(adapter, prepared=_frozen).train(STEPS)
    frozen = loop.module.first.weight.detach().clone()
    loop.module.first.weight.requires_grad_(True)
    with torch.no_grad():
        loop.module.first.weight.add_(1)
    loop.observe(20)
    way = float((loop.average()["first.weight"] - frozen).mean())
    message = (
        f"20 updates after a parameter was unfrozen and moved by 1, the average must follow; it moved by {way:.2g}"
    )
    expect(way > 0.5, adapter.__name__, message)


def tied_parameters(adapter: type[TrackingAdapter]) -> None:
    """They count once, and stay tied."""
    tied = Loop(adapter, config=TIED)
    untied = Loop(adapter)
    for step in range(STEPS):
        rng = torch.Generator().manual_seed(step)
        weight = torch.randn(WIDTH, WIDTH, generator=rng)
        for loop in (tied, untied):
            with torch.no_grad():
                loop.module.middle.weight.copy_(weight)
                loop.module.last.weight.copy_(weight)
            loop.observe()
    is_same = identical(tied.average()["middle.weight"], untied.average()["middle.weight"])
    expect(is_same, adapter.__name__, "a tied parameter must be averaged as any other")
    final = unwrapped(tied.averager.final_model())
    is_tied = final.get_parameter("middle.weight") is final.get_parameter("last.weight")
    expect(is_tied, adapter.__name__, "parameters that are tied must be tied in the final model")


def low_precision(adapter: type[TrackingAdapter]) -> None:
    """The average of bfloat16 parameters moves: within two of their steps of that in float64."""
    averages: list[dict[str, Tensor]] = []
    for dtype in (torch.bfloat16, torch.float64):
        loop = Loop(adapter, prepared=lambda module, dtype=dtype: module.to(dtype))  # type: ignore[misc]
        for update in range(200):
            with torch.no_grad():
                loop.module.first.weight.fill_(1 + (update // 10) * 2**-7)
            loop.observe()
        averages.append({"first.weight": loop.average()["first.weight"]})
    in_bfloat16, in_float64 = averages
    message = "the average of bfloat16 parameters must follow them as in float64, within two of their steps"
    expect(close(in_bfloat16, in_float64, 2 * 2**-7), adapter.__name__, message)


def batch_norm(adapter: type[TrackingAdapter]) -> None:
    """Its running statistics are a mean of those that the models had, or the newest."""
    loop = Loop(adapter)
    means: list[Tensor] = []
    for _ in range(20):
        loop.train(1)
        assert loop.module.norm.running_mean is not None
        means.append(loop.module.norm.running_mean.clone())
    average = loop.average()["norm.running_mean"]
    expect(
        _is_among(adapter, average, torch.stack(means)),
        adapter.__name__,
        "BatchNorm's statistics must be among those that the models had",
    )


def other_buffers(adapter: type[TrackingAdapter]) -> None:
    """Truth values and whole numbers are the module's own, not a mean."""
    loop = Loop(adapter, config=WITH_BUFFERS).train(1)
    mask = loop.module.get_buffer("mask")
    codes = loop.module.get_buffer("codes")
    mask[0] = False
    codes[0] = 13
    loop.observe(20)
    own = record([mask, codes])  # as the module may be the applied one
    with loop.averager.applied() as module:
        buffers = dict(unwrapped(module).named_buffers())
        is_own = identical([buffers["mask"], buffers["codes"]], own)
    expect(is_own, adapter.__name__, "a mask and whole numbers must be those of the module, 20 updates after a change")


def another_device(adapter: type[TrackingAdapter]) -> None:
    """The average goes on when the module has moved: its parameters have other memory then."""
    plain = Loop(adapter).train(STEPS)
    loop = Loop(adapter).train(STEPS // 2)
    if torch.cuda.is_available():
        loop.module.cuda()
        for state in loop.optimiser.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].cuda()
    else:
        _move_in_memory(loop.module)
    loop.train(STEPS - STEPS // 2)
    is_same = close(loop.average(), plain.average(), 1e-4)
    expect(is_same, adapter.__name__, "when the module has moved, the average must go on")


def _move_in_memory(module: nn.Module) -> None:
    """Give each tensor other memory with the same values, as `Module.to` does."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()
    for layer in module.modules():
        for name, buffer in layer.named_buffers(recurse=False):
            layer.register_buffer(name, buffer.clone())


def compiled(adapter: type[TrackingAdapter]) -> None:
    """The average of a compiled module is that of the plain one."""
    _check_wrapped(adapter, _compiled, through=False)


def _compiled(module: nn.Module) -> nn.Module:
    return cast(nn.Module, torch.compile(module, backend="eager"))


def replicated(adapter: type[TrackingAdapter]) -> None:
    """The average of a module in DistributedDataParallel is that of the plain one."""
    with _one_process():
        _check_wrapped(adapter, nn.parallel.DistributedDataParallel)


def sharded(adapter: type[TrackingAdapter]) -> None:
    """The average of a module that FSDP2 shards is that of the plain one."""
    from torch.distributed.fsdp import fully_shard

    def wrapped(module: nn.Module) -> nn.Module:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        return cast(nn.Module, fully_shard(module, mesh=mesh))

    with _one_process():
        _check_wrapped(adapter, wrapped)


def _check_wrapped(adapter: type[TrackingAdapter], wrapped: Wrapper, through: bool = True) -> None:
    """Compare a wrapped module with the plain one, trained `through` the wrapper or beside it."""
    plain = Loop(adapter).train(STEPS)
    loop = Loop(adapter, wrapped=wrapped)
    if not through:
        loop.wrapped = loop.module
    loop.train(STEPS)
    is_same = close(loop.average(), plain.average(), 1e-6)
    expect(is_same, adapter.__name__, "the average of a wrapped module must be that of the plain one")


@contextmanager
def _one_process() -> Iterator[None]:
    """A group of this process alone, over gloo. Raises `NotCheckedError` where there can be none."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        raise NotCheckedError("this PyTorch has no gloo")
    if distributed.is_initialized():
        raise NotCheckedError("this process is in a group of others")
    with TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            yield
        finally:
            distributed.destroy_process_group()


def deep_copies(adapter: type[TrackingAdapter]) -> None:
    """The module can be copied while it is averaged; a copy of the applied one keeps the average."""
    loop = Loop(adapter).train(STEPS)
    copied = copy.deepcopy(loop.module)
    expect(identical(copied.state_dict(), loop.module.state_dict()), adapter.__name__, "a copy must be the module")
    average = loop.average()
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    expect(identical(loop.average(), average), adapter.__name__, "a copy that changes must not change the average")
    with loop.averager.applied() as module:
        kept = copy.deepcopy(module)
    loop.train(STEPS)
    expect(identical(tensors_of(kept), average), adapter.__name__, "a copy of the applied module must keep the average")


def a_module_that_grew(adapter: type[TrackingAdapter]) -> None:
    """A new layer is averaged from then on, or refused; it is not left out in silence."""
    loop = Loop(adapter).train(STEPS)
    more = nn.Linear(2, 2)
    loop.module.more = more
    loop.optimiser.add_param_group({"params": list(more.parameters())})
    try:
        loop.observe(20)
        average = loop.average()
    except (Exception, SystemExit):  # a refusal, in whatever form
        return
    expect("more.weight" in average, adapter.__name__, "a layer that is new must not be left out in silence")
    is_averaged = close(average["more.weight"], more.weight, 1e-6)
    expect(is_averaged, adapter.__name__, "a layer that is new must be averaged")


def after_training(adapter: type[TrackingAdapter]) -> None:
    """The final model has the average, and its state loads into a new plain module."""
    loop = Loop(adapter).train(STEPS)
    average = loop.average()
    final = loop.averager.final_model()
    expect(identical(tensors_of(final), average), adapter.__name__, "the final model must have the average")
    new = SmallNet(PLAIN)
    with in_one_sentence(adapter.__name__, "the final model's state must load into a new module"):
        new.load_state_dict(final.state_dict())


PROPERTIES: dict[str, Callable[[type[TrackingAdapter]], None]] = {
    "before the first update": before_the_first_update,
    "validation in mid-training": validation,
    "an error in validation": an_error_in_validation,
    "validation in half precision": validation_in_half_precision,
    "resumed at any step": resumed,
    "a step that is not finite": a_step_that_is_not_finite,
    "a step that a scaler skips": a_skipped_step,
    "accumulated gradients": accumulated_gradients,
    "frozen parameters": frozen_parameters,
    "parameters unfrozen later": parameters_unfrozen_later,
    "tied parameters": tied_parameters,
    "bfloat16": low_precision,
    "BatchNorm": batch_norm,
    "other buffers": other_buffers,
    "another device": another_device,
    "compiled": compiled,
    "DDP": replicated,
    "FSDP2": sharded,
    "deepcopy": deep_copies,
    "a module that grew": a_module_that_grew,
    "after training": after_training,
}
"""What is checked, by the names of the properties; the docstrings say what is right."""


def tracking_results(adapter: type[TrackingAdapter]) -> list[TrackingResult]:
    """What comes out for each of the `PROPERTIES`, those that are not promised included."""
    results: list[TrackingResult] = []
    for name, check in PROPERTIES.items():
        promised = adapter.promises is None or name in adapter.promises
        outcome, sentence = _outcome(check, adapter)
        results.append(TrackingResult(name, outcome, promised, sentence))
    return results


def _outcome(check: Callable[[type[TrackingAdapter]], None], adapter: type[TrackingAdapter]) -> tuple[Outcome, str]:
    """What comes out for one property, and the sentence that belongs to it."""
    try:
        check(adapter)
    except NotCheckedError as reason:
        return "not checked", str(reason)
    except (Exception, SystemExit) as error:  # whatever the code of others raises; some of it calls `exit()`
        sentence = str(error)
        if isinstance(error, AssertionError) and sentence.startswith(f"{adapter.__name__}: "):
            return "wrong", sentence
        what = f"{type(error).__name__}: {one_line(error)}"
        return "error", f"{adapter.__name__}: it must run without an error ({what})"
    return "right", ""


def check_tracking(adapter: type[TrackingAdapter]) -> None:
    """Check that something that averages a module is right in every hour of its life.

    `adapter` is a class that drives it. The `PROPERTIES` are checked that its `promises` name, by default all. Raises
    `AssertionError` that names the first one that does not hold, and what came instead.
    """
    for result in tracking_results(adapter):
        if result.promised and result.outcome in ("wrong", "error"):
            raise AssertionError(f"{result.sentence} [{result.name}]")
