"""From image files to pixels: decoding, resizing, conversion to grey or RGB."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from .splits import ImageSplit, Pixels, StoredImage

if TYPE_CHECKING:
    from PIL import Image, ImageFile

EXTRA = "fedsash[data]"
"""What to install for the libraries that read images."""
MODES = {1: "L", 3: "RGB"}
"""Pillow's names of the channels: grey and RGB."""
READERS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Those of Pillow's readers that are used."""
FULL = 4096
"""The least maximum of 16-bit images whose upper 8 bits show something. Scanners write 12 bits as 16, below it."""
DEEP = re.compile(r";16[BLN]")
"""What Pillow's decoders are told for 16 bits a channel, in one or the other order of bytes."""
HEADERS = 1000
"""How many headers of a part are read, at most, to see whether it has images of 16 bits."""
ROWS = 256
"""How many images a thread decodes in one task, when all are decoded at once."""


@dataclass(frozen=True)
class PixelFormat:
    """The size and the channels of decoded images. None means: as in the first image of the split.

    `channels` is 1 (grey) or 3 (RGB). With `size` the shorter side is scaled to `zoom * size` pixels (bilinear), and
    the middle `size x size` pixels are used. `negative` turns each value v into 255 - v.
    """

    channels: int | None = None
    size: int | None = None
    zoom: float = 1.0
    negative: bool = False


AS_STORED = PixelFormat()


@dataclass(frozen=True, eq=False)
class Decoder:
    """Decodes images of a part on demand. The first image determines what `pixel_format` leaves open.

    Raises `DataError` for an image that can't be decoded, and `SettingError` for one whose size or channels differ from
    the first one's, or that would take more than `unpacked` GB of memory (see `memory.check_unpacked`). All name the
    file or the row.
    """

    part: ImageSplit
    pixel_format: PixelFormat
    unpacked: float = field(default=UNPACKED, metadata={"numbers": False})

    @property
    def ready(self) -> Pixels | None:
        """All images, if they are already pixels of the wanted size; otherwise None."""
        images = self.part.images
        channels = self.pixel_format.channels
        size = self.pixel_format.size
        if not isinstance(images, np.ndarray) or channels not in (None, images.shape[3]):
            return None
        if size is None:
            return images
        if self.pixel_format.zoom == 1 and images.shape[1:3] == (size, size):
            return images
        return None

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        ready = self.ready
        if ready is not None:
            height, width, channels = ready.shape[1:]
            return height, width, channels
        first = self.part.images[0]
        image = _open(first, _name(first, self.part.where, 0), self.pixel_format, self.unpacked)
        if self.pixel_format.channels is not None:
            return image.height, image.width, self.pixel_format.channels
        requirement = "images must be grey (L) or RGB: set channels to 1 or 3 to convert them"
        check(image.mode in MODES.values(), self.part.where, image.mode, requirement)
        channels = next(channels for channels, mode in MODES.items() if mode == image.mode)
        return image.height, image.width, channels

    @property
    def bytes(self) -> int:
        """The size of all pixels in bytes."""
        return math.prod((len(self.part.images), *self.shape))

    def into(self, out: Pixels, rows: Iterable[int]) -> None:
        """Write the images of these rows into `out`, uint8 `[b, H, W, channels]`."""
        ready = self.ready
        for pixels, row in zip(out, rows, strict=True):
            if ready is not None:
                pixels[...] = ready[row]
            else:
                pixels[...] = np.asarray(self._image(row)).reshape(self.shape)
        if self.pixel_format.negative:
            np.subtract(255, out, out=out)

    def _image(self, row: int) -> Image.Image:
        """The decoded image in a row, which must have the size and the channels of the first one."""
        stored = self.part.images[row]
        name = _name(stored, self.part.where, row)
        image = _open(stored, name, self.pixel_format, self.unpacked)
        height, width, channels = self.shape
        if image.size != (width, height):
            cure = f"must be {(width, height)}, as in row 0; set size to scale them all to one size"
            raise SettingError.at(f"{name}: size", image.size, cure)
        if image.mode != MODES[channels]:
            cure = f"row 0 is {MODES[channels]}: set channels to 1 or 3 to convert them all"
            check(self.pixel_format.channels is not None, f"{name}: mode", image.mode, cure)
            image = image.convert(MODES[channels])
        return image


