"""The mean of some of a round's client models, beside the ensemble of their answers (IMA, Lemma 1 and Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ...data.samples import Samples
from ...runs.pictures import Axis, Panel, Picture, Points
from ...settings.errors import check_count
from .client_models import ClientModels
from .client_studies import ORDERS, ROUNDS, SEED, by_number, by_round, check_classes, over_orders, shared_rounds
from .decomposition import likeness, probabilities
from .opened import OpenRun
from .outputs import spread
from .study import Findings, OnProgress, Rows, Study, number, option, share, split_in_words, times, unseen

NUMBERS = {"mean": "error of\nthe mean", "ensemble": "of the\nensemble", "gap": "gap", "distance": "distance"}
"""The numbers of K models, each with its head in a table."""


@dataclass(frozen=True)
class EnsembleStudy(Study):
    """The error of the mean of 1, 2, ... of a round's client models, and of the ensemble of their answers.

    The clients of the round after each of the saved `rounds` (None: all) train again. For K of them, with models w_k,
    weights p_k of sum 1, and probabilities f(x; w_k),

        w_FMA = sum_k p_k w_k                               the mean of the models
        f_WENS(x) = sum_k p_k f(x; w_k)                     the ensemble of their answers
        gap = mean over x of ||f_WENS(x) - f(x; w_FMA)||    O(distance^2) (IMA, Lemma 1)
        distance = max_k ||w_k - w_FMA||

    Errors are shares of wrong answers on `samples` (None: all) of a `split`. Each number is the mean over the first K
    clients in `orders` random orders, which `seed` draws. `cka` is the linear CKA of two clients' probabilities, as the
    mean over all pairs of the round. Raises `ValueError` for a task other than classification.
    """

    kinds: ClassVar = ("ensemble",)
    examples: ClassVar = """\
  fedsash ensemble runs/a                              the mean of 1, 2, ... client models, at every saved round
  fedsash ensemble runs/a --rounds 10,100 --orders 20
"""

    rounds: tuple[int, ...] | None = field(default=None, metadata=ROUNDS)
    orders: int = field(default=5, metadata=ORDERS)
    split: Literal["test", "train"] = field(default="test", metadata=option("the samples to evaluate on"))
    samples: int | None = field(default=None, metadata=option("at most N of them, or all", metavar="N", none="all"))
    seed: int = field(default=0, metadata=SEED)

    def __post_init__(self) -> None:
        check_count("EnsembleStudy.orders", self.orders)
        check_count("EnsembleStudy.seed", self.seed, least=0)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        check_classes(run)
        run.check_rounds()
        rounds = shared_rounds(runs, self.rounds)
        return {
            "title": f"{run.folder.name}: the mean of client models and their ensemble",
            "split": self.split,
            **by_round(rounds, lambda round: self._measured(run, round), progress),
        }

    def _measured(self, run: OpenRun, round: int) -> dict[str, Any]:
        """The numbers of one round: lists by K, and the CKA of all its clients."""
        models = run.client_models(round)
        all_clients = Group(run, models, self.split, self.samples)
        size = len(models.ids)
        lists = over_orders(all_clients.numbers, size, self.orders, self.seed)
        cka = likeness(all_clients.f) if size > 1 else None
        return {**dict(zip(NUMBERS, lists, strict=True)), "cka": cka}

    @staticmethod
    def table(findings: Findings) -> Rows:
        yield ["saved\nround", "models", *NUMBERS.values(), "CKA"]
        for place, round in enumerate(findings["rounds"]):
            last = len(findings["mean"][place]) - 1
            for k in sorted({0, last}):
                cka = findings["cka"][place] if k == last else None
                yield [
                    str(round),
                    str(k + 1),
                    share(findings["mean"][place][k]),
                    share(findings["ensemble"][place][k]),
                    number(findings["gap"][place][k], 3),
                    number(findings["distance"][place][k], 3),
                    number(cka, 3),
                ]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """The errors by the number of models; the error of all by their similarity; the gap by the distance."""
        error = Axis(f"error ({findings['split']}, %)")
        errors = by_number(findings, "mean", "ensemble", "ensemble", scale=100)
        last = {name: [values[-1] for values in findings[name]] for name in NUMBERS}
        similar = list(zip(findings["cka"], times(100, last["mean"]), strict=True))
        distances = list(zip(last["distance"], last["gap"], strict=True))
        positive = [pair if all(pair) else (None, None) for pair in distances]  # both axes are logarithmic
        far = Axis("distance, the largest from their mean", log=True)
        gap = Axis("gap", log=True)
        panels = [
            Panel("error by the number of models", Axis("K, the number of models", whole=True), error, errors),
            Panel("error by similarity", Axis("CKA of two clients"), error, _each_round(findings, similar)),
            Panel("gap by distance", far, gap, _each_round(findings, positive)),
        ]
        caption = (
            f"The mean of K client models after a saved round and the ensemble of their answers, "
            f"{split_in_words(findings)}; "
            "similarity, distance and gap are those of all of them, a point with its number for each saved round."
        )
        return Picture(findings["title"], panels, columns=3, caption=caption)


@dataclass(frozen=True, eq=False)
class Group:
    """The client `models` of a round, and their answers to `samples` (None: all) of a `split`."""

    run: OpenRun
    models: ClientModels
    split: str
    samples: int | None

    @cached_property
    def f(self) -> Tensor:
        """The probabilities `[s, n, classes]` that the models give, float64."""
        return self._answers(self.models.w)

    def numbers(self, chosen: Sequence[int] | np.ndarray[Any, Any]) -> tuple[float, ...]:
        """The numbers of `NUMBERS` for some of the models, by their places."""
        index = torch.as_tensor(chosen, device=self.models.w.device)
        p = self.models.p[index.to(self.models.p.device)]
        p = p / p.sum()
        w = self.models.w[index]
        mean = p.to(w) @ w
        learned = self.run.federation.layout.trained
        of_mean = self._answers(mean)
        of_ensemble = torch.einsum("k,knc->nc", p.to(self.f), self.f[index])
        gap = torch.linalg.vector_norm(of_ensemble - of_mean, dim=-1).mean()
        distance = spread(w[:, :learned], mean[:learned]).largest
        return self._error(of_mean), self._error(of_ensemble), float(gap), distance

    @cached_property
    def _samples(self) -> Samples:
        return self.run.samples(self.split, self.samples)

    def _answers(self, w: Tensor) -> Tensor:
        """The probabilities `[..., n, classes]` of models `w` `[..., D]`, float64."""
        federation = self.run.federation
        f = probabilities(federation.module, w, self._samples, federation.training_data, federation.layout)
        return f.double()

    def _error(self, f: Tensor) -> float:
        """The share of wrong answers."""
        wrong = f.argmax(-1) != self._samples.y
        return float(wrong.double().mean())


def _each_round(findings: Findings, places: Sequence[tuple[float | None, float | None]]) -> list[Points]:
    """A point with its number for each saved round, at its place (x, y) if both are known."""
    known = {}
    for round, place in zip(findings["rounds"], places, strict=True):
        if None not in place:
            known[str(round)] = place
    if not known:
        return []
    x, y = zip(*known.values(), strict=True)
    return [Points(list(known), x, y)]
