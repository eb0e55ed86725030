"""From image files to pixels: decoding, resizing, conversion to grey or RGB."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from ....settings.errors import DataError, SettingError, check, library, raised_as
from ....system.machine import core_count
from ....system.paths import plain_file
from .memory import PIXEL, UNPACKED, check_room, check_unpacked
from .splits import ImageSplit, Pixels, Place

if TYPE_CHECKING:
    from PIL import Image

EXTRA = "fedsash[data]"
MODES = {1: "L", 3: "RGB"}
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")


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
    the first one's, or that would take more than `unpacked` GB of memory (see `memory.check_unpacked`). All name the
    file or the row.
    """

    part: ImageSplit
    look: Look
    unpacked: float = field(default=UNPACKED, metadata={"numbers": False})

    @property
    def ready(self) -> Pixels | None:
        """All images, if they are already pixels of the wanted size; otherwise None."""
        images = self.part.images
        look = self.look
        if not isinstance(images, np.ndarray) or look.channels not in (None, images.shape[3]):
            return None
        return images if look.size is None or (look.zoom == 1 and images.shape[1:3] == (look.size,) * 2) else None

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        if (ready := self.ready) is not None:
            height, width, channels = ready.shape[1:]
            return height, width, channels
        image = _open(self.part.images[0], self.part.where, 0, self.look, self.unpacked)
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
        place = self.part.images[row]
        where = self.part.where
        image = _open(place, where, row, self.look, self.unpacked)
        height, width, channels = self.shape
        if image.size != (width, height):
            right = f"must be {(width, height)}, as in row 0; set size to scale them all to one size"
            raise SettingError.at(f"{_name(place, where, row)}: size", image.size, right)
        if image.mode != MODES[channels]:
            right = f"row 0 is {MODES[channels]}: set channels to 1 or 3 to convert them all"
            check(self.look.channels is not None, f"{_name(place, where, row)}: mode", image.mode, right)
            image = image.convert(MODES[channels])
        return image


def decode(decoders: dict[str, Decoder]) -> dict[str, Pixels]:
    """The pixels of each split, uint8 `[n, H, W, channels]`, with a progress bar.

    Raises errors as `Decoder` does, and `SettingError` if the pixels do not fit into the free memory.
    """
    for decoder in decoders.values():
        check_room(decoder.bytes, f"{decoder.part.where}: decoded images {list(decoder.shape)}")
    with progress("decoding images", sum(len(decoder.part.images) for decoder in decoders.values())) as advance:
        return {split: _decoded(decoder, advance) for split, decoder in decoders.items()}


def _decoded(decoder: Decoder, advance: Callable[[int], None]) -> Pixels:
    count = len(decoder.part.images)
    if (ready := decoder.ready) is not None:
        advance(count)
        return 255 - ready if decoder.look.negative else ready.copy()
    out = np.empty((count, *decoder.shape), dtype=np.uint8)

    def decode_rows(start: int) -> None:
        rows = range(start, min(start + 256, count))
        decoder.into(out[start : rows.stop], rows)
        advance(len(rows))

    # Pillow releases the interpreter's lock while it decodes, but for small images switching threads costs more.
    height, width, _ = decoder.shape
    with ThreadPoolExecutor(core_count() if height * width >= 64 * 64 else 1) as pool:
        for _ in pool.map(decode_rows, range(0, count, 256)):
            pass
    return out


def headers(part: ImageSplit, most: int) -> list[tuple[tuple[int, int], str]]:
    """Width and height, and the mode, of at most so many images of a part, evenly chosen.

    Only their headers are read. Raises `DataError`, naming the file or the row, for one that can't be read.
    """
    images = part.images
    count = len(part.images)
    if isinstance(images, np.ndarray):
        return [((images.shape[2], images.shape[1]), MODES.get(images.shape[3], "other"))]
    rows = range(count) if count <= most else [count * i // most for i in range(most)]
    return [_header(images[row], _name(images[row], part.where, row)) for row in rows]


def _header(place: Place, name: str) -> tuple[tuple[int, int], str]:
    with library("Pillow", "these data", EXTRA):
        from PIL import Image  # noqa: F401
    if isinstance(place, np.ndarray):
        return (place.shape[1], place.shape[0]), MODES.get(place.shape[2], "other")
    with (
        raised_as(lambda why: DataError(f"{name}: the image can't be decoded ({why})")),
        io.BytesIO(place) if isinstance(place, bytes) else plain_file(place).open("rb") as opened,
    ):
        image = _identified(opened)
        return image.size, image.mode


def _open(place: Place, where: str, row: int, look: Look, unpacked: float) -> Image.Image:
    with library("Pillow", "these data", EXTRA):
        from PIL import Image
    name = _name(place, where, row)
    with raised_as(lambda why: DataError(f"{name}: the image can't be decoded ({why})")):
        if isinstance(place, np.ndarray):
            image = Image.fromarray(place.squeeze(-1) if place.shape[-1] == 1 else place)
        else:
            image = _of_8_bits(_loaded(place, unpacked, name), name)
        return image if look.size is None else _resized(image, look, unpacked, name)


def _loaded(place: bytes | Path, unpacked: float, name: str) -> Image.Image:
    """The decoded image, if its header does not promise too many pixels."""
    with io.BytesIO(place) if isinstance(place, bytes) else plain_file(place).open("rb") as opened:
        image = _identified(opened)
        packed = opened.seek(0, io.SEEK_END)
        check_unpacked(PIXEL * image.width * image.height, packed, unpacked, name)
        image.load()
        return image


def _of_8_bits(image: Image.Image, name: str) -> Image.Image:
    """An image of 16 bits with its upper 8, which Pillow's own conversion would cut off at 255.

    Raises `DataError` for pixels of 32 bits, whose range nobody knows.
    """
    from PIL import Image

    if image.mode in ("I", "F"):
        kind = "whole numbers of 32 bits" if image.mode == "I" else "floating-point numbers"
        raise DataError(f"{name}: its pixels are {kind}: scale them to 0 to 255 and write them as 8 bits")
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    return image


def _identified(opened: IO[bytes]) -> Image.Image:
    """The image with its header read. Of Pillow's readers only those of `FORMATS` are asked.

    `Image.open` would ask all of them (that of EPS starts another program), and has a limit of its own for pixels,
    which is a warning up to twice its value and holds for the whole process.
    """
    from PIL import Image

    Image.init()
    head = opened.read(16)
    for name in FORMATS:
        factory, accepts = Image.OPEN.get(name, (None, None))
        if factory is not None and accepts is not None and accepts(head) is True:
            opened.seek(0)
            return factory(opened, "")
    raise OSError(f"it is none of {', '.join(FORMATS)}")


def _resized(image: Image.Image, look: Look, unpacked: float, name: str) -> Image.Image:
    from PIL import Image

    size = look.size or 0
    channels = look.channels
    if channels is not None and image.mode != MODES[channels]:
        image = image.convert(MODES[channels])  # before resizing, because a palette can't be interpolated
    scale = look.zoom * size / min(image.size)
    if scale != 1:
        width = round(image.width * scale)
        height = round(image.height * scale)
        check_unpacked(PIXEL * width * height, PIXEL * image.width * image.height, unpacked, f"{name}, scaled")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left = (image.width - size) // 2
    top = (image.height - size) // 2
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
