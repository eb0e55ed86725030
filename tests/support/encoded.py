"""Small images of unequal sizes in files, and a federation that trains on them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash import Evaluation, Federation, LocalEngine, LocalTraining
from fedsash.data import IID, Images
from fedsash.data.encoded import EncodedImages
from fedsash.methods.sampling import Uniform
from support.worlds import SEQUENTIAL

pytest.importorskip("pyarrow", reason="fedsash[data] is not installed")
Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
from support.parquets import write as write_parquet  # noqa: E402

SIDES = (8, 11, 14)
N = 30


def picture(i: int, kind: str, grey: bool = False) -> bytes:
    """An image file; height and width differ from one image to the next."""
    rng = np.random.default_rng(i)
    pixels = rng.integers(0, 256, (SIDES[i % 3], SIDES[i // 3 % 3], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if grey else pixels).save(buffer, kind)
    return buffer.getvalue()


def parquet(folder: Path) -> None:
    """JPEG and PNG images, a few of them grey."""
    for name, first, n in (("train", 0, N), ("test", N, 7)):
        images = [picture(i, "JPEG" if i % 2 else "PNG", grey=i % 5 == 3) for i in range(first, first + n)]
        write_parquet(folder / f"{name}.parquet", images, ["a", "b", "c"], label=[i % 3 for i in range(n)])


def folders(folder: Path) -> None:
    for name, first, n in (("train", 0, N), ("test", N, 7)):
        for i in range(first, first + n):
            place = folder / name / "abc"[i % 3]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i:02}.jpg").write_bytes(picture(i, "JPEG"))


FORMS: dict[str, Callable[[Path], None]] = {"parquet": parquet, "folders": folders}


def images(folder: Path, decode: Any, **settings: Any) -> Images:
    return Images(str(folder), channels=3, size=6, crop=1, flip=True, decode=decode, **settings)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double()


def federation(folder: Path, decode: Any, engine: LocalEngine = SEQUENTIAL, **settings: Any) -> Federation:
    """Five clients of six images, some of which are held out; three a round."""
    defaults: dict[str, Any] = {
        "local": LocalTraining(lr=0.1, batch=3, epochs=2),
        "sampling": Uniform(3),
        "evaluation": Evaluation(every=1, batch=4, held_out=0.2, clients=True),
    }
    data = images(folder, decode).load().partition(IID(5), seed=1)
    assert isinstance(data.train.x, EncodedImages) == (decode == "batches")
    return Federation(model(), data, engine=engine, device="cpu", seed=3, **defaults | settings)
