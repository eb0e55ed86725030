"""Images that stay encoded until a batch needs them: what stands in for the tensor of all their pixels."""

from __future__ import annotations

import multiprocessing
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

from ..basics.arrays import Ints
from .formats.pixels import Decoder, cores

AHEAD = 2
"""How many batches are decoded in the background, beside the one that is in use."""

PIECE = 8
"""How many images of a batch a thread decodes at a time."""


class EncodedImages:
    """Images as a uint8 tensor `[n, H, W, channels]` whose pixels are made when they are asked for, and not kept.

    Image i is the one in row `rows[i]` (without `rows`: in row i) of the part that `decoder` reads; the pixels come out
    on `device`. What selects images answers with a tensor, but for `only`. The same images have the same pixels,
    wherever and whenever they are decoded; a damaged one raises the decoder's `ValueError` when its batch is taken.
    """

    dtype = torch.uint8
    ndim = 4

    def __init__(self, decoder: Decoder, rows: Ints | None = None, device: torch.device | str = "cpu") -> None:
        self.decoder, self.device = decoder, torch.device(device)
        self.rows = np.arange(len(decoder.part.images)) if rows is None else rows

    @property
    def shape(self) -> torch.Size:
        """That of the tensor."""
        return torch.Size((len(self.rows), *self.decoder.shape))

    def __len__(self) -> int:
        return len(self.rows)

    def dim(self) -> int:
        """That of the tensor, 4."""
        return self.ndim

    def is_floating_point(self) -> bool:
        """Never: pixels are bytes."""
        return False

    def to(self, device: torch.device | str) -> EncodedImages:
        """The same images, their pixels to come out on `device`."""
        return EncodedImages(self.decoder, self.rows, device)

    def only(self, index: Tensor) -> EncodedImages:
        """The images at `index` (int64 or bool), in that order, still encoded."""
        return EncodedImages(self.decoder, self.rows[index.cpu().numpy()], self.device)

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        return _Batch(self, np.arange(len(self))[index if isinstance(index, slice) else index.cpu().numpy()]).pixels()

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The pixels of the images at `index` `[b]`, `[b, H, W, channels]`; `dim` is 0."""
        return self[index]

    def ahead(self, batches: Iterable[Ints]) -> EncodedImages:
        """The same images for somebody who will select `batches`, one after another: the next ones are decoded already.

        `AHEAD` of them are at a time. Anything else may be selected in between.
        """
        return _Ahead(self, batches)


Pixels: TypeAlias = Tensor | EncodedImages
"""The samples' `x`: a tensor, or images that become one, a batch at a time."""


def split(x: Pixels, size: int) -> Iterable[Tensor]:
    """All samples, `size` at a time; of images that are still encoded, the next ones are decoded in the background."""
    if isinstance(x, Tensor):
        return torch.split(x, size)
    batches = [np.arange(k, min(k + size, len(x))) for k in range(0, len(x), size)]
    ahead = x.ahead(batches)
    return (ahead.index_select(0, torch.from_numpy(index)) for index in batches)


class _Ahead(EncodedImages):
    def __init__(self, x: EncodedImages, batches: Iterable[Ints]) -> None:
        super().__init__(x.decoder, x.rows, x.device)
        self._coming = (_Batch(x, index) for index in batches)
        self._begun = deque(islice(self._coming, AHEAD))

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        if not (self._begun and np.array_equal(self._begun[0].index, index.cpu().numpy())):
            return super().index_select(dim, index)
        batch = self._begun.popleft()
        self._begun.extend(islice(self._coming, 1))
        return batch.pixels()


class _Batch:
    """The images at `index` of `x`, being decoded; one that is asked for twice is decoded once."""

    def __init__(self, x: EncodedImages, index: Ints) -> None:
        self.index, self._device = index, x.device
        rows, self._places = np.unique(x.rows[index], return_inverse=True)
        self._out = np.empty((len(rows), *x.decoder.shape), dtype=np.uint8)
        pieces = [slice(k, k + PIECE) for k in range(0, len(rows), PIECE)]
        pool = _pool(os.getpid())
        self._pieces = [pool.submit(x.decoder.into, self._out[piece], rows[piece].tolist()) for piece in pieces]

    def pixels(self) -> Tensor:
        """Wait for them."""
        for piece in self._pieces:
            piece.result()
        return torch.from_numpy(self._out[self._places]).to(self._device)


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process: a forked worker has none of its parent's, and leaves the other cores to others."""
    return ThreadPoolExecutor(1 if multiprocessing.parent_process() else cores())
