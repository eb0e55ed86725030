"""Why a mean of client models errs: their bias, variance and covariance, and how far apart they are (IMA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ...basics.arrays import Ints
from ...basics.errors import check
from ...data.federated import FederatedData, Samples
from ...data.transform import PLAIN, Transform
from .clients import outputs
from .similarity import Spread, spread


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
