"""The local optimisers: how a client's model moves along a direction, with PyTorch's updates and defaults.

In the formulas w `[C, D]` are the clients' models, g the method's direction, lr the learning rate, and n = 1, 2, ...
the number of the step. All operations are element-wise. Weight decay is an L2 term unless it is called decoupled: it is
first added to the direction, g <- g + weight_decay * w.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import ClassVar

import torch
from torch import Tensor

from ..methods.base import Scalar
from ..settings.errors import check
from ..settings.limits import Fraction, Positive, Share, Strength
from ..settings.setting import Setting
from ..vector.arrays import Vectors


@dataclass(frozen=True)
class Optimiser(Setting):
    """The base class of local optimisers. An optimiser holds settings only; its moments are tensors of the clients."""

    @property
    def counted(self) -> bool:
        """Whether a step depends on its number n."""
        return False

    def moments(self, w: Tensor) -> Vectors:
        """The moments before the first step: vectors like `w` `[C, D]`, by name."""
        return {}

    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Scalar, n: Scalar) -> None:
        """Move `w` `[C, D]` and its moments by one step along `g` `[C, D]`, in place.

        `lr` and `n` are numbers for a single client and `[C, 1]` for several. Where `lr` is 0, w does not move. If a
        personal part trains by itself, the vectors are those of the entries that move; optimisers of the library are
        also given those of one parameter. `n` is 1 unless the steps are `counted`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimiser, name="sgd"):
    """Stochastic gradient descent, with momentum and weight decay (as `torch.optim.SGD`).

        v <- momentum * v + (1 - dampening) * g        v <- g in the first step
        w <- w - lr * v                                with `nesterov`: w <- w - lr * (g + momentum * v)

    w `[D]` is a client's model, g `[D]` the method's direction with the weight decay in it, and lr the step's rate. The
    defaults are the plain step w <- w - lr * g. Raises `SettingError` for `nesterov` without a momentum.
    """

    momentum: Fraction = 0.0
    """the share of the last step that goes on; 0 for none"""
    dampening: Share = 0.0
    """the share of g that momentum leaves out"""
    nesterov: bool = False
    """whether the momentum is Nesterov's, for which `momentum` must be above 0 and `dampening` 0"""
    weight_decay: Strength = 0.0
    """times w, it is added to the direction: an L2 term"""

    def __post_init__(self) -> None:
        if self.nesterov:
            requirement = "needs a momentum above 0, and a dampening of 0"
            check(self.momentum > 0 and self.dampening == 0, "SGD.nesterov", True, requirement)

    @property
    def counted(self) -> bool:
        return self.momentum > 0 and self.dampening > 0

    def moments(self, w: Tensor) -> Vectors:
        if not self.momentum:
            return {}
        return {"v": torch.zeros_like(w)}

    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Scalar, n: Scalar) -> None:
        if self.weight_decay:
            g = torch.add(g, w, alpha=self.weight_decay)
        if self.momentum:
            dampened = g
            if self.dampening:  # not in the first step, n = 1
                dampened = g - (n > 1) * (self.dampening * g)
            v = moments["v"].mul_(self.momentum).add_(dampened)
            g = torch.add(g, v, alpha=self.momentum) if self.nesterov else v
        _move(w, g, lr)


@dataclass(frozen=True)
class Adam(Optimiser, name="adam"):
    """Adam (Kingma & Ba 2015), both moments corrected (as `torch.optim.Adam`).

        m <- beta1 * m + (1 - beta1) * g,    v <- beta2 * v + (1 - beta2) * g^2               0 at first
        w <- w - lr * m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + epsilon)

    g `[D]` is the method's direction with the weight decay in it, and n = 1, 2, ... the number of the step.
    """

    beta1: Fraction = 0.9
    """the share of the moment m that is kept in a step"""
    beta2: Fraction = 0.999
    """the share of the moment v that is kept in a step"""
    epsilon: Positive = 1e-8
    """what keeps the divisor above 0"""
    weight_decay: Strength = 0.0
    """times w, it is added to the direction: an L2 term"""

    decoupled: ClassVar[bool] = False

    @property
    def counted(self) -> bool:
        return True

    def moments(self, w: Tensor) -> Vectors:
        return {"m": torch.zeros_like(w), "v": torch.zeros_like(w)}

    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Scalar, n: Scalar) -> None:
        if self.decoupled:
            w.mul_(1 - lr * self.weight_decay)
        else:
            g = _decayed(g, w, self.weight_decay)
        m = moments["m"].lerp_(g, 1 - self.beta1)
        v = moments["v"].mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        share = _share(self.beta2, n)
        root = share.sqrt() if isinstance(share, Tensor) else sqrt(share)
        divisor = (v.sqrt() / root).add_(self.epsilon)
        _move(w, m / divisor, lr / _share(self.beta1, n))


