"""A function on an NVIDIA GPU as one CUDA graph: all its kernels are launched at once, not one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..settings.errors import one_line

log = logging.getLogger("fedsash")

WARM = 3
"""How often a function is called before it is recorded, as PyTorch asks for."""


class NotRecorded(Exception):
    """The function can't be recorded, for example because it waits for the GPU."""


class Replayed:
    """Replays `run(*tensors)`, recorded for tensors of these shapes on one GPU.

    A replay reads and writes the memory that was recorded: copies of the tensors, which hold what was given last. Those
    of `shared` are not copied, since they always have the same values. Raises `NotRecorded`, and whatever `run` raises.
    """

    def __init__(self, run: Callable[..., Any], tensors: Sequence[Tensor], shared: Sequence[Tensor]) -> None:
        identities = {id(tensor) for tensor in shared}
        self._shared = [id(tensor) in identities for tensor in tensors]
        self._recorded: list[Tensor] = []
        for tensor, is_shared in zip(tensors, self._shared, strict=True):
            if is_shared:
                self._recorded.append(tensor)
            else:
                self._recorded.append(tensor.clone())
        self._device = tensors[0].device
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):  # a recording that fails does not give the stream back by itself
                for _ in range(WARM):
                    run(*self._recorded)
                self._record(run, aside)
            torch.cuda.current_stream().wait_stream(aside)

    def _record(self, run: Callable[..., Any], stream: torch.cuda.Stream) -> None:
        """Record a call of the function on this stream."""
        try:
            # Other threads may use the GPU meanwhile. PyTorch's own stream for recordings belongs to the first GPU.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                run(*self._recorded)
        except RuntimeError as error:
            raise NotRecorded(one_line(error.__context__ or error)) from error

    def __call__(self, *tensors: Tensor) -> None:
        for recorded, tensor in zip(self._recorded, tensors, strict=True):
            if recorded is not tensor:
                _put(recorded, tensor)
        with torch.cuda.device(self._device):
            self._graph.replay()

    def lend(self, tensors: Sequence[Tensor], but: Sequence[bool]) -> list[Tensor]:
        """The tensors: those of `but` as they are, and all others in the memory that was recorded."""
        lent: list[Tensor] = []
        for recorded, tensor, unchanged, is_shared in zip(self._recorded, tensors, but, self._shared, strict=True):
            if unchanged:
                lent.append(tensor)
                continue
            lent.append(recorded)
            if not is_shared:
                _put(recorded, tensor)
        return lent


def _put(recorded: Tensor, tensor: Tensor) -> None:
    """Copy a tensor into the recorded memory, without the broadcasting that `copy_` would do."""
    assert recorded.shape == tensor.shape, f"recorded for {list(recorded.shape)}, given {list(tensor.shape)}"
    recorded.copy_(tensor)


def replayed(run: Callable[..., Any], tensors: Sequence[Tensor], shared: Sequence[Tensor]) -> Callable[..., Any]:
    """The function as a CUDA graph. If it can't be recorded, it is returned unchanged, with a warning in the log."""
    try:
        return Replayed(run, tensors, shared)
    except NotRecorded as error:
        log.warning("local steps can't become one CUDA graph (%s): they are launched one by one", error)
        return run
