"""The error of a mean of client models: bias, variance and covariance, and the models' distances (IMA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ...data.federated import FederatedData
from ...data.samples import Samples
from ...runs.pictures import Axis, Line, Panel, Picture, look
from ...runs.pictures.styles import INK, Style
from ...server.federation import Federation
from ...settings.errors import check
from ...vector.arrays import Ints
from ...vector.layout import Layout
from .client_studies import CLIENT_SAMPLES, ROUNDS, by_round, check_alike, names_of_runs, shared_rounds, trained_alike
from .opened import OpenRun, spaced
from .outputs import Spread, outputs, pairwise_cka, spread
from .study import Findings, OnProgress, Rows, Study, number, share, times, unseen

HEADS = {
    "squared_error": "squared\nerror",
    "bias": "squared\nbias",
    "train_bias": "train\nbias",
    "heterogeneous_bias": "hetero-\ngeneous\nbias",
    "variance": "vari-\nance",
    "covariance": "covari-\nance",
    "locality_mean": "distance\nmean",
    "locality_max": "\nlargest",
    "cka": "\nCKA",
    "test_error": "test\nerror",
}
SEVERAL = ("bias", "variance", "covariance")
"""The numbers that need several runs."""

TERMS = {
    "squared_error": ("squared error", Style(INK)),
    "bias": ("squared bias", look(0)),
    "train_bias": ("train bias", look(2)),
    "heterogeneous_bias": ("heterogeneous bias", look(1)),
    "variance": ("variance", look(3)),
    "covariance": ("covariance", look(4)),
}
DISTANCES = {"locality_max": ("largest", look(1)), "locality_mean": ("mean", look(0))}


@dataclass(frozen=True)
class DecompositionStudy(Study):
    """The decomposed error of the clients' models in the rounds that follow the saved `rounds` (None: all).

    The clients of the round after each saved state train again. All runs use the clients of the first run. E is the
    mean over the runs, which have the same partition and differ, for example, in the order of batches. With one run
    E f_k is f_k, and there is neither variance nor covariance.

    All numbers are means over the samples of these clients, or over `samples` of them: `squared_error = bias +
    variance + covariance`. `train_bias` and `heterogeneous_bias` are the mean ||y - E f_k||^2 over clients, for samples
    that a client holds and for samples that it doesn't hold. `cka` is the linear CKA of two clients' probabilities, as
    the mean over all pairs. `test_error` is the share of test samples that the mean of the clients' models answers
    wrongly, as the mean over the runs. Raises `ValueError` if the runs have different partitions.
    """

    kinds: ClassVar = ("decomposition",)
    takes: ClassVar = "together"
    examples: ClassVar = """\
  fedsash decompose runs/a                          biases, distances and similarity of clients, at every saved round
  fedsash decompose runs/a --rounds 10,100
  fedsash decompose runs/a runs/b runs/c            also variance and covariance, over runs with the same partition
