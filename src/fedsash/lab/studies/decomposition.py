"""Why a mean of client models errs: their bias, variance and covariance, and how far apart they are (IMA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ...basics.arrays import Ints
from ...basics.errors import check
from ...data.federated import FederatedData, Samples
from ...data.transform import PLAIN, Transform
from ..pictures import Axis, Line, Panel, Picture, look
from ..pictures.styles import INK, Style
from .client_models import client_models
from .opened import OpenRun, spaced
from .outputs import outputs
from .similarity import Spread, pairwise_cka, spread
from .study import Found, OnProgress, Rows, Study, number, option, unseen

HEADS = {
    "squared_error": "squared\nerror",
    "bias": "squared\nbias",
    "train_bias": "own\nbias",
    "heterogeneous_bias": "others'\nbias",
    "variance": "vari-\nance",
    "covariance": "covari-\nance",
    "locality_mean": "distance\nmean",
    "locality_max": "\nlargest",
    "cka": "\nCKA",
}
SEVERAL = ("bias", "variance", "covariance")
"""What it takes several runs to see."""

TERMS = {
    "squared_error": ("squared error of the ensemble", Style(INK)),
    "bias": ("squared bias", look(0)),
    "train_bias": ("bias on own samples", look(2)),
    "heterogeneous_bias": ("bias on others' samples", look(1)),
    "variance": ("variance", look(3)),
    "covariance": ("covariance", look(4)),
}
DISTANCES = {"locality_max": ("largest", look(1)), "locality_mean": ("mean", look(0))}
LIKENESS = {"cka": ("", look(2))}


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The squared error of K weighted models on n samples, taken apart (IMA, Theorem 1).

    Models f_k come in R runs; E is the mean over the runs (with 1/R), f_W = sum_k p_k f_k the weighted ensemble. For
    every sample (x, y) exactly

        E ||y - f_W||^2 = bias + variance + covariance
        bias       = ||sum_k p_k * (TrainBias_k + HeterBias_k)||^2
        variance   = sum_k p_k^2 * E ||f_k - E f_k||^2
        covariance = sum_{k != k'} p_k p_k' * E <f_k - E f_k, f_k' - E f_k'>

    where y - E f_k is TrainBias_k if client k holds the sample, and HeterBias_k if it doesn't. (The square around the
    bias is the appendix's; the main text misses it.) `error`, `bias`, `variance`, `covariance`: `[n]`, a number a
    sample. `train_bias`, `heter_bias` `[K]`: the mean ||y - E f_k||^2 over the samples that client k holds, and over
    those that it doesn't, 0 where there are none; the paper's figures leave its estimators open, and these are ours.
    With R = 1 variance and covariance are 0.
    """

    error: Tensor
    bias: Tensor
    variance: Tensor
    covariance: Tensor
    train_bias: Tensor
    heter_bias: Tensor


def decompose(f: Tensor, y: Tensor, held: Tensor, p: Tensor) -> Decomposition:
    """Take apart the error of predictions `f` `[R, K, n, c]` of R runs of K models, against targets `y` `[n, c]`.

    `held` bool `[K, n]` says which samples each client holds, `p` `[K]` are the models' weights. Any outputs will do;
    IMA's classifiers are best seen through `probabilities` and one-hot targets, since logits have no scale of their
    own. Raises `ValueError` if shapes don't fit together or the weights don't sum to 1.
    """
    _check(f, y, held, p)
    p = p.to(f).view(-1, 1, 1)
    mean = f.mean(0)
    own = p * (f - mean)
    others = own.sum(1, keepdim=True) - own
    distance = (y - mean).square().sum(-1)
    return Decomposition(
        error=(y - (p * f).sum(1)).square().sum(-1).mean(0),
        bias=(p * (y - mean)).sum(0).square().sum(-1),
        variance=own.square().sum((1, 3)).mean(0),
        covariance=(own * others).sum((1, 3)).mean(0),
        train_bias=_mean_over(held, distance),
        heter_bias=_mean_over(~held, distance),
    )


def decompose_clients(module: nn.Module, w: Tensor, data: FederatedData, ids: Sequence[int] | Ints) -> Decomposition:
    """The decomposition for client models `w` `[R, K, D]` of the clients `ids` `[K]`, on all samples that they hold.

    The predictions are probabilities, the targets one-hot, and p_k = n_k/n. Runs differ in what is to be averaged over:
    seeds of the same round on the same split, say.
    """
    samples, held = union(data, ids)
    f = probabilities(module, w, samples, data.transform)
    sizes = torch.from_numpy(data.sizes[np.asarray(ids)]).to(f)
    return decompose(f, one_hot(samples.y, f.shape[-1]).to(f), held, sizes / sizes.sum())


