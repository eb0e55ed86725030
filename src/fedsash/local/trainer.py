"""The trainer: it answers requests with the samples of its clients."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Ints, Vectors, first_rows
from ..basics.randomness import Purpose, fold, keys, no_draws, to_tensor
from ..basics.sharing import Sharing
from ..data.encoded import EncodedImages
from ..data.federated import FederatedData
from ..exchange import Effort, Job, Reply, Request, largest_norms
from ..methods import FedAvg, LocalRun, Method, Upload, check_returned
from .batches import Batches, BatchPlan
from .evaluator import ClientEvaluator
from .memory import ClientMemory, Remembered
from .plan import RoundPlan, RoundPlans, whole_passes
from .settings import LocalTraining
from .steps import Draws, Gradient, LocalSteps, StepInputs, Steps

DOING: dict[Job, str] = {
    "train": "training",
    "probe": "probing",
    "evaluate": "evaluating",
    "tune": "fine-tuning",
}
"""What a client does that answers a request, in words."""


class Trainer:
    """Answers requests to the clients whose samples it holds: it trains and probes, its `evaluator` scores.

    It has one method, and the gradients of one engine. `steps` takes the local steps of a request, `steps_alone` those
    of a personal part that first trains by itself. With `normalises` a reply contains FedNova's normalisers.
    """

    def __init__(
        self,
        *,
        method: Method,
        local: LocalTraining,
        data: FederatedData,
        gradient: Gradient,
        evaluator: ClientEvaluator,
        sharing: Sharing,
        seed: int,
        normalises: bool = False,
    ) -> None:
        self.method = method
        self.local = local
        self.evaluator = evaluator
        self.pad_to = 0
        self._data = data
        self._gradient = gradient
        self._sharing = sharing
        self._seed = seed
        self._own_method = type(method).__module__.partition(".")[0] != __name__.partition(".")[0]
        self._like = torch.empty(0, dtype=sharing.layout.dtype, device=data.train.x.device)
        self._memory = ClientMemory(method, local, sharing)
        self._plans = RoundPlans(
            local,
            method,
            seed=seed,
            alone=sharing.personal.alone,
            normalises=normalises,
            like=self._like,
        )
        batches = partial(Batches, clients=data.clients, seed=seed, like=self._like, numbers=data.numbers)
        self.batches = batches(local.batching)
        self._batches_alone = batches(whole_passes(local), purpose=Purpose.ALONE_BATCHES)
        steps = partial(LocalSteps, local=local, gradient=gradient, transform=data.transform)
        # Where a personal part trains by itself, the other steps move the rest alone.
        body = slice(0, sharing.body) if sharing.personal.alone else None
        head = slice(sharing.body, sharing.trained)
        self._local_steps = steps(method=method, layout=sharing.common, moves=body)
        self.steps: Steps = self._local_steps
        head_layout = sharing.layout.between(sharing.body, sharing.trained)
        self.steps_alone: Steps = steps(method=FedAvg(), layout=head_layout, moves=head)

    def stepping(self, steps: Steps, alone: Steps, pad_to: int) -> None:
        """Take the steps by these functions, such as compiled ones, which are given at least `pad_to` clients."""
        self.steps = steps
        self.steps_alone = alone
        self.pad_to = pad_to

    @torch.no_grad()
    def answer(self, request: Request, places: Ints) -> Reply:
        """The reply to a request; `places` `[C]` are the places of its clients in the whole request.

        An exception, for example of the model or the loss, is raised again with a note that names the clients and the
        round.
        """
        try:
            # Draws of a method of one's own from global generators are refused; the library's methods draw none.
            watched = no_draws("Federation.method", self.method) if self._own_method else nullcontext()
            client_state: Vectors = {}
            with watched:
                if request.job == "train":
                    plan = self.plan(request)
                    upload, client_state = self.train(request, plan)
                    effort = plan.effort
                else:
                    upload = self._scores_or_probe(request)
                    effort = self.effort(request)
                norms = largest_norms(upload, client_state, len(places))
        except Exception as error:
            error.add_note(f"while {DOING[request.job]} clients {request.ids.tolist()} in round {request.round + 1}")
            raise
        return Reply(places=places, upload=upload, client_state=client_state, norms=norms, effort=effort)

    def _scores_or_probe(self, request: Request) -> Upload:
        """The uploads `[C, ...]` of a request that is not to train."""
        if request.job == "probe":
            return self.probe(request)
        if request.job == "tune":
            return self.evaluator.tune(request)
        return self.evaluator.evaluate(request)

    def train(self, request: Request, plan: RoundPlan) -> tuple[Upload, Vectors]:
        """Train the clients of a request by its `plan`; returns their uploads and new client state `[C, ...]`, as new
        tensors."""
        # 1. Compiled steps are of one shape: fewer clients are padded by the last one.
        count = len(request.ids)
        if count < self.pad_to:
            request = request.only(np.minimum(np.arange(self.pad_to), count - 1))
            plan = self.plan(request)

        # 2. What clients have: what they remember, and the model that they receive.
        before = self._memory.split(request.own)
        w, statistics = self._received(request, before)
        moments = self._memory.moments(w, before)
        own = w[:, self._sharing.common_size :]
        # Steps change the part that stays with a client; a method's full gradients are at the part as it was received.
        received = own.clone() if self.method.full_gradients and own.shape[1] else None
        run = self._local_run(request, plan, w, before, own if received is None else received)
        batches = self.batches.plan(request.round, request.ids, plan.amounts)
        inputs = StepInputs(
            w=w,
            moments=moments,
            statistics=statistics,
            sent=run.sent,
            rates=plan.rates[:, 0].tolist() if self._gradient.one else plan.step_rates,
            numbers=self._step_numbers(before, 0, len(batches.index)),
            draws=self._draws(request, batches),
            server_state=run.server_state,
            client_state=run.client_state,
            round_state={},
            received=received,
        )

        # 3. The steps: first those of a personal part by itself, then the method's.
        taken = run.steps
        if self._sharing.personal.alone:
            taken = torch.cat([taken, self._train_alone(request, plan, before, inputs)], dim=1)
        round_state = self.method.round_state(run)
        run.round_state = {name: value.contiguous() for name, value in round_state.items()}  # the steps move them
        self.steps(replace(inputs, round_state=run.round_state))

        # 4. What clients send, and what they remember.
        upload, method_state = self.method.upload(run)
        models = w
        if statistics is not None:
            models = torch.cat([w, statistics], dim=1)
            upload = upload | self._sharing.statistics_upload(models, request.sent)
        client_state = self._memory.joined(method_state, moments, models, before, taken)
        check_returned(self.method, "upload", upload, "delta", run.w, client_state, request.own)
        return first_rows(upload, count), first_rows(client_state, count)

    def _train_alone(self, request: Request, plan: RoundPlan, before: Remembered, inputs: StepInputs) -> Tensor:
        """Let the personal part of the clients take its steps alone, in place; returns how many these are, `[C, 1]`."""
        batches = self._batches_alone.plan(request.round, request.ids, self._sharing.personal.alone)
        numbers = self._step_numbers(before, 1, len(batches.index))
        draws = self._draws(request, batches, Purpose.ALONE_STEP)
        rates = plan.rates_alone[:, 0].tolist() if self._gradient.one else plan.column(plan.rates_alone)
        self.steps_alone(replace(inputs, rates=rates, numbers=numbers, draws=draws))
        return plan.column(plan.steps_alone)

    def probe(self, request: Request) -> Upload:
        """The uploads `[C, ...]` of a probe before the training."""
        before = self._memory.split(request.own)
        w, _ = self._received(request, before)
        own = w[:, self._sharing.common_size :]
        return self.method.probe(self._local_run(request, self.plan(request), w, before, own))

    def plan(self, request: Request) -> RoundPlan:
        """How much the clients of a request train, or would train."""
        return self._plans.of(request, self.batches.sizes_of(request.ids))

    def effort(self, request: Request) -> Effort:
        """The effort of the clients of a request; zero unless it asks for training."""
        return self._plans.effort(request, self.batches.sizes_of(request.ids))

    def _received(self, request: Request, before: Remembered) -> tuple[Tensor, Tensor | None]:
        """New copies of what the clients of a request train, `[C, ...]`, and of their statistics, if there are any."""
        trained = self._sharing.trained
        models = request.sent if before.own is None else self._sharing.with_own(request.sent, before.own)
        models = models.expand(len(request.ids), -1)
        w = models[:, :trained].clone(memory_format=torch.contiguous_format)
        if models.shape[1] == trained:
            return w, None
        return w, models[:, trained:].clone(memory_format=torch.contiguous_format)

    def _local_run(self, request: Request, plan: RoundPlan, w: Tensor, before: Remembered, own: Tensor) -> LocalRun:
        """The clients of a request before their first step.

        `w` is what they train. Full gradients are at their `own` parameters, whatever steps do to these.
        """
        common = self._sharing.common_size
        return LocalRun(
            round=request.round,
            w=w if w.shape[1] == common else w[:, :common],
            sent=self._sharing.common_of(request.sent),
            **plan.columns,
            server_state=request.server_state,
            client_state=before.method,
            round_state={},
            layout=self._sharing.common,
            full_grad=partial(self._full_gradient, request, own),
            reach=lambda: plan.column(plan.reach),
        )

    def _full_gradient(self, request: Request, own: Tensor, w: Tensor) -> Tensor:
        """Each client's gradient `[C, S]` at the common parameters `w` `[C, S]` and its `own` `[C, d]`, over all its
        samples, without augmentation, in chunks of a batch."""
        sizes = self.batches.sizes_of(request.ids)
        size = int(sizes.max()) if self.local.batch == "full" else self.local.batch
        draws = self._draws(request, self.batches.whole(request.ids, size))
        whole = torch.cat([w, own], dim=1) if own.shape[1] else w
        return self._local_steps.full_gradient(whole, draws, request.server_state)[:, : w.shape[1]]

    def _draws(self, request: Request, batches: BatchPlan, purpose: Purpose = Purpose.STEP) -> Draws:
        """The draws of these batches, for a single client without padding. Encoded images are decoded ahead of time."""
        batches = batches.client(0) if self._gradient.one else batches
        x = self._data.train.x
        steps = len(batches.index)
        widths = batches.count[:, 0].tolist() if self._gradient.one else [batches.index.shape[2]] * steps
        h = np.zeros(batches.index.shape[:2], dtype=np.uint64)
        if self._gradient.dropout or self._data.transform.augments:
            h = fold(keys(self._seed, purpose, request.round, request.ids), np.arange(steps)[:, None])
        if isinstance(x, EncodedImages):
            x = x.ahead(index[:, :width].reshape(-1) for index, width in zip(batches.index, widths, strict=True))
        return Draws(
            x=x,
            y=self._data.train.y,
            index=torch.from_numpy(batches.index).to(self._like.device),
            weights=batches.weights,
            keys=to_tensor(h, self._like.device),
            widths=widths,
        )

    def _step_numbers(self, before: Remembered, column: int, steps: int) -> list[float] | Tensor | None:
        """The numbers of the next steps, as in `StepInputs`, after those in a column of what clients remember."""
        if not self.local.optimiser.counted:
            return None
        taken = None if before.steps is None else before.steps[:, column : column + 1]
        if self._gradient.one:
            first = 1.0 if taken is None else float(taken) + 1
            return [first + k for k in range(steps)]
        numbers = torch.arange(1, steps + 1).to(self._like)[:, None, None]
        return numbers if taken is None else taken + numbers
