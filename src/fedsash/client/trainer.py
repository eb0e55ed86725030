"""The trainer: it answers requests with the samples of its clients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..data.encoded import EncodedImages
from ..data.federated import FederatedData
from ..methods import FedAvg, LocalRun, Method, check_returned
from ..methods.base import Effort
from ..settings.errors import ModelError
from ..settings.hooks import is_of_library
from ..vector.arrays import Ints, check_rows, check_tensors, first_rows, unshared
from ..vector.randomness import UNFORESEEN_DRAWS, Purpose, fold, keys, no_draws_in_hooks, to_tensor, torch_generators
from ..vector.sharing import Sharing
from ..vector.spaces import ClientState, Uploaded, WholeModel
from .evaluator import ClientEvaluator
from .memory import ClientMemory, ClientStateParts
from .messages import SCORES, Job, Reply, Request, largest_norms
from .plan import Batches, BatchPlan, RoundPlan, RoundPlans, column, whole_passes
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
        hooks = {
            "Federation.method": method,
            "LocalTraining.optimiser": local.optimiser,
            "LocalTraining.local_schedule": local.local_schedule,
        }
        self._no_draws = no_draws_in_hooks(hooks, seeded=gradient.dropout)
        self._checks_hooks = not is_of_library(method)
        self._like = torch.empty(0, dtype=sharing.layout.dtype, device=data.train.x.device)
        self._unseeded: list[torch.Generator] = []
        if not gradient.dropout:  # nobody seeds them for a model that was not seen to draw
            self._unseeded = torch_generators(self._like.device)
        self._counts_steps = local.optimiser.counted
        self._draws_keys = gradient.dropout or data.transform.augments
        # Steps change the part that stays with a client; gradients at the received model are at that part as received.
        self._keeps_received = sharing.trained > sharing.common_size
        self._memory = ClientMemory(method, local, sharing)
        self._plans = RoundPlans(
            local,
            method,
            seed=seed,
            alone=sharing.personal.alone,
            normalises=normalises,
            like=self._like,
            exact=gradient.one,
        )
        batches = partial(Batches, clients=data.clients, seed=seed, like=self._like, numbers=data.numbers)
        self.batches = batches(local.batching)
        self._batches_alone = batches(whole_passes(local), purpose=Purpose.ALONE_BATCHES)
        steps = partial(
            LocalSteps,
            local=local,
            gradient=gradient,
            transform=data.transform,
            prepares=data.transform.prepares(data.train.x, self._like.dtype),
        )
        # Where a personal part trains by itself, the other steps move the rest alone.
        body = None
        if sharing.personal.alone:
            body = slice(0, sharing.body)
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
        client_state = ClientState({})
        states = [generator.get_state() for generator in self._unseeded]
        try:
            with self._no_draws():
                if request.job == "train":
                    plan = self.plan(request)
                    upload, client_state = self.train(request, plan)
                    effort = plan.effort
                else:
                    upload = self._scores_or_probe(request)
                    effort = self.effort(request)
                norms = largest_norms(upload, client_state, len(places))
            for generator, state in zip(self._unseeded, states, strict=True):
                if not torch.equal(generator.get_state(), state):
                    raise ModelError(UNFORESEEN_DRAWS)
        except Exception as error:
            error.add_note(f"while {DOING[request.job]} clients {request.ids.tolist()} in round {request.round + 1}")
            raise
        return Reply(places=places, upload=upload, client_state=client_state, norms=norms, effort=effort)

    def _scores_or_probe(self, request: Request) -> Uploaded:
        """The uploads `[C, ...]` of a request that is not to train."""
        if request.job == "probe":
            return self.probe(request)
        if request.job == "tune":
            return self.evaluator.tune(request)
        return self.evaluator.evaluate(request)

    def train(self, request: Request, plan: RoundPlan) -> tuple[Uploaded, ClientState]:
        """Train the clients of a request by its `plan`; returns their uploads and new client state `[C, ...]`, as new
        tensors."""
        # 1. Compiled steps are of one shape: fewer clients are padded by the last one.
        count = len(request.ids)
        padded = count < self.pad_to
        if padded:
            request = request.only(np.minimum(np.arange(self.pad_to), count - 1))
            plan = self.plan(request)

        # 2. What clients have: what they remember, the model that they receive, and their batches.
        before = self._memory.split(request.clients.own)
        run, w, statistics, received = self._begin(request, plan, before)
        moments = self._memory.moments(w, before)
        batches = self.batches.plan(request.round, request.ids, plan.work)
        numbers = None
        if self._counts_steps:
            numbers = self._step_numbers(before, 0, len(batches.index))
        inputs = StepInputs(
            w=w,
            moments=moments,
            statistics=statistics,
            sent=run.sent,
            rates=plan.step_rates,
            numbers=numbers,
            draws=self._draws(request, batches),
            server_state=run.server_state,
            client_state=run.client_state,
            round_state=run.round_state,
            received=received,
        )

        # 3. The steps: first those of a personal part by itself, then the method's.
        taken = run.steps
        if self._sharing.personal.alone:
            self._train_alone(request, plan, before, inputs)
            taken = torch.cat([taken, column(plan.steps_alone, self._like)], dim=1)
        round_state = self.method.round_state(run)
        if self._checks_hooks:
            check_tensors(self.method, "round_state", round_state)
            of_others = [run.w, run.sent, *run.server_state.values(), *run.client_state.values()]
            round_state = unshared(round_state, of_others)
        for name, value in round_state.items():
            run.round_state[name] = value.contiguous()  # the steps move them
        self.steps(inputs)

        # 4. What clients send, and what they remember.
        upload, method_state = self.method.upload(run)
        if self._checks_hooks:
            check_rows(self.method, "upload", upload, len(w))
        models = WholeModel(w)
        if statistics is not None:
            models = WholeModel(torch.cat([w, statistics], dim=1))
            upload = upload | self._sharing.statistics_upload(models, request.sent)
        client_state = self._memory.joined(method_state, moments, models, before, taken)
        check_returned(self.method, "upload", upload, "delta", run.w, client_state, request.clients.own)
        if padded:
            return Uploaded(first_rows(upload, count)), ClientState(first_rows(client_state, count))
        return Uploaded(upload), client_state

    def _train_alone(self, request: Request, plan: RoundPlan, before: ClientStateParts, inputs: StepInputs) -> None:
        """Let the personal part of the clients take its steps alone, in place."""
        batches = self._batches_alone.plan(request.round, request.ids, plan.work_alone)
        numbers = None
        if self._counts_steps:
            numbers = self._step_numbers(before, 1, len(batches.index))
        draws = self._draws(request, batches, Purpose.ALONE_STEP)
        self.steps_alone(replace(inputs, rates=plan.step_rates_alone, numbers=numbers, draws=draws))

    def probe(self, request: Request) -> Uploaded:
        """The uploads `[C, ...]` of a probe before the training."""
        run, *_ = self._begin(request, self.plan(request), self._memory.split(request.clients.own))
        upload = self.method.probe(run)
        if self._checks_hooks:
            check_rows(self.method, "probe", upload, len(request.ids))
        return Uploaded(upload)

    def plan(self, request: Request) -> RoundPlan:
        """How much the clients of a request train, or would train."""
        return self._plans.of(request, self.batches.sizes_of(request.ids))

    def costs(self, request: Request) -> Ints:
        """How long each client of a request takes, `[C]`, beside the others: its steps, or its samples to be scored.

        An evaluation follows the last round, for which there may be no learning rate.
        """
        if request.job in SCORES:
            return self.batches.sizes_of(request.ids)
        return self.plan(request).all_steps

    def effort(self, request: Request) -> Effort:
        """The effort of the clients of a request; zero unless it asks for training."""
        return self._plans.effort(request, self.batches.sizes_of(request.ids))

    def _begin(
        self, request: Request, plan: RoundPlan, before: ClientStateParts
    ) -> tuple[LocalRun, Tensor, Tensor | None, Tensor | None]:
        """The clients of a request before their first step: as a method sees them, and as new tensors `[C, ...]` what
        they train, their statistics, and their personal part as they received it; None if nothing stays."""
        sharing = self._sharing
        models = request.sent
        if before.own is not None:
            models = sharing.with_own(models, before.own)
        models = WholeModel(models.expand(len(request.ids), -1))
        trained = sharing.layout.trained
        w = models[:, :trained].clone(memory_format=torch.contiguous_format)
        common = w
        if trained != sharing.common_size:
            common = w[:, : sharing.common_size]
        statistics = None
        if models.shape[1] > trained:
            statistics = models[:, trained:].clone(memory_format=torch.contiguous_format)
        received = None
        if self._keeps_received:
            received = w[:, sharing.common_size :].clone()
        run = LocalRun(
            round=request.round,
            w=common,
            sent=sharing.common_of(request.sent),
            **plan.columns,
            server_state=request.server_state,
            client_state=before.method,
            round_state={},
            layout=sharing.common,
            full_grad=partial(self._full_gradient, request, received),
            reach=lambda: plan.reach,
        )
        return run, w, statistics, received

    def _full_gradient(self, request: Request, received: Tensor | None, w: Tensor) -> Tensor:
        """Each client's gradient `[C, S]` at the common parameters `w` `[C, S]`, over all its samples, without
        augmentation, in chunks of a batch. The others are as they were `received`."""
        chunk = self.local.batch
        if chunk == "full":
            chunk = int(self.batches.sizes_of(request.ids).max())
        draws = self._draws(request, self.batches.whole(request.ids, chunk))
        common_size = w.shape[1]
        if received is not None:
            w = torch.cat([w, received], dim=1)
        return self._local_steps.full_gradient(w, draws, request.server_state)[:, :common_size]

    def _draws(self, request: Request, batches: BatchPlan, purpose: Purpose = Purpose.STEP) -> Draws:
        """The draws of these batches. A single client's steps leave the padding out. Encoded images are decoded ahead
        of time."""
        x = self._data.train.x
        device = self._like.device
        steps, clients, width = batches.index.shape
        widths = [width] * steps
        if self._gradient.one:
            widths = batches.count[:, 0].tolist()
        if isinstance(x, EncodedImages):
            x = x.ahead(index[:, :width].reshape(-1) for index, width in zip(batches.index, widths, strict=True))
        if self._draws_keys:
            of_clients = keys(self._seed, purpose, request.round, request.ids)
            of_steps = to_tensor(fold(of_clients, np.arange(steps)[:, None]), device)
        else:
            of_steps = torch.zeros(steps, clients, dtype=torch.int64, device=device)
        return Draws(
            x=x,
            y=self._data.train.y,
            index=torch.from_numpy(batches.index).to(device),
            weights=batches.weights,
            keys=of_steps,
            widths=widths,
        )

    def _step_numbers(self, before: ClientStateParts, place: int, steps: int) -> Tensor:
        """The numbers of the next steps, as in `StepInputs`, after those at a place of what clients remember."""
        numbers = torch.arange(1, steps + 1).to(self._like)[:, None, None]
        if before.steps is None:
            return numbers
        return before.steps[:, place : place + 1] + numbers