def decode(decoders: dict[str, Decoder]) -> dict[str, Pixels]:
    """The pixels of each split, uint8 `[n, H, W, channels]`, with a progress bar.

    Raises errors as `Decoder` does, and `SettingError` if the pixels do not fit into the free memory.
    """
    for decoder in decoders.values():
        check_room(decoder.bytes, f"{decoder.part.where}: decoded images {list(decoder.shape)}")
    count = sum(len(decoder.part.images) for decoder in decoders.values())
    with progress("decoding images", count) as advance:
        return {split: _decoded(decoder, advance) for split, decoder in decoders.items()}


def _decoded(decoder: Decoder, advance: Callable[[int], None]) -> Pixels:
    """The pixels of all images of a split."""
    count = len(decoder.part.images)
    ready = decoder.ready
    if ready is not None:
        advance(count)
        if decoder.pixel_format.negative:
            return 255 - ready
        return ready.copy()
    out = np.empty((count, *decoder.shape), dtype=np.uint8)

    def decode_rows(start: int) -> None:
        rows = range(start, min(start + ROWS, count))
        decoder.into(out[start : rows.stop], rows)
        advance(len(rows))

    # Pillow releases the interpreter's lock while it decodes, but for small images switching threads costs more.
    height, width, _ = decoder.shape
    threads = core_count() if height * width >= 64 * 64 else 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(decode_rows, range(0, count, ROWS)):
            pass
    return out


@dataclass(frozen=True)
class Header:
    """What an image's header says: width and height, Pillow's mode, and whether it has 16 bits a channel."""

    size: tuple[int, int]
    mode: str
    has_16_bits: bool = False


def headers(part: ImageSplit, most: int) -> list[Header]:
    """The headers of at most so many images of a part, evenly chosen; nothing else of them is read.

    Raises `DataError`, naming the file or the row, for one that can't be read.
    """
    images = part.images
    count = len(images)
    if isinstance(images, np.ndarray):
        _, height, width, channels = images.shape
        return [Header((width, height), MODES.get(channels, "other"))]
    return [_header(images[row], _name(images[row], part.where, row)) for row in _chosen(count, most)]


