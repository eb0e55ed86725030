"""The work of an executor, as values that can be sent to another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ..client import Batch, ClientEvaluator, ClientMemory, LocalTraining, RoundPlan, RoundPlans, Trainer, fine_tuned
from ..client.messages import Reply, Request
from ..client.store import StateRows
from ..data.federated import FederatedData, Problem
from ..data.inputs import ModelInput, call, each
from ..evaluation import FineTuning, Goal, Scorer, SplitsOf
from ..evaluation.first_batch import last_linear, tried
from ..methods import Aggregation, FedAvg, Method, WeightedMean
from ..methods.base import Effort, Weighting
from ..methods.rules import check_guard
from ..settings.errors import SettingError, check, one_line
from ..tasks import Classification
from ..vector.arrays import Ints, check_tensors
from ..vector.layout import Layout
from ..vector.norms import for_training
from ..vector.randomness import Purpose, draws_kept, key
from ..vector.sharing import Sharing
from ..vector.spaces import ClientState, CommonPart, Download, ServerState, WholeModel
from .dropout import draws_dropout
from .gradients import MemoryFormat, OneByOne, Precision, Stacked

PAIRS = 3
"""So many pairs of samples show whether the samples of a batch depend on each other."""
PADDING = 16
"""So many others of its client, and so many of its label, pad a pair."""


def first_memory(method: Method, local: LocalTraining, sharing: Sharing, w: WholeModel) -> ClientState:
    """What a client remembers before its first round, given the initial model `w` `[D]`: nothing, or vectors."""
    return ClientMemory(method, local, sharing).first(w)


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """All that an executor must know of a federation, except the samples.

    `batch` is how many samples pass through a model at once in an evaluation. `asked` are the splits that clients
    score. `sample` are the clients of each of the first rounds, for a measurement of the speed.
    """

    module: nn.Module
    problem: Problem
    goal: Goal
    method: Method
    local: LocalTraining
    aggregation: Aggregation
    sharing: Sharing
    seed: int
    batch: int
    asked: SplitsOf
    fine_tuning: FineTuning | None
    sample: tuple[Ints, ...]

    def __post_init__(self) -> None:
        """Refuse a `weighting` that there is not, and a guard that gives no positions.

        Refuse a method that `needs_classes` where the last linear layer does not give them.
        """
        weighting = self.method.weighting
        requirement = "must be 'samples' or 'uniform'"
        check(weighting in get_args(Weighting), f"{type(self.method).__name__}.weighting", weighting, requirement)
        check_guard(self.aggregation)
        if not self.method.needs_classes:
            return
        name = type(self.method).__name__
        task = self.problem.task
        requirement = f"{name} needs one class for each sample: take the task Classification or another method"
        check(isinstance(task, Classification), "task", type(task).__name__, requirement)
        linear = [(path, layer) for path, layer in self.module.named_modules() if isinstance(layer, nn.Linear)]
        if not linear:
            return
        path, last = linear[-1]
        requirement = f"{name} trains the last linear layer, which is frozen here: unfreeze it or take another method"
        check(path == Layout(self.module).classifier, "model", path, requirement)
        outputs = f"{last.out_features} outputs for {self.problem.classes} classes"
        requirement = f"{name} trains the last linear layer, which has {outputs}: define the classifier last"
        check(last.out_features >= self.problem.classes, "model", path, requirement)

    @property
    def tuning(self) -> Training | None:
        """The training of clients that fine-tune a model before they score it, with draws of its own; or None.

        They follow the plain gradient: what a method remembers belongs to its training, and not to an average. A
        personal part trains together with the rest.
        """
        if self.fine_tuning is None or not self.fine_tuning.trains:
            return None
        return replace(
            self,
            method=FedAvg(),
            aggregation=WeightedMean(),
            local=fine_tuned(self.local, self.fine_tuning),
            sharing=self.sharing.together,
            seed=key(self.seed, Purpose.FINE_TUNING),
            asked={},
            fine_tuning=None,
        )

    def samples(self, sizes: Ints) -> Ints:
        """How many samples clients of these `sizes` `[N]` pass over in a whole training, `[N]`."""
        return self.mean_plan(sizes).all_samples

    def mean_plan(self, sizes: Ints) -> RoundPlan:
        """How much clients of these `sizes` `[N]` train in a round, by the mean amount."""
        return RoundPlan.mean(self.local, self.method, sizes, alone=self.sharing.personal.alone)

    def effort(self, request: Request, sizes: Ints) -> Effort:
        """The effort of the clients of a request, which have `sizes` `[s]` samples; none unless they train."""
        plans = RoundPlans(
            self.local,
            self.method,
            seed=self.seed,
            alone=self.sharing.personal.alone,
            normalises=self.aggregation.normalises,
        )
        return plans.effort(request, sizes)

    @property
    def memory(self) -> ClientMemory:
        """What clients remember."""
        return ClientMemory(self.method, self.local, self.sharing)

    def first(self, ids: Ints) -> Request:
        """A request to train the clients `ids` `[s]` in round 0 from the initial model, before any probe."""
        w = WholeModel(self.sharing.layout.flatten(self.module))
        common = self.sharing.common_of(w)
        start = ServerState(self.method.server_state(common, self.sharing.common))
        sent, download = self.method.send(common, start, 0)
        check_tensors(self.method, "send", download)
        client_state = ClientState({})
        for name, value in self.memory.first(w).items():
            client_state[name] = value.expand(len(ids), *value.shape).clone()
        return Request(
            job="train",
            round=0,
            ids=ids,
            sent=self.sharing.with_common(CommonPart(sent), w),
            server_state=Download(download),
            clients=StateRows(client_state),
        )

    def check_picklable(self, dumps: Callable[[Any], bytes] = pickle.dumps) -> None:
        """Raise `SettingError` if a part can't be pickled by `dumps`, and so can't be sent to another process."""
        parts = vars(self.goal) | vars(self.problem) | vars(self)
        for name, part in parts.items():
            try:
                dumps(part)
            except Exception as error:  # its class depends on the object
                requirement = f"can't be sent to another process ({one_line(error)}): define it at the top of a module"
                raise SettingError.at(f"Federation.{name}", part, requirement) from error


@dataclass(frozen=True, eq=False)
class ClientWork:
    """A training, and the samples on this machine."""

    training: Training
    data: FederatedData

    def __post_init__(self) -> None:
        """Refuse a method that `needs_classes` if the model uses another linear layer after the one defined last."""
        t = self.training
        if not t.method.needs_classes:
            return
        defined = Layout(t.module).classifier
        used, shape = last_linear(t.module, t.problem, self.data.train)
        trained = f"{type(t.method).__name__} trains the linear layer that is defined last"
        requirement = f"{trained}, and the model uses {used!r} after it: define that one last"
        check(used in ("", defined), "model", defined, requirement)
        requirement = f"{trained}, and needs one output [B, classes] of it; here it is {shape} for two samples"
        check(len(shape) in (0, 2), "model", defined, requirement)

    def trainer(
        self, *, stacked: bool = False, memory_format: MemoryFormat = "contiguous", precision: Precision = "full"
    ) -> Trainer:
        """A trainer of one client at a time, or of stacked clients.

        Raises `RuntimeError` if the model or the loss can't be stacked.
        """
        if stacked:
            self.check_stackable()
        t = self.training
        tuner = None
        tuning = t.tuning
        if tuning is not None:
            work = replace(self, training=tuning)
            tuner = work.trainer(stacked=stacked, memory_format=memory_format, precision=precision)
        gradient_class: type[Stacked | OneByOne] = OneByOne
        if stacked:
            gradient_class = Stacked
        gradient = gradient_class(
            module=t.module,
            layout=t.sharing.layout,
            loss=t.goal.loss,
            method=t.method,
            memory_format=memory_format,
            precision=precision,
            dropout=self.draws_dropout,
            changes_input=self.changes_input,
        )
        scorer = Scorer(t.module, t.sharing.layout, t.goal, t.problem, t.batch)
        return Trainer(
            method=t.method,
            local=t.local,
            data=self.data,
            gradient=gradient,
            evaluator=ClientEvaluator(scorer, self.data, t.asked, t.sharing, tuner),
            sharing=t.sharing,
            seed=t.seed,
            normalises=t.aggregation.normalises,
        )

    def check_stackable(self) -> None:
        """Raise `RuntimeError` if stacked clients would learn something else than each alone.

        Their batches are padded with samples of weight 0, unless all batches of all clients are full.
        """
        if self._crosses and not self._full:
            raise RuntimeError("a sample's loss depends on the others of its batch")

    @property
    def _full(self) -> bool:
        """Whether all batches are full: clients have as many samples, in as many steps, and a pass leaves none over."""
        local = self.training.local
        sizes = self.data.sizes
        most = int(sizes.max())
        if not local.equal or sizes.min() < most:
            return False
        if local.batch == "full":
            return True
        left_over = most % min(int(local.batch), most)
        drops = local.drop_last and not self.training.method.full_gradients  # which are over all samples
        return left_over == 0 or drops

    @cached_property
    def _crosses(self) -> bool:
        """Whether the gradient of two samples changes by more than rounding if others of the weight 0 follow them.

        Several pairs are tried: by a maximum or by the means of classes, for instance, a sample depends on few others.
        """
        t = self.training
        layout = t.sharing.layout
        samples = self.data.train
        w = layout.flatten(t.module)[: layout.trained].unsqueeze(0)
        server_state = Download({})
        if "objective" in t.method.overridden:  # nothing else of the gradient needs it
            request, _ = self.first(self.trainer(), self.numbers[:1])
            server_state = request.server_state
        gradient = Stacked(
            module=t.module,
            layout=layout,
            loss=t.goal.loss,
            method=t.method,
            memory_format="contiguous",
            precision="full",
            dropout=self.draws_dropout,
            changes_input=self.changes_input,
        )

        def gradient_over(index: Ints, real: int) -> Tensor:
            """The gradient over these samples, of which all but the first `real` ones have the weight 0."""
            rows = torch.from_numpy(index).to(samples.y.device)
            inputs = self.data.transform.inputs(samples.x[rows], layout.dtype)
            weights = (torch.arange(len(index), device=w.device) < real).to(w.dtype) / real
            batch = Batch(
                x=each(inputs, lambda tensor: tensor.unsqueeze(0)),
                y=samples.y[rows].unsqueeze(0),
                weights=weights.unsqueeze(0),
                keys=torch.zeros(1, dtype=torch.int64, device=w.device),
            )
            return gradient(w, batch, server_state)

        def differ(one: Tensor, other: Tensor) -> bool:
            rounding = torch.finfo(w.dtype).eps ** 0.5 * one.norm()
            return bool(one.isfinite().all() and (other - one).norm() > rounding)

        first = self.data.clients[0][:2]
        copy_added = np.concatenate([first, first[:1]])
        if differ(gradient_over(first, len(first)), gradient_over(copy_added, len(first))):
            return True
        largest = np.argsort(-self.data.sizes, kind="stable")[:PAIRS]
        for client in largest.tolist():
            pair = self.data.clients[client][:2]
            others = self._padding_of(client)
            copies = np.repeat(pair[:1], len(others))  # as many, since rounding depends on the size of a batch
            padded = [gradient_over(np.concatenate([pair, padding]), len(pair)) for padding in (copies, others)]
            if differ(*padded):
                return True
        return False

    def _padding_of(self, client: int) -> Ints:
        """Samples to pad the client's first two with: others of the client, also of the first one's label.

        Those of other clients are never in one batch with them.
        """
        labels = self.data.train.y
        first = self.data.clients[client][0]
        others = self.data.clients[client][2:]
        padding = others[:PADDING]
        if labels.dim() == 1:
            alike = labels[torch.from_numpy(others).to(labels.device)] == labels[first]
            padding = np.concatenate([padding, others[alike.cpu().numpy()][:PADDING]])
        return padding

    def first(self, trainer: Trainer, ids: Ints) -> tuple[Request, Reply | None]:
        """The first request to the clients `ids` `[s]` (see `Training.first`), and their reply to a probe.

        The reply is None if the method has no probe.
        """
        request = self.training.first(ids)
        if "probe" not in self.training.method.overridden:
            return request, None
        probe = replace(request, job="probe", server_state=Download({}))
        probed = trainer.answer(probe, np.arange(len(ids)))
        means = {name: rows.mean(0) for name, rows in probed.upload.items()}
        after = replace(request, server_state=Download(request.server_state | means))
        return after, probed

    @cached_property
    def draws_dropout(self) -> bool:
        """Whether the model or the loss draws, as dropout does; it is tested on a first batch."""
        model = for_training(self.training.module)
        loss = self.training.goal.loss
        x, y = self._first_batch()
        return draws_dropout(lambda: loss(call(model, x), y))

    @cached_property
    def changes_input(self) -> bool:
        """Whether the model changes its input in place; it is tested on a first batch."""
        model = for_training(self.training.module)
        x, _ = self._first_batch()
        tensors = [x] if isinstance(x, Tensor) else list(x.values())
        before = [tensor._version for tensor in tensors]
        with torch.no_grad(), draws_kept():
            call(model, x)
        return before != [tensor._version for tensor in tensors]

    def _first_batch(self) -> tuple[ModelInput, Tensor]:
        """The model's input and the labels for some samples of a largest client, the same one twice if it has only one.

        Some models draw only where a batch has several samples, as mixup does, and one sample has no statistics.
        """
        samples = self.data.train
        indices = self.data.clients[int(self.data.sizes.argmax())][: tried(self.training.local.batch)]
        if len(indices) == 1:
            indices = indices.repeat(2)
        index = torch.from_numpy(indices).to(samples.y.device)
        x = self.data.transform.inputs(samples.x[index], self.training.sharing.layout.dtype)
        return x, samples.y[index]

    @property
    def numbers(self) -> Ints:
        """The numbers of the clients whose samples are on this machine, ascending."""
        if self.data.numbers is None:
            return np.arange(len(self.data.clients))
        return self.data.numbers

    @property
    def steps(self) -> Ints:
        """The number of local steps of each of these clients in a round."""
        return self.training.mean_plan(self.data.sizes).all_steps

    @property
    def on_cpu(self) -> bool:
        """Whether the data, and so the training, are on the CPU."""
        return self.data.train.x.device.type == "cpu"

    @property
    def images(self) -> bool:
        """Whether the samples are images, for which there are two memory formats."""
        return self.data.train.x.ndim == 4

    @property
    def model_bytes(self) -> int:
        """The size of one model vector in bytes."""
        layout = self.training.sharing.layout
        return layout.size * layout.dtype.itemsize
