"""Running sums with twice the precision of float64.

A sum is a pair of float64 vectors `[d]`, `high + low`. Each addition rounds `high`; the rounding error is itself a
float64 number (Knuth's two-sum) and is added to `low`. So a model that was added and later subtracted leaves no error,
even if its values were large: after n additions the error is below n^2 * 2^-106 times the largest sum so far.
"""

from __future__ import annotations

import torch
from torch import Tensor


def exact_device(w: Tensor) -> torch.device:
    """The device for float64 sums of vectors like `w`: that of `w`, or the CPU if it has no float64 (Apple's MPS)."""
    return torch.device("cpu") if w.device.type == "mps" else w.device


def zero(w: Tensor) -> Tensor:
    """A float64 vector of zeros as long as `w`."""
    return torch.zeros(w.shape, dtype=torch.float64, device=exact_device(w))


def add(high: Tensor, low: Tensor, plus: Tensor | None = None, minus: Tensor | None = None) -> None:
    """`high + low += plus - minus`, in place; all are vectors `[d]`."""
    chunk = _chunk(high)
    terms = [(v is minus, torch.split(v.to(high.device), chunk)) for v in (minus, plus) if v is not None]
    for i, (h, error) in enumerate(zip(torch.split(high, chunk), torch.split(low, chunk), strict=True)):
        total = h
        for leaves, pieces in terms:
            term = -pieces[i] if leaves else pieces[i]
            total, rest = _two_sum(total, term.to(torch.float64))
            error += rest
        h.copy_(total)


def mean(high: Tensor, low: Tensor, count: int, like: Tensor) -> Tensor:
    """`(high + low) / count` `[d]`, rounded once to the type of `like` (see `_divide`) and on its device."""
    out = torch.empty_like(like, device=high.device)
    divide = _divide_once if like.element_size() < 8 else _divide
    chunk = _chunk(high)
    for h, error, o in zip(*(torch.split(v, chunk) for v in (high, low, out)), strict=True):
        o.copy_(divide(h, error, count))
    return out.to(like.device)


def _chunk(v: Tensor) -> int:
    """How many elements to process at once: temporaries fit into a core's cache, or into little device memory."""
    return 2**14 if v.device.type == "cpu" else 2**22


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """`(s, e)` with `s = a + b` rounded and `s + e = a + b` exactly (Knuth); `a` may be smaller than `b`."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _divide_once(high: Tensor, low: Tensor, count: int) -> Tensor:
    """The mean with an error of about one float64 rounding: precise enough for every narrower type."""
    return (high + low) / count


def _divide(high: Tensor, low: Tensor, count: int) -> Tensor:
    """The mean as the nearest float64, so that the mean of equal models is that model.

    It divides twice: first the sum, then the remainder of that division.
    """
    total, rest = _two_sum(high, low)
    quotient = total / count
    # The quotient's upper 26 and lower 27 bits times a count below 2**26 are exact, and so is the remainder.
    upper = (quotient.view(torch.int64) & -(1 << 27)).view(torch.float64)
    remainder = ((total - upper * count) - (quotient - upper) * count) + rest
    return quotient + remainder / count
