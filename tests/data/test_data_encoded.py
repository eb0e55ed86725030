"""Images that stay encoded: the bytes of a run on decoded ones, in memory that does not grow with the data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsash import Federation, FedSWA, LocalEngine, LocalTraining, Scaffold, resume, run
from fedsash.data import PACS
from fedsash.data.encoded import AHEAD, EncodedImages, split
from fedsash.data.sources.formats.pixels import Decoder, PixelFormat, decode
from fedsash.data.sources.formats.splits import ImageSplit
from fedsash.methods.sampling import Uniform
from support.by_default import by_default, full, rotated
from support.worlds import ENGINES, SEQUENTIAL, WORKERS, after, identical

pytest.importorskip("pyarrow", reason="fedsash[data] is not installed")
Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
from support.encoded import FORMS, N, federation, images, model, parquet  # noqa: E402

pytestmark = pytest.mark.usefixtures("cache")


# The same pixels.


def parts(folder: Path) -> dict[str, ImageSplit]:
    """The same images as the paths of files, as bytes and as pixels, four times as many as are decoded ahead."""
    files = []
    for i in range(N):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
        files.append(folder / f"{i}.png")
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    places = {"paths": files, "bytes": [file.read_bytes() for file in files], "pixels": pixels}
    return {name: ImageSplit(its, {}, name) for name, its in places.items()}


@pytest.mark.parametrize(
    "name, pixel_format",
    rotated(
        ["paths", "bytes", "pixels"],
        [PixelFormat(), PixelFormat(1), PixelFormat(3, 5, 1.4), PixelFormat(3, 20, negative=True)],
    ),
    ids=str,
)
def test_whatever_is_selected_is_what_the_tensor_of_all_pixels_has_there(
    tmp_path: Path, name: str, pixel_format: PixelFormat
) -> None:
    part = parts(tmp_path)[name]
    whole = torch.from_numpy(decode({"a": Decoder(part, pixel_format)})["a"])
    x = EncodedImages(Decoder(part, pixel_format))
    assert (x.shape, x.dtype, x.ndim, x.dim(), x.device) == (whole.shape, whole.dtype, 4, 4, whole.device)
    assert len(x) == N and not x.is_floating_point()
    index = torch.tensor([7, 2, 2, 29, 0, 7])
    assert torch.equal(x[:3], whole[:3])
    assert torch.equal(x[index], whole[index])
    assert torch.equal(x.index_select(0, index), whole.index_select(0, index))
    assert torch.equal(x.only(index)[:], whole[index])
    odd = torch.arange(N) % 2 == 1
    assert torch.equal(x.only(odd).only(torch.tensor([3, 1]))[:], whole[odd][[3, 1]])
    for one, other in zip(split(x, 4), split(whole, 4), strict=True):
        assert torch.equal(one, other)


def test_what_is_decoded_ahead_may_be_selected_in_another_order_or_not_at_all(tmp_path: Path) -> None:
    part = parts(tmp_path)["paths"]
    whole = torch.from_numpy(decode({"a": Decoder(part, PixelFormat())})["a"])
    x = EncodedImages(Decoder(part, PixelFormat()))
    batches = list(np.random.default_rng(0).integers(0, N, (6, 5)))
    ahead = x.ahead(batches)
    for k in (1, 0, 1, 0, 5, 2, 3):
        index = torch.from_numpy(batches[k])
        assert torch.equal(ahead.index_select(0, index), whole[index])


def test_no_more_than_a_few_batches_are_begun_ahead(tmp_path: Path) -> None:
    begun = []

    def batches() -> Iterator[np.ndarray]:
        for k in range(8):
            begun.append(k)
            yield np.arange(k, k + 3)

    ahead = EncodedImages(Decoder(parts(tmp_path)["paths"], PixelFormat())).ahead(batches())
    for k in range(8):
        assert len(begun) == min(k + AHEAD, 8)
        ahead.index_select(0, torch.arange(k, k + 3))


# The same runs.


@pytest.mark.parametrize("engine, form", rotated(ENGINES, FORMS, turns=2))
def test_a_run_on_encoded_images_has_the_bytes_of_one_on_decoded_images(tmp_path: Path, form: str, engine: str) -> None:
    FORMS[form](tmp_path)
    states = []
    metrics = []
    for when in ("once", "batches"):
        world = federation(tmp_path, when, ENGINES[engine])
        states.append(after(world, 2))
        metrics.append([metric.row() for metric in world.evaluate(states[-1])])
    assert identical(states[0], states[1])
    assert metrics[0] == metrics[1]
    assert {row["split"] for row in metrics[0]} == {"test", "held_out", "clients"}


METHODS = {"full gradients": Scaffold("I"), "sharpness": FedSWA()}


@pytest.mark.parametrize(
    "name, engine",
    by_default(
        (pytest.param(*pair) for pair in product(METHODS, ENGINES)),
        lambda name, engine: engine == ("sequential" if name == "sharpness" else "vectorised"),
    ),
)
def test_full_gradients_and_unequal_clients_have_the_same_bytes_too(tmp_path: Path, name: str, engine: str) -> None:
    method = METHODS[name]
    parquet(tmp_path)
    states = []
    for when in ("once", "batches"):
        data = images(tmp_path, when).load().partition(lambda y, seed: np.split(np.arange(N), [3, 4, 16]))
        world = Federation(model(), data, method, LocalTraining(batch=4), engine=ENGINES[engine], sampling=Uniform(4))
        states.append(after(world, 2))
    assert identical(states[0], states[1])


@pytest.mark.parametrize("engine", [SEQUENTIAL, full(WORKERS)], ids=["sequential", "workers"])
def test_half_a_run_resumed_on_encoded_images_is_the_run(tmp_path: Path, engine: LocalEngine) -> None:
    parquet(tmp_path)
    results = [run(federation(tmp_path, "batches", engine), 4, out=tmp_path / "whole", progress=False)]
    run(federation(tmp_path, "batches", engine), 2, out=tmp_path / "half", progress=False)
    results.append(resume(federation(tmp_path, "batches", engine), 4, tmp_path / "half", progress=False))
    whole, half = (result.state for result in results)
    assert torch.equal(whole.w, half.w) and whole.round == half.round == 4


# Real data.


@pytest.mark.slow
def test_real_pacs_has_the_same_pixels_batch_by_batch() -> None:
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA, the folder of the real data sets, is not set")
    path = str(Path(os.environ["FEDSASH_DATA"]) / "pacs")
    once, batches = (PACS(path, size=64, decode=when).load().train.x for when in ("once", "batches"))  # type: ignore[arg-type]
    for one, other in zip(split(once, 512), split(batches, 512), strict=True):
        assert torch.equal(one, other)
