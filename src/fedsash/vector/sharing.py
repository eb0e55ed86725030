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
        requirement = "must name a part of the model; leave it out if nothing stays"
        check(self.part != "", "Personal.part", self.part, requirement)
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
        in_order_of_module = Layout(module)
        kinds = _kinds(in_order_of_module, personal)
        # `sorted` is stable: within a kind the order is that of the module.
        order = sorted(range(len(kinds)), key=kinds.__getitem__)
        sharing = cls(in_order_of_module.permuted(order), buffers, personal)
        if buffers == "refuse" and sharing.means:
            raise ModelError(
                f"BatchNorm tracks statistics of each client's data: {shortened(sharing._norms_not_kept)}; set buffers "
                "to 'average', 'local' or 'local_norm', or convert the model with fedsash.models.group_norm(module)"
            )
        requirement = "must leave something to share if it first trains alone"
        check(not personal.alone or sharing.common_size > 0, "Personal.part", personal.part, requirement)
        return sharing

    def notes(self, tested: bool) -> list[str]:
        """Lines about what clients keep, if they keep anything; `tested`: whether they have samples to score it on."""
        if not self.own_size:
            return []
        if tested:
            scoring = "they score models with it, on samples of their own"
        else:
            scoring = (
                "a test set meets what the start had of it: set evaluation.client_test or evaluation.held_out to score "
                "models with it"
            )
        return [f"clients keep {self._own_in_words}: {scoring}; exported models have that of the start"]

    @property
    def together(self) -> Sharing:
        """The same, with a personal part that trains together with the rest."""
        return replace(self, personal=replace(self.personal, alone=0))

    @cached_property
    def common_size(self) -> int:
        """The number of common parameters."""
        last_common = COMMON if self.buffers == "local_norm" else AFFINE
        return self._ends[last_common]

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
        statistics_are_shared = self.buffers in ("refuse", "average")
        last_own = PERSONAL_STATISTICS if statistics_are_shared else OTHER_STATISTICS
        return slice(self.common_size, self._ends[last_own])

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
        if not self.own_size:
            return set()
        return set(self.layout.between(self.own.start, self.own.stop).names)

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
        if self.whole:
            return CommonPart(w)
        return CommonPart(w[..., : self.common_size])

    def with_common(self, common: CommonPart, w: WholeModel) -> WholeModel:
        """A model `[D]` with other common parameters. It is `common` itself if all of a model is common."""
        if self.whole:
            return WholeModel(common)
        return WholeModel(torch.cat([common, w[self.common_size :]]))

    def with_own(self, w: WholeModel, own: Tensor) -> WholeModel:
        """Models `[..., D]` with what clients keep, `[..., d]`, in its place."""
        own = own.to(w.device)  # clients' state may lie in the host's memory
        lead = own.shape[:-1]
        common = self.common_of(w).expand(*lead, -1)
        statistics = w[..., self.statistics].expand(*lead, -1)
        return WholeModel(torch.cat([common, own, statistics], dim=-1))

    def own_state(self, w: WholeModel) -> Vectors:
        """What stays with a client, from a model `[..., D]`: client state."""
        if not self.own_size:
            return {}
        return {OWN: w[..., self.own].clone()}

    def own_of_all(self, clients: int, w: WholeModel) -> Tensor:
        """What so many clients keep `[clients, d]` if all of them have the model `w` `[D]`."""
        return w[self.own].expand(clients, -1).clone()

    def statistics_upload(self, w: WholeModel, sent: WholeModel) -> Vectors:
        """The changes of the statistics `[C, s]` in an upload, from models `[C, D]`."""
        if not self.means:
            return {}
        return {STATISTICS: w[:, self.statistics] - sent[self.statistics]}

    def model_change(self, delta: CommonPart, upload: Uploaded | MeanUpload) -> WholeModel:
        """The change of whole models `[..., D]`: `delta` of the common parameters, and the statistics of an upload.

        What stays with the clients does not change.
        """
        if self.whole:
            return WholeModel(delta)
        changes = [delta, delta.new_zeros(()).expand(*delta.shape[:-1], self.own_size)]
        if STATISTICS in upload:
            changes.append(upload[STATISTICS])
        return WholeModel(torch.cat(changes, dim=-1))

    @property
    def _norms_not_kept(self) -> str:
        """The layers whose statistics do not stay with the clients, in words."""
        layers_not_kept = {name.rpartition(".")[0] for name in self.layout.names if name not in self.own_names}
        return ", ".join(name or "the model itself" for name in self.layout.norms if name in layers_not_kept)

    @property
    def _own_in_words(self) -> str:
        """What clients keep, in words."""
        part = self.personal.part
        kinds = _kinds(self.layout, self.personal)
        phrases = []
        if part == "all":
            phrases.append("their whole model")
        elif isinstance(part, str):
            phrases.append(f"their own {part}")
        elif part:
            phrases.append(f"their own {shortened(', '.join(part))}")
        if self.buffers == "local_norm" and OTHER_STATISTICS in kinds and AFFINE in kinds:
            phrases.append("the statistics and affine parameters of BatchNorm")
        elif self.buffers in ("local", "local_norm") and OTHER_STATISTICS in kinds:
            phrases.append("the statistics of BatchNorm")
        return " and ".join(phrases)

    @cached_property
    def _ends(self) -> list[int]:
        """The entry at which each kind of tensors ends."""
        sizes = [0] * 5
        for kind, length in zip(_kinds(self.layout, self.personal), self.layout.lengths, strict=True):
            sizes[kind] += length
        return list(accumulate(sizes))


def _kinds(layout: Layout, personal: Personal) -> list[int]:
    """The kind of each tensor of a layout."""
    personal_names = layout.members(personal.part) if personal.part else set()
    kinds = []
    for name, (start, _) in zip(layout.names, layout.places, strict=True):
        is_statistic = start >= layout.trained
        if is_statistic and name in personal_names:
            kinds.append(PERSONAL_STATISTICS)
        elif is_statistic:
            kinds.append(OTHER_STATISTICS)
        elif name in personal_names:
            kinds.append(PERSONAL)
        elif name in layout.affine:
            kinds.append(AFFINE)
        else:
            kinds.append(COMMON)
    return kinds
