"""Running sums with twice the precision of float64.

A sum is a pair of float64 vectors `[d]`, `high + low`. Each addition rounds `high`; the rounding error is itself a
float64 number (Knuth's two-sum) and is added to `low`. So a model that was added and later subtracted leaves no error,
even if its values were large: after n additions the error is below n^2 * 2^-106 times the largest sum so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .pieces import Pieces, chunk_of


def exact_device(w: Tensor) -> torch.device:
    """The device for float64 sums of vectors like `w`: that of `w`, or the CPU if it has no float64 (Apple's MPS)."""
    return torch.device("cpu") if w.device.type == "mps" else w.device


def zero(w: Tensor) -> Tensor:
    """A float64 vector of zeros as long as `w`."""
    return torch.zeros(w.shape, dtype=torch.float64, device=exact_device(w))


def add(high: Tensor, low: Tensor, plus: Sequence[Pieces] = (), minus: Sequence[Pieces] = ()) -> None:
    """`high + low += sum(plus) - sum(minus)`, in place; all are vectors `[d]`.

    It is one pass over memory, chunk by chunk, with temporaries that stay in a core's cache.
    """
    most = chunk_of(high)
    signs = [-1] * len(minus) + [1] * len(plus)
    rows = torch.empty((4, min(most, len(high))), dtype=torch.float64, device=high.device)
    chunks = zip(*(w.chunks(most) for w in (*minus, *plus)), strict=True)
    for h, error, terms in zip(torch.split(high, most), torch.split(low, most), chunks, strict=False):
        b, s, t, e = rows[:, : len(h)].unbind()
        a = h
        for x, sign in zip(terms, signs, strict=True):
            out = s if a is h else h
            a, rest = two_sum(a, b.copy_(x), sign, (out, t, e))
            error += rest
        if a is not h:
            h.copy_(a)


def mean(high: Tensor, low: Tensor, count: int, like: Tensor) -> Tensor:
    """`(high + low) / count` `[d]`, rounded to the type of `like` (see `_divide`) and on its device.

    It is rounded to float64 and from there to a narrower type, to 16 bits by way of float32. So where the exact mean is
    nearly halfway between two numbers, it may be the farther one. It is off by half a last bit and at most another
    2^-28 of that bit for float32, 2^-13 for float16, 2^-16 for bfloat16 and 2^-48 for float64, apart from the error of
    the sum. `exact_means` rounds once, but needs all values at once.
    """
    out = torch.empty_like(like, device=high.device)
    divide = _divide_once if like.element_size() < 8 else _divide
    chunk = chunk_of(high)
    for h, error, o in zip(*(torch.split(v, chunk) for v in (high, low, out)), strict=True):
        o.copy_(divide(h, error, count))
    return out.to(like.device)


def fill(high: Tensor, low: Tensor, w: Tensor, count: int) -> None:
    """`high + low = count * w`, exactly for a `count` below 2^26, so that the mean is `w` `[d]` again."""
    upper, lower = _halves(w.to(high))
    high.copy_(upper * count)
    low.copy_(lower * count)
    total, rest = two_sum(high, low)
    high.copy_(total)
    low.copy_(rest)


Scratch = tuple[Tensor | None, Tensor | None, Tensor | None]


def two_sum(a: Tensor, b: Tensor, sign: int = 1, scratch: Scratch = (None, None, None)) -> tuple[Tensor, Tensor]:
    """`(s, e)` with `s = a + sign * b` rounded and `s + e = a + sign * b` exactly (Knuth); |a| may be below |b|.

    `scratch` has room for s, for an intermediate result and for e; new tensors are made without it.
    """
    s, t, e = scratch
    s = torch.add(a, b, alpha=sign, out=s)
    t = torch.sub(s, a, out=t)
    e = torch.sub(s, t, out=e)
    e = torch.sub(a, e, out=e)
    t = torch.sub(t, b, alpha=sign, out=t)
    return s, torch.sub(e, t, out=e)


def _divide_once(high: Tensor, low: Tensor, count: int) -> Tensor:
    """The mean with an error of about one float64 rounding: precise enough for every narrower type."""
    return (high + low) / count


def _divide(high: Tensor, low: Tensor, count: int) -> Tensor:
    """The mean as the nearest float64, so that the mean of equal models is that model.

    It divides twice: first the sum, then the remainder of that division.
    """
    total, rest = two_sum(high, low)
    quotient = total / count
    # The halves times a count below 2**26 are exact, and so is the remainder.
    upper, lower = _halves(quotient)
    remainder = ((total - upper * count) - lower * count) + rest
    return quotient + remainder / count


def _halves(v: Tensor) -> tuple[Tensor, Tensor]:
    """The upper 26 and the lower 27 bits of the float64 numbers `v`: two numbers that have the sum `v`."""
    upper = (v.view(torch.int64) & -(1 << 27)).view(torch.float64)
    return upper, v - upper
