"""Averages of the models of any PyTorch training loop."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..settings.errors import FedsashError, ModelError, RunError, SettingError, check, check_count, one_line, some
from ..settings.fingerprint import fingerprint, text
from ..vector.arrays import Vectors
from ..vector.layout import Layout, NamedPart
from ..vector.norms import norms_of, re_estimate
from ..vector.pieces import Pieces
from ..vector.private_torch import Norm
from ..vector.randomness import draws_kept
from ..vector.shards import agreed
from ..vector.shown import Shown
from ..vector.wrapped import local, plain, shard_of, sharded, unwrapped
from . import profiles
from .afterwards import Approximation, KeptSums
from .averaged_model import take_over
from .base import Average, by_name
from .ema import EMA
from .group import RUNNING, TensorGroup, grouped
from .lent import check_fits, is_lent, lent, own_values, put, unfolded
from .power_ema import PowerEMA
from .profiles import Profile

log = logging.getLogger("fedsash")

SHARD = "its shard"
"""The setting of a state that is of one process alone."""

Which = str | Mapping[str, Tensor] | None
"""An average's name, or the tensors that `value` or `window` gave; None: the only average."""


class Tracker(Shown):
    """Observes a module during training and keeps averages of its parameters and statistics (BatchNorm).

        tracker = Tracker(Window(100), model)
        for epoch in range(300):
            train(model)
            tracker.update()
        with tracker.applied():
            evaluate(model)

    Call `update` after each epoch, or after each step: each call is one round for the averages. With `every = k` only
    each k-th call is one, and the others do nothing: all counts of models, and an EMA's decay, are of the models that
    are taken. It never changes the module. `averages` is one average, or several by their names; windows of one slice
    share the models of past rounds. An average's `buffers` says which running statistics it has.

    The parameters that train are averaged, each in its own type. One that is unfrozen later is averaged from the next
    update on. An average's `part` means the names that it has when the tracker is made. `module` may be compiled, or
    wrapped for several processes or devices: each process averages the values that it holds. If the module moves to
    another device, its sums follow with the next update; models of past rounds stay where they are. `torn` says that an
    update was broken off, after which no average can be read.

    All that it remembers lies on the `device` that is named, such as "cpu"; also what `value` and `averaged_state_dict`
    give, and the module's own values inside `applied()`. So a GPU has the model only. By default it lies where the
    module is.

    With `trajectory_every = k` it keeps the sum of all models after every k rounds, 16 bytes a parameter each. Two of
    them give any `window` between them, exactly, after the fact, and all of them nearly any `ema` or `power_ema`.

    Raises `SettingError` for an argument that it can't have, and `ModelError` if nothing in the module trains, or if it
    is not finite and an average begins with it.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        averages: Average | Mapping[str, Average],
        module: nn.Module,
        trajectory_every: int = 0,
        *,
        every: int = 1,
        device: str | torch.device | None = None,
    ) -> None:
        named = by_name(averages)
        check(isinstance(module, nn.Module), "Tracker.module", module, "must be an nn.Module")
        for name, number, least in (("trajectory_every", trajectory_every, 0), ("every", every, 1)):
            check(number is not None, f"Tracker.{name}", number, "must be a whole number")
            check_count(f"Tracker.{name}", number, least)
        self.module = unwrapped(module)
        self.trajectory_every = trajectory_every
        self.every = every
        self.device = None if device is None else _usable(device)
        self.averages = {name: average.in_a_loop() for name, average in named.items()}
        self.round = 0
        self.torn = False
        self._calls = 0
        """The calls of `update` since the last round."""
        self._groups: list[TensorGroup] = []
        self._known: set[str] = set()
        """The names of all tensors that have trained so far, also of those that no average is of."""
        self._sharded: list[Any] = []
        """The parts of the module that FSDP2 shards."""
        self._norms: dict[str, Norm] = {}
        """The norm layers that have running statistics, by their names."""
        layout = Layout(self.module, mixed=True)
        self._parts = {name: layout.named(average.part) for name, average in self.averages.items()}
        self._frozen: list[str] = []
        """The names of the norm layers that are frozen."""
        self._include_new()
        self._note_frozen()

    def facts(self) -> dict[str, object]:
        """The facts that `repr` shows; `models` is the number of models in each average."""
        averages: list[str] = []
        models: list[str] = []
        for name, average in self.averages.items():
            averages.append(text(average))
            models.append(f"{name}: {self.count(name)}")
        facts = {"averages": ", ".join(averages), "module": self.module, "updates": self.round}
        return facts | {"models": ", ".join(models)}

    def count(self, name: str | None = None) -> int:
        """How many models are in an average."""
        name = self._name(name)
        counts = [group.observers.count(group, name) for group in self._groups if name in group.averages]
        return max(counts, default=0)

    @torch.inference_mode(False)
    @torch.no_grad()
    def update(self) -> None:
        """Observe the module as it is now, if this is an `every`-th call. Raises `RunError` inside `applied()`.

        An average leaves out a model with a value that is not finite, with a warning.
        """
        if is_lent(self.module):  # by this tracker or another one
            raise RunError("Tracker.update: inside applied() the module is the average; update outside of it")
        self._check_whole()
        self._calls += 1
        if self._calls < self.every:
            return
        tensors = self._tensors()
        if self._has_new(tensors):
            self._include_new()
        self._note_frozen()
        for group in self._groups:
            group.check_types(tensors)
        round = self.round + 1
        models = [group.pieces(tensors) for group in self._groups]
        skipping: set[str] = set()  # what leaves out the model in one group leaves it out in all
        for group, w in zip(self._groups, models, strict=True):
            skipping |= group.not_finite(w, round, but=skipping)
        skipping = agreed(tensors.values(), skipping, [*self.averages, RUNNING])
        if skipping:
            names = some(self._not_finite(tensors)) or "a shard in another process"
            log.warning("update %d: %s is not finite; left out of %s", round, names, ", ".join(sorted(skipping)))
        self.torn = True  # unless all averages take the model, which Ctrl-C or a full disk may prevent
        for group, w in zip(self._groups, models, strict=True):
            group.observe(w, round, but=skipping)
        self.round = round
        self._calls = 0
        self.torn = False

    def after_step(self, optimiser: torch.optim.Optimizer, *_: Any) -> None:
        """`update` as a hook: `optimiser.register_step_post_hook(tracker.after_step)`.

        A step that a `GradScaler` skips is no update.
        """
        if not skipped(optimiser):
            self.update()

    def value(self, name: str | None = None) -> dict[str, Tensor]:
        """The tensors of an average by their names, as new ones; the module's own while nothing has been observed.

        They are those that are averaged, so they need no batches: with `buffers = "latest"` or `"re-estimate"` they are
        parameters alone. What a whole module needs is `averaged_state_dict`. A warning names those with a value that is
        not finite.
        """
        self._check_whole()
        name = self._name(name)
        tensors = own_values(self._tensors())
        value: dict[str, Tensor] = {}
        for group in self._groups:
            value |= group.value(name, tensors)
        _warn_unless_finite(f"the average {name}", value)
        return value

    @property
    def sums(self) -> dict[int, int]:
        """The number of models in each running sum, by the update after which it is; none at 0."""
        first = self._groups[0].sums
        if first is None:
            return {0: 0}
        return first.count_by_round()

    def window(self, size: int, at: int | None = None) -> dict[str, Tensor]:
        """The mean of the last `size` models after update `at` (None: the last sum), as `Window(size)` had it then.

        It needs running sums at both ends. Raises `RunError` if there is none yet, `SettingError` that says which there
        are.
        """
        sums = self._kept_sums("window")
        if at is None:
            at = sums.rounds[-1]
        begins = sums.begins(size, at)
        tensors = own_values(self._tensors())
        value: dict[str, Tensor] = {}
        for group in self._groups:
            value |= group.window(at, begins, tensors)
        _warn_unless_finite(f"the window of {size} after update {at}", value)
        return value

    def ema(self, decay: float, at: int | None = None) -> Approximation:
        """Nearly what `EMA(decay)` had after update `at` (None: the last sum), whatever averages were kept.

        It is the combination of the means between sums that is nearest to it (see `profiles`). Its `error` is the share
        of the weight that lies on other models than those of `EMA(decay)`, at most `trajectory_every` updates away:
        about `trajectory_every * (1 - decay) / 8`, and nearly the weight `decay**n` that the first of n models still
        has. Raises `RunError` if there is no sum yet, `SettingError` that says which there are.
        """
        EMA(decay)  # refuses a decay that it can't have
        return self._approximation("ema", partial(profiles.ema, decay), at)

    def power_ema(self, sigma_rel: float, at: int | None = None) -> Approximation:
        """Nearly what `PowerEMA(sigma_rel)` had after update `at` (None: the last sum), as `ema` for an EMA."""
        PowerEMA(sigma_rel)  # refuses a width that it can't have
        return self._approximation("power_ema", partial(profiles.power, sigma_rel), at)

    def _approximation(self, caller: str, profile: Callable[[int], Profile], at: int | None) -> Approximation:
        """The average whose weights of n models are `profile(n)`, from the sums up to update `at`."""
        sums = self._kept_sums(caller)
        if at is None:
            at = sums.rounds[-1]
        sums.check(at)
        tensors = own_values(self._tensors())
        value: dict[str, Tensor] = {}
        errors: list[float] = []
        for group in self._groups:  # those that joined later have fewer models
            approximation = group.approximation(profile, at, tensors)
            value |= approximation
            errors.append(approximation.error)
        _warn_unless_finite(f"{caller} after update {at}", value)
        return Approximation(value, max(errors))

    def _kept_sums(self, caller: str) -> KeptSums:
        """The sums of the tensors that have trained from the beginning, whose rounds are those of all sums.

        Raises `RunError` that names the `caller` if there are none.
        """
        if not self.trajectory_every:
            raise RunError(
                f"Tracker.{caller}: there are no running sums; a tracker keeps them with trajectory_every = 10"
            )
        self._check_whole()
        sums = self._groups[0].sums
        if sums is None or not sums.rounds:
            raise RunError(
                f"Tracker.{caller}: there is no running sum yet; the first is after update {self.trajectory_every}"
            )
        return sums

    @contextmanager
    def applied(self, which: Which = None, *, batches: Iterable[Any] | None = None) -> Iterator[nn.Module]:
        """The module with an average in place of its values; at the end they and all buffers are restored, bitwise.

        The rest of the module is its own, also inside `applied()` of another average. Meanwhile no other thread may use
        the module. Raises `ModelError` at the end if the module lacks some of its parameters by then, or has them in
        other shapes; the others are restored. A warning names parameters that somebody else has changed.

        An average with `buffers = "re-estimate"` needs `batches`: its statistics are then those of these inputs, but
        for layers that are frozen. Of a batch that is a tuple or a list, as a loader gives it, the first element is the
        input; a dict is passed by names.
        """
        layers = self._re_estimated(which, batches)
        values = which if isinstance(which, Mapping) else self.value(which)
        with lent(self.module, self._tensors, values, self.device):
            if batches is not None:
                with draws_kept(batches):  # a loader draws its order
                    re_estimate(self.module, layers, batches, _pass)
                means: dict[str, Tensor | None] = {}
                for name in layers:
                    means[_mean_of(name)] = self._norms[name].running_mean
                _warn_unless_finite("an average re-estimated from these batches", means)
            yield self.module

    def averaged_state_dict(self, which: Which = None, *, batches: Iterable[Any] | None = None) -> Vectors:
        """A copy of the module's state dict with an average in it, which loads into the plain module."""
        with self.applied(which, batches=batches) as module, unfolded(module):
            copied: Vectors = {}
            for name, value in plain(module.state_dict()).items():
                if isinstance(value, Tensor):
                    copied[name] = value.detach().to(self.device or value.device, copy=True)
                else:  # a state dict may hold anything (`get_extra_state`)
                    copied[name] = copy.deepcopy(value)
            return copied

    def averaged_module(self, which: Which = None, *, batches: Iterable[Any] | None = None) -> nn.Module:
        """A copy of the module with an average in it, a module of its own.

        Raises `ModelError` if PyTorch can't copy the module, as one that FSDP has sharded.
        """
        with self.applied(which, batches=batches) as module:
            try:
                return copy.deepcopy(module)
            except (AssertionError, RuntimeError, TypeError) as error:
                cure = "load averaged_state_dict() into a new one"
                raise ModelError(f"PyTorch can't copy this module: {cure} ({type(error).__name__})") from error

    def copy_to(self, module: nn.Module, which: Which = None, *, batches: Iterable[Any] | None = None) -> None:
        """Write the module with an average in it into another one.

        Raises `RunError` if that has other tensors, or has an average lent to it.
        """
        check(isinstance(module, nn.Module), "Tracker.copy_to: module", module, "must be an nn.Module")
        target = unwrapped(module)
        if is_lent(target):
            raise RunError("Tracker.copy_to: inside applied() the other module would lose it; copy outside of it")
        averaged = _only_tensors(self.averaged_state_dict(which, batches=batches))
        tensors = _only_tensors(plain(target.state_dict()))
        check_fits("Tracker.copy_to: the other module does not fit this tracker", _shapes(averaged), _shapes(tensors))
        if any(tensor.is_meta for tensor in tensors.values()):
            raise ModelError("Tracker.copy_to: the other module is on the device meta, which holds no values")
        with unfolded(target):
            put(tensors, averaged)

    def state_dict(self) -> Vectors:
        """All that the tracker remembers as named tensors, for `torch.save` or safetensors. They are not copies.

        A warning names averages with a value that is not finite, here and in `load_state_dict`.
        """
        self._check_whole()
        self._warn_of_spoilt(self._groups, past=False)
        state: Vectors = {"about": encoded(self._about()), "round": torch.tensor(self.round)}
        for i, group in enumerate(self._groups):
            for name, tensor in group.tensors().items():
                state[f"{i}/{name}"] = tensor
        return state

    @torch.inference_mode(False)
    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue from a `state_dict` of a tracker of the same averages.

        With a warning, an average that the state lacks begins with the next update, and one that this tracker lacks is
        left out. Raises `RunError` that says what else differs, and then changes nothing.
        """
        with whole_state():
            self._load(saved)

    @torch.inference_mode(False)
    @torch.no_grad()
    def load_averaged_model(self, state: Mapping[str, Tensor], name: str | None = None) -> None:
        """Let an EMA or SWA go on from the `state_dict()` of PyTorch's `AveragedModel`, with its `n_averaged` models.

        The statistics of an average with `buffers = "average"` are those of a state with `use_buffers`. The other
        averages, and the module, stay as they are. Raises `SettingError` if the state is none of that kind, and
        `RunError` if it does not fit, or if the average needs more than it has, as a window does; then nothing is
        changed.
        """
        name = self._name(name)
        self._check_whole()
        take_over(self._groups, name, state)

    def _load(self, saved: Mapping[str, Tensor]) -> None:
        """Do what `load_state_dict` says. The tracker changes in the last lines only, which can't fail."""
        if "n_averaged" in saved:
            raise RunError("this is the state of an AveragedModel: load_averaged_model() takes it")
        about = about_of(saved)
        saved_names = about["parts"].keys()
        new = self.averages.keys() - saved_names
        dropped = saved_names - self.averages.keys()
        settings = _without(self._about()["averages"], new)
        saved_settings = _without(about["averages"], dropped)
        check_fits("the saved state does not fit this tracker", settings, saved_settings)
        parts = dict(self._parts)
        for name in self._parts.keys() - new:
            parts[name] = NamedPart(*about["parts"][name])
        all_groups = [self._empty_group(each, new) for each in about["groups"]]
        self._check_beginning(all_groups, new)
        for i, group in enumerate(all_groups):
            group.load(partial(_saved_tensor, saved, i), but=new)
        groups = [group for group in all_groups if group.averages]
        if new:
            log.warning("Tracker: the saved state has no %s: it begins with the next update", some(sorted(new)))
        if dropped:
            log.warning("Tracker: %s of the saved state is left out", some(sorted(dropped)))
        self._warn_of_spoilt(groups, past=True)
        self.round = int(saved["round"])
        self._calls = about.get("calls", 0)
        self.torn = False
        self._groups = groups
        self._parts = parts
        self._known = _names_in(groups)
        self._norms = norms_of(self.module)
        self._frozen = about["frozen"]

    def _not_finite(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of the averaged tensors that hold a value that is not finite."""
        names: list[str] = []
        for group in self._groups:
            for name in group.shapes:
                if not bool(local(tensors[name].detach()).isfinite().all()):
                    names.append(name)
        return names

    def _warn_of_spoilt(self, groups: Iterable[TensorGroup], past: bool) -> None:
        """Warn of averages that have something in memory that is not finite, which an update never brings."""
        for name in self.averages:
            tensors = _spoilt(groups, name, past)
            if tensors:
                log.warning("Tracker: the saved average %s: %s is not finite", name, some(tensors))

    def _check_whole(self) -> None:
        """Raise `RunError` if an update was broken off, after which some averages have its model and others don't."""
        if self.torn:
            raise RunError("Tracker: an update was interrupted: load a saved state, or make a new tracker")

    def _empty_group(self, about: Mapping[str, Any], new: Collection[str]) -> TensorGroup:
        """An empty group of the tensors that a saved one has, which says what it is `about`.

        Averages that are `new`, which it does not know, are of the tensors that train now.
        """
        tensors = own_values(self._tensors())
        shapes = {name: list(local(tensors[name].detach()).shape) for name in about["shapes"] if name in tensors}
        check_fits("the saved state does not fit this tracker", shapes, about["shapes"])
        members = self._members()
        for name in self.averages.keys() - new:
            members[name] = set(about["members"].get(name, ()))
        grouped_tensors = {name: tensors[name] for name in about["shapes"]}
        dtype = getattr(torch, about["type"])
        return TensorGroup(grouped_tensors, dtype, self.averages, members, self.trajectory_every, device=self.device)

    def _about(self) -> dict[str, Any]:
        """What a state is of. Its averages must be those of the tracker that loads it."""
        settings = {"Tracker.trajectory_every": str(self.trajectory_every)}
        if self.every > 1:
            settings["Tracker.every"] = str(self.every)
        shard = shard_of(self.module)
        if shard:
            settings[SHARD] = shard
        settings |= fingerprint(self.averages)
        groups = [group.about() for group in self._groups]
        about = {"averages": settings, "parts": self._parts, "groups": groups, "frozen": self._frozen}
        if self._calls:
            about["calls"] = self._calls
        return about

    def _tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers of the module, as they are now; of a sharded one its shards."""
        for layer in self._sharded:
            layer.reshard()
        return dict(chain(self.module.named_parameters(), self.module.named_buffers()))

    def _has_new(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether something trains that is not averaged yet, or a layer has been replaced."""
        training = {name for name, tensor in tensors.items() if tensor.requires_grad}
        if not training:  # as while BatchNorm's statistics alone are calibrated
            return False
        for name, norm in self._norms.items():
            mean = tensors.get(_mean_of(name))
            if mean is not None and mean is not norm.running_mean:
                return True
            if self.module.training and norm.training:
                training.add(_mean_of(name))
        return not training <= self._known

    def _include_new(self) -> None:
        """Average what trains and is not averaged yet, from now on."""
        known = _names_in(self._groups)
        self._sharded = sharded(self.module)
        layout = Layout(self.module, mixed=True)
        tensors = own_values(self._tensors())
        new = {name: tensors[name] for name in layout.names if name not in known}
        groups = self._grouped(new)
        self._check_beginning(groups, self.averages)
        self._groups += groups
        self._known = known | new.keys()
        self._norms = norms_of(self.module)

    def _members(self) -> dict[str, set[str]]:
        """The names of the tensors that each average is of, of those that train now."""
        layout = Layout(self.module, mixed=True)
        statistics: set[str] = set()
        for name, (start, _) in zip(layout.names, layout.places, strict=True):
            if start >= layout.trained:
                statistics.add(name)
        members: dict[str, set[str]] = {}
        for name, part in self._parts.items():
            members[name] = layout.inside(part)
            if not self.averages[name].averages_statistics:
                members[name] = members[name] - statistics
        return members

    def _grouped(self, tensors: Mapping[str, Tensor]) -> list[TensorGroup]:
        """Groups of those of the tensors that some average is of; of all of them if running sums are kept."""
        members = self._members()
        if not self.trajectory_every:
            averaged: set[str] = set().union(*members.values())
            tensors = {name: tensor for name, tensor in tensors.items() if name in averaged}
        return grouped(tensors, self.averages, members, self.trajectory_every, device=self.device)

    def _check_beginning(self, groups: Iterable[TensorGroup], names: Iterable[str]) -> None:
        """Raise `ModelError` if an average begins with a model that is not finite, which it could never lose."""
        for name in names:
            tensors = _spoilt(groups, name, past=False)
            if tensors:
                raise ModelError(
                    f"Tracker: the average {name} begins with the model, and {some(tensors)} is not finite"
                )

    def _note_frozen(self) -> None:
        """Note which norm layers are frozen. While the whole module is in eval mode, they look like the others."""
        if self.module.training:
            self._frozen = [name for name, norm in self._norms.items() if not norm.training]

    def _re_estimated(self, which: Which, batches: Iterable[Any] | None) -> tuple[str, ...]:
        """The layers whose statistics are re-estimated from `batches`; none if there are no batches.

        Raises `SettingError` if there are batches, and the average does not take them, or if it needs some.
        """
        self._note_frozen()
        layers = tuple(name for name in self._norms if name not in self._frozen)
        if not isinstance(which, Mapping):  # else tensors of any average: with or without new statistics
            re_estimates = self.averages[self._name(which)].buffers == "re-estimate"
            requirement = 'only for an average with buffers = "re-estimate"'
            check(re_estimates or batches is None, "Tracker: batches", batches, requirement)
            lacks_batches = re_estimates and bool(layers) and batches is None
            requirement = 'must be given: the average has buffers = "re-estimate"'
            check(not lacks_batches, "Tracker: batches", batches, requirement)
        if batches is None:
            return ()
        return layers

    def _name(self, name: str | None) -> str:
        """The name of an average that there is. None means the only one."""
        known = list(self.averages)
        if name is None and len(known) == 1:
            return known[0]
        check(name in known, "Tracker: average", name, f"must be one of {known}")
        return str(name)


def skipped(optimiser: torch.optim.Optimizer) -> bool:
    """Whether the step after which this is asked, in a hook of the optimiser, was skipped.

    If gradients overflow, a `GradScaler` does not call an optimiser's `step`. A fused optimiser's it does call, with
    `found_inf` beside it, and the step leaves the parameters as they are.
    """
    return bool(getattr(optimiser, "found_inf", False))


@contextmanager
def whole_state() -> Iterator[None]:
    """Turn what a state raises that lacks something, or has it in another form, into a `RunError`."""
    try:
        yield
    except FedsashError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        what = f"{type(error).__name__} {one_line(error)}"
        raise RunError(f"this is not the whole state of a tracker: {what}") from error


def about_of(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """What a saved state is of."""
    about: dict[str, Any] = json.loads(bytes(state["about"].tolist()))
    return about


def encoded(about: Mapping[str, Any]) -> Tensor:
    """What a state is of, as a tensor in it (see `about_of`)."""
    return torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)


def _usable(device: str | torch.device) -> torch.device:
    """A device on which there can be values. Raises `SettingError` if this machine has no such one."""
    try:
        usable = torch.empty(0, device=device).device  # with its number: "cuda" becomes "cuda:0"
    except (RuntimeError, AssertionError, TypeError) as error:
        raise SettingError.at("Tracker.device", str(device), f"can't be used: {one_line(error)}") from error
    check(usable.type != "meta", "Tracker.device", str(device), "holds no values: name another one, such as 'cpu'")
    return usable


def _saved_tensor(state: Mapping[str, Tensor], group: int, name: str) -> Tensor:
    """A tensor of a group, by its number, in a saved state."""
    return state[f"{group}/{name}"]


def _without(settings: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """The settings that have none of these names."""
    return {name: value for name, value in settings.items() if name not in names}


def _names_in(groups: Iterable[TensorGroup]) -> set[str]:
    """The names of all tensors in some groups."""
    names: set[str] = set()
    for group in groups:
        names.update(group.shapes)
    return names


def _spoilt(groups: Iterable[TensorGroup], name: str, past: bool) -> list[str]:
    """The tensors of which an average's state has a value that is not finite; of its `past` models, too."""
    tensors: list[str] = []
    for group in groups:
        tensors += group.not_finite_in(name, past)
    return tensors


def _only_tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _warn_unless_finite(what: str, value: Mapping[str, Tensor | None]) -> None:
    """Warn of tensors with a value that is not finite."""
    names: list[str] = []
    for name, tensor in value.items():
        if tensor is None or not tensor.is_floating_point():
            continue
        flat = local(tensor.detach()).reshape(-1)
        if not Pieces([flat]).finite():
            names.append(name)
    if names:
        log.warning("Tracker: %s: %s is not finite", what, some(names))


def _mean_of(norm: str) -> str:
    """The name of a layer's running mean; the layer may be the module itself."""
    return f"{norm}.running_mean" if norm else "running_mean"


def _pass(module: nn.Module, batch: Any) -> None:
    """Pass a batch through a module."""
    if isinstance(batch, Mapping):
        module(**batch)
    elif isinstance(batch, tuple | list):
        module(batch[0])
    else:
        module(batch)
