"""Which entries of a model clients send, and which stay with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from ..settings.accepts import Accepts, default
from ..settings.errors import ModelError, check, shortened
from ..settings.limits import EpochsFromZero
from ..settings.setting import Setting
from .arrays import Vectors
from .layout import Layout, ModelSlice

Buffers = Literal["refuse", "average", "local", "local_norm"]
"""What becomes of the running statistics of BatchNorm layers (see `Federation`)."""

OWN, STATISTICS = "own", "statistics"
"""The names of the entries that stay with a client in its client state, and of the statistics in its upload."""

COMMON, AFFINE, PERSONAL, PERSONAL_STATISTICS, OTHER_STATISTICS = range(5)
"""The kinds of tensors of a model, in the order in which clients have them."""


@dataclass(frozen=True)
class Personal(Setting):
    """The part of the model that stays with each client: it is neither sent nor summed."""

    part: Accepts[ModelSlice, list[str]] = default(())
    """what stays: "classifier", "extractor", "all", or names of parameters or modules, as in an average. Left out,
    nothing stays"""
    alone: EpochsFromZero = 0
    """for how many passes over the client's samples the part first trains alone in each round. Local training then
    moves the rest alone (FedRep). With 0 the whole model trains together (FedPer, LG-FedAvg)"""

    def __post_init__(self) -> None:
        right = "must name a part of the model; leave it out if nothing stays"
        check(self.part != "", "Personal.part", self.part, right)
        check(bool(self.part) or not self.alone, "Personal.part", self.part, "must not be empty: it trains alone")

    @classmethod
    def of(cls, part: ModelSlice) -> Personal:
        """This part of the model, trained together with the rest."""
        return cls(part)


@dataclass(frozen=True, eq=False)
class Sharing:
    """How the clients of a federation share a model `[D]` of `layout`.

    Clients have the model in another order, that of `clients_layout`: first the common parameters, `common_size` of
    them, which are all that methods, aggregations and server optimisers see; then the entries `own`, `own_size` of
    them, which stay with each client, as client state; then statistics, whose mean over the clients' uploads is the
    model's. The entries up to `trained` are parameters, the others are statistics. If nothing is personal, both orders
    are the same.

    Raises `SettingError` if the model has no such part, and `ModelError` if there are statistics that are not personal,
    and `buffers` is `"refuse"`.
    """

    layout: Layout
    buffers: Buffers = "refuse"
    personal: Personal = Personal()

    def __post_init__(self) -> None:
        if self.buffers == "refuse" and self._ends[PERSONAL_STATISTICS] < self.layout.size:
            left = {n.rpartition(".")[0] for n in self.clients_layout.names if n not in self.own_names}
            norms = ", ".join(name or "the model itself" for name in self.layout.norms if name in left)
            raise ModelError(
                f"BatchNorm tracks statistics of each client's data: {shortened(norms)}; set buffers to 'average', "
                "'local' or 'local_norm', or convert the model with fedsash.models.group_norm(module)"
            )
        right = "must leave something to share if it first trains alone"
        check(not self.personal.alone or self.common_size > 0, "Personal.part", self.personal.part, right)

    def notes(self, tested: bool) -> list[str]:
        """Lines about what clients keep, if they keep anything; `tested`: whether they have samples to score it on."""
        if not self.own_size:
            return []
        scored = "they score models with it, on samples of their own"
        right = "set evaluation.client_test or evaluation.held_out to score models with it"
        unscored = f"a test set meets what the start had of it: {right}"
        then = f"{scored if tested else unscored}; exported models have that of the start"
        return [f"clients keep {self._own_in_words}: {then}"]

    @property
    def together(self) -> Sharing:
        """The same, with a personal part that trains together with the rest."""
        return replace(self, personal=replace(self.personal, alone=0))

    @cached_property
    def common_size(self) -> int:
        """The number of common parameters."""
        return self._ends[COMMON if self.buffers == "local_norm" else AFFINE]

    @cached_property
    def body(self) -> int:
        """The number of parameters that do not belong to the personal part: the common ones, and BatchNorm's that stay
        with the clients."""
        return self._ends[AFFINE]

    @cached_property
    def trained(self) -> int:
        """The number of all parameters that clients train."""
        return self._ends[PERSONAL]

    @cached_property
    def own(self) -> slice:
        """The entries, in the clients' order, that stay with each client."""
        stop = self._ends[PERSONAL_STATISTICS] if self.buffers in ("refuse", "average") else self.layout.size
        return slice(self.common_size, stop)

    @cached_property
    def means(self) -> bool:
        """Whether the model has means of the clients' statistics."""
        return bool(self.own.stop < self.layout.size)

    @cached_property
    def own_size(self) -> int:
        """How many entries stay with each client."""
        return int(self.own.stop - self.own.start)

    @cached_property
    def own_names(self) -> set[str]:
        """The names of the tensors that stay with each client."""
        return set(self.clients_layout.between(self.own.start, self.own.stop).names) if self.own_size else set()

    @cached_property
    def clients_layout(self) -> Layout:
        """The layout of a model in the clients' order."""
        return self.layout.permuted(self._order)

    @cached_property
    def common(self) -> Layout:
        """The layout of the common parameters."""
        return self.clients_layout.between(0, self.common_size)

    @cached_property
    def whole(self) -> bool:
        """Whether all entries of a model are common parameters."""
        return self.common_size == self.layout.size

    def common_of(self, w: Tensor) -> Tensor:
        """The common parameters of a model `[..., D]`."""
        return w if self.whole else self.to_clients(w)[..., : self.common_size]

    def with_common(self, common: Tensor, w: Tensor) -> Tensor:
        """A model `[D]` with other common parameters."""
        if self.whole:
            return common
        return self.from_clients(torch.cat([common, self.to_clients(w)[self.common_size :]]))

    def to_clients(self, w: Tensor, own: Tensor | None = None) -> Tensor:
        """A model `[..., D]` in the clients' order, with the entries `own` `[..., d]` if they are given."""
        if self.whole:
            return w
        w = self._taken(w, self.layout, self._order)
        if own is None:
            return w
        own = own.to(w.device)  # clients' state may lie in the host's memory
        before, after = (w[..., part] for part in (slice(0, self.own.start), slice(self.own.stop, None)))
        lead = own.shape[:-1]
        return torch.cat([before.expand(*lead, -1), own, after.expand(*lead, -1)], dim=-1)

    def from_clients(self, local: Tensor) -> Tensor:
        """A model `[..., D]` from one in the clients' order."""
        return self._taken(local, self.clients_layout, self._back)

    def with_own(self, w: Tensor, own: Tensor) -> Tensor:
        """Models `[..., D]` with what clients keep, `[..., d]`, in its place."""
        return self.from_clients(self.to_clients(w, own))

    def own_state(self, local: Tensor) -> Vectors:
        """What stays with a client, from a model `[..., D]` in the clients' order: client state."""
        return {OWN: local[..., self.own].clone()} if self.own_size else {}

    def own_of_all(self, clients: int, w: Tensor) -> Tensor:
        """What so many clients keep `[clients, d]` if all of them have the model `w` `[D]`."""
        return self.to_clients(w)[self.own].expand(clients, -1).clone()

    def statistics_upload(self, local: Tensor, sent: Tensor) -> Vectors:
        """The changes of the statistics `[C, s]` in an upload, from models `[C, D]` in the clients' order."""
        stop = self.own.stop
        return {STATISTICS: local[:, stop:] - self.to_clients(sent)[stop:]} if stop < self.layout.size else {}

    def model_change(self, delta: Tensor, upload: Vectors) -> Tensor:
        """The change of whole models `[..., D]`: `delta` of the common parameters, and the statistics of an upload.

        What stays with the clients does not change.
        """
        if self.whole:
            return delta
        zeros = delta.new_zeros(()).expand(*delta.shape[:-1], self.own_size)
        statistics = [upload[STATISTICS]] if STATISTICS in upload else []
        return self.from_clients(torch.cat([delta, zeros, *statistics], dim=-1))

    def _taken(self, w: Tensor, layout: Layout, order: list[int]) -> Tensor:
        """A model `[..., D]` of a layout with its tensors in another order; the model itself if both orders agree."""
        if self.clients_layout is self.layout:
            return w
        return torch.cat([w[..., slice(*layout.places[i])] for i in order], dim=-1)

    @property
    def _own_in_words(self) -> str:
        """What clients keep, in words."""
        part = self.personal.part
        named = part if isinstance(part, str) else shortened(", ".join(part))
        found = ["their whole model" if part == "all" else f"their own {named}"] if part else []
        if self.buffers in ("local", "local_norm") and OTHER_STATISTICS in self._kinds:
            more = " and affine parameters" if self.buffers == "local_norm" and AFFINE in self._kinds else ""
            found.append(f"the statistics{more} of BatchNorm")
        return " and ".join(found)

    @cached_property
    def _kinds(self) -> list[int]:
        """The kind of each tensor of the layout."""
        mine = self.layout.members(self.personal.part) if self.personal.part else set()
        affine, trained = self.layout.affine, self.layout.trained
        kinds = []
        for name, (start, _) in zip(self.layout.names, self.layout.places, strict=True):
            if start < trained:
                kinds.append(PERSONAL if name in mine else AFFINE if start >= affine else COMMON)
            else:
                kinds.append(PERSONAL_STATISTICS if name in mine else OTHER_STATISTICS)
        return kinds

    @cached_property
    def _order(self) -> list[int]:
        """The numbers of the layout's tensors in the clients' order."""
        return sorted(range(len(self._kinds)), key=self._kinds.__getitem__)

    @cached_property
    def _back(self) -> list[int]:
        """The numbers of the clients' tensors in the layout's order."""
        return sorted(range(len(self._order)), key=self._order.__getitem__)

    @cached_property
    def _ends(self) -> list[int]:
        """Where each kind of tensors ends in the clients' order."""
        sizes = [0] * 5
        for kind, length in zip(self._kinds, self.layout.lengths, strict=True):
            sizes[kind] += length
        return list(accumulate(sizes))
