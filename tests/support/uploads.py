"""Uploads of a round's clients for tests, and what a rule makes of them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from fedsash.client.messages import Effort, Reply, Request, largest_norms
from fedsash.engines.uploads import Uploads
from fedsash.methods import Aggregation, Method, Upload, WeightedMean
from fedsash.methods.sampling import Uniform

BAD = (math.nan, math.inf, -math.inf)


@dataclass(frozen=True)
class TwoVectors(Method):
    """Uploads `c`, averaged uniformly, and a number `tau` beside `delta`."""

    uniform: ClassVar[tuple[str, ...]] = ("c",)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[np.ndarray, Upload]:
    """The sizes of a round's clients, and what they upload."""
    count = draw(st.integers(1, 7))
    sizes = np.array(draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count)), dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shapes = {"delta": (5,), "c": (2, 3), "tau": ()}
    upload = {name: torch.from_numpy(rng.normal(size=(count, *shape))) for name, shape in shapes.items()}
    return sizes, upload


def uploads_of(sizes: Any, method: Method | None = None, rule: Aggregation | None = None, pieces: int = 1) -> Uploads:
    """No uploads yet of a round with as many clients as sizes."""
    sizes = np.asarray(sizes, dtype=np.int64)
    rule = rule or WeightedMean()
    memory = rule.init(Uniform(), len(sizes))
    ids = np.arange(len(sizes))
    request = Request(job="train", round=0, ids=ids, sent=torch.empty(0), server_state={}, aggregation=memory)
    return Uploads(request, rule, method or TwoVectors(), sizes, pieces)


def reply(first: int, upload: Upload, effort: Effort | None = None) -> Reply:
    """What the clients from place `first` on send up."""
    count = len(upload["delta"])
    places, none = np.arange(first, first + count), np.zeros(count, dtype=np.int64)
    norms, effort = largest_norms(upload, {}, count), effort or Effort(none, none)
    return Reply(places=places, upload=upload, client_state={}, norms=norms, effort=effort)


def aggregate(
    sizes: Any,
    upload: Upload,
    blocks: tuple[int, ...] = (),
    method: Method | None = None,
    rule: Aggregation | None = None,
    effort: Effort | None = None,
) -> Uploads:
    """The uploads of a round that comes in blocks, split at the given places."""
    uploads = uploads_of(sizes, method, rule)
    bounds = [0, *sorted(blocks), len(sizes)]
    for first, last in itertools.pairwise(bounds):
        if first < last:
            block = {name: value[first:last] for name, value in upload.items()}
            own = effort and effort.only([*range(first, last)])
            uploads.take(reply(first, block, own))
    return uploads


def updated(uploads: Uploads) -> Tensor:
    """The round's update."""
    return uploads.rule.update(uploads.mean(), uploads.updates)
