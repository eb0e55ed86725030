"""Local steps of a stacked block as one compiled function."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from ..basics.private_torch import compiled
from ..local import Trainer
from ..methods import Vectors

log = logging.getLogger("fedsash")

UNROLLED = 4
"""Where all clients take the same number of local steps, up to this one, they become one function together."""


class CompiledSteps:
    """`Trainer.steps` as machine code for the one shape that its padded blocks have.

    The steps are first recorded as a flat graph of tensor operations (so methods may use any Python), then compiled
    by PyTorch's Inductor, which keeps the code on disk for the next run.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._steps = trainer.steps
        self._run: Callable[..., Any] | None = None

    def __call__(self, w: Tensor, v: Tensor | None, *rest: Tensor, vectors: tuple[Vectors, ...]) -> None:
        moving = (w,) if v is None else (w, v)
        tensors = [*moving, *rest, *(tensor for named in vectors for tensor in named.values())]
        if self._run is None:

            def steps(*flat: Tensor) -> None:
                left: Iterator[Tensor] = iter(flat)
                w, v_or_none = next(left), None if v is None else next(left)
                plain = [next(left) for _ in rest]
                self._steps(w, v_or_none, *plain, vectors=[{name: next(left) for name in named} for named in vectors])

            self._run = _compile(steps, tensors)
        self._run(*tensors)


def compile_steps(trainer: Trainer, block: int) -> None:
    """Let a trainer of stacked blocks run compiled steps, in blocks padded to `block` clients."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder()))
    steps = trainer.local.cut.numbers(trainer.batches.sizes, trainer.local.epochs)[0]
    if steps.min() == steps.max() <= UNROLLED:
        trainer.unrolled = int(steps.max())
    trainer.padded = block
    trainer.steps = CompiledSteps(trainer)


def cache_folder() -> Path:
    """Where compiled code is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedsash" / "compiled"


def _compile(steps: Callable[..., None], tensors: list[Tensor]) -> Callable[..., Any]:
    """The steps as machine code; as they are, with a line in the log, where there is no C++ compiler."""
    try:
        return compiled(steps, tensors)
    except RuntimeError as error:  # which class it is depends on PyTorch's version
        if "C++ compiler" not in str(error):
            raise
        log.warning("no C++ compiler was found, so local steps run uncompiled: install g++ (or set CXX)")
        return steps
