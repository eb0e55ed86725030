"""FedAvg (McMahan et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Method


@dataclass(frozen=True)
class FedAvg(Method, name="fedavg"):
    """Federated averaging: clients train on their own samples, the server averages (McMahan et al. 2017).

    Client: `w <- w - lr * g(w)`. Server, with its default step: `w_{t+1} = sum_i p_i w_i`.
    The paper's `weighting` is by samples.
    """
