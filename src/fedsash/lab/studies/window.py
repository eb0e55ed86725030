"""The content of a window of models: the weights of rounds and clients in its mean, and the models' distances."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...runs.pictures import Axis, Bars, Line, Panel, Picture, look
from ...runs.pictures.styles import RED
from ...server.federation import Federation
from ...settings.errors import RunError, check
from .client_models import weights
from .opened import OpenRun
from .study import Findings, OnProgress, Rows, Study, number, option, unseen


@dataclass(frozen=True)
class WindowStudy(Study):
    """The weights in the window `average` after the saved `round` (None: the newest), and its models' distances.

    `weights` are the weights of the rounds' updates. `clients` are the weights of all updates of each client.
    `distances` are the distances of the window's models from their mean. Raises `SettingError` for a window of clients'
    means (see `Broadcast.order`), of which the weights do not hold.
    """

    kinds: ClassVar = ("window",)
    examples: ClassVar = """\
  fedsash window runs/a --average window5
  fedsash window runs/a --average window5 --round 100
"""

    average: str = field(metadata=option("the window's name in the experiment file", metavar="NAME"))
    round: int | None = field(default=None, metadata=option("a saved round (default: the newest)", metavar="N"))

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        run.check_rounds()
        newest = max(run.rounds, default=0) if self.round is None else self.round
        past = run.state(newest).past
        if self.average not in past:
            raise RunError(f"{run.folder} has no window {self.average!r}; it has {', '.join(past) or 'none'}")
        window = past[self.average]
        broadcast = run.federation.broadcast
        of_means = broadcast.of_means(run.federation.server) if broadcast else ()
        requirement = "must be a window of global models: this one is of clients' means, before the server's step"
        check(self.average not in of_means, "WindowStudy.average", self.average, requirement)
        if not window:
            raise RunError(f"{run.folder}: {self.average} holds no model after round {newest}")
        c = round_weights(window)
        layout = run.federation.layout
        ranges = layout.ranges(run.federation.averages[self.average].part, but=run.federation.sharing.own_names)
        trained = sum(max(min(stop, layout.trained) - start, 0) for start, stop in ranges)
        rounds, from_mean = distances(window, trained)
        p = participation(run.federation, len(c), run.left_out)
        return {
            "title": f"{run.folder.name}: what is in {self.average} after round {newest}",
            "average": self.average,
            "round": newest,
            "rounds": list(range(1, len(c) + 1)),
            "weights": c,
            "clients": client_weights(window, p).sum(0),
            "distance_rounds": rounds,
            "distances": from_mean,
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        weights = np.array(findings["weights"])
        clients = np.array(findings["clients"])
        rounds = list(findings["distance_rounds"])
        distances = np.array(findings["distances"])
        largest = f"{number(float(clients.max()))} (client {int(clients.argmax())})"
        distance = f"{number(float(distances.mean()))} (largest {number(float(distances.max()))})"
        yield ["in the window", ""]
        yield ["models", f"{len(rounds)}, of rounds {rounds[0]} to {rounds[-1]}"]
        yield ["rounds with their whole weight", str(int((weights == 1).sum()))]
        yield ["weight of the newest round", number(float(weights[-1]))]
        yield ["sum of all weights", number(float(weights.sum()))]
        yield ["clients with a weight", f"{int((clients > 0).sum())} of {len(clients)}"]
        yield ["largest weight of a client", largest]
        yield ["distance of a model from the mean", distance]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """The weight of every round's update and of every client's, and how far the models lie from their mean."""
        by_weight = sorted(findings["clients"], reverse=True)
        places = list(range(1, len(by_weight) + 1))
        rounds = Line("", findings["rounds"], findings["weights"], look(0), steps="middle", filled=True)
        clients = Bars([""], places, [by_weight], [RED], width=1)
        away = Line("", findings["distance_rounds"], findings["distances"], look(2))
        weight = Axis("weight in the mean", low=0)
        distance = Axis("distance from the mean", low=0)
        panels = [
            Panel("weight of each round's update", Axis("round", whole=True), weight, [rounds]),
            Panel("weight of each client", Axis("clients, by their weight", whole=True), weight, [clients]),
            Panel("distance of each model", Axis("round of the model", whole=True), distance, [away]),
        ]
        caption = f"What the average {findings['average']} holds after round {findings['round']}."
        return Picture(findings["title"], panels, columns=3, caption=caption)


def round_weights(window: Collection[int]) -> Tensor:
    """The weights `c` float64 `[t]` of the updates u_1 ... u_t in a window's mean, given the rounds of its models.
    Round t made the newest model.

    With u_tau = w_tau - w_{tau-1} (whatever the server optimiser made of the round, eq. 7 of WiMA)

        mean = w_0 + sum_tau c_tau * u_tau,    c_tau = the share of models in the window that are of round tau or later

    For W successive models this is WiMA's eq. 6: c_tau is 1 up to the window's oldest model, then falls by 1/W in each
    round, to 1/W for the newest update. A learning rate that decays linearly within the window has the same effect.
    Raises `ValueError` if the window holds no model.
    """
    rounds = torch.tensor(_rounds_in(window))
    tau = torch.arange(1, int(rounds.max()) + 1)
    return (rounds >= tau[:, None]).double().mean(1)


def participation(federation: Federation, rounds: int, left_out: Mapping[int, Collection[int]] | None = None) -> Tensor:
    """The weight p_i float64 `[t, N]` of every client's update in each of the first t `rounds`, 0 where it is away.

    It follows from the sampling and the clients' numbers of samples, without the clients that a round `left_out`, which
    are listed by rounds from 1 on. Of a fork it is the fork's own sampling, also in the rounds of the run that it goes
    on from.
    """
    sizes = federation.sizes
    p = torch.zeros(rounds, len(sizes), dtype=torch.float64)
    for t in range(rounds):
        selected = federation.sampling.clients(t, sizes, federation.seed)
        unused = (left_out or {}).get(t + 1, ())
        ids = selected[~np.isin(selected, list(unused))]
        p[t, torch.from_numpy(ids)] = weights(federation, ids)
    return p


def client_weights(window: Collection[int], p: Tensor) -> Tensor:
    """The weights float64 `[t, N]` of all clients' updates in a window's mean, given the rounds of its models and the
    clients' weights `p` `[t, N]`.

        mean = w_0 + sum over tau and i of c_tau * p_i^tau * (w_i^tau - w_{tau-1}),    c_tau as in `round_weights`

    This holds if a round adds the weighted mean of its clients' updates, as in FedAvg. A server learning rate scales
    these weights. The sum over the rounds is a client's weight in the window. The sum over the clients is `c`, except
    for rounds in which no client answered. Rounds of `p` after the window's newest model are ignored. Raises
    `ValueError` if rounds before it are missing.
    """
    c = round_weights(window)
    check(p.dim() == 2 and len(p) >= len(c), "client_weights: p", tuple(p.shape), f"must have {len(c)} rounds or more")
    return c[:, None] * p[: len(c)]


def distances(window: Mapping[int, Tensor], entries: int | None = None) -> tuple[Tensor, Tensor]:
    """The rounds int64 `[n]` of a window's models, oldest first, and each model's distance from their mean,
    float64 `[n]`, on the host. `window` has the models by their rounds, as in `State.past`. Only the first `entries`
    count (None: all).

    Raises `ValueError` if the window holds no model.
    """
    rounds = _rounds_in(window)
    mean = torch.zeros(window[rounds[0]][:entries].shape, dtype=torch.float64)
    for round in rounds:  # one after another, because all of them may not fit into memory
        mean += window[round][:entries].cpu().double() / len(rounds)
    far = [torch.linalg.vector_norm(window[round][:entries].cpu() - mean) for round in rounds]
    return torch.tensor(rounds), torch.stack(far)


def _rounds_in(window: Collection[int]) -> list[int]:
    """The rounds of the models in a window, ascending."""
    check(len(window) > 0, "window", "empty", "must hold a model")
    return sorted(window)
