"""The summary of a run: its results, and what it took."""

from __future__ import annotations

import platform
import resource
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from ...exchange import Chronicle
from ...state import State
from ..summaries import stuck, summarise
from .driver import Driver


def summary(
    federation: Driver, state: State, history: list[dict[str, Any]], chronicle: Chronicle | None, stopped: str
) -> dict[str, Any]:
    """What `summary.json` holds. The `federation` must still be at work, so that its processes' memory is counted.

    `stopped` says why a callback has stopped the run, or is empty.
    """
    more = {} if chronicle is None else chronicle.summary(history, federation.goal.criterion)
    return (
        more
        | summarise(history, federation.evaluation, federation.goal.criterion)
        | {
            "stuck": stuck(history, state.round),
            "ended_early": stopped or more.get("ended_early", ""),
            "rounds": state.round,
            "seconds": state.seconds,
            "samples_per_second": state.samples / state.training_seconds if state.training_seconds else None,
            "peak_memory_bytes": _peak_memory() + federation.memory(),
            "versions": {
                "python": platform.python_version(),
                "fedsash": version("fedsash"),
                "torch": str(torch.__version__),
                "numpy": np.__version__,
            },
            "device": str(state.w.device),
            "engine": federation.described(),
            "seed": federation.seed,
        }
    )


def _peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes, plus the largest memory allocated on a GPU."""
    unit = 1 if sys.platform == "darwin" else 1024
    on_gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit + on_gpu
