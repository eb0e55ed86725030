"""Images that stay encoded: the bytes of a run on decoded ones, in memory that does not grow with the data."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash import Evaluation, Federation, FedSWA, LocalEngine, LocalTraining, Scaffold, resume, run
from fedsash.basics.storage import free
from fedsash.data import IID, PACS, Images, TinyImageNet
from fedsash.data.encoded import AHEAD, EncodedImages, split
from fedsash.data.formats.pixels import Decoder, Look, decode
from fedsash.data.formats.splits import ImageSplit
from fedsash.data.images import SHARE
from fedsash.lab.config import load, parse
from fedsash.sampling import Uniform
from support.worlds import ENGINES, SEQUENTIAL, VECTORISED, WORKERS, after, snapshot

pytest.importorskip("pyarrow", reason="fedsash[data] is not installed")
Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
from support.parquets import write as write_parquet  # noqa: E402

SIDES = (8, 11, 14)
N = 30


pytestmark = pytest.mark.usefixtures("cache")


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


@pytest.mark.parametrize("name", ["paths", "bytes", "pixels"])
@pytest.mark.parametrize("look", [Look(), Look(1), Look(3, 5, 1.4), Look(3, 20, negative=True)], ids=str)
def test_whatever_is_selected_is_what_the_tensor_of_all_pixels_has_there(tmp_path: Path, name: str, look: Look) -> None:
    part = parts(tmp_path)[name]
    whole, x = torch.from_numpy(decode({"a": part}, look)["a"]), EncodedImages(Decoder(part, look))
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
    whole, x = torch.from_numpy(decode({"a": part}, Look())["a"]), EncodedImages(Decoder(part, Look()))
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

    ahead = EncodedImages(Decoder(parts(tmp_path)["paths"], Look())).ahead(batches())
    for k in range(8):
        assert len(begun) == min(k + AHEAD, 8)
        ahead.index_select(0, torch.arange(k, k + 3))


# The same runs.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_on_encoded_images_has_the_bytes_of_one_on_decoded_images(tmp_path: Path, form: str, engine: str) -> None:
    FORMS[form](tmp_path)
    states, metrics = [], []
    for when in ("once", "batches"):
        world = federation(tmp_path, when, ENGINES[engine])
        states.append(after(world, 2))
        metrics.append([metric.row() for metric in world.evaluate(states[-1])])
    assert snapshot(states[0]) == snapshot(states[1])
    assert metrics[0] == metrics[1]
    assert {row["split"] for row in metrics[0]} == {"test", "held_out", "clients"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", [Scaffold("I"), FedSWA()], ids=["full gradients", "sharpness"])
def test_full_gradients_and_unequal_clients_have_the_same_bytes_too(tmp_path: Path, method: Any, engine: str) -> None:
    parquet(tmp_path)
    states = []
    for when in ("once", "batches"):
        data = images(tmp_path, when).load().partition(lambda y, seed: np.split(np.arange(N), [3, 4, 16]))
        world = Federation(model(), data, method, LocalTraining(batch=4), engine=ENGINES[engine], sampling=Uniform(4))
        states.append(after(world, 2))
    assert snapshot(states[0]) == snapshot(states[1])


@pytest.mark.parametrize("engine", [SEQUENTIAL, WORKERS], ids=["sequential", "workers"])
def test_half_a_run_resumed_on_encoded_images_is_the_run(tmp_path: Path, engine: LocalEngine) -> None:
    parquet(tmp_path)
    results = [run(federation(tmp_path, "batches", engine), 4, out=tmp_path / "whole", progress=False)]
    run(federation(tmp_path, "batches", engine), 2, out=tmp_path / "half", progress=False)
    results.append(resume(federation(tmp_path, "batches", engine), 4, tmp_path / "half", progress=False))
    whole, half = (result.state for result in results)
    assert torch.equal(whole.w, half.w) and whole.round == half.round == 4


# Memory.

GROWTH = """
import re, sys, numpy, torch
from pathlib import Path
from fedsash import LocalTraining, LocalEngine, Evaluation, Federation
from fedsash.data import Images
from fedsash.sampling import Uniform

