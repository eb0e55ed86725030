"""Why the mean of a round's client models errs, round by round (IMA, Theorem 1)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...basics.errors import check
from ..analysis.clients import client_models
from ..analysis.decomposition import decompose, locality, probabilities, union
from ..analysis.similarity import pairwise_cka
from .opened import Opened, Progress, spaced, write

TERMS = ("squared_error", "bias", "train_bias", "heterogeneous_bias", "variance", "covariance")
LISTS = (*TERMS, "locality_max", "locality_mean", "cka")


def decomposition(
    runs: Sequence[Opened],
    name: str,
    rounds: Sequence[int] | None = None,
    samples: int | None = None,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Take apart the error of the clients' models in the rounds that follow the saved `rounds`; as written.

    Each saved state's clients train again, in every run those of the first. E is the mean over the runs, which share
    their data out in the same way and differ in the order of batches, say; with one run E f_k is f_k, and there is
    neither variance nor covariance. All numbers are means over the samples that these clients hold, or over `samples`
    of them: `squared_error = bias + variance + covariance`, `train_bias` and `heterogeneous_bias` being the mean
    ||y - E f_k||^2 over clients, for samples that a client holds and that it doesn't. `cka` is the linear CKA of two
    clients' probabilities, in the mean over the pairs. Raises `ValueError` if runs share out their data differently.
    """
    _check(runs)
    there = [round for round in runs[0].rounds if all(round in run.rounds for run in runs)]
    rounds = there if rounds is None else rounds
    check(len(rounds) > 0, "--rounds", "none", "there is no round of which all runs have a state")
    found = []
    for done, round in enumerate(rounds, 1):
        found.append(_taken_apart(runs, round, samples))
        if progress is not None:
            progress(done, len(rounds))
    analysis = {
        "kind": "decomposition",
        "title": f"{runs[0].folder.name}: the error of the mean of clients' models",
        "command": command,
        "split": "train",
        "runs": len(runs),
        "rounds": list(rounds),
        **{name: [numbers[name] for numbers in found] for name in LISTS},
    }
    return write(runs[0].folder, name, analysis)


def _taken_apart(runs: Sequence[Opened], round: int, count: int | None) -> dict[str, float | None]:
    """All numbers of one round."""
    first = client_models(runs[0].federation, runs[0].state(round))
    trained = [first, *(client_models(run.federation, run.state(round), first.ids) for run in runs[1:])]
    for models in trained:
        right = "some clients' uploads can't be used in this round"
        check(np.array_equal(models.ids, first.ids), "round", round, right)
    federation = runs[0].federation
    samples, held = union(federation.training_data, first.ids)
    if count is not None:
        chosen = spaced(len(samples), count).to(samples.y.device)
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


def _likeness(f: Tensor) -> float:
    """The mean CKA of each two of the models' answers `f` `[K, n, c]`."""
    first, second = torch.triu_indices(len(f), len(f), offset=1)
    return float(pairwise_cka(f)[first, second].mean())


def _check(runs: Sequence[Opened]) -> None:
    first = runs[0].federation
    for run in runs:
        y = run.federation.training_data.train.y
        check(y.dim() == 1, str(run.folder), tuple(y.shape), "the decomposition needs one label a sample")
        here, there = first.training_data.clients, run.federation.training_data.clients
        same = len(here) == len(there) and all(map(np.array_equal, here, there))
        same = (
            same and torch.equal(first.training_data.train.y, y) and first.layout.shapes == run.federation.layout.shapes
        )
        right = f"must have the model and the clients of {runs[0].folder}: the same partition and partition_seed"
        check(same, "decompose", str(run.folder), right)
