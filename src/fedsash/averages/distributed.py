"""States of trackers of sharded modules (FSDP2), for any number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..settings.errors import RunError, check
from ..vector.arrays import Vectors
from ..vector.layout import joined
from ..vector.shards import as_shard, is_first_process, own_shard, resharded, whole_tensor
from ..vector.wrapped import local, shard_of
from .base import Average
from .group import PAST
from .lent import check_fits
from .observers import Observer
from .tracker import SHARD, Tracker, about_of, encoded, whole_state

Shapes = dict[str, list[int]]
"""The shape of each tensor of a group: that of the shard in this process, or that of the whole tensor."""

Parts = dict[str, Tensor | dict[str, Tensor]]
"""The tensors of a state by their names. One with numbers of the module's tensors is split into those, by `row/NAME`.

A past model is under the name of its trajectory in a tracker of the whole module, which is the same everywhere."""


class WholeState:
    """The state of a tracker whose module is sharded, gathered: what a tracker of the whole module would have.

        state = WholeState(tracker).state_dict()
        WholeState(tracker).load_state_dict(state)

    It goes on in any number of processes, and `Tracker.load_state_dict` of a whole module takes it, too. Of a module
    that is not sharded it is the tracker's own. It can be given where an object with these two methods is asked for, as
    in accelerate's `register_for_checkpointing`.
    """

    def __init__(self, tracker: Tracker) -> None:
        check(isinstance(tracker, Tracker), "WholeState.tracker", tracker, "must be a Tracker")
        self._tracker = tracker

    def state_dict(self) -> Vectors:
        """The whole state, in the memory of the host. All processes must call it; only process 0 gets it, and the
        others get an empty one."""
        tracker = self._tracker
        state = tracker.state_dict()
        if not shard_of(tracker.module):
            return state
        about = about_of(state)
        tensors = resharded(tracker.module)
        groups = [_Group.of(each, tracker) for each in about["groups"]]
        whole: Vectors = {}
        for i, group in enumerate(groups):
            parts = group.split(_inside(state, i), group.own)
            wholes = _each(parts, lambda name, part: _whole_in_first(part, tensors[name]))
            if is_first_process():
                for key, tensor in group.joined(wholes, group.whole).items():
                    whole[f"{i}/{key}"] = tensor
        if not is_first_process():
            return {}
        whole["about"] = encoded(_whole_about(about, groups))
        whole["round"] = state["round"]
        return whole

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """Continue from a whole state, or from a tracker's own `state_dict`. Raises as `Tracker.load_state_dict`.

        All processes must call it with the state that process 0 got.
        """
        tracker = self._tracker
        if "about" not in saved or not shard_of(tracker.module):
            tracker.load_state_dict(saved)
            return
        about = about_of(saved)
        if SHARD in about["averages"]:
            tracker.load_state_dict(saved)
            return
        tensors = resharded(tracker.module)

        def own(i: int, group: _Group) -> Parts:
            parts = group.split(_inside(saved, i), group.whole)
            return _each(parts, lambda name, part: own_shard(part, tensors[name]))

        _load(tracker, about, saved["round"], own)


def gathered(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict with whole tensors in place of DTensors, in the memory of the host, for `torch.save` or safetensors.

        whole = gathered(tracker.averaged_state_dict("ema"))

    All processes must call it; only process 0 gets it, and the others get an empty one.
    """
    whole: dict[str, Any] = {}
    for name, value in state_dict.items():
        if isinstance(value, Tensor):
            value = whole_tensor(value).cpu()
        if is_first_process():
            whole[name] = value
    return whole


