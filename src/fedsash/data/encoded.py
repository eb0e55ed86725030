"""Images that stay encoded until a batch needs them. They take the place of a tensor of all pixels."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..vector.arrays import Ints
from .inputs import Inputs, ModelInput, each
from .sources.formats.memory import check_room
from .sources.formats.pixels import Decoder

AHEAD = 2
"""How many batches are decoded in the background, in addition to the one in use."""

PIECE = 8
"""How many images a thread decodes in one task."""


class EncodedImages:
    """Images that behave like a uint8 tensor `[n, H, W, channels]`, but are decoded at each access and not kept.

    Image i is in row `rows[i]` of the decoder's part (without `rows`: in row i). Pixels are returned on `device`.
    Indexing returns a tensor; `only` returns encoded images. The same images always have the same pixels. A damaged
    image raises the decoder's error when its batch is used.
    """

    dtype = torch.uint8
    ndim = 4

    def __init__(self, decoder: Decoder, rows: Ints | None = None, device: torch.device | str = "cpu") -> None:
        self.decoder = decoder
        self.device = torch.device(device)
        if rows is None:
            rows = np.arange(len(decoder.part.images))
        self.rows = rows

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor, `[n, H, W, channels]`."""
        return torch.Size((len(self.rows), *self.decoder.shape))

    def __len__(self) -> int:
        return len(self.rows)

    def dim(self) -> int:
        """The number of dimensions, 4."""
        return self.ndim

    def is_floating_point(self) -> bool:
        """False, since pixels are bytes."""
        return False

    def to(self, device: torch.device | str) -> EncodedImages:
        """The same images, with pixels on `device`."""
        return EncodedImages(self.decoder, self.rows, device)

    def only(self, index: Tensor) -> EncodedImages:
        """The images at `index` (int64 or bool), in that order, still encoded."""
        return EncodedImages(self.decoder, self.rows[index.cpu().numpy()], self.device)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        positions = np.arange(len(self))
        if isinstance(index, slice):
            return _Batch(self, positions[index]).pixels()
        return _Batch(self, positions[index.cpu().numpy()]).pixels()

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The pixels of the images at `index` `[b]`, `[b, H, W, channels]`; `dim` is 0."""
        return self[index]

    def ahead(self, batches: Iterable[Ints]) -> EncodedImages:
        """The same images, where the coming `batches` (indices `[b]` each) are decoded in the background.

        Batches must be selected in this order; at most `AHEAD` are decoded in advance. Other selections may come in
        between.
        """
        return _Ahead(self, batches)


Features: TypeAlias = Tensor | EncodedImages | Inputs
"""The samples' `x`: a tensor, images that are decoded batch by batch, or several tensors."""


def split(x: Features, size: int) -> Iterable[ModelInput]:
    """All samples in batches of `size`, which are copies: a model may change its input in place.

    Encoded images of the next batches are decoded in the background.
    """
    if not isinstance(x, EncodedImages):
        for batch in x.split(size):
            yield each(batch, torch.clone)
        return
    batches = [np.arange(start, min(start + size, len(x))) for start in range(0, len(x), size)]
    ahead = x.ahead(batches)
    for index in batches:
        yield ahead.index_select(0, torch.from_numpy(index))


class _Ahead(EncodedImages):
    """Images whose coming batches are decoded in the background, as `EncodedImages.ahead` makes them."""

    def __init__(self, x: EncodedImages, batches: Iterable[Ints]) -> None:
        super().__init__(x.decoder, x.rows, x.device)
        self._coming = (_Batch(x, index) for index in batches)
        self._begun = deque(islice(self._coming, AHEAD))

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        is_next = len(self._begun) > 0 and np.array_equal(self._begun[0].index, index.cpu().numpy())
        if not is_next:
            return super().index_select(dim, index)
        batch = self._begun.popleft()
        self._begun.extend(islice(self._coming, 1))
        return batch.pixels()


class _Batch:
    """The images at `index` of `x` while they are decoded. An image that occurs twice is decoded once."""

    def __init__(self, x: EncodedImages, index: Ints) -> None:
        self.index = index
        self._device = x.device
        rows, self._places = np.unique(x.rows[index], return_inverse=True)
        check_room(len(rows) * math.prod(x.decoder.shape), f"a batch of {len(rows)} images {list(x.decoder.shape)}")
        self._out = np.empty((len(rows), *x.decoder.shape), dtype=np.uint8)
        # The pool is kept for a process and its number of threads: a forked process has the object, not its threads.
        pool = _pool(os.getpid(), torch.get_num_threads())
        self._tasks = []
        for start in range(0, len(rows), PIECE):
            piece = slice(start, start + PIECE)
            self._tasks.append(pool.submit(x.decoder.into, self._out[piece], rows[piece].tolist()))

    def pixels(self) -> Tensor:
        """The pixels; waits until all are decoded."""
        for task in self._tasks:
            task.result()
        return torch.from_numpy(self._out[self._places]).to(self._device)


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """As many threads as PyTorch has in this process: one in a worker or an actor, since others use the other cores."""
    return ThreadPoolExecutor(threads)
