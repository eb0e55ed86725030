"""Which entries of a model clients send, and which stay with them: three slices of its vector."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn

from ..settings.errors import ModelError, check, shortened
from ..settings.limits import EpochsFromZero
from ..settings.setting import Accepts, Setting, default
from .arrays import Vectors
from .layout import Layout, ModelSlice
from .spaces import CommonPart, MeanUpload, Uploaded, WholeModel

Buffers = Literal["refuse", "average", "local", "local_norm"]
"""What becomes of the running statistics of BatchNorm layers (see `Federation`)."""

OWN = "own"
STATISTICS = "statistics"
"""The names of the entries that stay with a client in its client state, and of the statistics in its upload."""

COMMON, AFFINE, PERSONAL, PERSONAL_STATISTICS, OTHER_STATISTICS = range(5)
"""The kinds of tensors of a model, in the order in which its vector has them."""


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
    """How the clients of a federation share a model `[D]` of `layout`, which is made by `of`, in this order:

    - `common_size` parameters, whose layout is `common`: all that methods, aggregations and server optimisers see;
    - the entries `own`, `own_size` of them, which stay with each client, as client state;
    - the entries `statistics`, whose mean over the clients' uploads is the model's.

    The entries up to `trained` are parameters, the others are statistics, of which some may be among `own`.
    """

    layout: Layout
    buffers: Buffers = "refuse"
    personal: Personal = Personal()

    @classmethod
    def of(cls, module: nn.Module, buffers: Buffers = "refuse", personal: Personal | None = None) -> Sharing:
        """How clients share the model that `module` is. This is the only place that orders a federation's vectors.

        Raises `SettingError` if the model has no such part, and `ModelError` if there are statistics that are not
        personal, and `buffers` is `"refuse"`.
        """
        personal = personal or Personal()
        defined = Layout(module)
        kinds = _kinds(defined, personal)
        order = sorted(range(len(kinds)), key=kinds.__getitem__)  # within a kind as in the module
        found = cls(defined.permuted(order), buffers, personal)
        if buffers == "refuse" and found.means:
            left = {name.rpartition(".")[0] for name in found.layout.names if name not in found.own_names}
            norms = ", ".join(name or "the model itself" for name in found.layout.norms if name in left)
            raise ModelError(
                f"BatchNorm tracks statistics of each client's data: {shortened(norms)}; set buffers to 'average', "
                "'local' or 'local_norm', or convert the model with fedsash.models.group_norm(module)"
            )
        right = "must leave something to share if it first trains alone"
        check(not personal.alone or found.common_size > 0, "Personal.part", personal.part, right)
        return found

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

    @property
    def trained(self) -> int:
        """The number of all parameters that clients train."""
        return self.layout.trained

    @cached_property
    def own(self) -> slice:
        """The entries that stay with each client."""
        averages = self.buffers in ("refuse", "average")
        return slice(self.common_size, self._ends[PERSONAL_STATISTICS if averages else OTHER_STATISTICS])

    @cached_property
    def statistics(self) -> slice:
        """The entries that are means of the clients' statistics."""
        return slice(self.own.stop, self.layout.size)

    @property
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
        return set(self.layout.between(self.own.start, self.own.stop).names) if self.own_size else set()

    @cached_property
    def common(self) -> Layout:
        """The layout of the common parameters."""
        return self.layout.between(0, self.common_size)

    @cached_property
    def whole(self) -> bool:
        """Whether all entries of a model are common parameters."""
        return self.common_size == self.layout.size

    def common_of(self, w: WholeModel) -> CommonPart:
        """The common parameters of a model `[..., D]`: a view, or the model itself if all of it is common."""
        return CommonPart(w if self.whole else w[..., : self.common_size])

    def with_common(self, common: CommonPart, w: WholeModel) -> WholeModel:
        """A model `[D]` with other common parameters."""
        return WholeModel(common if self.whole else torch.cat([common, w[self.common_size :]]))

    def with_own(self, w: WholeModel, own: Tensor) -> WholeModel:
        """Models `[..., D]` with what clients keep, `[..., d]`, in its place."""
        own = own.to(w.device)  # clients' state may lie in the host's memory
        lead = own.shape[:-1]
        common = self.common_of(w).expand(*lead, -1)
        statistics = w[..., self.statistics].expand(*lead, -1)
        return WholeModel(torch.cat([common, own, statistics], dim=-1))

    def own_state(self, w: WholeModel) -> Vectors:
        """What stays with a client, from a model `[..., D]`: client state."""
        return {OWN: w[..., self.own].clone()} if self.own_size else {}

    def own_of_all(self, clients: int, w: WholeModel) -> Tensor:
        """What so many clients keep `[clients, d]` if all of them have the model `w` `[D]`."""
        return w[self.own].expand(clients, -1).clone()

    def statistics_upload(self, w: WholeModel, sent: WholeModel) -> Vectors:
        """The changes of the statistics `[C, s]` in an upload, from models `[C, D]`."""
        return {STATISTICS: w[:, self.statistics] - sent[self.statistics]} if self.means else {}

    def model_change(self, delta: CommonPart, upload: Uploaded | MeanUpload) -> WholeModel:
        """The change of whole models `[..., D]`: `delta` of the common parameters, and the statistics of an upload.

        What stays with the clients does not change.
        """
        if self.whole:
            return WholeModel(delta)
        zeros = delta.new_zeros(()).expand(*delta.shape[:-1], self.own_size)
        statistics = [upload[STATISTICS]] if STATISTICS in upload else []
        return WholeModel(torch.cat([delta, zeros, *statistics], dim=-1))

    @property
    def _own_in_words(self) -> str:
        """What clients keep, in words."""
        part = self.personal.part
        named = part if isinstance(part, str) else shortened(", ".join(part))
        kinds = _kinds(self.layout, self.personal)
        found = ["their whole model" if part == "all" else f"their own {named}"] if part else []
        if self.buffers in ("local", "local_norm") and OTHER_STATISTICS in kinds:
            more = " and affine parameters" if self.buffers == "local_norm" and AFFINE in kinds else ""
            found.append(f"the statistics{more} of BatchNorm")
        return " and ".join(found)

    @cached_property
    def _ends(self) -> list[int]:
        """Where each kind of tensors ends."""
        sizes = [0] * 5
        for kind, length in zip(_kinds(self.layout, self.personal), self.layout.lengths, strict=True):
            sizes[kind] += length
        return list(accumulate(sizes))


def _kinds(layout: Layout, personal: Personal) -> list[int]:
    """The kind of each tensor of a layout."""
    mine = layout.members(personal.part) if personal.part else set()
    kinds = []
    for name, (start, _) in zip(layout.names, layout.places, strict=True):
        if start >= layout.trained:
            kinds.append(PERSONAL_STATISTICS if name in mine else OTHER_STATISTICS)
        elif name in mine:
            kinds.append(PERSONAL)
        else:
            kinds.append(AFFINE if name in layout.affine else COMMON)
    return kinds
