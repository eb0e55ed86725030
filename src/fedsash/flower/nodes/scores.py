"""What nodes say in an evaluation: scores, checked against the roll call and against each other."""

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
from .wire import Form, WireError

MOST = 100_000
"""No split has more numbers for one client than this."""

COUNTS: Mapping[Split, str] = {"clients": "sizes", "held_out": "held", "client_test": "tested"}
"""The count of a roll call that says how many samples of a split a client has."""


def checked(vectors: Vectors, training: Training, request: Request, counts: Mapping[str, Ints]) -> Vectors:
    """The scores `[C, k]` of the clients of a request, by name.

    Raises `WireError` unless names and types are right, and the clients have scored as many samples as in `counts`, and
    whatever a metric raises that has no value for these scores.
    """
    splits = training.asked.get(request.job, ())
    names = {scored(split, name) for split in splits for name in training.goal.names}
    if vectors.keys() != names:
        raise WireError(f"sent {', '.join(sorted(vectors))}: must be {', '.join(sorted(names))}")
    for name, value in vectors.items():
        if value.dim() != 2 or len(value) != len(request.ids) or value.shape[1] > MOST or value.dtype != torch.float64:
            raise WireError(f"{name} is {Form.of(value)}: must be float64 [{len(request.ids)}, k]")
    for split in splits:
        found = vectors[scored(split, "loss")].numpy()
        known = counts[COUNTS[split]][request.ids]
        if found.shape[1] != 2 or not np.array_equal(found[:, 1], known):
            raise WireError(f"has scored other numbers of samples in {split} than it said it has")
        values_of(training.goal, {name: vectors[scored(split, name)].numpy() for name in training.goal.names})
    return vectors


def agreed(answers: Iterable[Reply | Missing]) -> list[Reply | Missing]:
    """The answers to a request for scores, where those that can't be right are missing, with the reason.

    Scores have the lengths of most others. They are finite, unless those of all clients are not: then it is the model
    that has diverged.
    """
    answers = list(answers)
    replies = [answer for answer in answers if isinstance(answer, Reply)]
    usual = Counter(map(_lengths, replies)).most_common(1)
    finite = any(map(_finite, replies))

    def kept(answer: Reply | Missing) -> Reply | Missing:
        if isinstance(answer, Missing):
            return answer
        if _lengths(answer) != usual[0][0]:
            return Missing(answer.places, "sent scores of other lengths than most clients")
        wrong = finite and not _finite(answer)
        return Missing(answer.places, "sent scores that are not finite") if wrong else answer

    return [kept(answer) for answer in answers]


def _lengths(reply: Reply) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, value.shape[1]) for name, value in reply.upload.items()))


def _finite(reply: Reply) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in reply.upload.values())
