"""Images that stay encoded: what they cost, when they are decoded, and what is said of damaged ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash import Federation, LocalEngine, LocalTraining
from fedsash.data import Images, TinyImageNet
from fedsash.data.encoded import EncodedImages
from fedsash.data.sources.images import SHARE
from fedsash.lab.config import load, parse
from fedsash.methods.sampling import Uniform
from fedsash.vector.storage import free
from support.by_default import rotated
from support.worlds import ENGINES, VECTORISED

pytest.importorskip("pyarrow", reason="fedsash[data] is not installed")
Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
from support.encoded import N, federation, folders, images, model, parquet, picture  # noqa: E402
from support.parquets import write as write_parquet  # noqa: E402

pytestmark = pytest.mark.usefixtures("cache")


# Memory.

GROWTH = """
import re, sys, numpy, torch
from pathlib import Path
from fedsash import LocalTraining, LocalEngine, Evaluation, Federation
from fedsash.data import Images
from fedsash.methods.sampling import Uniform

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
settings = dict(local=LocalTraining(batch=4), sampling=Uniform(2), evaluation=evaluation, engine=engine)
with Federation(net, data, **settings) as world:
    state = world.start()
    world.prepare()  # trains the first client, on one batch
    before = memory("VmRSS")
    state = world.round(state)[0]
    world.evaluate(state)
    print(sum(part.x.shape.numel() for part in (data.train, data.test)))
    print(loaded + memory("VmHWM") - before)
"""


@pytest.mark.slow
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
    first = tmp_path / "d" / "train" / "a" / "00.jpg"
    last = many
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


@pytest.mark.parametrize("engine, damage", rotated(ENGINES, [damaged_parquet, damaged_folder]))
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
    with pytest.raises(
        ValueError, match=r".*\.jpg: size = .*: must be .*, as in row 0; set size to scale them all to one size"
    ):
        x[:]
