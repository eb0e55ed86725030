"""FedJAX's LSTM for Shakespeare, as WiMA trains it.

With the gates' inputs `z_t` = W x_t + U h_{t-1} + b `[B, 4H]`, in the order i, g, f, o:

    c_t = sigmoid(f + 1) * c_{t-1} + sigmoid(i) * tanh(g),    h_t = sigmoid(o) * tanh(c_t),    h_0 = c_0 = 0

On a CPU, one client at a time, this is PyTorch's own LSTM. It can't be vectorised over clients, so for them there is a
second form in plain tensor operations: W x_t + b is one product for all positions, and the rest is `Recurrence`. Its
gradient is written by hand, because autograd would compute and add the `[4H, H]` gradient of U at every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Doc

from ..settings.errors import check
from ..vector.private_torch import transformed
from .parts import network


def shakespeare_lstm(
    shape: Sequence[int],
    classes: int,
    embedding: Annotated[int, Doc("the length of a character's vector")] = 8,
    width: Annotated[int, Doc("the length of each LSTM's state")] = 256,
) -> nn.Module:
    """LSTM for next characters (FedJAX; WiMA, Shakespeare): 820,522 parameters for 90 characters.

        embedding 8 -> LSTM 256 -> tanh -> LSTM 256 -> tanh -> fc classes

    at every position. The input `[B, T]` holds the numbers of characters, of any type; the output is `[B, T, classes]`.
    Each layer has one bias vector. Initial values are those of Haiku: the embedding is standard normal, all other
    weights are normal with standard deviation 1/sqrt(fan in), where an LSTM's fan in counts x and h. Both are truncated
    at two standard deviations; biases are 0. Raises `SettingError` for inputs of another shape or sizes below 1.
    """
    check(len(shape) == 1, "shakespeare_lstm: shape of one input", tuple(shape), "must be (characters,)")
    for name, size in (("embedding", embedding), ("width", width)):
        check(type(size) is int and size > 0, f"shakespeare_lstm.{name}", size, "must be a positive integer")
    characters = Characters(classes, embedding)
    classifier = nn.Linear(width, classes)
    features = nn.Sequential(characters, LSTM(embedding, width), nn.Tanh(), LSTM(width, width), nn.Tanh())
    _start(characters.weight, fan_in=1)
    _start(classifier.weight, fan_in=width)
    nn.init.zeros_(classifier.bias)
    return network(features, classifier)


class Characters(nn.Embedding):
    """A vector for each character. The numbers of characters may be floats."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.long())


