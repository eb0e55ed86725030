"""The plan of a round: how much clients train, which follows from the settings and from their numbers of samples, and
which samples they see in each local step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.members import Members
from ..methods import FedAvg, Method
from ..methods.base import MEAN_DIRECTION, Effort
from ..methods.schedules import Flat
from ..settings.errors import SettingError, check
from ..vector.arrays import Floats, Ints, Vectors
from ..vector.randomness import Purpose, fold, fractions, keys
from .messages import Request
from .optimisers import SGD
from .settings import Batching, LocalTraining, Workload

KEPT = 64
"""At most so many plans are kept."""

LAST = np.iinfo(np.uint64).max
"""The key of a place without a sample, which is sorted behind all others."""

FLOAT64 = torch.empty(0, dtype=torch.float64)


class RoundPlan:
    """How much C clients train in a round, `[C]` each.

    A client has `sizes` samples, and trains by `amounts`: epochs or steps. It takes `steps` local steps, `per_epoch` of
    them in each pass over its samples, and sees `samples` samples in them; a sample that it sees in two passes counts
    twice. `all_steps` and `all_samples` also count those of a personal part that first trains by itself, for `alone`
    passes. Both are in `work` and `work_alone` as workloads, from which batches are cut. `effort` is what clients
    report, with FedNova's normalisers if the aggregation `normalises`.

    `local` are the settings in the round (see `LocalTraining.at`). `like` gives the type and device of tensors; with
    `exact` the rates of the steps stay on the CPU as float64, for steps that take them as numbers. A plan of the `same`
    sizes and amounts, under other rates, lends its workloads, so that their batches need not be cut again.
    """

    def __init__(
        self,
        local: LocalTraining,
        method: Method,
        sizes: Ints,
        amounts: Ints,
        *,
        alone: int = 0,
        normalises: bool = False,
        like: Tensor = FLOAT64,
        exact: bool = False,
        same: RoundPlan | None = None,
    ) -> None:
        self.local = local
        self.sizes = sizes
        self.amounts = amounts
        if same is None:
            self.work: Workload = local.batching.workload(sizes, amounts)
        else:
            self.work = same.work
        self.steps = self.work.steps
        self.per_epoch = self.work.per_epoch
        self.samples = self.work.samples
        self.steps_alone = np.zeros_like(sizes)
        self.all_steps = self.steps
        self.all_samples = self.samples
        if alone:
            if same is None:
                self.work_alone: Workload = whole_passes(local).workload(sizes, alone)
            else:
                self.work_alone = same.work_alone
            self.steps_alone = self.work_alone.steps
            self.all_steps = self.steps + self.work_alone.steps
            self.all_samples = self.samples + self.work_alone.samples
        normaliser = None
        if normalises:
            normaliser = normalisers(local, method, self.steps)
        self.effort = Effort(self.all_samples, self.steps, normaliser)
        self._method = method
        self._like = like
        self._rates_like = like
        if exact:
            self._rates_like = FLOAT64

    @classmethod
    def mean(cls, local: LocalTraining, method: Method, sizes: Ints, *, alone: int = 0) -> RoundPlan:
        """The plan of clients that train by the mean amount of a round, rounded."""
        return cls(local, method, sizes, np.full_like(sizes, mean_amount(local)), alone=alone)

    @cached_property
    def rates(self) -> Floats:
        """The learning rates of the steps, `[K, C]`; 0 after a client's last step."""
        return self.local.lr * factors(self.local, self._method, self.steps)

    @cached_property
    def rates_alone(self) -> Floats:
        """The same for the steps of a personal part that trains by itself: the method's schedule is not its own."""
        return self.local.lr * factors(self.local, FedAvg(), self.steps_alone)

    @cached_property
    def step_rates(self) -> Tensor:
        """The rates of the steps as a tensor `[K, C, 1]`."""
        return column(self.rates, self._rates_like)

    @cached_property
    def step_rates_alone(self) -> Tensor:
        """Those of the steps of a personal part that trains by itself, `[K, C, 1]`."""
        return column(self.rates_alone, self._rates_like)

    @cached_property
    def reach(self) -> Tensor:
        """The sum `[C, 1]` of the weights with which the directions of each client's SGD steps enter its update.

        Without momentum it is the sum of the rates. Raises `SettingError` if there is no such sum.
        """
        self.local.check_divides(MEAN_DIRECTION)
        if not self.local.momentum:
            return self.columns["lr_sum"]
        return column(reach(self.local, self._method, self.steps), self._like)

    @cached_property
    def columns(self) -> Vectors:
        """The fields of a `LocalRun`, `[C, 1]` each."""
        numbers = {
            "size": self.sizes,
            "steps": self.steps,
            "per_epoch": self.per_epoch,
            "samples": self.samples,
            "lr_sum": self.rates.sum(axis=0),
        }
        return {name: column(values, self._like) for name, values in numbers.items()}


