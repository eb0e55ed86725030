"""The processor time of an update of an EMA, at three sizes, in one run and one thread."""

from __future__ import annotations

import gc
import time
from typing import Any

import torch
from torch import nn

from .adapters import ADAPTERS, OfTracker

SIZES = {1_200_000: 60, 21_000_000: 20, 86_000_000: 8}
"""How often each is updated, by the number of parameters."""


class Parameters(nn.Module):
    """Nothing but parameters, of the lengths in its `config`."""

    def __init__(self, config: list[int]) -> None:
        super().__init__()
        self.config = config
        self.values = nn.ParameterList([nn.Parameter(torch.randn(length)) for length in config])


def module_of(size: int) -> nn.Module:
    """A module of `size` parameters in 160 tensors, two thirds of them short, as in networks for images."""
    return Parameters([256] * 106 + [(size - 256 * 106) // 54] * 54)


class WithoutLook(OfTracker):
    """A tracker that does not look for values that are not finite, which it does not offer: what the look costs."""

    def __init__(self, module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        super().__init__(module, optimiser)
        for group in self.tracker._groups:
            group.not_finite = _none_not_finite  # type: ignore[method-assign]


def _none_not_finite(*_: object, **__: object) -> set[str]:
    return set()


TIMED = ADAPTERS | {"fs.Tracker without its look for NaN": WithoutLook}


def seconds_of_updates(size: int, repeats: int) -> dict[str, float]:
    """The least processor time of an update of one module, by the averagers' names; they take turns."""
    module = module_of(size)
    loops: dict[str, tuple[torch.optim.Optimizer, Any]] = {}
    for name, adapter in TIMED.items():
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        loops[name] = (optimiser, adapter(module, optimiser))
    least = dict.fromkeys(loops, float("inf"))
    gc.disable()
    for _ in range(repeats):
        for name, (optimiser, averager) in loops.items():
            began = time.process_time()
            optimiser.step()  # without gradients: it calls its hooks
            averager.update()
            least[name] = min(least[name], time.process_time() - began)
    gc.enable()
    return least


def speed_table() -> str:
    """Ratios to the fastest of the others, by size."""
    columns = {size: seconds_of_updates(size, repeats) for size, repeats in SIZES.items()}
    heads = [f"{size / 1e6:g} M" for size in SIZES]
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for name in TIMED:
        cells: list[str] = []
        for seconds in columns.values():
            fastest = min(value for other, value in seconds.items() if not other.startswith("fs."))
            cells.append(f"{seconds[name] / fastest:.2f} ({seconds[name] * 1e3:.2f} ms)")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
