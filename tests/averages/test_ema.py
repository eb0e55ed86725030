"""EMA: its warm-up, its single precision, and PyTorch's own."""

from __future__ import annotations

import pytest
import torch

from fedsash.averages import EMA
from support.by_default import some
from support.trajectories import final, follow, same_bits, trajectory


def test_the_decay_of_a_warm_up_grows_as_one_plus_n_over_ten_plus_n() -> None:
    models = trajectory(200)
    expected = models[1].clone()
    for n, w in enumerate(models[2:], start=1):
        decay = min(0.9, (1 + n) / (10 + n))
        expected = decay * expected + (1 - decay) * w
    torch.testing.assert_close(final(EMA(0.9, warmup=True), models), expected, rtol=1e-13, atol=1e-15)


def test_a_warm_up_from_the_initial_model_gives_it_a_tenth_and_ends_as_the_plain_ema() -> None:
    models = trajectory(1)
    found = final(EMA(0.9, start="initial", warmup=True), models)
    torch.testing.assert_close(found, 0.1 * models[0] + 0.9 * models[1], rtol=1e-14, atol=0)
    warm, plain = (follow(EMA(0.2, warmup=warmup), trajectory(30)).state["ema"] for warmup in (True, False))
    torch.testing.assert_close(warm, plain, rtol=1e-14, atol=0)


def test_a_correction_that_needs_a_constant_decay_is_refused_with_a_warm_up() -> None:
    with pytest.raises(ValueError, match=r"^EMA.start = 'zero': must not be \"zero\" with warmup"):
        EMA(0.9, start="zero", warmup=True)


@pytest.mark.parametrize(("dtype", "kept"), [(torch.bfloat16, 4), (torch.float32, 4), (torch.float64, 8)])
def test_single_precision_takes_four_bytes_and_as_many_as_the_model_if_that_has_more(
    dtype: torch.dtype, kept: int
) -> None:
    models = trajectory(3, dtype=dtype)
    assert follow(EMA(0.9, precision="single"), models).state["ema"].element_size() == kept
    assert follow(EMA(0.9), models).state["ema"].element_size() == 8


@pytest.mark.parametrize("start", ["first", "initial", "zero"])
def test_in_float64_single_precision_is_double_bitwise(start: str) -> None:
    models = trajectory(20)
    one, other = (final(EMA(0.7, start=start, precision=p), models) for p in ("single", "double"))  # type: ignore[arg-type]
    assert same_bits(one, other)


@pytest.mark.parametrize("decay", some([0.9, 0.99, 0.999], 0.99))
def test_single_precision_is_off_by_less_than_the_docstring_says(decay: float) -> None:
    models = trajectory(3000, d=50, dtype=torch.float32)
    one, other = (follow(EMA(decay, precision=p), models).state["ema"].double() for p in ("single", "double"))
    assert 0 < (one - other).abs().max() <= 2**-23 / (1 - decay) * models.abs().max()


def test_single_precision_leaves_a_constant_model_bitwise() -> None:
    models = trajectory(1, d=100, dtype=torch.float32)[1].expand(30, 100)
    assert same_bits(final(EMA(0.999, precision="single"), models), models[0])