class RoundPlans:
    """Makes the plans of requests to train, each once for the same settings, sizes and amounts.

    `more` are the other arguments of a `RoundPlan`.
    """

    def __init__(self, local: LocalTraining, method: Method, *, seed: int, **more: Any) -> None:
        self._local_at = lru_cache(maxsize=1)(local.at)
        self._method = method
        self._seed = seed
        self._more = more
        # Most rounds repeat the plans of earlier ones. For a small client, plans of its own in every round would take
        # longer than its steps.
        self._kept: dict[tuple[bytes, bytes], RoundPlan] = {}

    def of(self, request: Request, sizes: Ints) -> RoundPlan:
        """The plan of the clients of a request to train, which have `sizes` `[C]` samples."""
        # Schedules count rounds, on a network without rounds the steps of the server.
        finished = request.server_steps
        if finished is None:
            finished = request.round
        local = self._local_at(finished)
        amounts = drawn_amounts(local, request.round, request.ids, self._seed)
        key = (sizes.tobytes(), amounts.tobytes())
        plan = self._kept.get(key)
        if plan is None or plan.local is not local:
            plan = RoundPlan(local, self._method, sizes, amounts, same=plan, **self._more)
            if key not in self._kept and len(self._kept) == KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = plan
        return plan

    def effort(self, request: Request, sizes: Ints) -> Effort:
        """The effort of the clients of a request, which have `sizes` `[C]` samples; none unless they train."""
        if request.job == "train":
            return self.of(request, sizes).effort
        none = np.zeros(len(request.ids), dtype=np.int64)
        return Effort(none, none)


def column(values: Ints | Floats, like: Tensor) -> Tensor:
    """Numbers `[..., C]` as a new tensor `[..., C, 1]`, with the type and the device of `like`."""
    return torch.from_numpy(values.copy()).to(like).unsqueeze(-1)


def whole_passes(local: LocalTraining) -> Batching:
    """How a client's samples are cut into batches where training is counted in whole passes."""
    return replace(local.batching, by_steps=False)


def drawn_amounts(local: LocalTraining, round: int, ids: Ints, seed: int) -> Ints:
    """How many epochs, or steps, each of the clients `ids` `[C]` trains in `round` (from 0), `[C]`."""
    least, most = local.amount_range
    if least == most and local.stragglers == 0:
        return np.full_like(ids, least)
    of_clients = keys(seed, Purpose.WORKLOAD, round, ids)
    for_amount = fractions(fold(of_clients, 0))
    for_straggling = fractions(fold(of_clients, 1))
    for_fewer = fractions(fold(of_clients, 2))
    amounts = least + np.floor(for_amount * (most - least + 1))
    fewer = 1 + np.floor(for_fewer * amounts)
    return np.where(for_straggling < local.stragglers, fewer, amounts).astype(np.int64)


def mean_amount(local: LocalTraining) -> int:
    """The mean number of epochs, or steps, of a client in a round, rounded."""
    mean = sum(local.amount_range) / 2
    mean -= local.stragglers * (mean - 1) / 2
    return max(round(mean), 1)