def probabilities(module: nn.Module, w: Tensor, samples: Samples, transform: Transform = PLAIN) -> Tensor:
    """The probabilities `[..., n, classes]` that classifiers `w` `[..., D]` see for n samples."""
    return outputs(module, w, samples, transform).softmax(-1)


def union(data: FederatedData, ids: Sequence[int] | Ints) -> tuple[Samples, Tensor]:
    """The n samples that any of the clients `ids` `[K]` holds, each once, and bool `[K, n]`, who holds which."""
    clients = [data.clients[i] for i in ids]
    index = np.unique(np.concatenate(clients))
    device = data.train.y.device
    held = np.stack([np.isin(index, client) for client in clients])
    return data.train[torch.from_numpy(index).to(device)], torch.from_numpy(held).to(device)


def locality(w: Tensor, p: Tensor) -> Spread:
    """How far the client models `w` `[K, D]` are from their mean w_FMA = sum_k p_k w_k: what the theorem leaves open.

    The loss of w_FMA is that of the ensemble up to O(Delta^2), Delta being the largest of these distances.
    """
    return spread(w, p.to(w) @ w)


def _mean_over(chosen: Tensor, values: Tensor) -> Tensor:
    """For each client the mean of its row of `values` `[K, n]` over what is chosen, 0 where nothing is."""
    return (chosen * values).sum(1) / chosen.sum(1).clamp(min=1)


def _check(f: Tensor, y: Tensor, held: Tensor, p: Tensor) -> None:
    check(f.dim() == 4 and f.numel() > 0, "decompose: f", tuple(f.shape), "must be [R, K, n, c], with no empty side")
    _, k, n, c = f.shape
    for name, value, shape in (("y", y, (n, c)), ("held", held, (k, n)), ("p", p, (k,))):
        check(tuple(value.shape) == shape, f"decompose: {name}", tuple(value.shape), f"must be {shape}, as f says")
    check(held.dtype == torch.bool, "decompose: held", held.dtype, "must be bool")
    check(abs(float(p.sum()) - 1) < 1e-5, "decompose: p", p.tolist(), "must sum to 1")


