"""From image files to pixels: decoding, resizing, conversion to grey or RGB."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...basics.errors import DataError, check, library, one_line
from .splits import ImageSplit, Pixels, Place

if TYPE_CHECKING:
    from PIL import Image

EXTRA = "fedsash[data]"
MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Look:
    """The size and the channels of decoded images. None means: as in the first image of the split.

    `channels` is 1 (grey) or 3 (RGB). With `size` the shorter side is scaled to `zoom * size` pixels (bilinear), and
    the middle `size x size` pixels are used. `negative` turns each value v into 255 - v.
    """

    channels: int | None = None
    size: int | None = None
    zoom: float = 1.0
    negative: bool = False


AS_IT_IS = Look()


@dataclass(frozen=True, eq=False)
class Decoder:
    """Decodes images of a part on demand. The first image determines what `look` leaves open.

    Raises `DataError` for an image that can't be decoded, and `SettingError` for one whose size or channels differ from
    the first one's. Both name the file or the row.
    """

    part: ImageSplit
    look: Look

    @property
    def ready(self) -> Pixels | None:
        """All images, if they are already pixels of the wanted size; otherwise None."""
        images, look = self.part.images, self.look
        if not isinstance(images, np.ndarray) or look.channels not in (None, images.shape[3]):
            return None
        return images if look.size is None or (look.zoom == 1 and images.shape[1:3] == (look.size,) * 2) else None

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        if (ready := self.ready) is not None:
            height, width, channels = ready.shape[1:]
            return height, width, channels
        image = _open(self.part.images[0], self.part.where, 0, self.look)
        mode = image.mode if self.look.channels is None else MODES[self.look.channels]
        right = "images must be grey (L) or RGB: set channels to 1 or 3 to convert them"
        check(mode in MODES.values(), self.part.where, mode, right)
        return image.height, image.width, 1 if mode == "L" else 3

    @property
    def bytes(self) -> int:
        """The size of all pixels in bytes."""
        return math.prod((len(self.part.images), *self.shape))

    def into(self, out: Pixels, rows: Iterable[int]) -> None:
        """Write the images of these rows into `out`, uint8 `[b, H, W, channels]`."""
        ready = self.ready
        for pixels, row in zip(out, rows, strict=True):
            pixels[...] = np.asarray(self._image(row)).reshape(self.shape) if ready is None else ready[row]
        if self.look.negative:
            np.subtract(255, out, out=out)

    def _image(self, row: int) -> Image.Image:
        place, where = self.part.images[row], self.part.where
        image = _open(place, where, row, self.look)
        height, width, channels = self.shape
        if image.size != (width, height):
            right = f"must be {(width, height)}, as in row 0; set size to scale them all to one size"
            check(False, f"{_name(place, where, row)}: size", image.size, right)
        if image.mode != MODES[channels]:
            right = f"row 0 is {MODES[channels]}: set channels to 1 or 3 to convert them all"
            check(self.look.channels is not None, f"{_name(place, where, row)}: mode", image.mode, right)
            image = image.convert(MODES[channels])
        return image


def decode(parts: dict[str, ImageSplit], look: Look) -> dict[str, Pixels]:
    """The pixels of each split, uint8 `[n, H, W, channels]`, with a progress bar. Raises errors as `Decoder` does."""
    with progress("decoding images", sum(len(part.images) for part in parts.values())) as advance:
        return {split: _decoded(part, look, advance) for split, part in parts.items()}


def _decoded(part: ImageSplit, look: Look, advance: Callable[[int], None]) -> Pixels:
    decoder, count = Decoder(part, look), len(part.images)
    if (ready := decoder.ready) is not None:
        advance(count)
        return 255 - ready if look.negative else ready.copy()
    out = _room((count, *decoder.shape), part.where)

    def decode_rows(start: int) -> None:
        rows = range(start, min(start + 256, count))
        decoder.into(out[start : rows.stop], rows)
        advance(len(rows))

    # Pillow releases the interpreter's lock while it decodes, but for small images switching threads costs more.
    height, width, _ = decoder.shape
    with ThreadPoolExecutor(cores() if height * width >= 64 * 64 else 1) as pool:
        for _ in pool.map(decode_rows, range(0, count, 256)):
            pass
    return out


def cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _room(shape: tuple[int, ...], where: str) -> Pixels:
    """Memory for the images. Raises `SettingError` if the machine has less: the system would kill the process later."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = int(np.prod(shape))
    right = f"decoded they take {needed / 1e9:.1f} GB, and this machine has {memory / 1e9:.1f} GB: set a smaller size"
    check(needed < memory, f"{where}: shape", shape, right)
    return np.empty(shape, dtype=np.uint8)


def _open(place: Place, where: str, row: int, look: Look) -> Image.Image:
    with library("Pillow", "these data", EXTRA):
        from PIL import Image
    try:
        if isinstance(place, np.ndarray):
            image = Image.fromarray(place.squeeze(-1) if place.shape[-1] == 1 else place)
        else:
            image = Image.open(io.BytesIO(place) if isinstance(place, bytes) else place)
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{_name(place, where, row)}: the image can't be decoded ({one_line(error)})") from error
    return image if look.size is None else _resized(image, look.size, look.zoom, look.channels)


def _resized(image: Image.Image, size: int, zoom: float, channels: int | None) -> Image.Image:
    from PIL import Image

    if channels is not None and image.mode != MODES[channels]:
        image = image.convert(MODES[channels])  # before resizing, because a palette can't be interpolated
    scale = zoom * size / min(image.size)
    if scale != 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image if image.size == (size, size) else image.crop((left, top, left + size, top + size))


def _name(place: Place, where: str, row: int) -> str:
    return str(place) if isinstance(place, Path) else f"{where}, row {row}"


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error while data are read for the first time. It is erased at the end."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
