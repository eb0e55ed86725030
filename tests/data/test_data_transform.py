from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsash.data import Inputs, OwnTransform, Transform
from fedsash.vector.randomness import Purpose, keys, to_tensor


def some_keys(m: int, seed: int = 0) -> Tensor:
    return to_tensor(keys(seed, Purpose.STEP, 0, np.arange(m)))


def some_images(m: int, height: int = 5, width: int = 7, channels: int = 3) -> Tensor:
    """Images without black pixels whose pixels all differ."""
    pixels = torch.arange(1, height * width * channels + 1, dtype=torch.uint8).view(1, height, width, channels)
    return pixels.expand(m, -1, -1, -1).contiguous()


def outcomes(image: Tensor, crop: int) -> dict[bytes, tuple[int, int, bool]]:
    """Every crop and mirror image of one image, made one at a time."""
    array = image.numpy()
    height, width, _ = array.shape
    padded = np.pad(array, ((crop, crop), (crop, crop), (0, 0)))
    crops = {}
    for top in range(2 * crop + 1):
        for left in range(2 * crop + 1):
            cut = padded[top : top + height, left : left + width]
            crops[cut.tobytes()] = (top, left, False)
            crops[cut[:, ::-1].tobytes()] = (top, left, True)
    return crops


@pytest.mark.parametrize(("crop", "flip"), [(0, True), (1, False), (2, True)])
def test_augment_draws_every_crop_and_direction_equally_often(crop: int, flip: bool) -> None:
    m = 20_000
    images = some_images(m)
    possible = outcomes(images[0], crop)
    drawn = Counter(
        possible[image.tobytes()] for image in Transform(crop=crop, flip=flip).augment(images, some_keys(m)).numpy()
    )
    p = 1 / ((2 * crop + 1) ** 2 * (2 if flip else 1))
    assert len(drawn) == round(1 / p)
    assert all(abs(n - m * p) < 5 * (m * p) ** 0.5 for n in drawn.values())
    assert any(flipped for _, _, flipped in drawn) == flip


def test_augment_is_a_function_of_each_sample_and_its_key_alone() -> None:
    transform = Transform(crop=2, flip=True)
    images = torch.randint(0, 256, (40, 6, 6, 3), dtype=torch.uint8)
    h = some_keys(40)
    whole = transform.augment(images, h)
    assert torch.equal(whole, transform.augment(images, h))
    order = torch.randperm(40)
    assert torch.equal(transform.augment(images[order], h[order]), whole[order])
    assert not torch.equal(transform.augment(images, some_keys(40, seed=1)), whole)


def test_augment_does_not_depend_on_how_images_lie_in_memory() -> None:
    transform = Transform(flip=True)
    images = torch.randint(0, 256, (9, 3, 6, 5), dtype=torch.uint8).movedim(1, -1)
    assert torch.equal(transform.augment(images, some_keys(9)), transform.augment(images.contiguous(), some_keys(9)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_devices_draw_the_same() -> None:
    transform = Transform((0.5,) * 3, (0.2,) * 3, crop=4, flip=True)
    images = torch.randint(0, 256, (500, 32, 32, 3), dtype=torch.uint8)
    h = some_keys(500)
    there = transform.augment(images.cuda(), h.cuda())
    assert torch.equal(there.cpu(), transform.augment(images, h))
    torch.testing.assert_close(transform.prepare(there).cpu(), transform.prepare(there.cpu()), rtol=0, atol=1e-6)


def test_without_crop_and_flip_nothing_changes() -> None:
    images = some_images(3)
    assert not Transform().augments
    assert torch.equal(Transform().augment(images, some_keys(3)), images)
    assert Transform(crop=1).augments
    assert Transform(flip=True).augments


@pytest.mark.parametrize("shape", [(4, 5, 7, 3), (2, 4, 5, 7, 3), (4, 5, 7, 1)])
def test_prepare_normalises_each_channel(shape: tuple[int, ...]) -> None:
    mean, std = ((0.5, 0.4, 0.3), (0.25, 0.2, 0.1)) if shape[-1] == 3 else ((0.3,), (0.35,))
    x = torch.randint(0, 256, shape, dtype=torch.uint8)
    expected = (
        (x.double() / 255 - torch.tensor(mean, dtype=torch.float64)) / torch.tensor(std, dtype=torch.float64)
    ).movedim(-1, -3)
    prepared = Transform(mean, std).prepare(x)
    assert prepared.dtype == torch.float32
    torch.testing.assert_close(prepared.double(), expected, rtol=0, atol=2e-6)
    plain = Transform().prepare(x)
    torch.testing.assert_close(plain.double(), x.double().movedim(-1, -3) / 255, rtol=0, atol=1e-7)


def test_a_prepared_batch_is_channels_last_without_a_copy() -> None:
    x = torch.randint(0, 256, (100, 8, 8, 3), dtype=torch.uint8)
    assert Transform().prepare(x[torch.tensor([3, 1, 4])]).is_contiguous(memory_format=torch.channels_last)


def test_features_pass_through() -> None:
    x = torch.rand(4, 64, dtype=torch.float64)
    assert Transform().prepare(x) is x


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"mean": (0.5,)}, r"Transform.std = \(\): must have as many numbers as mean"),
        ({"mean": (0.5,), "std": (0.0,)}, r"Transform.std = \(0.0,\): must be positive"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Transform(**settings)  # type: ignore[arg-type]


def test_samples_that_are_not_prepared_are_the_inputs_themselves() -> None:
    floats = torch.rand(3, 2)
    numbers = torch.arange(6).view(3, 2)
    pixels = torch.zeros(3, 4, 4, 1, dtype=torch.uint8)
    samples = [floats, floats.double(), numbers, pixels, Inputs([floats, numbers]), Inputs([numbers, pixels])]
    for x, prepared in zip(samples, [False, True, False, True, False, True], strict=True):
        assert Transform().prepares(x, torch.float32) == prepared
        batch = x.tensors if isinstance(x, Inputs) else x
        inputs = Transform().inputs(batch, torch.float32)
        before = list(batch.values()) if isinstance(batch, dict) else [batch]
        after = list(inputs.values()) if isinstance(inputs, dict) else [inputs]
        assert all(one is other for one, other in zip(before, after, strict=True)) != prepared


def test_a_transform_of_ones_own_always_prepares() -> None:
    assert OwnTransform(batch=_doubled).prepares(torch.rand(3, 2), torch.float32)


def _doubled(x: Tensor) -> Tensor:
    return 2 * x
