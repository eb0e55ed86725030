"""Images decode to the same wherever they lie; negatives, sizes and zooms keep what they must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.data.sources.formats.pixels import Decoder, PixelFormat, decode
from fedsash.data.sources.formats.splits import ImageSplit
from support.forms import classes, pixels, table


def test_places_and_pixels_of_the_same_images_decode_to_the_same(tmp_path: Path) -> None:
    """So a loader may keep places and decode what a batch needs."""
    images = classes(tmp_path / "train")
    part = table(tmp_path).parts["train"]
    for pixel_format in (
        PixelFormat(),
        PixelFormat(1),
        PixelFormat(3, 6),
        PixelFormat(1, 4, 1.5),
        PixelFormat(3, 16, negative=True),
    ):
        encoded = decode({"a": Decoder(part, pixel_format)})["a"]
        with_pixels = ImageSplit(np.stack(images), part.columns, "memory")
        with_bytes = ImageSplit([Path(place).read_bytes() for place in part.images], part.columns, "bytes")  # type: ignore[arg-type]
        assert np.array_equal(encoded, decode({"a": Decoder(with_pixels, pixel_format)})["a"])
        assert np.array_equal(encoded, decode({"a": Decoder(with_bytes, pixel_format)})["a"])


def test_a_negative_of_a_negative_is_the_image() -> None:
    x = pixels(3, 5, 5, 1)
    once = decode({"a": Decoder(ImageSplit(x, {}, "x"), PixelFormat(negative=True))})["a"]
    assert np.array_equal(once, 255 - x)
    assert np.array_equal(decode({"a": Decoder(ImageSplit(once, {}, "x"), PixelFormat(negative=True))})["a"], x)


def test_the_middle_is_kept_when_images_are_resized() -> None:
    """A symmetric image stays so; with zoom 2 the middle half of a ramp is left, whatever its longer side."""
    ramp = np.tile(np.arange(64, dtype=np.uint8) * 4, (32, 1))
    x = decode({"a": Decoder(ImageSplit([ramp[..., None]], {}, "x"), PixelFormat(1, 16, 2.0))})["a"]
    assert x.shape == (1, 16, 16, 1)
    assert np.array_equal(x[0, 0, :, 0], ramp[0, 24:40])


def test_images_that_would_not_fit_into_memory_are_refused() -> None:
    class Endless(list[Any]):
        def __len__(self) -> int:
            return 10**9

    part = ImageSplit(Endless([pixels(1, 8, 8, 3)[0]]), {}, "train")
    with pytest.raises(
        ValueError,
        match=r"train: decoded images \[224, 224, 3\]: size in memory = '150528.0 GB': there is .* GB of free memory",
    ):
        decode({"a": Decoder(part, PixelFormat(3, 224))})