class DistributedState:
    """A tracker's state for `torch.distributed.checkpoint` (DCP), in which each process writes its shards.

        dcp.save({"model": model.state_dict(), "tracker": DistributedState(tracker)}, checkpoint_id=path)
        dcp.load({"model": state, "tracker": DistributedState(tracker, path)}, checkpoint_id=path)

    To load it give the checkpoint's `path`, from which it learns which past models are there. The number of processes
    may be another one; a module that is not sharded is right, too. `key` is the name that it has among what is saved.
    DCP calls `state_dict` and `load_state_dict` (its `Stateful`).

    Running statistics (BatchNorm) are not sharded: those of one process are saved, as DCP does with the model's own.
    Raises `RunError` for a checkpoint without a tracker under `key`.
    """

    def __init__(self, tracker: Tracker, path: str | Path | None = None, key: str = "tracker") -> None:
        check(isinstance(tracker, Tracker), "DistributedState.tracker", tracker, "must be a Tracker")
        self._tracker = tracker
        self._path = path
        self._key = key

    def state_dict(self) -> dict[str, Any]:
        """The state of this process; with a path, empty tensors into which DCP reads that of the checkpoint."""
        if self._path is not None:
            return self._empty(Path(self._path))
        state = self._tracker.state_dict()
        tensors = resharded(self._tracker.module)
        about = about_of(state)
        groups = [_Group.of(each, self._tracker) for each in about["groups"]]
        named: dict[str, Any] = {"about": json.dumps(_whole_about(about, groups)), "round": state["round"]}
        for i, group in enumerate(groups):
            parts = group.split(_inside(state, i), group.own)
            for key, part in _each(parts, lambda name, part: as_shard(part, tensors[name])).items():
                named[f"{i}/{key}"] = part
        return named

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the checkpoint; raises as `Tracker.load_state_dict`."""

        def own(i: int, group: _Group) -> Parts:
            return _each(_inside(state, i), lambda name, part: local(part))

        _load(self._tracker, json.loads(state["about"]), state["round"], own)

    def _empty(self, path: Path) -> dict[str, Any]:
        """What the checkpoint has, in tensors without values, laid out as the module's."""
        from torch.distributed.checkpoint.filesystem import FileSystemReader

        metadata: Any = FileSystemReader(path).read_metadata()
        tensors = resharded(self._tracker.module)
        empty: dict[str, Any] = {}
        for flat_name, names in (metadata.planner_data or {}).items():
            if names[0] != self._key:
                continue
            if names[1] == "about":
                empty["about"] = ""
                continue
            saved = metadata.state_dict_metadata[flat_name]
            if len(names) == 2:
                empty[names[1]] = torch.empty(saved.size, dtype=saved.properties.dtype)
                continue
            _, key, part = names
            name = _member(part)
            if name not in tensors:
                raise RunError(f"{path}: its averages have {name}, which this module lacks")
            like = tensors[name]
            values = torch.empty_like(local(like.detach()), dtype=saved.properties.dtype)
            empty.setdefault(key, {})[part] = as_shard(values, like)
        if "about" not in empty:
            raise RunError(f"{path} has no tracker under the name {self._key!r}")
        return empty


@dataclass(frozen=True)
class _Group:
    """The tensors of a group: their shapes in this process and as a whole, and those that each average is of."""

    averages: Mapping[str, Average]
    members: Mapping[str, list[str]]
    own: Shapes
    whole: Shapes

    @classmethod
    def of(cls, about: Mapping[str, Any], tracker: Tracker) -> _Group:
        """A group of a saved state. Raises `RunError` if the module has no such tensors."""
        tensors = resharded(tracker.module)
        missing = [name for name in about["shapes"] if name not in tensors]
        if missing:
            raise RunError(f"the saved state does not fit this tracker: the module has no {missing[0]}")
        own = {name: list(local(tensors[name].detach()).shape) for name in about["shapes"]}
        whole = {name: list(tensors[name].shape) for name in about["shapes"]}
        return cls(tracker.averages, about["members"], own, whole)

    def split(self, state: Mapping[str, Tensor], shapes: Shapes) -> Parts:
        """The state of a group whose tensors have these shapes, split into them."""
        parts: Parts = {}
        for key, tensor in state.items():
            owner = key.partition("/")[0]
            if owner == PAST:
                continue
            names = self._names(owner)
            rows = _rows(owner)
            if tensor.is_floating_point() and list(tensor.shape) == [rows * _length(names, shapes)]:
                parts[key] = _split(tensor, rows, names, shapes)
            else:
                parts[key] = tensor
        for name, round in self._past(state):
            key = f"{PAST}/{self._trajectory(name, self.whole)}/{round}"
            if key not in parts:
                model = state[f"{PAST}/{self._trajectory(name, shapes)}/{round}"]
                parts[key] = _split(model, 1, self.members[name], shapes)
        return parts

    def joined(self, parts: Parts, shapes: Shapes) -> Vectors:
        """The state that `split` has split, of tensors of these shapes."""
        state: Vectors = {}
        for key, part in parts.items():
            owner = key.partition("/")[0]
            if isinstance(part, Tensor):
                state[key] = part
            elif owner != PAST:
                state[key] = _joined(part, _rows(owner), self._names(owner))
        for name, round in self._past(state):
            part = parts[f"{PAST}/{self._trajectory(name, self.whole)}/{round}"]
            assert not isinstance(part, Tensor)
            state[f"{PAST}/{self._trajectory(name, shapes)}/{round}"] = _joined(part, 1, self.members[name])
        return state

    def _names(self, owner: str) -> list[str]:
        """The tensors that an average is of; those of a running sum are all."""
        return self.members.get(owner, list(self.own))

    def _past(self, state: Mapping[str, Tensor]) -> Iterator[tuple[str, int]]:
        """The averages that need past models, by their names, and the rounds of these."""
        for name, average in self.averages.items():
            values = {key.removeprefix(f"{name}/"): state[key] for key in state if key.startswith(f"{name}/")}
            if not values or average.retention() is None:
                continue
            for round in average.needs(values):
                yield name, round

    def _trajectory(self, name: str, shapes: Shapes) -> str:
        """What an average's trajectory is called in a state of tensors of these shapes (see `Observers.init`)."""
        retention = self.averages[name].retention()
        assert retention is not None
        lengths = [prod(shape) for shape in shapes.values()]
        inside = [tensor in self.members[name] for tensor in shapes]
        part = Observer(self.averages[name], joined(lengths, inside)).part(torch.empty(1).expand(sum(lengths)))
        if retention.kept_as == "model":
            return part
        return f"{part}+{retention.kept_as}"