@dataclass(frozen=True)
class DecompositionStudy(Study):
    """The error of the clients' models in the rounds that follow saved `rounds` (None: all), taken apart.

    Each saved state's clients train again, in every run those of the first. E is the mean over the runs, which share
    their data out in the same way and differ in the order of batches, say; with one run E f_k is f_k, and there is
    neither variance nor covariance. All numbers are means over the samples that these clients hold, or over `samples`
    of them: `squared_error = bias + variance + covariance`, `train_bias` and `heterogeneous_bias` being the mean
    ||y - E f_k||^2 over clients, for samples that a client holds and that it doesn't. `cka` is the linear CKA of two
    clients' probabilities, in the mean over the pairs. Raises `ValueError` if runs share out their data differently.
    """

    kinds: ClassVar = ("decomposition",)
    takes: ClassVar = "together"
    examples: ClassVar = """\
  fedsash decompose runs/a                          biases, distances and likeness of clients, at every saved round
  fedsash decompose runs/a --rounds 10,100
  fedsash decompose runs/a runs/b runs/c            variance and covariance, too: over runs on the same partition
"""

    rounds: tuple[int, ...] | None = field(
        default=None, metadata=option("saved rounds (default: all of them)", metavar="N[,N...]")
    )
    samples: int | None = field(
        default=None, metadata=option("N of the clients' samples, or all", metavar="N", none="all")
    )

    def make(self, runs: Sequence[OpenRun], progress: OnProgress = unseen, draft: Path | None = None) -> dict[str, Any]:
        _check_alike(runs)
        there = [round for round in runs[0].rounds if all(round in run.rounds for run in runs)]
        rounds = there if self.rounds is None else list(self.rounds)
        check(len(rounds) > 0, "rounds", rounds, "there is no round of which all runs have a state")
        found = []
        for done, round in enumerate(rounds, 1):
            found.append(self._taken_apart(runs, round))
            progress(done, len(rounds))
        return {
            "kind": self.kind,
            "title": f"{runs[0].folder.name}: the error of the mean of clients' models",
            "split": "train",
            "runs": len(runs),
            "rounds": rounds,
            **{name: [numbers[name] for numbers in found] for name in HEADS},
        }

    def _taken_apart(self, runs: Sequence[OpenRun], round: int) -> dict[str, float | None]:
        """All numbers of one round."""
        first = client_models(runs[0].federation, runs[0].state(round))
        trained = [first, *(client_models(run.federation, run.state(round), first.ids) for run in runs[1:])]
        for models in trained:
            right = "some clients' uploads can't be used in this round"
            check(np.array_equal(models.ids, first.ids), "round", round, right)
        federation = runs[0].federation
        samples, held = union(federation.training_data, first.ids)
        if self.samples is not None:
            chosen = spaced(len(samples), self.samples).to(samples.y.device)
            samples, held = samples[chosen], held[:, chosen]
        w, transform = torch.stack([models.w for models in trained]), federation.training_data.transform
        f = probabilities(federation.module, w, samples, transform).double()
        parts = decompose(f, one_hot(samples.y, f.shape[-1]).to(f), held, first.p.to(f))
        spreads = [locality(models.w, models.p) for models in trained]
        several = len(runs) > 1
        return {
            "squared_error": float(parts.error.mean()),
            "bias": float(parts.bias.mean()),
            "train_bias": float(parts.train_bias.mean()),
            "heterogeneous_bias": float(parts.heter_bias.mean()) if len(w[0]) > 1 else None,
            "variance": float(parts.variance.mean()) if several else None,
            "covariance": float(parts.covariance.mean()) if several else None,
            "locality_max": max(spread.largest for spread in spreads),
            "locality_mean": fmean(spread.mean for spread in spreads),
            "cka": fmean(_likeness(answers) for answers in f) if f.shape[1] > 1 else None,
        }

    @staticmethod
    def rows(found: Found) -> Rows:
        heads = {name: head for name, head in HEADS.items() if found["runs"] > 1 or name not in SEVERAL}
        yield ["saved\nround", *heads.values()]
        for i, round in enumerate(found["rounds"]):
            yield [str(round), *(number(found[name][i], 3) for name in heads)]

    @staticmethod
    def picture(found: Found) -> Picture:
        """The terms of the error, how far apart the clients' models are, and how alike they answer."""
        # With one run the squared bias is the squared error.
        terms = {name: look for name, look in TERMS.items() if name != "bias" or _known(found["variance"])}
        squared, distance, cka = (
            Axis("squared error"),
            Axis("distance from their mean", low=0),
            Axis("CKA", low=0, high=1),
        )
        panels = [
            _by_round("parts of the squared error", squared, found, terms, width=5.6),
            _by_round("distance of the clients", distance, found, DISTANCES),
            _by_round("similarity of the clients' answers", cka, found, LIKENESS),
        ]
        caption = (
            "What the error of the clients' mean model is made of, by round. What one run cannot tell is left out."
        )
        return Picture(found["title"], panels, columns=3, caption=caption)


def _by_round(name: str, y: Axis, found: Found, lines: Mapping[str, tuple[str, Style]], width: float = 3.7) -> Panel:
    """A line for each of the `lines` of which something is known."""
    known = {key: of for key, of in lines.items() if _known(found[key])}
    layers = [Line(label, found["rounds"], found[key], style) for key, (label, style) in known.items()]
    return Panel(name, Axis("saved round", whole=True), y, layers, width=width)


def _known(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _likeness(f: Tensor) -> float:
    """The mean CKA of each two of the models' answers `f` `[K, n, c]`."""
    first, second = torch.triu_indices(len(f), len(f), offset=1)
    return float(pairwise_cka(f)[first, second].mean())


def _check_alike(runs: Sequence[OpenRun]) -> None:
    """Raise `ValueError` unless all runs have one model, and one share of the data for each client."""
    first = runs[0].federation
    for run in runs:
        y = run.federation.training_data.train.y
        check(y.dim() == 1, str(run.folder), tuple(y.shape), "the decomposition needs one label a sample")
        here, there = first.training_data.clients, run.federation.training_data.clients
        same = len(here) == len(there) and all(map(np.array_equal, here, there))
        same = same and torch.equal(first.training_data.train.y, y)
        same = same and first.layout.shapes == run.federation.layout.shapes
        right = f"must have the model and the clients of {runs[0].folder}: the same partition and partition_seed"
        check(same, "decompose", str(run.folder), right)
