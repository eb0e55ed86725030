"""FedFA: feature anchors (Zhou et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..settings.errors import check
from ..settings.limits import CountFromZero, Share, Strength
from ..vector.arrays import Vectors
from ..vector.layout import Layout
from .base import LocalRun, Method, RoundMean, Step, Upload

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8
"""Adam's default settings, for the calibration."""


@dataclass(frozen=True)
class FedFA(Method, name="fedfa"):
    """Shared anchors, one for each class, that attract features and calibrate the classifier (Zhou et al. 2023).

    `A` `[classes, d]` are the anchors. h_j `[d]` is the feature of sample j: the input of the last linear layer. b(y)
    is the number of samples of class y in the batch.

        loss         CE + lam * (1/classes) * sum_j ||h_j - A[y_j]||^2 / b(y_j)          A as received
        calibration  after each step one step of Adam with learning rate `calibration`, new in every round, of the
                     classifier on CE(classifier(A), [0, 1, ...])
        anchors      after each local epoch A_i[y] <- momentum * A_i[y] + (1 - momentum) * mean feature of class y,
                     for the client's classes; the server averages the A_i like the models

    The mean feature of a class in an epoch is the sum of its means in the batches, divided by the number of all
    batches, as in the published code. So a class that is missing in some batches is pulled towards 0. A class of which
    a client has no sample keeps the received anchor. The anchors start as rows of the identity matrix, or as random
    directions if there are more classes than features. Of `local.steps`, fewer than a pass count as an epoch, and those
    after the last whole pass move no anchor; the paper has whole epochs.

    IMA's code has `anchors_from = 1` and calibrates after the first quarter of all rounds. With `lam = 0` and
    `calibration = 0` the method is FedAvg.
    """

    lam: Strength = 0.1
    """the factor of the anchor loss; 0 turns it off"""

    momentum: Share = 0.9
    """the share of its anchors that a client keeps after a local epoch; 0.9 is the paper's value, 0.5 the code's
    default"""

    calibration: Strength = 1e-3
    """the learning rate of Adam that calibrates the classifier; 0 turns the calibration off"""

    anchors_from: CountFromZero = 0
    """a number r: the anchor loss acts from the model after r finished rounds on"""

    calibrate_from: CountFromZero = 0
    """a number r: the calibration acts from the model after r finished rounds on"""

    needs_classes: ClassVar[bool] = True

    def server_state(self, w: Tensor, layout: Layout) -> Vectors:
        weight, _ = layout.linear(w)
        classes, d = weight.shape
        if classes <= d:
            return {"anchors": torch.eye(classes, d, dtype=w.dtype, device=w.device)}
        rows = torch.randn(classes, d, dtype=w.dtype, generator=torch.Generator().manual_seed(0))
        return {"anchors": F.normalize(rows).to(w.device)}

    def send(self, w: Tensor, server_state: Vectors, round: int) -> tuple[Tensor, Vectors]:
        lam = self.lam if round >= self.anchors_from else 0.0
        rate = self.calibration if round >= self.calibrate_from else 0.0
        return w, server_state | {"lam": w.new_tensor(lam), "rate": w.new_tensor(rate)}

    def objective(self, features: Tensor, y: Tensor, weights: Tensor, server_state: Vectors) -> Tensor:
        check(y.dim() == 1, "FedFA: labels of a batch", tuple(y.shape), "must be one for each sample")
        anchors = server_state["anchors"]
        member = _member(y, weights, len(anchors)).to(features.dtype)
        share = (member / member.sum(0).clamp(min=1)).sum(-1)
        return server_state["lam"] / len(anchors) * (share @ (features - anchors[y]).square().sum(-1))

    def round_state(self, local: LocalRun) -> Vectors:
        anchors = local.server_state["anchors"].expand(len(local.w), -1, -1).clone()
        _, bias = local.layout.linear(local.w)
        moments = torch.zeros_like(_extended(anchors, bias))
        return {
            "anchors": anchors,
            "sums": torch.zeros_like(anchors),  # of the batches' mean features of each class, in this epoch
            "met": torch.zeros_like(anchors[..., :1]),  # 1 for the classes that this epoch has met, else 0
            "step": torch.zeros_like(local.steps),
            "per_epoch": torch.minimum(local.per_epoch, local.steps).clamp(min=1),
            "m": moments,
            "v": moments.clone(),
        }

    def after_step(self, step: Step) -> None:
        active = step.weights.sum(1, keepdim=True) > 0
        step.round_state["step"] += active
        if self.calibration:
            self._calibrate(step, active)
        self._track(step, active)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, "anchors": local.round_state["anchors"]}, {}

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"anchors": received.mean["anchors"]}

    def _calibrate(self, step: Step, active: Tensor) -> None:
        """One step of Adam on the classifier's cross-entropy at the anchors; the gradient has a closed form."""
        state = step.round_state
        weight, bias = step.layout.linear(step.w)
        anchors = step.server_state["anchors"].expand(len(weight), -1, -1)
        logits = anchors @ weight.mT
        if bias is not None:
            logits = logits + bias.unsqueeze(1)
        classes = logits.shape[-1]
        labels = torch.eye(classes, dtype=logits.dtype, device=logits.device)  # anchor y is of class y
        error = (logits.softmax(-1) - labels) / classes
        g = error.mT @ _extended(anchors, bias)
        n = state["step"].clamp(min=1).unsqueeze(-1)
        state["m"].lerp_(g, 1 - BETA_1)
        state["v"].lerp_(g * g, 1 - BETA_2)
        m = state["m"] / (1 - BETA_1**n)
        v = state["v"] / (1 - BETA_2**n)
        change = m / (v.sqrt() + EPSILON)
        change = step.server_state["rate"] * change * active.unsqueeze(-1)
        weight -= change[..., : weight.shape[-1]]
        if bias is not None:
            bias -= change[..., -1]

    def _track(self, step: Step, active: Tensor) -> None:
        """Add the batch's mean features; after an epoch's last batch, move the client's anchors."""
        state = step.round_state
        features = step.features()
        classes = state["sums"].shape[1]
        member = _member(step.y, step.weights, classes).to(features.dtype)
        count = member.sum(1).unsqueeze(-1)
        state["sums"] += member.mT @ features / count.clamp(min=1)
        state["met"].copy_(torch.maximum(state["met"], count.clamp(max=1)))
        ended = (active & (state["step"] % state["per_epoch"] == 0)).unsqueeze(-1)
        epoch_mean = state["sums"] / state["per_epoch"].unsqueeze(-1)
        moved = torch.lerp(epoch_mean, state["anchors"], self.momentum)
        state["anchors"].copy_(torch.where(ended & (state["met"] > 0), moved, state["anchors"]))
        state["sums"] *= ~ended
        state["met"] *= ~ended


def _extended(anchors: Tensor, bias: Tensor | None) -> Tensor:
    """The anchors with a 1 for the bias, if there is one."""
    if bias is None:
        return anchors
    return torch.cat([anchors, torch.ones_like(anchors[..., :1])], dim=-1)


def _member(y: Tensor, weights: Tensor, classes: int) -> Tensor:
    """Whether each real sample is of each class, `[..., B, classes]`."""
    same = y.unsqueeze(-1) == torch.arange(classes, device=y.device)
    return same & (weights > 0).unsqueeze(-1)
