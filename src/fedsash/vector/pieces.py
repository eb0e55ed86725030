"""A model's vector that lies in pieces in memory, as the parameters of a module do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from .private_torch import lerp_all

SHORT = 4096
"""Entries below which it is quicker to copy a piece than to call PyTorch for it alone."""


class Pieces:
    """A vector `w` `[d]` in pieces that follow each other: flat tensors of one type on one device.

    The pieces are not copied: they are the live parameters of a module, or a single flat vector. So whoever keeps `w`
    takes a copy, for example of `whole()`. They are without gradients.
    """

    def __init__(self, pieces: Sequence[Tensor]) -> None:
        self.pieces = pieces
        self.lengths = [piece.numel() for piece in pieces]
        self.size = sum(self.lengths)

    @classmethod
    def of(cls, w: Tensor | Pieces) -> Pieces:
        """The vector `w` `[d]` in one piece; pieces stay as they are."""
        if isinstance(w, Pieces):
            return w
        return cls([w.detach()])

    def whole(self) -> Tensor:
        """The vector `[d]` as one tensor; of a single piece, that piece itself."""
        return _joined(self.pieces)

    def cut(self, ranges: Sequence[tuple[int, int]]) -> Pieces:
        """The entries of some ascending ranges, as views."""
        if list(ranges) == [(0, self.size)]:
            return self
        views = []
        first = 0
        for piece in self.pieces:
            last = first + len(piece)
            for range_start, range_stop in ranges:
                start = max(range_start, first)
                stop = min(range_stop, last)
                if start < stop:
                    views.append(piece[start - first : stop - first])
            first = last
        return Pieces(views or [self.pieces[0][:0]])  # of ranges without an entry, as a process's shard may be

    def chunks(self, most: int) -> Iterator[Tensor]:
        """The vector in successive flat tensors of `most` entries, the last maybe shorter.

        They are views, except where pieces meet: there a small copy joins them.
        """
        parts: list[Tensor] = []
        room = most
        for piece, length in zip(self.pieces, self.lengths, strict=True):
            start = 0
            while start < length:
                part = piece[start : start + room]
                start = start + len(part)
                room = room - len(part)
                parts.append(part)
                if not room:
                    yield _joined(parts)
                    parts = []
                    room = most
        if parts:
            yield _joined(parts)

    def beside(self, most: int, *vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Its chunks, each with the same entries of some vectors `[d]` as views."""
        start = 0
        for chunk in self.chunks(most):
            stop = start + len(chunk)
            yield chunk, *(vector[start:stop] for vector in vectors)
            start = stop

    def on(self, device: torch.device) -> Pieces:
        """The vector on a device: itself if it lies there, else a copy, in one piece.

        The pieces on a GPU are copied into pinned memory without a pause between them, and waited for once.
        """
        source = self.pieces[0].device
        if source == device:
            return self
        pinned = source.type == "cuda" and device.type == "cpu"
        copy = torch.empty(self.size, dtype=self.pieces[0].dtype, device=device, pin_memory=pinned)
        for target, piece in zip(torch.split(copy, self.lengths), self.pieces, strict=True):
            target.copy_(piece, non_blocking=pinned)
        if pinned:
            torch.cuda.current_stream(source).synchronize()  # else the copy could be read before it is there
        return Pieces([copy])

    def copy_to(self, vector: Tensor) -> None:
        """Copy it into `vector` `[d]`, of any type on any device (see `rounded`)."""
        if vector.dtype != self.pieces[0].dtype:
            for chunk, part in self.beside(2**18, vector):
                part.copy_(rounded(chunk, vector.dtype))
            return
        for target, piece in zip(torch.split(vector, self.lengths), self.pieces, strict=True):
            target.copy_(piece)

    def draw(self, vector: Tensor, share: float) -> None:
        """Move `vector` `[d]` towards it, in place: `vector += share * (w - vector)`, in the type of `vector`."""
        if vector.dtype == self.pieces[0].dtype and vector.device == self.pieces[0].device:
            lerp_all(torch.split(vector, self.lengths), self.pieces, share)
            return
        for chunk, target in self.beside(4 * chunk_of(vector), vector):
            target.lerp_(chunk.to(target), share)

    def finite(self) -> bool:
        """Whether all values are finite."""
        # A sum takes a twentieth of the time of `isfinite(w).all()`. It may overflow; then the extremes decide.
        return self._finite(torch.sum) or self._finite(lambda piece: torch.stack(torch.aminmax(piece)))

    def _finite(self, summary: Callable[[Tensor], Tensor]) -> bool:
        """Whether the summaries of all pieces, such as their sums, are finite."""
        summaries = [summary(part) for part in self._parts()]
        return not summaries or bool(torch.stack(summaries).isfinite().all())

    def _parts(self) -> list[Tensor]:
        """All values in fewer tensors: the short pieces are joined, as each call of PyTorch costs more than they do."""
        parts: list[Tensor] = []
        short: list[Tensor] = []
        for piece, length in zip(self.pieces, self.lengths, strict=True):
            if length >= SHORT:
                parts.append(piece)
            elif length:
                short.append(piece)
        if short:
            parts.append(_joined(short))
        return parts


def rounded(v: Tensor, dtype: torch.dtype) -> Tensor:
    """The finite `v` in another type: the nearest number of this type, so never an infinite one."""
    if v.dtype == dtype:
        return v
    most = min(torch.finfo(dtype).max, torch.finfo(v.dtype).max)
    return v.clamp(-most, most).to(dtype)


def chunk_of(v: Tensor) -> int:
    """How many elements to process at once: temporaries fit into a core's cache, or into little device memory."""
    return 2**14 if v.device.type == "cpu" else 2**22


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    """The pieces as one tensor; a single one itself."""
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat(list(pieces))