def reach(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """The sum `[C]` of the weights with which the directions of `steps` `[C]` SGD steps enter a client's update.

    It is how far directions of 1 take a client; without `momentum` that is the sum of the rates.
    """
    return local.lr * _moved(local, method, steps, 0.0)


def normalisers(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """FedNova's normalisers a_i `[C]` of clients that take `steps` `[C]` steps.

    a_i is the sum of the weights, in units of `lr`, with which a client's gradients enter its update. It is how far
    gradients of 1 take a client, with its optimiser's momentum, the method's proximal term, and the schedules within a
    round. Weight decay is left out, as published.
    """
    return _moved(local, method, steps, method.proximal * local.lr)


def _moved(local: LocalTraining, method: Method, steps: Ints, pull: float) -> Floats:
    """How far `steps` `[C]` steps along 1 take each client, in units of `lr`, `[C]`.

    `pull` times that way is added to the direction of each step.
    """
    assert isinstance(local.optimiser, SGD)
    optimiser = replace(local.optimiser, weight_decay=0.0)
    moved = torch.zeros(len(steps), 1, dtype=torch.float64)  # below 0: an optimiser moves against the direction
    moments = optimiser.moments(moved)
    rates = torch.from_numpy(factors(local, method, steps)).unsqueeze(-1)
    for k, rate in enumerate(rates):
        optimiser.advance(moved, moments, 1 + pull * moved, rate, k + 1)
    return -moved[:, 0].numpy()


def factors(local: LocalTraining, method: Method, steps: Ints) -> Floats:
    """The factors `[K, C]` of the schedules within a round on the learning rate of each step; 0 after a client's last.

    They are the product of the factors of the settings' schedule and of the method's own. Raises `SettingError` for
    other factors than finite ones of at least 0.
    """
    k = np.arange(steps.max())[:, None]
    shape = (len(k), len(steps))
    before_end = k < steps
    product = np.ones(shape)
    for schedule in (local.local_schedule, method.local_schedule):
        if schedule is None or type(schedule) is Flat:
            continue
        setting = f"{type(schedule).__name__}.factors"
        returned = np.asarray(schedule.factors(k.copy(), steps.copy()))  # a schedule of one's own may change them
        numbers = returned.dtype.kind in "fiub"
        requirement = f"must be numbers of a shape that fits {list(shape)}"
        check(numbers and _fits(returned.shape, shape), f"{setting}: shape", list(returned.shape), requirement)
        whole = np.broadcast_to(returned, shape)
        used = whole[before_end]
        refused = used[~(np.isfinite(used) & (used >= 0))]
        if refused.size > 0:
            raise SettingError.at(setting, float(refused[0]), "must be finite and at least 0")
        product = product * whole
    return np.where(before_end, product, 0.0)


def _fits(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be broadcast to the larger one."""
    if len(shape) > len(larger):
        return False
    return all(size in (1, whole) for size, whole in zip(shape[::-1], larger[::-1], strict=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPlan:
    """The batches of C clients for up to K local steps of up to B samples.

    - `index` `[K, C, B]`: the indices of training samples;
    - `weights` `[K, C, B]`: 1/b for the b samples of a batch, so that a weighted sum of losses is the mean loss of the
      batch;
    - `count` `[K, C]`: b;
    - `steps` `[C]`: how many steps each client takes.

    Padding follows the b samples. Its `weights` are 0, and its `index` is one of the client's own samples, so that it
    cannot introduce values that are not finite.
    """

    index: Ints
    weights: Tensor
    count: Ints
    steps: Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cut:
    """How the shuffled passes of a workload are cut into batches; equal in all rounds with the same workload.

    A shuffle is an array `[C, passes, longest]`, in which `places` `[passes, longest]` number the draws of each client,
    and `padding` `[C, 1, longest]` is where clients have no sample; None if all have as many. `flat` `[K, C, B]` is
    where the sample of each place of a batch stands in the flattened shuffle. The others are fields of a `BatchPlan`.
    """

    places: NDArray[np.uint64]
    padding: NDArray[np.bool_] | None
    flat: Ints
    weights: Tensor
    count: Ints


def rows_of(ids: Ints, numbers: Ints | None) -> Ints:
    """The rows `[C]` of the clients `ids` `[C]` among those with these `numbers`, ascending; None: 0, 1, 2, ...

    Raises `ValueError` if a client is not among them.
    """
    if numbers is None:
        return ids
    rows = np.searchsorted(numbers, ids)
    present = numbers[np.minimum(rows, len(numbers) - 1)] == ids
    check(bool(present.all()), "clients", ids[~present].tolist(), "their samples are not held here")
    return rows


class Batches:
    """Plans the batches of any clients in any round: a pure function of (seed, purpose, round, the client's number).

    A client's samples are shuffled again in every pass and cut into batches by `batching`. `clients[r]` are the indices
    of the samples of the client in row r. `numbers[r]` is this client's number in the whole federation (None: r); its
    random numbers depend on it, so clients draw the same on every machine. `sizes` `[N]` are the numbers of samples.
    `like` gives the type and device of a plan's weights. All plans have the same `width`, the largest batch of any
    client.
    """

    def __init__(
        self,
        batching: Batching,
        clients: Sequence[Ints],
        *,
        seed: int,
        like: Tensor,
        numbers: Ints | None = None,
        purpose: Purpose = Purpose.BATCHES,
    ) -> None:
        members = Members.of(clients)
        self.sizes = members.sizes
        self.batching = batching
        self._indices = members.flat
        self._numbers = numbers
        self._first = members.ends - self.sizes
        self._seed = seed
        self._like = like
        self._purpose = purpose
        self.width = int(self.sizes.max())
        if batching.batch != "full":
            self.width = min(int(batching.batch), self.width)
        # Most rounds have the workload of an earlier one. To cut a small one anew would take longer than to shuffle.
        self._cut_once = lru_cache(maxsize=8)(self._cut)

    def sizes_of(self, ids: Ints) -> Ints:
        """The numbers of samples `[C]` of these clients; raises `ValueError` if one is not held here."""
        return self.sizes[rows_of(ids, self._numbers)]

    def plan(self, round: int, ids: Ints, work: Workload) -> BatchPlan:
        """The plan of the clients `ids` `[C]`, any of the clients of `round` (from 0), for their workload."""
        cut = self._cut_once(work)
        h = fold(keys(self._seed, self._purpose, round, ids)[:, None, None], cut.places)
        if cut.padding is not None:
            np.copyto(h, np.uint64(LAST), where=cut.padding)
        order = h.argsort(axis=2)  # a permutation for each client and pass; padding comes last
        first = self._first[rows_of(ids, self._numbers)]
        index = self._indices.take(order.take(cut.flat) + first[:, None])
        return BatchPlan(index=index, weights=cut.weights, count=cut.count, steps=work.steps)

    def whole(self, ids: Ints, batch: int) -> BatchPlan:
        """One pass over all samples of the clients `ids` `[C]`, in chunks of `batch`; a client's weights sum to 1."""
        rows = rows_of(ids, self._numbers)
        sizes = self.sizes[rows]
        chunks = -(-sizes // batch)  # rounded up
        most = int(chunks.max())
        position = np.arange(most * batch).reshape(most, 1, batch)
        valid = position < sizes[None, :, None]
        index = self._indices[np.where(valid, position, 0) + self._first[rows][None, :, None]]
        weights = torch.from_numpy(valid / sizes[None, :, None]).to(self._like)
        return BatchPlan(index=index, weights=weights, count=valid.sum(axis=2), steps=chunks)

    def _cut(self, work: Workload) -> _Cut:
        """The cut of the passes of C clients with this workload into K steps of up to B samples."""
        # 1. Step k of a client is batch number `batch` of pass `epoch`, both [K, C]. Its sample b stands at `position`
        #    of the shuffled pass, [K, C, B], unless the batch is smaller or the client takes fewer steps.
        sizes = work.size
        k = np.arange(work.steps.max())[:, None]
        taken = k < work.steps
        epoch, batch = np.divmod(k, work.per_epoch)
        position = (batch * work.batch)[:, :, None] + np.arange(self.width)
        valid = (position < sizes[:, None]) & taken[:, :, None]
        count = valid.sum(axis=2)

        # 2. The shuffle has a place for each client, pass and sample. Draw j of pass p is numbered by p * 2^32 + j, so
        #    a client's draws do not depend on how many samples others have.
        longest = int(sizes.max())
        passes = int(epoch[taken].max()) + 1
        places = (np.arange(passes)[:, None] << 32) + np.arange(longest)
        padding = None
        if sizes.min() < longest:
            padding = np.arange(longest) >= sizes[:, None, None]
        first_of_client = np.arange(len(sizes))[:, None] * passes * longest
        within_client = np.where(valid, epoch[:, :, None] * longest + position, 0)
        return _Cut(
            places=places.astype(np.uint64),
            padding=padding,
            flat=first_of_client + within_client,
            weights=torch.from_numpy(valid / np.maximum(count, 1)[:, :, None]).to(self._like),
            count=count,
        )
