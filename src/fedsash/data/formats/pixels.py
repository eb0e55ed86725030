"""From the places of images to their pixels: decoding, resizing, grey or RGB."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...checks import check, one_line
from ..errors import library
from .table import Part, Pixels, Place

if TYPE_CHECKING:
    from PIL import Image

EXTRA = "fedsash[data]"
MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Look:
    """What images become when they are decoded; None leaves it to the first image of a split.

    `channels` is 1 (grey) or 3 (RGB). With `size` the shorter side becomes `zoom * size` pixels (bilinear), and the
    middle `size x size` pixels are kept. `negative` turns each value v into 255 - v.
    """

    channels: int | None = None
    size: int | None = None
    zoom: float = 1.0
    negative: bool = False


AS_IT_IS = Look()


def decode(parts: dict[str, Part], look: Look) -> dict[str, Pixels]:
    """The pixels of each split, uint8 `[n, H, W, channels]`, with a progress bar; `ValueError` names what is wrong."""
    pixels = {}
    with progress("decoding images", sum(len(part.images) for part in parts.values())) as advance:
        for split, part in parts.items():
            pixels[split] = _decoded(part.images, part.where, look, advance)
            if look.negative:
                np.subtract(255, pixels[split], out=pixels[split])
    return pixels


def _decoded(images: Pixels | Sequence[Place], where: str, look: Look, advance: Callable[[int], None]) -> Pixels:
    """The first image sets size and channels for all, where `look` does not."""
    if isinstance(images, np.ndarray) and _as_wanted(images, look):
        advance(len(images))
        return np.array(images)
    first = _open(images[0], where, 0, look)
    mode = first.mode if look.channels is None else MODES[look.channels]
    right = "images must be grey (L) or RGB: set channels to 1 or 3 to convert them"
    check(mode in MODES.values(), where, mode, right)
    out = _room((len(images), first.height, first.width, 1 if mode == "L" else 3), where)

    def decode_part(start: int) -> None:
        stop = min(start + 256, len(images))
        for i in range(start, stop):
            image = _open(images[i], where, i, look)
            if image.size != first.size:
                right = f"must be {first.size}, as in row 0; size brings them all to one"
                check(False, f"{_name(images[i], where, i)}: size", image.size, right)
            if image.mode != mode:
                right = f"row 0 is {mode}: set channels to 1 or 3 to convert them all"
                check(look.channels is not None, f"{_name(images[i], where, i)}: mode", image.mode, right)
                image = image.convert(mode)
            out[i] = np.asarray(image).reshape(out.shape[1:])
        advance(stop - start)

    # Pillow frees the interpreter while it decodes, but for small images the hand-over costs more than it gains.
    threads = (os.cpu_count() or 1) if first.width * first.height >= 64 * 64 else 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(decode_part, range(0, len(images), 256)):
            pass
    return out


def _as_wanted(pixels: Pixels, look: Look) -> bool:
    size = look.size is None or (look.zoom == 1 and pixels.shape[1:3] == (look.size, look.size))
    return size and look.channels in (None, pixels.shape[3])


def _room(shape: tuple[int, ...], where: str) -> Pixels:
    """Memory for the images; refused where the machine has less, since the system would kill the process for it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = int(np.prod(shape))
    right = f"decoded they take {needed / 1e9:.1f} GB, and this machine has {memory / 1e9:.1f} GB: set a smaller size"
    check(needed < memory, f"{where}: shape", shape, right)
    return np.empty(shape, dtype=np.uint8)


def _open(place: Place, where: str, row: int, look: Look) -> Image.Image:
    with library("Pillow", EXTRA):
        from PIL import Image
    try:
        if isinstance(place, np.ndarray):
            image = Image.fromarray(place.squeeze(-1) if place.shape[-1] == 1 else place)
        else:
            image = Image.open(io.BytesIO(place) if isinstance(place, bytes) else place)
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{_name(place, where, row)}: the image can't be decoded ({one_line(error)})") from error
    return image if look.size is None else _resized(image, look.size, look.zoom, look.channels)


def _resized(image: Image.Image, size: int, zoom: float, channels: int | None) -> Image.Image:
    from PIL import Image

    if channels is not None and image.mode != MODES[channels]:
        image = image.convert(MODES[channels])  # first, because a palette can't be interpolated
    scale = zoom * size / min(image.size)
    if scale != 1:
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image if image.size == (size, size) else image.crop((left, top, left + size, top + size))


def _name(place: Place, where: str, row: int) -> str:
    return str(place) if isinstance(place, Path) else f"{where}, row {row}"


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error while data are read for the first time; it leaves nothing behind."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