@dataclass(frozen=True)
class AdamW(Adam, name="adamw"):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019; as `torch.optim.AdamW`).

        w <- w - lr * weight_decay * w,    then the step of `adam` along g, without weight decay

    g `[D]` is the method's direction.
    """

    weight_decay: Strength = 0.01
    """times lr and w, it is taken from w beside the step"""
    decoupled: ClassVar[bool] = True


@dataclass(frozen=True)
class Adagrad(Optimiser, name="adagrad"):
    """Adagrad: steps divided by the root of all squared gradients (Duchi et al. 2011; as `torch.optim.Adagrad`).

        v <- v + g^2                                                                          `initial` at first
        w <- w - lr / (1 + (n - 1) * lr_decay) * g / (sqrt(v) + epsilon)

    g `[D]` is the method's direction with the weight decay in it, and n = 1, 2, ... the number of the step.
    """

    lr_decay: Strength = 0.0
    """how fast the rate falls with the number of steps"""
    initial: Strength = 0.0
    """all entries of v before the first step"""
    epsilon: Positive = 1e-10
    """what keeps the divisor above 0"""
    weight_decay: Strength = 0.0
    """times w, it is added to the direction: an L2 term"""

    @property
    def counted(self) -> bool:
        return self.lr_decay > 0

    def moments(self, w: Tensor) -> Vectors:
        return {"v": torch.full_like(w, self.initial)}

    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Scalar, n: Scalar) -> None:
        g = _decayed(g, w, self.weight_decay)
        v = moments["v"].addcmul_(g, g)
        if self.lr_decay:
            lr = lr / (1 + (n - 1) * self.lr_decay)
        _move(w, g / (v.sqrt() + self.epsilon), lr)


@dataclass(frozen=True)
class RMSprop(Optimiser, name="rmsprop"):
    """RMSprop: steps divided by the root of the mean squared gradient (Hinton 2012; as `torch.optim.RMSprop`).

        v <- alpha * v + (1 - alpha) * g^2,    d = g / (sqrt(v) + epsilon)                    v = 0 at first
        w <- w - lr * d                                    with momentum: b <- momentum * b + d,  w <- w - lr * b

    If `centered`, v - a^2 takes the place of v in d, with the mean gradient a <- alpha * a + (1 - alpha) * g.
    """

    alpha: Fraction = 0.99
    """the share of v that is kept in a step"""
    epsilon: Positive = 1e-8
    """what keeps the divisor above 0"""
    momentum: Fraction = 0.0
    """the share of the last step that goes on; 0 for none"""
    centered: bool = False
    """whether steps are divided by the root of the gradient's variance in place of its mean square"""
    weight_decay: Strength = 0.0
    """times w, it is added to the direction: an L2 term"""

    def moments(self, w: Tensor) -> Vectors:
        moments = {"v": torch.zeros_like(w)}
        if self.centered:
            moments["a"] = torch.zeros_like(w)
        if self.momentum:
            moments["b"] = torch.zeros_like(w)
        return moments

    def advance(self, w: Tensor, moments: Vectors, g: Tensor, lr: Scalar, n: Scalar) -> None:
        g = _decayed(g, w, self.weight_decay)
        v = moments["v"].mul_(self.alpha).addcmul_(g, g, value=1 - self.alpha)
        if self.centered:
            a = moments["a"].lerp_(g, 1 - self.alpha)
            v = torch.addcmul(v, a, a, value=-1).clamp(min=0)  # rounding may leave a little less than 0
        d = g / (v.sqrt() + self.epsilon)
        if self.momentum:
            d = moments["b"].mul_(self.momentum).add_(d)
        _move(w, d, lr)


OPTIMISERS = Optimiser.by_name


def _decayed(g: Tensor, w: Tensor, weight_decay: float) -> Tensor:
    """The direction `g` with weight decay as an L2 term: `g + weight_decay * w`."""
    if not weight_decay:
        return g
    return torch.add(g, w, alpha=weight_decay)


def _move(w: Tensor, direction: Tensor, lr: Scalar) -> None:
    """`w <- w - lr * direction`, in place."""
    if isinstance(lr, Tensor):
        w.sub_(lr * direction)
    else:
        w.sub_(direction, alpha=lr)


def _share(beta: float, n: Scalar) -> Scalar:
    """1 - beta^n, for a tensor in a way that is exact in float32, too."""
    if isinstance(n, Tensor) and beta > 0:
        return -torch.expm1(n * log(beta))
    return 1 - beta**n
