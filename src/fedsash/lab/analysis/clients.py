"""The client models of a round, and what models answer to samples."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...basics.arrays import Ints
from ...basics.errors import check
from ...basics.layout import Layout
from ...data.encoded import split
from ...data.federated import Samples
from ...data.transform import PLAIN, Transform
from ...exchange import PartialSum, Reply
from ...federation import Federation
from ...state import State

BATCH = 500
"""How many samples pass through a model at once."""


@dataclass(frozen=True, eq=False)
class ClientModels:
    """The models `w` `[s, D]` at which the clients `ids` `[s]` of a round arrive, with weights `p` `[s]` of sum 1."""

    ids: Ints
    w: Tensor
    p: Tensor

    @property
    def mean(self) -> Tensor:
        """Their weighted mean `[D]`, sum_i p_i * w_i: with plain averaging and server steps the next global model."""
        return self.p.to(self.w) @ self.w


@torch.no_grad()
def client_models(federation: Federation, state: State, ids: Ints | None = None) -> ClientModels:
    """Train the clients of the round that follows `state`, and leave the state as it is.

    They are those, from the same model, that `federation.round(state)` would train: its update is the weighted mean of
    `w - sent`. With `ids` `[s]` these clients are the round's. Clients whose upload the round would refuse are left
    out. Raises `ValueError` if nobody is left, or if the engine shows only sums over several clients.
    """
    request = federation.ask(state, ids=ids)
    check(len(request.ids) > 0, "client_models: round", request.round, "nobody answers in it")
    if request.job == "probe":
        request = federation.ask(state, probed=federation.collect(request))
    answers = list(federation.executor.work(request))
    right = "answers with sums over several clients: take one that shows single uploads"
    check(not any(isinstance(each, PartialSum) for each in answers), "engine", federation.engine, right)
    replies = [answer for answer in answers if isinstance(answer, Reply)]
    good = [(reply, rows) for reply in replies if (rows := federation.aggregation.accepts(reply.norms))]
    check(bool(good), "client_models: round", request.round, "no client's upload can be used in it")
    ids = np.concatenate([request.ids[reply.places[rows]] for reply, rows in good])
    w = torch.cat([request.sent + reply.upload["delta"][rows] for reply, rows in good])
    return ClientModels(ids, w, weights(federation, ids))


def weights(federation: Federation, ids: Ints) -> Tensor:
    """The weights p_i float64 `[s]` of the clients `ids` in their round's mean: the method's, by samples or uniform."""
    sizes = torch.from_numpy(federation.sizes[ids]).double()
    sizes = sizes if federation.method.weighting == "samples" else torch.ones_like(sizes)
    return sizes / sizes.sum()


@torch.no_grad()
def outputs(module: nn.Module, w: Tensor, samples: Samples, transform: Transform = PLAIN) -> Tensor:
    """What the models `w` `[..., D]` of a module's layout answer to n samples, `[..., n, c]`, without any dropout."""
    layout, module = Layout(module), copy.deepcopy(module).eval()
    answers = []
    for model in w.reshape(-1, layout.size):
        layout.bind(module, model)
        batches = (transform.prepare(x).to(layout.dtype) for x in split(samples.x, BATCH))
        answers.append(torch.cat([module(x) for x in batches]))
    return torch.stack(answers).view(*w.shape[:-1], *answers[0].shape)


def features(module: nn.Module, w: Tensor, samples: Samples, transform: Transform = PLAIN) -> Tensor:
    """What enters the last linear layer of the models `w` `[..., D]`, `[..., n, d]`.

    Raises `ValueError` if no linear layer trains.
    """
    return outputs(_Extractor(module), w, samples, transform)


class _Extractor(nn.Module):
    """A copy of a module, with the same layout, that answers with its classifier's input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(module)
        self.entered = torch.empty(0)
        self.module.get_submodule(Layout(module).classifier).register_forward_pre_hook(self._keep)

    def forward(self, x: Tensor) -> Tensor:
        self.module(x)
        return self.entered

    def _keep(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.entered = inputs[0]
