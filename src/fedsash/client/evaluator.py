"""How clients evaluate a model on their own samples, as it is or after they have fine-tuned a copy of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..data.federated import FederatedData
from ..data.samples import Samples
from ..evaluation import FineTuning, Scorer, Split, SplitsOf
from ..evaluation.settings import scored
from ..methods.schedules import Constant, Schedule
from ..vector.arrays import Ints, Vectors, joined
from ..vector.sharing import OWN, Sharing
from ..vector.spaces import ClientState, CommonPart, Download, Uploaded, WholeModel
from .messages import SCORES, Job, Request
from .plan import rows_of
from .settings import LocalTraining
from .store import StateRows


@dataclass(frozen=True)
class _Rates(Schedule):
    """The learning rates of another schedule in the round before, which made the model; its epochs are left out."""

    of: Schedule

    def lr(self, t: int, lr: float) -> float:
        return self.of.lr(max(t - 1, 0), lr)


def fine_tuned(local: LocalTraining, tuning: FineTuning) -> LocalTraining:
    """The local training of clients that fine-tune a model: all by the same amount, from new moments."""
    lr = local.lr
    schedule: Schedule = _Rates(local.schedule)
    if tuning.lr is not None:
        lr = tuning.lr
        schedule = Constant()
    return replace(
        local,
        lr=lr,
        schedule=schedule,
        epochs=tuning.epochs,
        steps=tuning.steps,
        stragglers=0.0,
        keep_moments=False,
    )


if TYPE_CHECKING:  # a trainer has an evaluator
    from .trainer import Trainer

NO_ROWS = np.empty(0, dtype=np.int64)


class ClientEvaluator:
    """Scores models on the samples of clients, in each job of an evaluation on its `splits`.

    `tuner` trains the copies that clients fine-tune; without one they score the model as it is.
    """

    def __init__(
        self,
        scorer: Scorer,
        data: FederatedData,
        splits: SplitsOf,
        sharing: Sharing,
        tuner: Trainer | None = None,
    ) -> None:
        self.tuner = tuner
        self._scorer = scorer
        self._splits = splits
        self._sharing = sharing
        self._numbers = data.numbers
        test = data.test
        if test is None:
            test = data.train
        self._samples: dict[Split, tuple[Samples, Sequence[Ints]]] = {
            "held_out": (data.train, data.held),
            "client_test": (test, data.client_test),
            "clients": (data.train, data.clients),
        }

    def evaluate(self, request: Request) -> Uploaded:
        """The scores `[C, k]` of the model on each client's samples, for each split.

        A client that keeps entries of the model puts them into the model that it scores.
        """
        parts = request.clients.own.get(OWN)
        if parts is None:
            return self._scores(request.job, request.sent, rows_of(request.ids, self._numbers))
        models = (self._sharing.with_own(request.sent, part) for part in parts)  # one at a time in memory
        return self._scores_of_each(request, models)

    def tune(self, request: Request) -> Uploaded:
        """The scores `[C, k]` of each client's copy of the model, which it has trained before."""
        if self.tuner is None:
            return self.evaluate(request)
        # The tuner starts from the client's part of the model, and from nothing else that the client remembers.
        part = ClientState({name: rows for name, rows in request.clients.own.items() if name == OWN})
        training = replace(request, server_state=Download({}), clients=StateRows(part))
        upload, client_state = self.tuner.train(training, self.tuner.plan(training))
        change = self._sharing.model_change(CommonPart(upload["delta"]), upload)
        models = WholeModel(request.sent + change)
        if OWN in client_state:
            models = self._sharing.with_own(models, client_state[OWN])
        return self._scores_of_each(request, models)

    def shapes(self, w: Tensor) -> dict[Job, Vectors]:
        """Scores `[1, k]` of the model `w` `[D]` for each job, with the names and lengths of what clients send."""
        shapes: dict[Job, Vectors] = {}
        if not self._splits:
            return shapes
        samples, _ = self._samples["clients"]
        scores = self._scorer.scores(w, samples, [NO_ROWS])
        for job in SCORES:
            if job not in self._splits:
                continue
            shapes[job] = {}
            for split in self._splits[job]:
                for name, sums in scores.items():
                    shapes[job][scored(split, name)] = torch.from_numpy(sums)
        return shapes

    def _scores(self, job: Job, w: Tensor, rows: Ints) -> Uploaded:
        """The scores `[C, k]` of one model `w` `[D]` on the samples of the clients in these rows, split by split."""
        upload = Uploaded({})
        for split in self._splits[job]:
            samples, indices = self._samples[split]
            of_clients = [NO_ROWS] * len(rows)
            if len(indices):
                of_clients = [indices[row] for row in rows]
            scores = self._scorer.scores(w, samples, of_clients)
            for name, sums in scores.items():
                upload[scored(split, name)] = torch.from_numpy(sums)
        return upload

    def _scores_of_each(self, request: Request, models: Iterable[Tensor]) -> Uploaded:
        """The scores `[C, k]` of each client's own model `[D]` on its samples."""
        rows = rows_of(request.ids, self._numbers)
        of_each: list[Vectors] = []
        for w, row in zip(models, np.split(rows, len(rows)), strict=True):
            of_each.append(self._scores(request.job, w, row))
        return Uploaded(joined(of_each))
