"""What a window of models holds: the weight of every round and every client in its mean, and how wide it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from ...basics.errors import check
from ...federation import Federation
from .clients import weights


def round_weights(window: Collection[int]) -> Tensor:
    """The weights `c` float64 `[t]` of the updates u_1 ... u_t in a window's mean, given the rounds of its models;
    round t made the newest.

    With u_tau = w_tau - w_{tau-1} (whatever the server optimiser made of the round, eq. 7 of WiMA)

        mean = w_0 + sum_tau c_tau * u_tau,    c_tau = the share of models in the window that are of round tau or later

    For W successive models this is WiMA's eq. 6: 1 up to the window's oldest model, then falling by 1/W a round to 1/W
    for the newest update, as a learning rate that decays linearly within the window would do. Raises `ValueError` if
    the window holds no model.
    """
    rounds = torch.tensor(_held(window))
    tau = torch.arange(1, int(rounds.max()) + 1)
    return (rounds >= tau[:, None]).double().mean(1)


def participation(federation: Federation, rounds: int) -> Tensor:
    """The weight p_i float64 `[t, N]` of every client's update in each of the first t `rounds`, 0 where it is away.

    That is what the sampling and the clients' sizes say; that an upload was refused, only the run knows.
    """
    sizes = federation.sizes
    p = torch.zeros(rounds, len(sizes), dtype=torch.float64)
    for t in range(rounds):
        ids = federation.sampling.clients(t, sizes, federation.seed)
        p[t, torch.from_numpy(ids)] = weights(federation, ids)
    return p


def client_weights(window: Collection[int], p: Tensor) -> Tensor:
    """The weights float64 `[t, N]` of all clients' updates in a window's mean, given the rounds of its models and the
    clients' weights `p` `[t, N]`.

        mean = w_0 + sum over tau and i of c_tau * p_i^tau * (w_i^tau - w_{tau-1}),    c_tau as in `round_weights`

    This holds where a round adds the weighted mean of its clients' updates, as FedAvg's does; a server optimiser that
    only scales it by a learning rate scales these weights. Summed over the rounds it is a client's weight in the
    window, summed over the clients `c`, but for rounds in which nobody answered. Rounds of `p` after the window's
    newest model are left out; raises `ValueError` if some before it are missing.
    """
    c = round_weights(window)
    check(p.dim() == 2 and len(p) >= len(c), "client_weights: p", tuple(p.shape), f"must have {len(c)} rounds or more")
    return c[:, None] * p[: len(c)]


def distances(window: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
    """The rounds int64 `[n]` of a window's models, oldest first, and each model's distance from their mean,
    float64 `[n]`, on the host; `window` has the models by their rounds, as `State.past` does.

    Raises `ValueError` if the window holds no model.
    """
    rounds = _held(window)
    mean = torch.zeros(window[rounds[0]].shape, dtype=torch.float64)
    for round in rounds:  # one after another: they may be more than fits into memory
        mean += window[round].cpu().double() / len(rounds)
    far = [torch.linalg.vector_norm(window[round].cpu() - mean) for round in rounds]
    return torch.tensor(rounds), torch.stack(far)


def _held(window: Collection[int]) -> list[int]:
    """The rounds of the models in a window, ascending."""
    check(len(window) > 0, "window", "empty", "must hold a model")
    return sorted(window)
