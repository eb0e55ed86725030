"""The models of a round's clients after local training."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...client.messages import PartialSum, Reply
from ...data.federated import FederatedData
from ...engines import Engine
from ...engines.clients import Clients, LocalClients
from ...network import OnNetwork
from ...server.federation import Federation
from ...server.state import State
from ...settings.errors import check
from ...vector.arrays import Ints
from ...vector.sharing import OWN
from ...vector.spaces import CommonPart, WholeModel


@dataclass(frozen=True, eq=False)
class ClientModels:
    """The models `w` `[s, D]` of the clients `ids` `[s]` after local training, with weights `p` `[s]` of sum 1."""

    ids: Ints
    w: Tensor
    p: Tensor

    @property
    def mean(self) -> Tensor:
        """Their weighted mean `[D]`, sum_i p_i * w_i. With FedAvg and all of it shared the next global model."""
        return self.p.to(self.w) @ self.w


@torch.no_grad()
def client_models(federation: Federation, state: State, ids: Ints | None = None) -> ClientModels:
    """Train the clients of the round that follows `state`, without changing the state.

    The clients and their first model are those of `federation.round(state)`, whose update is the weighted mean of
    `w - sent`. With `ids` `[s]`, these clients train instead. Clients whose upload the round would refuse are left out.
    The clients of a run on a cluster train in this process.

    Raises `ValueError` if no client is left, or if the engine returns only sums over several clients.
    """
    engine = federation.engine.here
    if engine is not federation.engine:
        federation = replace(federation, engine=engine, data=_trained_by(engine, federation.data))
    request = federation.ask(state, ids=ids).gathered()
    check(len(request.ids) > 0, "client_models: round", request.round, "nobody answers in it")
    if request.job == "probe":
        request = federation.ask(state, probed=federation.collect(request)).gathered()
    ids_of_models = []
    models = []
    for answer in federation.executor.work(request):
        requirement = "answers with sums over several clients: take one that shows single uploads"
        check(not isinstance(answer, PartialSum), "engine", federation.engine, requirement)
        if not isinstance(answer, Reply):
            continue
        rows = federation.aggregation.accepts(answer.norms)
        if rows:
            ids_of_models.append(request.ids[answer.places[rows]])
            models.append(_models(federation, request.sent, answer)[rows])
    check(bool(models), "client_models: round", request.round, "no client's upload can be used in it")
    ids = np.concatenate(ids_of_models)
    return ClientModels(ids, torch.cat(models), weights(federation, ids))


def _trained_by(engine: Engine, data: FederatedData | Clients) -> FederatedData | Clients:
    """The clients with this engine, without the network before them."""
    if isinstance(data, OnNetwork):
        return _trained_by(engine, data.clients)
    if isinstance(data, LocalClients):
        return replace(data, engine=engine)
    return data


def _models(federation: Federation, sent: WholeModel, reply: Reply) -> WholeModel:
    """The models `[b, D]` of a reply's clients, each with what it keeps for itself."""
    sharing = federation.sharing
    w = WholeModel(sent + sharing.model_change(CommonPart(reply.upload["delta"]), reply.upload))
    if not sharing.own_size:
        return w
    return sharing.with_own(w, reply.client_state[OWN])


def weights(federation: Federation, ids: Ints) -> Tensor:
    """The weights p_i float64 `[s]` of the clients `ids` in their round's mean, as the method sets them."""
    sizes = torch.from_numpy(federation.sizes[ids]).double()
    if federation.method.weighting != "samples":
        sizes = torch.ones_like(sizes)
    return sizes / sizes.sum()