class LSTM(nn.Module):
    """One layer: x `[B, T, I]` gives h `[B, T, H]`, from h_0 = c_0 = 0 for every sequence.

    Under autocast only W x_t + b is computed in another type. h and c go through all positions, and so would their
    rounding.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.empty(4 * width, inputs))
        self.U = nn.Parameter(torch.empty(4 * width, width))
        self.b = nn.Parameter(torch.zeros(4 * width))
        _start(self.W, fan_in=inputs + width)
        _start(self.U, fan_in=inputs + width)

    def forward(self, x: Tensor) -> Tensor:
        width = self.U.shape[1]
        device = x.device.type
        b = self.b + F.pad(self.b.new_ones(width), (2 * width, width))
        if device == "cpu" and not transformed() and not torch.is_autocast_enabled(device):
            start = x.new_zeros(1, len(x), width)
            weights = [_as_in_pytorch(p) for p in (self.W, self.U, b, torch.zeros_like(b))]
            output, _, _ = torch.lstm(
                x,
                (start, start),
                weights,
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=self.training,
                bidirectional=False,
                batch_first=True,
            )
            return output
        a = F.linear(x, self.W, b)
        with torch.autocast(device, enabled=False):
            h: Tensor
            h, _, _ = Recurrence.apply(  # type: ignore[no-untyped-call]
                a.to(self.U.dtype).unsqueeze(0), self.U.unsqueeze(0)
            )
        return h.squeeze(0)


class Recurrence(torch.autograd.Function):
    """h, c `[C, B, T, H]` and z `[C, B, T, 4H]` from a `[C, B, T, 4H]` and U `[C, 4H, H]`.

    a_t = W x_t + b, where f's part includes its + 1.
    """

    @staticmethod
    def forward(a: Tensor, U: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps = []
        h = c = a.new_zeros(a.shape[0], a.shape[1], U.shape[2])
        for a_t in a.unbind(2):
            z = torch.baddbmm(a_t, h, U.mT)
            i, g, f, o = z.chunk(4, dim=-1)
            c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
            h = o.sigmoid() * c.tanh()
            steps.append((h, c, z))
        h, c, z = (torch.stack(positions, dim=2) for positions in zip(*steps, strict=True))
        return h, c, z

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, U = inputs
        ctx.save_for_backward(U, *output)

    @staticmethod
    def backward(ctx: Any, dh: Tensor, *_: Tensor) -> Any:
        return RecurrenceGradient.apply(dh, *ctx.saved_tensors)  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], *tensors: Tensor) -> Any:
        return _vectorised(Recurrence, info.batch_size, in_dims, tensors)


class RecurrenceGradient(torch.autograd.Function):
    """The gradients with respect to a and U from the gradient with respect to h, backwards through the positions.

    z_t affects the loss through c_t (by i, g and f) and through h_t (by o). The factors of the chain rule are computed
    for all positions at once. Second derivatives are not available and raise an error.
    """

    @staticmethod
    def forward(dh: Tensor, U: Tensor, h: Tensor, c: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        i, g, f, o = z.chunk(4, dim=-1)
        i = i.sigmoid()
        g = g.tanh()
        f = f.sigmoid()
        o = o.sigmoid()
        t = c.tanh()
        factors = torch.cat([g * i * (1 - i), i * (1 - g * g), _before(c) * f * (1 - f), t * o * (1 - o)], dim=-1)
        to_c = o * (1 - t * t)
        dz = torch.zeros_like(z[:, :, 0])
        dc = torch.zeros_like(c[:, :, 0])
        dz_backwards = []
        backwards = [x.unbind(2)[::-1] for x in (dh, to_c, factors, f)]
        for dh_t, to_c_t, factors_t, f_t in zip(*backwards, strict=True):
            dh_t = torch.baddbmm(dh_t, dz, U)
            dc = torch.addcmul(dc, dh_t, to_c_t)
            dz = torch.cat([dc, dc, dc, dh_t], dim=-1) * factors_t
            dc = dc * f_t
            dz_backwards.append(dz)
        da = torch.stack(dz_backwards[::-1], dim=2)
        dU = da.flatten(1, 2).mT @ _before(h).flatten(1, 2)
        return da, dU

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        """Save nothing, since there is no second derivative."""

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[int | None], *tensors: Tensor) -> Any:
        return _vectorised(RecurrenceGradient, info.batch_size, in_dims, tensors)


def _as_in_pytorch(p: Tensor) -> Tensor:
    """A parameter `[4H, ...]` with the gates in the order i, f, g, o: as 2 x 2 gates they are transposed."""
    return p.view(2, 2, -1, *p.shape[1:]).transpose(0, 1).flatten(0, 2)


def _vectorised(function: Any, clients: int, in_dims: Sequence[int | None], tensors: Sequence[Tensor]) -> Any:
    """A function of tensors `[C, ...]` under `vmap`: the vectorised dimension is merged into C."""
    merged = []
    for x, dim in zip(tensors, in_dims, strict=True):
        rows = x.expand(clients, *x.shape) if dim is None else x.movedim(dim, 0)
        merged.append(rows.flatten(0, 1))
    results = function.apply(*merged)
    return tuple(x.unflatten(0, (clients, -1)) for x in results), (0,) * len(results)


def _before(x: Tensor) -> Tensor:
    """`x` `[C, B, T, H]` moved by one position: the value at t is that at t - 1, and 0 at the first position."""
    return F.pad(x, (0, 0, 1, 0))[:, :, :-1]


def _start(weight: Tensor, fan_in: int) -> None:
    """Give a weight its initial values: normal, truncated at two standard deviations."""
    deviation = fan_in**-0.5
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)
