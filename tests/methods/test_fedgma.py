"""FedGMA's masks are their formulas, and its published code's a plain loop; a threshold of zero is the mean."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsash.methods import FedAvg, FedGMA, WeightedMean
from support.by_default import rotated, some
from support.uploads import aggregate, updated
from support.worlds import ENGINES, after, federation, identical


@st.composite
def updates(draw: st.DrawFn) -> tuple[np.ndarray, Tensor]:
    """The sizes of a round's clients, and updates that agree now more, now less; some values are zero."""
    count = draw(st.integers(1, 12))
    sizes = np.array(draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count)), dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    delta = rng.normal(loc=draw(st.sampled_from([0.0, 1.0, 3.0])), size=(count, 40)) * rng.choice([-1, 1], 40)
    return sizes, torch.from_numpy(delta * (rng.random((count, 40)) < 0.95))


thresholds = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])
masks = st.sampled_from(["soft", "hard", "code"])


def masked(sizes: Any, delta: Tensor, rule: FedGMA, blocks: tuple[int, ...] = ()) -> Tensor:
    return updated(aggregate(sizes, {"delta": delta}, blocks, FedAvg(), rule))


@given(round=updates(), mask=st.sampled_from(["soft", "hard"]))
def test_a_threshold_of_zero_is_the_mean_bitwise(round: Any, mask: Any) -> None:
    sizes, delta = round
    mean = aggregate(sizes, {"delta": delta}, method=FedAvg()).mean()["delta"]
    assert torch.equal(masked(sizes, delta, FedGMA(threshold=0.0, mask=mask)), mean)


@given(round=updates(), threshold=thresholds, mask=st.sampled_from(["soft", "hard"]))
def test_equal_updates_are_their_own_masked_mean_whatever_the_threshold(
    round: Any, threshold: float, mask: Any
) -> None:
    sizes, delta = round
    same = torch.where(delta[:1] == 0, 0.5, delta[:1]).expand_as(delta)
    torch.testing.assert_close(masked(sizes, same, FedGMA(threshold=threshold, mask=mask)), same[0], rtol=1e-14, atol=0)


@pytest.mark.parametrize("mask", ["soft", "hard"])
@pytest.mark.parametrize("threshold", [0.01, 0.5, 1.0])
def test_two_clients_that_contradict_each_other_do_not_move_the_model(threshold: float, mask: Any) -> None:
    delta = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -0.1]], dtype=torch.float64)
    assert masked([1, 9], delta, FedGMA(threshold=threshold, mask=mask)).tolist() == [0, 0, 0]
    assert float(masked([1, 9], delta, FedGMA(threshold=0.0, mask=mask)).norm()) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("blocks", [(), (3,), tuple(range(10))])
def test_nine_of_ten_that_agree_pass_a_threshold_of_four_fifths(blocks: tuple[int, ...], dtype: torch.dtype) -> None:
    """(9 - 1) / 10 is 0.8, and a sum of tenths is not."""
    rng = np.random.default_rng(0)
    delta = torch.from_numpy(np.abs(rng.normal(size=(10, 50)))).to(dtype)
    delta[rng.integers(0, 10, 50), np.arange(50)] *= -1
    delta *= torch.from_numpy(rng.choice([-1, 1], 50))
    mean = aggregate([1] * 10, {"delta": delta}, blocks, FedAvg()).mean()["delta"]
    assert torch.equal(masked([1] * 10, delta, FedGMA(threshold=0.8, mask="hard"), blocks), mean)
    assert torch.equal(masked([1] * 10, delta, FedGMA(threshold=0.8, mask="soft"), blocks), mean)
    assert not masked([1] * 10, delta, FedGMA(threshold=0.81, mask="hard"), blocks).any()
    assert torch.equal(masked([1] * 10, delta, FedGMA(threshold=0.8, mask="code"), blocks), mean), (
        "the code asks for more than 0.8"
    )


