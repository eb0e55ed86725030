"""Averages of the models of any PyTorch training loop."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..settings.errors import FedsashError, ModelError, RunError, check, check_count, one_line, some
from ..settings.fingerprint import fingerprint
from ..vector.arrays import Vectors
from ..vector.layout import Layout, NamedPart
from ..vector.norms import norms_of, re_estimate
from ..vector.pieces import Pieces
from ..vector.randomness import draws_kept
from ..vector.shown import Shown
from ..vector.wrapped import local, plain, shard_of, sharded, unwrapped
from .base import Average, by_name
from .group import Group, grouped
from .lent import check_fits, is_lent, lent, own_values, put, unfolded

log = logging.getLogger("fedsash")

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

    Call `update` after each epoch, or after each step: each call is one round for the averages. It never changes the
    module. `averages` is one average, or several by their names; windows of one slice share the models of past rounds.
    An average's `buffers` says which running statistics it has.

    The parameters that train are averaged, each in its own type. One that is unfrozen later is averaged from the next
    update on. An average's `part` means the names that it has when the tracker is made. `module` may be compiled, or
    wrapped for several processes or devices: each process averages the values that it holds. If the module moves to
    another device, its sums follow with the next update; models of past rounds stay where they are. `torn` says that an
    update was broken off, after which no average can be read.

    With `trajectory_every = k` it keeps the sum of all models after every k updates, 16 bytes a parameter each. Two of
    them give any `window` between them, exactly, after the fact.

    Raises `ModelError` if nothing in the module trains.
    """

    @torch.inference_mode(False)
    def __init__(self, averages: Average | Mapping[str, Average], module: nn.Module, trajectory_every: int = 0) -> None:
        several = by_name(averages)
        check(isinstance(module, nn.Module), "Tracker.module", module, "must be an nn.Module")
        check(type(trajectory_every) is int, "Tracker.trajectory_every", trajectory_every, "must be a whole number")
        check_count("Tracker.trajectory_every", trajectory_every, least=0)
        self.module = unwrapped(module)
        self.trajectory_every = trajectory_every
        self.averages = {name: average.in_a_loop() for name, average in several.items()}
        self.round = 0
        self.torn = False
        self._groups: list[Group] = []
        layout = Layout(self.module, mixed=True)
        self._parts = {name: layout.named(average.part) for name, average in self.averages.items()}
        self._frozen: list[str] = []
        self._join()
        self._watch()

    def facts(self) -> dict[str, object]:
        """The facts that `repr` shows; `models` is the number of models in each average."""
        models = {name: self.count(name) for name in self.averages}
        shown = next(iter(models.values())) if len(models) == 1 else ", ".join(f"{n}: {m}" for n, m in models.items())
        averages = ", ".join(map(repr, self.averages.values()))
        return {"averages": averages, "module": self.module, "updates": self.round, "models": shown}

    def count(self, name: str | None = None) -> int:
        """How many models are in an average."""
        name = self._name(name)
        return max((group.observers.count(group, name) for group in self._groups if name in group.averages), default=0)

    @torch.inference_mode(False)
    @torch.no_grad()
    def update(self) -> None:
        """Observe the module as it is now; each call counts as one round. Raises `RunError` inside `applied()`.

        An average leaves out a model with a value that is not finite, with a warning.
        """
        if is_lent(self.module):  # by this tracker or another one
            raise RunError("Tracker.update: inside applied() the module is the average; update outside of it")
        self._check_whole()
        tensors = self._live()
        if self._news(tensors):
            self._join()
        self._watch()
        for group in self._groups:
            group.check_types(tensors)
        round = self.round + 1
        models = [group.pieces(tensors) for group in self._groups]
        left: set[str] = set()
        for group, w in zip(self._groups, models, strict=True):
            left |= group.not_finite(w, round, but=left)
        if left:
            spoilt = some(self._not_finite(tensors))
            log.warning("update %d: %s is not finite; left out of %s", round, spoilt, ", ".join(sorted(left)))
        self.torn = True  # unless all averages take the model, which Ctrl-C or a full disk may prevent
        for group, w in zip(self._groups, models, strict=True):
            group.observe(w, round, but=left)
        self.round = round
        self.torn = False

    def value(self, name: str | None = None) -> dict[str, Tensor]:
        """The tensors of an average by their names, as new ones; the module's own while nothing has been observed.

        A warning names those with a value that is not finite.
        """
        self._check_whole()
        name = self._name(name)
        tensors = own_values(self._live())
        value = {n: t for group in self._groups for n, t in group.value(name, tensors).items()}
        _warn_unless_finite(f"the average {name}", value)
        return value

    def window(self, size: int, at: int | None = None) -> dict[str, Tensor]:
        """The mean of the last `size` models after update `at` (None: the last sum), as `Window(size)` had it then.

        It needs running sums at both ends. Raises `RunError` if there is none yet, `SettingError` that says which there
        are.
        """
        if not self.trajectory_every:
            raise RunError("Tracker.window: there are no running sums; a tracker keeps them with trajectory_every = 10")
        self._check_whole()
        first = self._groups[0].sums
        if first is None or not first.rounds:
            raise RunError(
                f"Tracker.window: there is no running sum yet; the first is after update {self.trajectory_every}"
            )
        at = at if at is not None else first.rounds[-1]
        begins = first.begins(size, at)
        tensors = own_values(self._live())
        value = {n: t for group in self._groups for n, t in group.window(at, begins, tensors).items()}
        _warn_unless_finite(f"the window of {size} after update {at}", value)
        return value

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
        layers = self._renewed(which, batches)
        values = self.value(which) if which is None or isinstance(which, str) else which
        with lent(self.module, self._live, values):
            if batches is not None:
                with draws_kept(batches):  # a loader draws its order
                    re_estimate(self.module, layers, batches, _pass)
                renewed = {_mean(name): norm.running_mean for name, norm in self._norms.items() if name in layers}
                _warn_unless_finite("an average re-estimated from these batches", renewed)
            yield self.module

    def averaged_state_dict(self, which: Which = None, *, batches: Iterable[Any] | None = None) -> Vectors:
        """A copy of the module's state dict with an average in it, which loads into the plain module."""
        with self.applied(which, batches=batches) as module, unfolded(module):
            kept = plain(module.state_dict())  # beside tensors it may hold anything (`get_extra_state`)
            return {n: v.detach().clone() if isinstance(v, Tensor) else copy.deepcopy(v) for n, v in kept.items()}

    def averaged_module(self, which: Which = None, *, batches: Iterable[Any] | None = None) -> nn.Module:
        """A copy of the module with an average in it, a module of its own.

        Raises `ModelError` if PyTorch can't copy the module, as one that FSDP has sharded.
        """
        with self.applied(which, batches=batches) as module:
            try:
                return copy.deepcopy(module)
            except (AssertionError, RuntimeError, TypeError) as error:
                right = "load averaged_state_dict() into a new one"
                raise ModelError(f"PyTorch can't copy this module: {right} ({type(error).__name__})") from error

    def copy_to(self, module: nn.Module, which: Which = None, *, batches: Iterable[Any] | None = None) -> None:
        """Write the module with an average in it into another one.

        Raises `RunError` if that has other tensors, or has an average lent to it.
        """
        if is_lent(unwrapped(module)):
            raise RunError("Tracker.copy_to: inside applied() the other module would lose it; copy outside of it")
        states = self.averaged_state_dict(which, batches=batches), plain(unwrapped(module).state_dict())
        averaged, there = ({n: v for n, v in state.items() if isinstance(v, Tensor)} for state in states)
        here, others = ({name: list(t.shape) for name, t in named.items()} for named in (averaged, there))
        check_fits("Tracker.copy_to: the other module does not fit this tracker", here, others)
        if any(tensor.is_meta for tensor in there.values()):
            raise ModelError("Tracker.copy_to: the other module is on the device meta, which holds no values")
        with unfolded(unwrapped(module)):
            put(there, averaged)

    def state_dict(self) -> Vectors:
        """All that the tracker remembers as named tensors, for `torch.save` or safetensors. They are not copies.

        A warning names averages with a value that is not finite, here and in `load_state_dict`.
        """
        self._check_whole()
        self._warn_of_spoilt(self._groups, past=False)
        about = torch.frombuffer(bytearray(json.dumps(self._about()).encode()), dtype=torch.uint8)
        of = {f"{i}/{name}": t for i, group in enumerate(self._groups) for name, t in group.tensors().items()}
        return {"about": about, "round": torch.tensor(self.round)} | of

    @torch.inference_mode(False)
    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue from a `state_dict` of a tracker of the same averages.

        With a warning, an average that the state lacks begins with the next update, and one that this tracker lacks is
        left out. Raises `RunError` that says what else differs, and then changes nothing.
        """
        try:
            about = json.loads(bytes(saved["about"].tolist()))
            saved_names = about["parts"].keys()
            fresh = self.averages.keys() - saved_names
            gone = saved_names - self.averages.keys()
            ours = {name: text for name, text in self._about()["averages"].items() if name not in fresh}
            theirs = {name: text for name, text in about["averages"].items() if name not in gone}
            check_fits("the saved state does not fit this tracker", ours, theirs)
            parts = {n: part if n in fresh else NamedPart(*about["parts"][n]) for n, part in self._parts.items()}
            regrouped = [self._regrouped(each, fresh) for each in about["groups"]]
            self._check_beginning(regrouped, fresh)
            for i, group in enumerate(regrouped):
                group.load(lambda name, i=i: saved[f"{i}/{name}"], but=fresh)  # type: ignore[misc]
            groups = [group for group in regrouped if group.averages]
            if fresh:
                log.warning("Tracker: the saved state has no %s: it begins with the next update", some(sorted(fresh)))
            if gone:
                log.warning("Tracker: %s of the saved state is left out", some(sorted(gone)))
            self._warn_of_spoilt(groups, past=True)
            self.round = int(saved["round"])
            self.torn = False
            self._groups = groups
            self._parts = parts
            self._known = {name for group in groups for name in group.shapes}
            self._norms = norms_of(self.module)
            self._frozen = about["frozen"]
        except FedsashError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            what = f"{type(error).__name__} {one_line(error)}"
            raise RunError(f"this is not the whole state of a tracker: {what}") from error

    def _not_finite(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """The names of the averaged tensors that hold a value that is not finite."""
        names = (name for group in self._groups for name in group.shapes)
        return [name for name in names if not bool(local(tensors[name].detach()).isfinite().all())]

    def _warn_of_spoilt(self, groups: Iterable[Group], past: bool) -> None:
        """Warn of averages that have something in memory that is not finite, which an update never brings."""
        for name in self.averages:
            if spoilt := [each for group in groups for each in group.not_finite_in(name, past)]:
                log.warning("Tracker: the saved average %s: %s is not finite", name, some(spoilt))

    def _check_whole(self) -> None:
        """Raise `RunError` if an update was broken off, after which some averages have its model and others don't."""
        if self.torn:
            raise RunError("Tracker: an update was interrupted: load a saved state, or make a new tracker")

    def _regrouped(self, about: Mapping[str, Any], fresh: Collection[str]) -> Group:
        """An empty group of the tensors that a saved one has. It knows nothing of averages that are `fresh`."""
        live = own_values(self._live())
        shapes = {name: list(local(live[name].detach()).shape) for name in about["shapes"] if name in live}
        check_fits("the saved state does not fit this tracker", shapes, about["shapes"])
        members = {name: set(about["members"].get(name, ())) for name in self.averages}
        members |= {name: chosen for name, chosen in self._members().items() if name in fresh}
        tensors = {name: live[name] for name in about["shapes"]}
        return Group(tensors, getattr(torch, about["type"]), self.averages, members, self.trajectory_every)

    def _about(self) -> dict[str, Any]:
        """What a state is of. Its averages must be those of the tracker that loads it."""
        settings = {"Tracker.trajectory_every": str(self.trajectory_every)}
        if shard := shard_of(self.module):
            settings["its shard"] = shard
        settings |= fingerprint(self.averages)
        groups = [group.about() for group in self._groups]
        return {"averages": settings, "parts": self._parts, "groups": groups, "frozen": self._frozen}

    def _live(self) -> dict[str, Tensor]:
        """All parameters and buffers of the module, as they are now; of a sharded one its shards."""
        for layer in self._sharded:
            layer.reshard()
        return dict(chain(self.module.named_parameters(), self.module.named_buffers()))

    def _news(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether something trains that is not averaged yet."""
        learning = {name for name, tensor in tensors.items() if tensor.requires_grad}
        if not learning:  # as while BatchNorm's statistics alone are calibrated
            return False
        if self.module.training:
            learning |= {_mean(name) for name, norm in self._norms.items() if norm.training}
        means = ((tensors.get(_mean(name)), norm.running_mean) for name, norm in self._norms.items())
        replaced = any(now is not None and now is not mean for now, mean in means)
        return replaced or not learning <= self._known

    def _join(self) -> None:
        """Average what trains and is not averaged yet, from now on."""
        known = {name for group in self._groups for name in group.shapes}
        self._sharded = sharded(self.module)
        layout = Layout(self.module, mixed=True)
        live = own_values(self._live())
        fresh = {name: live[name] for name in layout.names if name not in known}
        groups = self._grouped(fresh)
        self._check_beginning(groups, self.averages)
        self._groups += groups
        self._known = known | fresh.keys()
        self._norms = norms_of(self.module)

    def _members(self) -> dict[str, set[str]]:
        """The names of the tensors that each average is of, of those that train now."""
        layout = Layout(self.module, mixed=True)
        statistics = {n for n, (start, _) in zip(layout.names, layout.places, strict=True) if start >= layout.trained}
        left = {name: set() if average.buffers == "average" else statistics for name, average in self.averages.items()}
        return {name: layout.inside(part) - left[name] for name, part in self._parts.items()}

    def _grouped(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        members = self._members()
        kept = {
            name: t for name, t in tensors.items() if self.trajectory_every or any(name in m for m in members.values())
        }
        return grouped(kept, self.averages, members, self.trajectory_every)

    def _check_beginning(self, groups: Iterable[Group], names: Iterable[str]) -> None:
        """Raise `ModelError` if an average begins with a model that is not finite, which it could never lose."""
        for name in names:
            if spoilt := [each for group in groups for each in group.not_finite_in(name, past=False)]:
                raise ModelError(f"Tracker: the average {name} begins with the model, and {some(spoilt)} is not finite")

    def _watch(self) -> None:
        """Remember which layers are frozen. While the whole module is in eval mode, they look like the others."""
        if self.module.training:
            self._frozen = [name for name, norm in self._norms.items() if not norm.training]

    def _renewed(self, which: Which, batches: Iterable[Any] | None) -> tuple[str, ...]:
        """The layers whose statistics are re-estimated from `batches`, which an average may need or not."""
        self._watch()
        layers = tuple(name for name in self._norms if name not in self._frozen)
        renews = isinstance(which, Mapping) or self.averages[self._name(which)].buffers == "re-estimate"
        right = 'only for an average with buffers = "re-estimate"'
        check(renews or batches is None, "Tracker: batches", batches, right)
        needed = renews and layers and not isinstance(which, Mapping)
        right = 'must be given: the average has buffers = "re-estimate"'
        check(batches is not None or not needed, "Tracker: batches", batches, right)
        return layers if batches is not None else ()

    def _name(self, name: str | None) -> str:
        """The name of an average that there is. None means the only one."""
        known = list(self.averages)
        if name is None and len(known) == 1:
            return known[0]
        check(name in known, "Tracker: average", name, f"must be one of {known}")
        return str(name)


def _warn_unless_finite(what: str, value: Mapping[str, Tensor | None]) -> None:
    """Warn of tensors with a value that is not finite."""
    given = {name: local(t.detach()).reshape(-1) for name, t in value.items() if t is not None}
    spoilt = [name for name, t in given.items() if t.is_floating_point() and not Pieces([t]).finite()]
    if spoilt:
        log.warning("Tracker: %s: %s is not finite", what, some(spoilt))


def _mean(norm: str) -> str:
    """The name of a layer's running mean; the layer may be the module itself."""
    return f"{norm}.running_mean" if norm else "running_mean"


def _pass(module: nn.Module, batch: Any) -> None:
    """Pass a batch through a module."""
    if isinstance(batch, Mapping):
        module(**batch)
    else:
        module(batch[0] if isinstance(batch, tuple | list) else batch)