def _chosen(count: int, most: int) -> Sequence[int]:
    """The rows of at most so many of `count` images, evenly chosen."""
    if count <= most:
        return range(count)
    return [count * i // most for i in range(most)]


def _header(stored: StoredImage, name: str) -> Header:
    """The header of an image."""
    with library("Pillow", "these data", EXTRA):
        from PIL import Image  # noqa: F401
    if isinstance(stored, np.ndarray):
        height, width, channels = stored.shape
        return Header((width, height), MODES.get(channels, "other"))
    with raised_as(lambda why: DataError(f"{name}: the image can't be decoded ({why})")), _stream(stored) as opened:
        image = _identified(opened)
        # Pillow has a mode for 16 bits of grey only: colours become 8 bits as they are decoded.
        has_16_bits = image.mode.startswith("I;16") or DEEP.search(str(image.tile)) is not None
        return Header(image.size, image.mode, has_16_bits)


def check_levels(part: ImageSplit, unpacked: float) -> None:
    """Raise `DataError` if some of a part's images have 16 bits, and none of these uses the upper 4: the 8 that are
    kept would be nearly black. The images are decoded up to the first that does."""
    images = part.images
    if isinstance(images, np.ndarray):
        return
    if not any(_has_16_bits(images[row]) for row in _chosen(len(images), HEADERS)):
        return
    highest = 0
    for row, stored in enumerate(images):
        if not isinstance(stored, np.ndarray) and _has_16_bits(stored):
            highest = max(highest, _highest(stored, _name(stored, part.where, row), unpacked))
        if highest >= FULL:
            return
    cure = "scale them to 0 to 65,535, or to 0 to 255 and write them as 8 bits"
    problem = f"its images of 16 bits use only 0 to {highest:,}, which would be nearly black"
    raise DataError(f"{part.where}: {problem}: {cure}")


def _has_16_bits(stored: StoredImage) -> bool:
    """Whether an image has 16 bits a channel. One that can't be read is named when it is decoded."""
    try:
        return _header(stored, "").has_16_bits
    except DataError:
        return False


def _highest(stored: bytes | Path, name: str, unpacked: float) -> int:
    """The highest value in an image of 16 bits; of colours, without transparency, the highest that it may be."""
    with raised_as(lambda why: DataError(f"{name}: the image can't be decoded ({why})")):
        image = _loaded(stored, unpacked, name)
        if image.mode.startswith("I;16"):
            return int(np.asarray(image).max())
        return 256 * int(np.asarray(image.convert("RGB")).max()) + 255


def _open(stored: StoredImage, name: str, pixel_format: PixelFormat, unpacked: float) -> Image.Image:
    """A decoded image, scaled as the format says. Its mode is that of the file, unless it was scaled."""
    with library("Pillow", "these data", EXTRA):
        from PIL import Image
    with raised_as(lambda why: DataError(f"{name}: the image can't be decoded ({why})")):
        if not isinstance(stored, np.ndarray):
            image = _of_8_bits(_loaded(stored, unpacked, name), name)
        elif stored.shape[-1] == 1:
            image = Image.fromarray(stored.squeeze(-1))
        else:
            image = Image.fromarray(stored)
        if pixel_format.size is None:
            return image
        return _resized(image, pixel_format.size, pixel_format, unpacked, name)


def _stream(stored: bytes | Path) -> IO[bytes]:
    """An image file, opened."""
    if isinstance(stored, bytes):
        return io.BytesIO(stored)
    return plain_file(stored).open("rb")


def _loaded(stored: bytes | Path, unpacked: float, name: str) -> Image.Image:
    """The decoded image, if its header does not promise too many pixels."""
    with _stream(stored) as opened:
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

    kinds = {"I": "whole numbers of 32 bits", "F": "floating-point numbers"}
    if image.mode in kinds:
        kind = kinds[image.mode]
        raise DataError(f"{name}: its pixels are {kind}: scale them to 0 to 255 and write them as 8 bits")
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    return image


def _identified(opened: IO[bytes]) -> ImageFile.ImageFile:
    """The image with its header read. Of Pillow's readers only those of `READERS` are asked.

    `Image.open` would ask all of them (that of EPS starts another program), and has a limit of its own for pixels,
    which is a warning up to twice its value and holds for the whole process.
    """
    from PIL import Image

    Image.init()
    head = opened.read(16)
    for name in READERS:
        factory, accepts = Image.OPEN.get(name, (None, None))
        if factory is not None and accepts is not None and accepts(head) is True:
            opened.seek(0)
            return factory(opened, "")
    raise OSError(f"it is none of {', '.join(READERS)}")


def _resized(image: Image.Image, size: int, pixel_format: PixelFormat, unpacked: float, name: str) -> Image.Image:
    """The middle `size x size` pixels of an image that is scaled by its shorter side."""
    from PIL import Image

    channels = pixel_format.channels
    if channels is not None and image.mode != MODES[channels]:
        image = image.convert(MODES[channels])  # before resizing, because a palette can't be interpolated
    scale = pixel_format.zoom * size / min(image.size)
    if scale != 1:
        width = round(image.width * scale)
        height = round(image.height * scale)
        check_unpacked(PIXEL * width * height, PIXEL * image.width * image.height, unpacked, f"{name}, scaled")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if image.size == (size, size):
        return image
    left = (image.width - size) // 2
    top = (image.height - size) // 2
    return image.crop((left, top, left + size, top + size))


def _name(stored: StoredImage, where: str, row: int) -> str:
    """The name of an image in errors: its path, or its row."""
    if isinstance(stored, Path):
        return str(stored)
    return f"{where}, row {row}"


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error while data are read for the first time. It is erased at the end."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
