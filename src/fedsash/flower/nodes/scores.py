"""Checks of the scores that nodes send in an evaluation: against the roll call, and against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from ...client.messages import Missing, Reply, Request
from ...engines import Training
from ...evaluation import Split
from ...evaluation.scorer import values_of
from ...evaluation.settings import scored
from ...vector.arrays import Ints, Vectors
from .wire import TensorForm, WireError

MOST = 100_000
"""No split has more numbers for one client than this."""

COUNTS: Mapping[Split, str] = {"clients": "sizes", "held_out": "held", "client_test": "tested"}
"""The count of a roll call that says how many samples of a split a client has."""


def checked_scores(vectors: Vectors, training: Training, request: Request, counts: Mapping[str, Ints]) -> Vectors:
    """The scores `[C, k]` of the clients of a request, by name.

    Raises `WireError` unless names and types are right, and the clients have scored as many samples as in `counts`, and
    whatever a metric raises that has no value for these scores.
    """
    splits = training.asked.get(request.job, ())
    names = set()
    for split in splits:
        names |= {scored(split, name) for name in training.goal.names}
    if vectors.keys() != names:
        raise WireError(f"sent {', '.join(sorted(vectors))}: must be {', '.join(sorted(names))}")
    clients = len(request.ids)
    for name, value in vectors.items():
        table = value.dim() == 2 and len(value) == clients and value.shape[1] <= MOST
        if not table or value.dtype != torch.float64:
            raise WireError(f"{name} is {TensorForm.of(value)}: must be float64 [{clients}, k]")
    for split in splits:
        scores = {name: vectors[scored(split, name)].numpy() for name in training.goal.names}
        losses = scores["loss"]  # [C, 2]: a sum, and the number of samples
        samples = counts[COUNTS[split]][request.ids]
        if losses.shape[1] != 2 or not np.array_equal(losses[:, 1], samples):
            raise WireError(f"has scored other numbers of samples in {split} than it said it has")
        values_of(training.goal, scores)
    return vectors


def consistent(answers: Iterable[Reply | Missing]) -> list[Reply | Missing]:
    """The answers to a request for scores; scores that can't be right become `Missing`, with the reason.

    Scores have the lengths of most others. They are finite, unless those of all clients are not: then it is the model
    that has diverged.
    """
    answers = list(answers)
    replies = [answer for answer in answers if isinstance(answer, Reply)]
    if not replies:
        return answers
    usual_lengths, _ = Counter(map(_lengths, replies)).most_common(1)[0]
    any_finite = any(map(_finite, replies))
    checked: list[Reply | Missing] = []
    for answer in answers:
        if isinstance(answer, Missing):
            checked.append(answer)
        elif _lengths(answer) != usual_lengths:
            checked.append(Missing(answer.places, "sent scores of other lengths than most clients"))
        elif any_finite and not _finite(answer):
            checked.append(Missing(answer.places, "sent scores that are not finite"))
        else:
            checked.append(answer)
    return checked


def _lengths(reply: Reply) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, value.shape[1]) for name, value in reply.upload.items()))


def _finite(reply: Reply) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in reply.upload.values())