@given(count=st.integers(1, 100), data=st.data())
def test_an_agreement_that_is_the_threshold_passes_it_in_float32(count: int, data: st.DataObject) -> None:
    against = data.draw(st.integers(0, (count - 1) // 2))
    delta = torch.ones(count, 1)
    delta[:against] = -1
    blocks = tuple(data.draw(st.lists(st.integers(0, count), max_size=5)))
    threshold = (count - 2 * against) / count
    assert masked([1] * count, delta, FedGMA(threshold=threshold, mask="hard"), blocks).all()


@given(round=updates(), threshold=thresholds, data=st.data())
@pytest.mark.parametrize("weighting", some(["samples", "uniform"], "samples"))
def test_soft_and_hard_masks_are_their_formula_in_numpy_over_the_clients_that_are_accepted(
    weighting: Any, round: Any, threshold: float, data: st.DataObject
) -> None:
    sizes, delta = round
    clients = list(range(len(sizes)))
    good = sorted(data.draw(st.sets(st.sampled_from(clients), min_size=1)))
    own = delta.numpy()[good].copy()
    delta[[client for client in clients if client not in good], 0] = math.nan
    mean = np.average(own, axis=0, weights=sizes[good] if weighting == "samples" else None)
    votes = np.abs(np.sign(own).sum(axis=0))
    agreed = votes >= threshold * len(good) - 1e-9
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    for mask, otherwise in (("soft", votes / len(good)), ("hard", 0.0)):
        rule, method = FedGMA(threshold=threshold, mask=mask), FedAvg(weighting=weighting)
        got = updated(aggregate(sizes, {"delta": delta}, blocks, method, rule))
        np.testing.assert_allclose(got.numpy(), np.where(agreed, 1.0, otherwise) * mean, rtol=1e-11, atol=1e-12)


def published(updates: np.ndarray, weights: np.ndarray, threshold: float) -> list[float]:
    """FedIMA's masking as FedGMA's docstring has it, one parameter and one client at a time."""
    s, result = len(updates), []
    for parameter in updates.T.tolist():
        model = sum(p * own for p, own in zip(weights.tolist(), parameter, strict=True))
        votes = sum((own > 0) - (own < 0) for own in parameter)
        so_far = 0.0
        for own in parameter:
            distance = own - so_far
            if abs(votes) > threshold * s + 1e-9 and distance * votes > 0:
                model -= 1e-4 / s * distance
            so_far = model
        result.append(model)
    return result


@given(round=updates(), threshold=thresholds, data=st.data())
def test_the_codes_mask_is_a_plain_loop_over_parameters_and_clients(
    round: Any, threshold: float, data: st.DataObject
) -> None:
    sizes, delta = round
    clients = list(range(len(sizes)))
    good = sorted(data.draw(st.sets(st.sampled_from(clients), min_size=1)))
    expected = published(delta.numpy()[good], sizes[good] / sizes[good].sum(), threshold)
    delta[[client for client in clients if client not in good], 0] = math.inf
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    got = masked(sizes, delta, FedGMA(threshold=threshold, mask="code"), blocks)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-11, atol=1e-14)


@given(round=updates())
def test_the_codes_mask_takes_no_more_than_a_ten_thousandth_of_the_mean(round: Any) -> None:
    """With fewer than ten equal clients only the unanimous pass 0.8, whose distances sum to at most s times the mean
    (and what has been taken comes on top, a ten-thousandth of it)."""
    sizes, delta = round
    sizes, delta = np.ones_like(sizes[:9]), delta[:9]
    mean = aggregate(sizes, {"delta": delta}, method=FedAvg()).mean()["delta"]
    got = masked(sizes, delta, FedGMA(threshold=0.8, mask="code"))
    assert bool(((got - mean).abs() <= 1e-4 * (1 + 1e-4) * mean.abs() + 1e-16).all())
    assert bool((got.abs() <= mean.abs() + 1e-16).all()), "what it changes, it changes the wrong way"


@given(round=updates(), threshold=thresholds, mask=masks)
def test_a_masked_update_can_be_asked_for_again(round: Any, threshold: float, mask: Any) -> None:
    sizes, delta = round
    sums = aggregate(sizes, {"delta": delta}, method=FedAvg(), rule=FedGMA(threshold=threshold, mask=mask))
    assert torch.equal(updated(sums), updated(sums))


@pytest.mark.parametrize("engine", rotated(ENGINES, turns=1))
def test_a_run_with_a_threshold_of_zero_is_the_run_with_the_mean_bitwise(engine: str) -> None:
    gma, mean = (
        after(federation(engine=ENGINES[engine], aggregation=rule), 3)
        for rule in (FedGMA(threshold=0.0), WeightedMean())
    )
    assert identical(gma, mean)


@pytest.mark.parametrize("rule", [FedGMA(threshold=1.0, mask="hard"), FedGMA(threshold=1.0)])
@pytest.mark.parametrize("blocks", [(), (1,) * 5000], ids=["at once", "one by one"])
def test_the_votes_of_thousands_of_clients_add_up_in_float32(rule: FedGMA, blocks: tuple[int, ...]) -> None:
    delta = torch.tensor([[0.5, -2.0]]).expand(5000, 2)
    masked = updated(aggregate([1] * 5000, {"delta": delta}, blocks, FedAvg(), rule))
    assert masked.dtype == torch.float32
    torch.testing.assert_close(masked, delta[0], rtol=1e-4, atol=0)