def _whole_in_first(part: Tensor, like: Tensor) -> Tensor:
    """The whole tensor that is laid out as `like`, in the host's memory of process 0; nothing in the others."""
    whole = whole_tensor(as_shard(part, like))
    if is_first_process():
        return whole.cpu()
    return whole.new_empty(0)


def _load(tracker: Tracker, about: dict[str, Any], round: Tensor, own: Callable[[int, _Group], Parts]) -> None:
    """Let a tracker continue from a state of the whole module, of which `own` gives this process's parts of a group."""
    state: Vectors = {"round": round}
    groups: list[dict[str, Any]] = []
    with whole_state():
        for i, each in enumerate(about["groups"]):
            group = _Group.of(each, tracker)
            check_fits("the saved state does not fit this tracker", group.whole, each["shapes"])
            for key, tensor in group.joined(own(i, group), group.own).items():
                state[f"{i}/{key}"] = tensor
            groups.append({**each, "shapes": group.own})
    settings = dict(about["averages"])
    shard = shard_of(tracker.module)
    if shard:
        settings[SHARD] = shard
    state["about"] = encoded({**about, "averages": settings, "groups": groups})
    tracker.load_state_dict(state)


def _whole_about(about: Mapping[str, Any], groups: list[_Group]) -> dict[str, Any]:
    """What a state is of, as a tracker of the whole module would say."""
    settings = {name: value for name, value in about["averages"].items() if name != SHARD}
    wholes = [{**each, "shapes": group.whole} for each, group in zip(about["groups"], groups, strict=True)]
    return {**about, "averages": settings, "groups": wholes}


def _inside(state: Mapping[str, Any], i: int) -> dict[str, Any]:
    """The entries of a state that are of group `i`, by their names in it."""
    return {key.removeprefix(f"{i}/"): value for key, value in state.items() if key.startswith(f"{i}/")}


def _each(parts: Parts, change: Callable[[str, Tensor], Tensor]) -> Parts:
    """The same parts, those of a tensor of the module changed; `change` gets its name, too."""
    changed: Parts = {}
    for key, part in parts.items():
        if isinstance(part, Tensor):
            changed[key] = part
        else:
            changed[key] = {place: change(_member(place), value) for place, value in part.items()}
    return changed


def _rows(owner: str) -> int:
    """How many numbers a state's vector has of each of the module's: kept sums are `high`, then `low`."""
    return 2 if owner == "sums" else 1


def _member(place: str) -> str:
    """The name of a tensor of the module in `row/NAME`."""
    return place.partition("/")[2]


def _length(names: list[str], shapes: Shapes) -> int:
    return sum(prod(shapes[name]) for name in names)


def _split(vector: Tensor, rows: int, names: list[str], shapes: Shapes) -> dict[str, Tensor]:
    """A vector `[rows * d]` as tensors of these names, views, by `row/NAME`."""
    lengths = [prod(shapes[name]) for name in names]
    parts: dict[str, Tensor] = {}
    for row, values in enumerate(vector.view(rows, sum(lengths))):
        for name, piece in zip(names, torch.split(values, lengths), strict=True):
            parts[f"{row}/{name}"] = piece.view(shapes[name])
    return parts


def _joined(parts: Mapping[str, Tensor], rows: int, names: list[str]) -> Tensor:
    """The vector `[rows * d]` that `_split` has split."""
    return torch.cat([parts[f"{row}/{name}"].reshape(-1) for row in range(rows) for name in names])