"""

    rounds: tuple[int, ...] | None = field(default=None, metadata=ROUNDS)
    samples: int | None = field(default=None, metadata=CLIENT_SAMPLES)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        check_alike(runs)
        rounds = shared_rounds(runs, self.rounds)
        return {
            "title": f"{names_of_runs(runs)}: the error of the mean of clients' models",
            "split": "train",
            "runs": len(runs),
            **by_round(rounds, lambda round: self._measured(runs, round), progress),
        }

    def _measured(self, runs: Sequence[OpenRun], round: int) -> dict[str, float | None]:
        """The numbers of one round."""
        trained = trained_alike(runs, round)
        first = trained[0]
        federation = runs[0].federation
        w = torch.stack([models.w for models in trained])
        f, targets, held = predictions(
            federation.module, w, federation.training_data, first.ids, self.samples, federation.layout
        )
        parts = decompose(f, targets, held, first.p.to(f))
        learned = runs[0].federation.layout.trained  # statistics of batches are no coordinates
        spreads = [locality(models.w[:, :learned], models.p) for models in trained]
        variance = None
        covariance = None
        if len(runs) > 1:
            variance = float(parts.variance.mean())
            covariance = float(parts.covariance.mean())
        cka = None
        if len(first.ids) > 1:
            cka = fmean(likeness(answers) for answers in f)
        means = torch.stack([models.mean for models in trained])
        return {
            "squared_error": float(parts.error.mean()),
            "bias": float(parts.bias.mean()),
            "train_bias": _over_clients(parts.train_bias, held.any(1)),
            "heterogeneous_bias": _over_clients(parts.heter_bias, (~held).any(1)),
            "variance": variance,
            "covariance": covariance,
            "locality_max": max(spread.largest for spread in spreads),
            "locality_mean": fmean(spread.mean for spread in spreads),
            "cka": cka,
            "test_error": _test_error(federation, means),
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        heads = dict(HEADS)
        if findings["runs"] == 1:
            for name in SEVERAL:
                del heads[name]
        yield ["saved\nround", *heads.values()]
        for place, round in enumerate(findings["rounds"]):
            cells = [str(round)]
            for name in heads:
                value = findings[name][place]
                cells.append(share(value) if name == "test_error" else number(value, 3))
            yield cells

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """The terms of the error, the distances of the clients' models, and the similarity of their outputs."""
        in_per_cent = {**findings, "test_error": times(100, findings["test_error"])}
        terms = dict(TERMS)
        if not _known(findings["variance"]):
            del terms["bias"]  # with one run it is the squared error
        distance = Axis("distance from their mean", low=0)
        cka = Axis("CKA", low=0, high=1)
        panels = [
            _by_round("parts of the squared error", Axis("squared error"), findings, terms, width=5.6),
            _by_round("distance of the clients", distance, findings, DISTANCES),
            _by_round("similarity of the clients' answers", cka, findings, {"cka": ("", look(2))}),
            _by_round("test error", Axis("error (test, %)"), in_per_cent, {"test_error": ("", Style(INK))}),
        ]
        caption = "The terms of the error of the clients' mean model, by round. Some terms need several runs."
        return Picture(findings["title"], panels, columns=4, caption=caption)


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The decomposed squared error of K weighted models on n samples (IMA, Theorem 1).

    There are R runs with models f_k each. E is the mean over the runs (with 1/R), and f_W = sum_k p_k f_k is the
    weighted ensemble. For every sample (x, y) exactly

        E ||y - f_W||^2 = bias + variance + covariance
        bias       = ||sum_k p_k * (TrainBias_k + HeterBias_k)||^2
        variance   = sum_k p_k^2 * E ||f_k - E f_k||^2
        covariance = sum_{k != k'} p_k p_k' * E <f_k - E f_k, f_k' - E f_k'>

    where y - E f_k is TrainBias_k if client k holds the sample, and HeterBias_k if it doesn't. (The square of the bias
    is in the paper's appendix; the main text omits it.) `error`, `bias`, `variance`, `covariance`: `[n]`, one number
    for each sample. `train_bias`, `heter_bias` `[K]`: the mean ||y - E f_k||^2 over the samples that client k holds,
    and over the samples that it doesn't hold; 0 if there are none. The paper does not define the estimators in its
    figures; these are ours. With R = 1 variance and covariance are 0.
    """

    error: Tensor
    bias: Tensor
    variance: Tensor
    covariance: Tensor
    train_bias: Tensor
    heter_bias: Tensor


def decompose(f: Tensor, y: Tensor, held: Tensor, p: Tensor) -> Decomposition:
    """Decompose the error of predictions `f` `[R, K, n, c]` of R runs of K models, against targets `y` `[n, c]`.

    `held` bool `[K, n]` says which samples each client holds, and `p` `[K]` are the models' weights. Any outputs can be
    used. For classifiers, use `probabilities` and one-hot targets, because logits have no fixed scale.
    Raises `ValueError` if the shapes don't fit together or the weights don't sum to 1.
    """
    _check(f, y, held, p)
    p = p.to(f).view(-1, 1, 1)
    mean = f.mean(0)
    deviation = p * (f - mean)
    others = deviation.sum(1, keepdim=True) - deviation
    distance = (y - mean).square().sum(-1)
    return Decomposition(
        error=(y - (p * f).sum(1)).square().sum(-1).mean(0),
        bias=(p * (y - mean)).sum(0).square().sum(-1),
        variance=deviation.square().sum((1, 3)).mean(0),
        covariance=(deviation * others).sum((1, 3)).mean(0),
        train_bias=_mean_over(held, distance),
        heter_bias=_mean_over(~held, distance),
    )


def decompose_clients(
    module: nn.Module,
    w: Tensor,
    data: FederatedData,
    ids: Sequence[int] | Ints,
    layout: Layout | None = None,
) -> Decomposition:
    """The decomposition for client models `w` `[R, K, D]` of the clients `ids` `[K]`, on all samples that they hold.

    The predictions are probabilities, the targets are one-hot, and p_k = n_k/n. The runs differ in the randomness that
    E averages over, for example in the seed, for the same round and the same partition. `layout` is as in `outputs`.
    """
    f, targets, held = predictions(module, w, data, ids, layout=layout)
    sizes = torch.from_numpy(data.sizes[np.asarray(ids)]).to(f)
    return decompose(f, targets, held, sizes / sizes.sum())


def predictions(
    module: nn.Module,
    w: Tensor,
    data: FederatedData,
    ids: Sequence[int] | Ints,
    count: int | None = None,
    layout: Layout | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The arguments of `decompose` for client models `w` `[R, K, D]`: probabilities, one-hot targets, samples held.

    float64 `[R, K, n, classes]` and `[n, classes]`, and bool `[K, n]`, on all samples that the clients `ids` `[K]`
    hold, or on `count` of them, evenly spaced. `layout` is as in `outputs`.
    """
    samples, held = union(data, ids)
    if count is not None:
        chosen = spaced(len(samples), count).to(samples.y.device)
        samples = samples[chosen]
        held = held[:, chosen]
    f = probabilities(module, w, samples, data, layout).double()
    return f, one_hot(samples.y, f.shape[-1]).to(f), held


def probabilities(
    module: nn.Module, w: Tensor, samples: Samples, data: FederatedData, layout: Layout | None = None
) -> Tensor:
    """The probabilities `[..., n, classes]` of classifiers `w` `[..., D]` for n samples; `layout` as in `outputs`."""
    return outputs(module, w, samples, data.transform, data.problem.task, layout).softmax(-1)


def union(data: FederatedData, ids: Sequence[int] | Ints) -> tuple[Samples, Tensor]:
    """The n samples of all clients `ids` `[K]`, each once, and bool `[K, n]`: which client holds which sample."""
    clients = [data.clients[i] for i in ids]
    index = np.unique(np.concatenate(clients))
    device = data.train.y.device
    held = np.stack([np.isin(index, client) for client in clients])
    return data.train[torch.from_numpy(index).to(device)], torch.from_numpy(held).to(device)


def locality(w: Tensor, p: Tensor) -> Spread:
    """The distances of the client models `w` `[K, D]` from their mean w_FMA = sum_k p_k w_k.

    The theorem is about the ensemble. The loss of w_FMA differs from the loss of the ensemble by O(Delta^2), where
    Delta is the largest of these distances.
    """
    return spread(w, p.to(w) @ w)


def _mean_over(chosen: Tensor, values: Tensor) -> Tensor:
    """For each client the mean of its row of `values` `[K, n]` over the chosen samples; 0 if none is chosen."""
    return (chosen * values).sum(1) / chosen.sum(1).clamp(min=1)


def _over_clients(values: Tensor, known: Tensor) -> float | None:
    """The mean of `values` `[K]` over the clients that have samples to know theirs from, None if no client has any."""
    if not bool(known.any()):
        return None
    return float(values[known].mean())


def _check(f: Tensor, y: Tensor, held: Tensor, p: Tensor) -> None:
    """Raise `SettingError` unless the arguments of `decompose` fit together."""
    check(f.dim() == 4 and f.numel() > 0, "decompose: f", tuple(f.shape), "must be [R, K, n, c], with no empty side")
    _, k, n, c = f.shape
    for name, value, shape in (("y", y, (n, c)), ("held", held, (k, n)), ("p", p, (k,))):
        check(tuple(value.shape) == shape, f"decompose: {name}", tuple(value.shape), f"must be {shape}, as f says")
    check(held.dtype == torch.bool, "decompose: held", held.dtype, "must be bool")
    check(abs(float(p.sum()) - 1) < 1e-5, "decompose: p", p.tolist(), "must sum to 1")


def _by_round(
    name: str, y: Axis, findings: Findings, lines: Mapping[str, tuple[str, Style]], width: float = 3.7
) -> Panel:
    """A line for each of the `lines` that has values."""
    layers = []
    for key, (label, style) in lines.items():
        if _known(findings[key]):
            layers.append(Line(label, findings["rounds"], findings[key], style))
    return Panel(name, Axis("saved round", whole=True), y, layers, width=width)


def _known(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def likeness(f: Tensor) -> float:
    """The mean CKA over all pairs of the models' outputs `f` `[K, n, c]`."""
    first, second = torch.triu_indices(len(f), len(f), offset=1)
    return float(pairwise_cka(f)[first, second].mean())


def _test_error(federation: Federation, w: Tensor) -> float | None:
    """The share of test samples that the models `w` `[R, D]` answer wrongly; None without a test set."""
    data = federation.training_data
    if data.test is None:
        return None
    f = outputs(federation.module, w, data.test, data.transform, data.problem.task, federation.layout)
    return float((f.argmax(-1) != data.test.y).double().mean())
