"""The server's mean is NumPy's weighted average, and its guard leaves out bad clients, and only them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.client.messages import largest_norms
from fedsash.methods import FedAvg, Upload, WeightedMean
from support.uploads import BAD, TwoVectors, aggregate, reply, rounds, uploads_of

finite = st.floats(-1e3, 1e3)


def expected(sizes: np.ndarray, upload: Upload, kept: list[int] | None = None, weighting: str = "samples") -> Upload:
    """The weighted means by NumPy, in float64, over the clients that are kept."""
    kept = list(range(len(sizes))) if kept is None else kept
    uniform = np.ones(len(kept))
    by_samples = sizes[kept].astype(float) if weighting == "samples" else uniform
    return {
        name: torch.from_numpy(
            np.asarray(np.average(value.double().numpy()[kept], axis=0, weights=uniform if name == "c" else by_samples))
        )
        for name, value in upload.items()
    }


def assert_close(one: Upload, other: Upload, rtol: float = 1e-12) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=rtol, atol=rtol, check_dtype=False)


@given(round=rounds(), weighting=st.sampled_from(["samples", "uniform"]))
def test_the_mean_is_numpys_weighted_average(round: Any, weighting: Any) -> None:
    sizes, upload = round
    uploads = aggregate(sizes, upload, method=TwoVectors(weighting=weighting))
    assert len(uploads.collector.accepted) == len(sizes)
    assert_close(uploads.mean(), expected(sizes, upload, weighting=weighting))


@given(round=rounds())
def test_float32_uploads_have_a_float32_mean_as_exact_as_that_allows(round: Any) -> None:
    sizes, upload = round
    single = {name: value.float() for name, value in upload.items()}
    mean = aggregate(sizes, single).mean()
    assert all(value.dtype == torch.float32 for value in mean.values())
    assert_close(mean, expected(sizes, single), rtol=2e-6)


@given(round=rounds(), data=st.data())
def test_the_order_of_the_clients_does_not_matter(round: Any, data: st.DataObject) -> None:
    sizes, upload = round
    order = data.draw(st.permutations(range(len(sizes))))
    permuted = {name: value[order] for name, value in upload.items()}
    assert_close(aggregate(sizes[order], permuted).mean(), aggregate(sizes, upload).mean())


@given(round=rounds(), scale=st.integers(1, 10**6))
def test_only_the_ratios_of_the_sizes_matter(round: Any, scale: int) -> None:
    sizes, upload = round
    assert_close(aggregate(scale * sizes, upload).mean(), aggregate(sizes, upload).mean())


@given(round=rounds())
def test_equal_uploads_are_their_own_mean(round: Any) -> None:
    sizes, upload = round
    same = {name: value[:1].expand_as(value) for name, value in upload.items()}
    assert_close(aggregate(sizes, same).mean(), {name: value[0] for name, value in upload.items()})


@given(round=rounds(), data=st.data())
def test_any_split_into_blocks_gives_the_same_mean_and_leaves_the_uploads_alone(round: Any, data: Any) -> None:
    sizes, upload = round
    given = {name: value.clone() for name, value in upload.items()}
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    mean = aggregate(sizes, upload, blocks).mean()
    assert_close(mean, aggregate(sizes, upload).mean())
    assert all(torch.equal(mean[name], value) for name, value in aggregate(sizes, upload, blocks).mean().items())
    assert all(torch.equal(given[name], value) for name, value in upload.items())


def test_sums_do_not_alias_the_uploads() -> None:
    buffer = torch.ones(1, 3, dtype=torch.float64)
    uploads = uploads_of([1, 1], FedAvg())
    for place in range(2):
        uploads.take(reply(place, {"delta": buffer}))
        buffer.fill_(5)
    assert uploads.mean()["delta"].tolist() == [3, 3, 3]


@given(round=rounds(), data=st.data())
def test_bad_clients_are_left_out_named_and_the_others_weights_scaled_up(round: Any, data: st.DataObject) -> None:
    sizes, upload = round
    clients = range(len(sizes))
    bad = data.draw(st.sets(st.sampled_from(clients)))
    for client in bad:
        value = upload[data.draw(st.sampled_from(sorted(upload)))].view(len(sizes), -1)
        value[client, data.draw(st.integers(0, value.shape[1] - 1))] = data.draw(st.sampled_from((*BAD, 1e7, -1e7)))
    good = [client for client in clients if client not in bad]
    cut = data.draw(st.integers(0, len(sizes)))
    uploads = uploads_of(sizes)
    for block in (range(cut), range(cut, len(sizes))):
        if block:
            part = {name: value[block.start : block.stop] for name, value in upload.items()}
            uploads.take(reply(block.start, part))
    assert uploads.collector.accepted == good
    assert uploads.collector.refused == sorted(bad)
    assert_close(uploads.mean(), expected(sizes, upload, good) if good else {})


def test_the_limit_is_on_the_norm_of_a_vector_and_inclusive() -> None:
    upload = {"delta": torch.tensor([[3.0, 4.0], [3.0, 4.1], [0.0, 0.0]])}
    uploads = uploads_of([1, 1, 1], FedAvg(), WeightedMean(limit=5))
    uploads.take(reply(0, upload))
    assert uploads.collector.accepted == [0, 2] and uploads.collector.refused == [1]
    assert uploads.mean()["delta"].tolist() == [1.5, 2.0]


def test_an_infinite_limit_still_refuses_what_is_not_finite() -> None:
    upload = {"delta": torch.tensor([[1e30], *([bad] for bad in BAD), [2.0]], dtype=torch.float64)}
    uploads = uploads_of([1] * 5, FedAvg(), WeightedMean(limit=math.inf))
    uploads.take(reply(0, upload))
    assert uploads.collector.accepted == [0, 4]


@given(values=st.lists(st.lists(finite | st.sampled_from(BAD), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_largest_norm_is_over_a_clients_vectors_and_not_a_number_if_one_is_not(values: list[list[float]]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    norms = largest_norms({"a": x, "b": x[:, :2].unsqueeze(2), "number": 2 * x[:, 0]}, {}, len(x))
    array = x.numpy()
    a, b, number = np.linalg.norm(array, axis=1), np.linalg.norm(array[:, :2], axis=1), np.abs(2 * array[:, 0])
    assert norms.shape == (len(values),)
    np.testing.assert_allclose(norms.numpy(), np.max([a, b, number], axis=0), rtol=1e-12)


def test_client_state_counts_only_if_it_is_not_finite() -> None:
    """A step count or a mean of squared gradients is longer than the guard's limit in sound runs."""
    upload = {"delta": torch.tensor([[3.0, 4.0]]).expand(4, 2)}
    v = torch.tensor([[1e18, 0.0], [math.nan, 0.0], [0.0, -math.inf], [1e30, 0.0]])
    norms = largest_norms(upload, {"v": v, "steps": 10**7 + torch.arange(4)}, 4)
    assert norms[0] == 5 and norms.isnan().tolist() == [False, True, True, True]


def test_a_mean_can_be_asked_for_again() -> None:
    uploads = aggregate([1, 3], {"delta": torch.tensor([[0.0], [4.0]])})
    assert uploads.mean().pop("delta").tolist() == uploads.mean()["delta"].tolist() == [3.0]


@pytest.mark.parametrize("limit", [0, -1.0, math.nan])
def test_a_limit_that_is_not_positive_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match=r"Mean\.limit = .*: must be (positive|a number)"):
        WeightedMean(limit=limit)
