"""Samples on the actors of a Ray cluster: encoded images, and arrays in mapped files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsash import FederatedData, Federation, LocalTraining
from fedsash.data import IID, PACS
from fedsash.data.encoded import EncodedImages
from fedsash.data.mapped import MappedTensor
from fedsash.engines import Engine
from fedsash.errors import DataError
from fedsash.methods.sampling import Uniform
from support.clusters import HERE, WITHOUT_RAY, cluster, on_ray
from support.worlds import after, identical

ray: Any = pytest.importorskip("ray", reason=WITHOUT_RAY)
__all__ = ["cluster"]


def federation(data: FederatedData, engine: Engine) -> Federation:
    torch.manual_seed(0)
    size = data.transform.inputs(data.train.x[:1], torch.float32)[0].numel()
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, data.classes))
    local, sampling = LocalTraining(lr=0.1, batch=8, steps=3), Uniform(6)
    return Federation(model, data, local=local, sampling=sampling, engine=engine, device="cpu")


def pixels(folder: Path, n: int = 60) -> Any:
    """Pixels in a file that is mapped, of `n` images."""
    x = np.random.default_rng(0).integers(0, 256, (n, 64, 64, 3), dtype=np.uint8)
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def of(x: Any) -> FederatedData:
    return FederatedData.from_arrays(x, np.arange(len(x)) % 3, partition=IID(12))


def stored() -> int:
    """The bytes in Ray's object store."""
    from ray._private.internal_api import node_stats

    (node,) = ray.nodes()
    return int(node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).store_stats.object_store_bytes_used)


def test_an_array_in_a_mapped_file_gives_the_same_bytes_and_is_not_put_into_the_store(tmp_path: Path) -> None:
    data, before = of(pixels(tmp_path, 2000)), stored()
    assert isinstance(data.train.x, MappedTensor) and data.train.x.numel() > 24e6
    with federation(data, on_ray(2)) as world:
        world.prepare()
        assert stored() - before < 1e6
    states = [after(federation(of(x), on_ray(2)), 2) for x in (np.load(tmp_path / "x.npy"), pixels(tmp_path, 2000))]
    assert identical(*states)
    assert identical(states[0], after(federation(of(pixels(tmp_path, 2000)), HERE), 2))


def test_a_mapped_file_that_the_actors_do_not_find_is_named(tmp_path: Path) -> None:
    data = of(pixels(tmp_path))
    (tmp_path / "x.npy").unlink()
    with pytest.raises(
        DataError, match=rf"^{tmp_path}/x.npy can't be mapped on .*: every machine must have it at this"
    ):
        federation(data, on_ray(1)).prepare()


@pytest.mark.slow
def test_real_pacs_has_the_same_bytes_encoded_and_decoded_here_and_on_actors() -> None:
    if "FEDSASH_DATA" not in os.environ:
        pytest.skip("FEDSASH_DATA, the folder of the real data sets, is not set")
    path, states = str(Path(os.environ["FEDSASH_DATA"]) / "pacs"), []
    for decode in ("once", "batches"):
        data = PACS(path, size=32, decode=decode).load().partition(IID(12))  # type: ignore[arg-type]
        assert isinstance(data.train.x, EncodedImages) == (decode == "batches")
        states += [after(federation(data, engine), 2) for engine in (HERE, on_ray(2))]
    assert all(identical(states[0], other) for other in states[1:])