def memory(kind):
    return int(re.search(f"{kind}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

folder, size = sys.argv[1], int(sys.argv[2])
before = memory("VmRSS")
source = Images(folder, size=size, test=0.2, decode="batches").load()
data = source.partition(lambda y, seed: numpy.split(numpy.arange(len(y)), [4]))
loaded = memory("VmHWM") - before
net = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 32, 32), torch.nn.Flatten(), torch.nn.Linear(2 * (size // 32) ** 2, 2))
engine = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="channels_last", threads=1)
evaluation = Evaluation(batch=4)
with Federation(net, data, local=LocalTraining(batch=4), sampling=Uniform(2), evaluation=evaluation, engine=engine) as
world:
    state = world.start()
    world.prepare()  # trains the first client, on one batch
    before = memory("VmRSS")
    state = world.round(state)[0]
    world.evaluate(state)
    print(sum(part.x.shape.numel() for part in (data.train, data.test)))
    print(loaded + memory("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_decoded_size(tmp_path: Path) -> None:
    first = tmp_path / "data" / "a" / "0.jpg"
    for i in range(1000):
        file = tmp_path / "data" / "ab"[i % 2] / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        if i:
            os.link(first, file)
        else:
            file.write_bytes(picture(0, "JPEG"))
    command = [sys.executable, "-c", GROWTH, str(tmp_path / "data"), "384"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    decoded, growth = map(int, done.stdout.split())
    assert decoded > 440e6
    assert growth < 90e6


def test_nothing_is_kept_in_the_cache(tmp_path: Path, cache: Path) -> None:
    folders(tmp_path / "d")
    images(tmp_path / "d", "batches").load()
    assert not cache.exists()
    images(tmp_path / "d", "once").load()
    [kept] = cache.iterdir()
    kept.write_bytes(b"never read")
    assert isinstance(images(tmp_path / "d", "batches").load().train.x, EncodedImages)


# When.


def test_images_are_decoded_at_once_if_and_only_if_they_fit(tmp_path: Path, cache: Path) -> None:
    """The same file so many times that, decoded, it would not fit into a quarter of what is free."""
    folders(tmp_path / "d")
    assert isinstance(images(tmp_path / "d", "auto").load().train.x, Tensor)
    side = 2048
    many = int(2 * SHARE * free(torch.device("cpu"))) // (3 * side**2)
    first, last = tmp_path / "d" / "train" / "a" / "00.jpg", many
    for i in range(last):
        os.link(first, first.parent / f"again{i}.jpg")
    source = Images(str(tmp_path / "d"), size=side).load()
    assert isinstance(source.train.x, EncodedImages) and isinstance(source.test and source.test.x, EncodedImages)
    assert len(list(cache.iterdir())) == 1
    assert isinstance(Images(str(tmp_path / "d"), size=6).load().train.x, Tensor)


def test_an_experiment_file_says_when(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text('data = { name = "tiny_imagenet", path = "x", decode = "batches" }\npartition.name = "iid"')
    experiment = load(file)
    assert experiment.data == TinyImageNet("x", decode="batches")
    assert parse(experiment.table()) == experiment


@pytest.mark.parametrize("make", [Images, PACS])
def test_another_word_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{make.__name__}.decode = 'never': must be 'auto' or 'once' or 'batches'$"):
        make("x", decode="never")


def test_compiled_steps_are_refused_in_one_line_and_not_chosen(tmp_path: Path) -> None:
    parquet(tmp_path)
    with pytest.raises(ValueError, match=r"^LocalEngine.compile = True: compiled steps need decoded images: set"):
        federation(tmp_path, "batches", replace(VECTORISED, compile=True)).prepare()
    world = federation(tmp_path, "batches", LocalEngine("vectorised", workers=1, threads=1))
    with world:
        world.prepare(rounds=10**9)
        assert world.described()["compile"] is False


# Damage.


def damaged_parquet(folder: Path) -> str:
    rows = [picture(i, "JPEG") for i in range(N)]
    rows[17] = rows[17][: len(rows[17]) // 2]
    write_parquet(folder / "train.parquet", rows, ["a", "b", "c"], label=[i % 3 for i in range(N)])
    return r"^column 'image' of train, row 17: the image can't be decoded \("


def damaged_folder(folder: Path) -> str:
    folders(folder)
    file = folder / "train" / "b" / "22.jpg"  # in row 17
    file.write_bytes(b"not a picture")
    return rf"^{file}: the image can't be decoded \("


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("damage", [damaged_parquet, damaged_folder])
def test_a_damaged_image_is_named_when_its_batch_comes(tmp_path: Path, engine: str, damage: Any) -> None:
    line = damage(tmp_path)
    data = images(tmp_path, "batches", test=0).load().partition(lambda y, seed: np.split(np.arange(N), 6))
    world = Federation(
        model(), data, local=LocalTraining(batch=2), engine=ENGINES[engine], sampling=Uniform(1), seed=1, device="cpu"
    )
    with world, pytest.raises(ValueError, match=line) as caught:
        state = world.start()
        for _ in range(100):
            state = world.round(state)[0]
    assert "\n" not in str(caught.value)
    assert state.round > 0
    assert "while training clients [" in "".join(caught.value.__notes__)


def test_a_file_that_has_gone_is_named(tmp_path: Path) -> None:
    folders(tmp_path)
    x = images(tmp_path, "batches").load().train.x
    file = tmp_path / "train" / "b" / "22.jpg"
    file.unlink()
    with pytest.raises(ValueError, match=rf"^{file}: the image can't be decoded \("):
        x[:]


def test_an_image_of_another_size_is_named_when_its_batch_comes(tmp_path: Path) -> None:
    folders(tmp_path)
    x = Images(str(tmp_path), decode="batches").load().train.x
    with pytest.raises(ValueError, match=r".*\.jpg: size = .*: must be .*, as in row 0; size brings them all to one"):
        x[:]


# Real data.


def test_real_pacs_has_the_same_pixels_batch_by_batch() -> None:
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA, the folder of the real data sets, is not set")
    path = str(Path(os.environ["FEDSASH_DATA"]) / "pacs")
    once, batches = (PACS(path, size=64, decode=when).load().train.x for when in ("once", "batches"))  # type: ignore[arg-type]
    for one, other in zip(split(once, 512), split(batches, 512), strict=True):
        assert torch.equal(one, other)
