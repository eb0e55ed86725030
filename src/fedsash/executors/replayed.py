"""A function on an NVIDIA GPU as one CUDA graph: all its kernels are launched at once, not one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..basics.errors import one_line

log = logging.getLogger("fedsash")

WARM = 3
"""How often a function is called before it is recorded, as PyTorch asks for."""


class Replayed:
    """Replays `run(*tensors)`, recorded for tensors of these shapes.

    A replay reads and writes the memory that was recorded: copies of the tensors, which hold what was given last. Those
    of `shared` are not copied, since they always have the same values. Raises `RuntimeError` if the function can't be
    recorded, for example because it waits for the GPU.
    """

    def __init__(self, run: Callable[..., Any], tensors: Sequence[Tensor], shared: Sequence[Tensor]) -> None:
        same = {id(t) for t in shared}
        self._shared = [id(t) in same for t in tensors]
        self._own = [t if stays else t.clone() for t, stays in zip(tensors, self._shared, strict=True)]
        self._device, self._graph = tensors[0].device, torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARM):
                    run(*self._own)
            torch.cuda.current_stream().wait_stream(aside)
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may use the GPU
                run(*self._own)

    def __call__(self, *tensors: Tensor) -> None:
        for own, given in zip(self._own, tensors, strict=True):
            if own is not given:
                own.copy_(given)
        with torch.cuda.device(self._device):
            self._graph.replay()

    def lend(self, tensors: Sequence[Tensor], but: Sequence[bool]) -> list[Tensor]:
        """The tensors: those of `but` as they are, and all others in the memory that was recorded."""
        lent = []
        for own, given, left, stays in zip(self._own, tensors, but, self._shared, strict=True):
            lent.append(given if left else own)
            if not (left or stays):
                own.copy_(given)
        return lent


def replayed(run: Callable[..., Any], tensors: Sequence[Tensor], shared: Sequence[Tensor]) -> Callable[..., Any]:
    """The function as a CUDA graph. If it can't be recorded, it is returned unchanged, with a warning in the log."""
    try:
        return Replayed(run, tensors, shared)
    except RuntimeError as error:
        log.warning("local steps can't become one CUDA graph (%s): they are launched one by one", one_line(error))
        return run
