"""The trainer: it answers requests with the samples of its clients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Ints, Vectors, first_rows
from ..basics.randomness import Purpose, fold, keys, no_draws, to_tensor
from ..basics.sharing import OWN, Sharing
from ..data.encoded import EncodedImages
from ..data.federated import FederatedData
from ..exchange import Effort, Reply, Request, largest_norms
from ..methods import FedAvg, LocalRun, Method, Upload, check_upload
from .batches import Batches, BatchPlan
from .client_scorer import ClientScorer
from .memory import ClientMemory, Remembered
from .plan import RoundPlan, RoundPlans, whole_passes
from .settings import LocalTraining
from .steps import Draws, Gradient, LocalSteps, StepInputs, Steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Begun:
    """The training of some clients before its steps, which take `inputs`; the other fields are for its end.

    `request` is what is trained, with `count` clients and then the padding, which remember what was `before`. `taken`
    are the numbers of steps for those who count them.
    """

    request: Request
    count: int
    before: Remembered
    run: LocalRun
    inputs: StepInputs
    taken: Tensor


class Trainer:
    """Answers requests to the clients whose samples it holds, with one method and the gradients of one engine.

    `steps` takes the local steps of a request, `steps_alone` those of a personal part that first trains alone. With
    `normalises` a reply contains FedNova's normalisers. `scorer` scores models, and `tuner` trains the copies that
    clients fine-tune; None leaves them as they are. `crosses` says that a sample's loss depends on the others of its
    batch, so that no batch may be padded.
    """

    def __init__(
        self,
        *,
        method: Method,
        local: LocalTraining,
        data: FederatedData,
        gradient: Gradient,
        scorer: ClientScorer,
        sharing: Sharing,
        seed: int,
        normalises: bool = False,
        tuner: Trainer | None = None,
        crosses: bool = False,
    ) -> None:
        self.method, self.local, self.data, self.gradient = method, local, data, gradient
        self.tuner, self.scorer, self.sharing, self.crosses = tuner, scorer, sharing, crosses
        self._like = torch.empty(0, dtype=sharing.layout.dtype, device=data.train.x.device)
        batches = partial(Batches, clients=data.clients, seed=seed, like=self._like, numbers=data.numbers)
        self.batches = batches(local.batching)
        self._alone = batches(whole_passes(local), purpose=Purpose.ALONE_BATCHES)
        steps = partial(LocalSteps, local=local, gradient=gradient, transform=data.transform)
        body = slice(0, sharing.body) if sharing.personal.alone else None
        self.local_steps = steps(method=method, layout=sharing.common, moves=body)
        self.steps: Steps = self.local_steps
        own, rest = sharing.clients_layout.between(sharing.body, sharing.trained), slice(sharing.body, sharing.trained)
        self.steps_alone: Steps = steps(method=FedAvg(), layout=own, moves=rest)
        self._plans = RoundPlans(
            local,
            method,
            seed=seed,
            alone=sharing.personal.alone,
            normalises=normalises,
            like=self._like,
        )
        self._memory = ClientMemory(method, local, sharing)
        self._seed = seed
        self.pad_to = 0

    def stepping(self, steps: Steps, alone: Steps, pad_to: int) -> None:
        """Take the steps by these functions, such as compiled ones, which are given at least `pad_to` clients."""
        self.steps, self.steps_alone, self.pad_to = steps, alone, pad_to

    @torch.no_grad()
    def answer(self, request: Request, places: Ints) -> Reply:
        """The reply to a request; `places` `[C]` are the places of its clients in the whole request.

        An exception, for example of the model or the loss, is raised again with a note that names the clients and the
        round.
        """
        work, doing = {
            "train": (self.train, "training"),
            "probe": (self.probe, "probing"),
            "evaluate": (self.evaluate, "evaluating"),
            "tune": (self.tune, "fine-tuning"),
        }[request.job]
        try:
            with self._watched():
                return self.reply(request, places, *work(request))
        except Exception as error:
            error.add_note(f"while {doing} clients {request.ids.tolist()} in round {request.round + 1}")
            raise

    def _watched(self) -> AbstractContextManager[None]:
        """Refuses draws of a method of one's own from global generators; the library's methods draw none."""
        if type(self.method).__module__.partition(".")[0] == __name__.partition(".")[0]:
            return nullcontext()
        return no_draws("Federation.method", self.method)

    def reply(self, request: Request, places: Ints, upload: Upload, clients: Vectors) -> Reply:
        """The reply with these uploads and this new client state."""
        norms, effort = largest_norms(upload, clients, len(places)), self.effort(request)
        return Reply(places=places, upload=upload, client_state=clients, norms=norms, effort=effort)

    def train(self, request: Request) -> tuple[Upload, Vectors]:
        """Train the clients of a request; returns their uploads and new client state `[C, ...]`, as new tensors."""
        begun = self.begin(request, self.pad_to)
        self.steps(begun.inputs)
        return self.end(begun)

    def begin(self, request: Request, pad_to: int = 0) -> Begun:
        """The training of a request before its steps; fewer than `pad_to` clients are padded by the last one."""
        count = len(request.ids)
        if count < pad_to:
            request = request.only(np.minimum(np.arange(pad_to), count - 1))
        plan = self.plan(request)
        before = self._memory.split(request.own)
        w, statistics = self._received(request, before)
        own = w[:, self.sharing.common_size :]
        run = self._local_run(request, plan, w, before)
        moments = self._memory.moments(w, before)
        batches = self.batches.plan(request.round, request.ids, plan.amounts)
        inputs = StepInputs(
            w=w,
            moments=moments,
            statistics=statistics,
            sent=run.sent,
            rates=plan.rates[:, 0].tolist() if self.gradient.one else plan.step_rates,
            numbers=self._step_numbers(before, 0, len(batches.index)),
            draws=self._draws(request, batches),
            server_state=run.server_state,
            client_state=run.client_state,
            round_state={},
            received=own.clone() if self.method.full_gradients and own.shape[1] else None,
        )
        taken = run.steps
        if self.sharing.personal.alone:
            taken = torch.cat([taken, self._train_alone(request, plan, before, inputs)], dim=1)
        if inputs.received is not None:
            run.full_grad = partial(self._full_gradient, request, inputs.received)
        rows = self.method.round_state(run).items()
        run.round_state = {name: value.contiguous() for name, value in rows}  # the steps move them
        inputs = replace(inputs, round_state=run.round_state)
        return Begun(request=request, count=count, before=before, run=run, inputs=inputs, taken=taken)

    def end(self, begun: Begun) -> tuple[Upload, Vectors]:
        """The uploads and the new client state of a training whose steps are taken, as new tensors."""
        inputs, request = begun.inputs, begun.request
        upload, kept = self.method.upload(begun.run)
        trained = inputs.w if inputs.statistics is None else torch.cat([inputs.w, inputs.statistics], dim=1)
        upload = upload | self.sharing.statistics_upload(trained, request.sent)
        kept = self._memory.joined(kept, inputs.moments, trained, begun.before, begun.taken)
        check_upload(self.method, upload, kept, request.own, begun.run.w)
        return first_rows(upload, begun.count), first_rows(kept, begun.count)

    def _train_alone(self, request: Request, plan: RoundPlan, before: Remembered, inputs: StepInputs) -> Tensor:
        """Let the personal part of the clients take its steps alone, in place; returns how many these are, `[C, 1]`."""
        batches = self._alone.plan(request.round, request.ids, self.sharing.personal.alone)
        numbers = self._step_numbers(before, 1, len(batches.index))
        draws = self._draws(request, batches, Purpose.ALONE_STEP)
        rates = plan.rates_alone[:, 0].tolist() if self.gradient.one else plan.column(plan.rates_alone)
        self.steps_alone(replace(inputs, rates=rates, numbers=numbers, draws=draws))
        return plan.column(plan.steps_alone)

    def probe(self, request: Request) -> tuple[Upload, Vectors]:
        """The uploads `[C, ...]` of a probe before the training; it gives no new client state."""
        before = self._memory.split(request.own)
        w, _ = self._received(request, before)
        return self.method.probe(self._local_run(request, self.plan(request), w, before)), {}

    def evaluate(self, request: Request) -> tuple[Upload, Vectors]:
        """The scores `[C, k]` of the model on each client's samples, for each split; no new client state.

        A client that keeps entries of the model puts them into the model that it scores.
        """
        rows, own = self.batches.rows(request.ids), request.own.get(OWN)
        if own is None:
            return self.scorer.of_one(request.job, request.sent, rows), {}
        models = (self.sharing.with_own(request.sent, row) for row in own)
        return self.scorer.of_each(request.job, models, rows), {}

    def tune(self, request: Request) -> tuple[Upload, Vectors]:
        """The scores of each client's copy of the model, which it has trained before; no new client state."""
        if self.tuner is None:
            return self.evaluate(request)
        own = {name: rows for name, rows in request.own.items() if name == OWN}
        upload, kept = self.tuner.train(replace(request, server_state={}, client_state=own))
        models = request.sent + self.sharing.model_change(upload["delta"], upload)
        if OWN in kept:
            models = self.sharing.with_own(models, kept[OWN])
        return self.scorer.of_each(request.job, models, self.batches.rows(request.ids)), {}

    def plan(self, request: Request) -> RoundPlan:
        """How much the clients of a request train, or would train."""
        return self._plans.of(request, self.batches.sizes_of(request.ids))

    def effort(self, request: Request) -> Effort:
        """The effort of the clients of a request; zero unless it asks for training."""
        return self._plans.effort(request, self.batches.sizes_of(request.ids))

    def _received(self, request: Request, before: Remembered) -> tuple[Tensor, Tensor | None]:
        """New copies of what the clients of a request train, `[C, ...]`, and of their statistics, if there are any."""
        trained = self.sharing.trained
        w = self.sharing.to_clients(request.sent, before.own).expand(len(request.ids), -1)
        if w.shape[1] == trained:
            return _copied(w), None
        return _copied(w[:, :trained]), _copied(w[:, trained:])

    def _local_run(self, request: Request, plan: RoundPlan, w: Tensor, before: Remembered) -> LocalRun:
        """The clients of a request before their first step; `w` is what they train."""
        common = self.sharing.common_size
        return LocalRun(
            round=request.round,
            w=w if w.shape[1] == common else w[:, :common],
            sent=self.sharing.common_of(request.sent),
            **plan.columns,
            server_state=request.server_state,
            client_state=before.method,
            round_state={},
            layout=self.sharing.common,
            full_grad=partial(self._full_gradient, request, w[:, common:]),
            reach=lambda: plan.column(plan.reach),
        )

    def _full_gradient(self, request: Request, own: Tensor, w: Tensor) -> Tensor:
        """Each client's gradient `[C, S]` at the common parameters `w` `[C, S]` and its `own` `[C, d]`, over all its
        samples, without augmentation, in chunks of a batch."""
        sizes = self.batches.sizes_of(request.ids)
        plan = self.batches.whole(request.ids, int(sizes.max()) if self.local.batch == "full" else self.local.batch)
        draws = self._draws(request, plan)
        whole = torch.cat([w, own], dim=1) if own.shape[1] else w
        return self.local_steps.full_gradient(whole, draws, request.server_state)[:, : w.shape[1]]

    def _draws(self, request: Request, plan: BatchPlan, purpose: Purpose = Purpose.STEP) -> Draws:
        """The draws of a plan, for a single client without padding. Encoded images are decoded ahead of time."""
        plan = plan.client(0) if self.gradient.one else plan
        x, steps = self.data.train.x, len(plan.index)
        widths = plan.count[:, 0].tolist() if self.gradient.one else [plan.index.shape[2]] * steps
        h = np.zeros(plan.index.shape[:2], dtype=np.uint64)
        if self.gradient.dropout or self.data.transform.augments:
            h = fold(keys(self._seed, purpose, request.round, request.ids), np.arange(steps)[:, None])
        if isinstance(x, EncodedImages):
            x = x.ahead(index[:, :width].reshape(-1) for index, width in zip(plan.index, widths, strict=True))
        return Draws(
            x=x,
            y=self.data.train.y,
            index=torch.from_numpy(plan.index).to(self._like.device),
            weights=plan.weights,
            keys=to_tensor(h, self._like.device),
            widths=widths,
        )

    def _step_numbers(self, before: Remembered, column: int, steps: int) -> list[float] | Tensor | None:
        """The numbers of the next steps, as in `StepInputs`, after those in a column of what clients remember."""
        if not self.local.optimiser.counted:
            return None
        taken = None if before.steps is None else before.steps[:, column : column + 1]
        if self.gradient.one:
            first = 1.0 if taken is None else float(taken) + 1
            return [first + k for k in range(steps)]
        numbers = torch.arange(1, steps + 1).to(self._like)[:, None, None]
        return numbers if taken is None else taken + numbers


def _copied(rows: Tensor) -> Tensor:
    """A copy of rows, each in memory of its own."""
    return rows.clone(memory_format=torch.contiguous_format)
