"""The summary of a run: its results, and what it took."""

from __future__ import annotations

from typing import Any

import torch

from ..basics.machine import versions
from ..basics.posix import forget_peak_memory, peak_memory
from ..evaluation import Chronicle, History
from ..federation import Federation
from ..state import State
from .summaries import summarise
from .tally import Tally


def summary(
    federation: Federation,
    state: State,
    tally: Tally,
    history: History,
    chronicle: Chronicle | None,
    stopped: str,
) -> dict[str, Any]:
    """What `summary.json` holds. The `federation` must still be at work, so that its processes' memory is counted.

    `stopped` says why a callback has stopped the run, or is empty.
    """
    kept = {name: best.round for name, best in tally.best.items()}
    more = {} if chronicle is None else chronicle.summary(history, federation.goal.criterion)
    return (
        more
        | summarise(history, federation.evaluation, federation.goal.criterion, kept)
        | {
            "stuck": history.stuck(state.round),
            "ended_early": stopped or more.get("ended_early", ""),
            "rounds": state.round,
            "seconds": tally.seconds,
            "samples_per_second": tally.samples / tally.training_seconds if tally.training_seconds else None,
            "peak_memory_bytes": _peak_memory(federation),
            "versions": versions() | {"torch": str(torch.__version__)},  # which names its build, too
            "device": str(state.w.device),
            "engine": federation.described(),
            "seed": federation.seed,
        }
    )


def forget_peaks() -> None:
    """Let the memory of a session be that since its beginning: a process may train one run after another."""
    forget_peak_memory()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak_memory(federation: Federation) -> int | None:
    """The largest memory of this process in this session, of the federation's others and on a GPU, in bytes; None if
    unknown."""
    own = peak_memory()
    on_gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return None if own is None else own + on_gpu + federation.memory()
