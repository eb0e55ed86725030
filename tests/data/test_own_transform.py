"""Transforms of one's own: the same draws in every engine, and what breaks this is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash.client import LocalTraining
from fedsash.data import FederatedData, Inputs, OwnTransform, Transform, draws
from fedsash.engines import LocalEngine
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.settings.errors import FedsashError
from fedsash.tasks import Segmentation
from support.by_default import rotated, some
from support.own import Noise
from support.worlds import ENGINES, SEQUENTIAL, SPAWNED, VECTORISED, after, identical

N = 24
SIDE = 6


@dataclass(frozen=True)
class Masked(Transform):
    """Replaces a fifth of the tokens by 0, and doubles the weights of all."""

    def augment(self, x: Any, keys: Tensor) -> Any:
        ids = x["ids"]
        return {**x, "ids": torch.where(draws(keys, *ids.shape[1:]) < 0.2, 0, ids)}

    def prepare(self, x: Any) -> Any:
        return {**x, "weights": 2 * x["weights"]}


def turned(x: Tensor) -> Tensor:
    """A quarter turn of half of the images, and noise, drawn from PyTorch's own generator."""
    x = x.rot90(1, (1, 2)) if torch.rand(()) < 0.5 else x
    return (x + torch.randint(0, 30, x.shape, dtype=torch.uint8)).clamp(max=255)


def centred(x: Tensor) -> Tensor:
    return x.float() / 127.5 - 1


class Bag(nn.Module):
    """The weighted sum of the embeddings of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 3)

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        return (self.embedding(ids) * weights.unsqueeze(-1)).sum(-2)


def features() -> FederatedData:
    x = np.random.default_rng(0).standard_normal((N, 5)).astype(np.float32)
    return FederatedData.from_arrays(x, np.arange(N) % 3, users=np.arange(N) % 5, transform=Noise())


def tokens() -> FederatedData:
    rng = np.random.default_rng(0)
    x = {"ids": rng.integers(1, 9, (N, 4)), "weights": rng.random((N, 4))}
    return FederatedData.from_arrays(x, np.arange(N) % 3, users=np.arange(N) % 5, transform=Masked())


def images(**functions: Any) -> FederatedData:
    x = np.random.default_rng(0).integers(0, 200, (N, SIDE, SIDE, 3), dtype=np.uint8)
    transform = OwnTransform(**functions or {"sample": turned, "batch": centred})
    return FederatedData.from_arrays(x, np.arange(N) % 3, users=np.arange(N) % 5, transform=transform)


def world(kind: str, engine: LocalEngine = SEQUENTIAL, **settings: Any) -> Federation:
    torch.manual_seed(0)
    data, model = {
        "features": (features, lambda: nn.Linear(5, 3)),
        "tokens": (tokens, Bag),
        "images": (images, lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 3))),
    }[kind]
    local = LocalTraining(lr=0.05, batch=4)
    sampling = Uniform(3)
    return Federation(model().double(), data(), local=local, sampling=sampling, engine=engine, **settings)


FEW = rotated(("features", "tokens", "images"), [*ENGINES.values()][1:])


@pytest.mark.parametrize(("kind", "engine"), [*FEW, pytest.param("images", SPAWNED, marks=pytest.mark.slow)])
def test_every_engine_draws_the_same(kind: str, engine: LocalEngine) -> None:
    with world(kind) as one, world(kind, engine) as other:
        assert torch.allclose(after(one, 3).w, after(other, 3).w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", some(["features", "tokens", "images"], "images"))
def test_augmentation_changes_the_training_and_the_seed_changes_the_augmentation(kind: str) -> None:
    plain = world(kind)
    augmented = world(kind)
    assert not torch.equal(after(augmented, 2).w, after(world(kind, seed=1), 2).w)
    without = replace(plain.training_data, transform=Transform() if kind != "tokens" else Prepared())
    assert not torch.equal(after(augmented, 2).w, after(replace(plain, data=without), 2).w)


@dataclass(frozen=True)
class Prepared(Masked):
    """As `Masked`, without the augmentation."""

    def augment(self, x: Any, keys: Tensor) -> Any:
        return x


def test_a_round_draws_the_same_after_a_pause_as_without_one() -> None:
    """The draws depend on no generator that lives on: other draws in between change nothing."""
    one = world("images")
    other = world("images")
    state = one.start()
    paused = other.start()
    for _ in range(3):
        state, _ = one.round(state)
        paused, _ = other.round(paused)
        torch.rand(7)
    assert identical(state, paused)


def test_the_users_own_generator_stays_where_it_was() -> None:
    transform = OwnTransform(sample=turned)
    x = torch.zeros(4, SIDE, SIDE, 3, dtype=torch.uint8)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    transform.augment(x, torch.arange(4))
    assert torch.equal(torch.rand(3), expected)


def test_a_sample_is_seen_with_its_channels_first_and_stored_with_them_last() -> None:
    seen: list[tuple[int, ...]] = []

    def blackened(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        return torch.cat([torch.zeros_like(x[:1]), x[1:]])

    x = torch.randint(1, 256, (2, 4, 5, 3), dtype=torch.uint8)
    changed = OwnTransform(sample=blackened).augment(x, torch.arange(2))
    assert seen == [(3, 4, 5), (3, 4, 5)]
    assert changed[..., 0].sum() == 0 and torch.equal(changed[..., 1:], x[..., 1:])
    shape = OwnTransform(batch=lambda x: torch.tensor(x.shape[1:])).prepare(x)
    assert isinstance(shape, Tensor) and shape.tolist() == [3, 4, 5]


def test_draws_depend_on_the_keys_alone_and_are_uniform() -> None:
    keys = torch.arange(4000)
    numbers = draws(keys, 3, 2)
    assert numbers.shape == (4000, 3, 2) and numbers.min() >= 0 and numbers.max() < 1
    assert torch.equal(draws(keys[7:9], 3, 2), numbers[7:9])
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.01) and draws(keys).shape == (4000,)


@dataclass(frozen=True)
class Drawing(Transform):
    """Draws from PyTorch's generator, which no engine seeds here."""

    def augment(self, x: Any, keys: Tensor) -> Any:
        return x + torch.rand_like(x)


@dataclass(frozen=True)
class Whitening(Transform):
    """Subtracts the mean of the batch."""

    def prepare(self, x: Any) -> Any:
        return x - x.mean(0)


@dataclass(frozen=True)
class Widening(Transform):
    """Returns more features than there are."""

    def augment(self, x: Any, keys: Tensor) -> Any:
        return torch.cat([x, x], dim=1)


@pytest.mark.parametrize(
    ("transform", "line"),
    [
        (Drawing(), "Drawing.augment = .*: two calls with the same samples differ: it must depend on its keys"),
        (Whitening(), "Whitening.prepare = .*: must treat each sample by itself"),
        (Widening(), r"Widening.augment = \[\[16, 10\]\]: must keep the shapes and types of the samples"),
        (OwnTransform(sample=lambda x: x + np.random.rand()), "two calls with the same samples differ"),
        (
            OwnTransform(sample=lambda x: x.no_such_thing),
            "OwnTransform.augment = .*: can't change samples of these data",
        ),
        (OwnTransform(batch=lambda x: x.image), "OwnTransform.prepare = .*: can't change samples of these data"),
        (OwnTransform(crop=1, sample=turned), "acts on uint8 images, and the data are torch.float32 features"),
    ],
    ids=["draws", "whitens", "widens", "numpy", "fails", "fails to prepare", "crops features"],
)
def test_what_would_train_otherwise_in_another_engine_is_refused_in_one_line(transform: Transform, line: str) -> None:
    with pytest.raises(FedsashError, match=line) as caught:
        Federation(nn.Linear(5, 3), replace(features(), transform=transform))
    assert "\n" not in str(caught.value)


def test_a_function_must_be_a_function() -> None:
    with pytest.raises(ValueError, match=r"OwnTransform.sample = 3: must be a function"):
        OwnTransform(sample=3)  # type: ignore[arg-type]


def test_own_functions_are_not_compiled_and_asking_for_it_is_refused() -> None:
    compiled = replace(VECTORISED, compile=True)
    with world("images", compiled) as f, pytest.raises(ValueError, match="the transform's own functions can't be comp"):
        f.prepare()


def test_a_crop_of_images_whose_pixels_have_labels_is_refused() -> None:
    x = np.zeros((4, 5, 5, 3), dtype=np.uint8)
    y = np.zeros((4, 5, 5), dtype=int)
    with pytest.raises(ValueError, match=r"Transform.flip = True: would move the images, and not the labels"):
        FederatedData.from_arrays(x, y, [[0, 1]], task=Segmentation(), transform=Transform(flip=True))


def test_several_inputs_are_not_cropped() -> None:
    with pytest.raises(ValueError, match="acts on uint8 images, and the data are several inputs"):
        Transform(flip=True).fits(Inputs([torch.zeros(2, 3)]), torch.zeros(2))


def test_another_federation_goes_on_as_the_first_would_have() -> None:
    middle = after(world("images"), 2)
    assert identical(after(world("images"), 4), after_from(world("images"), middle, 2))


def after_from(federation: Federation, state: Any, rounds: int) -> Any:
    for _ in range(rounds):
        state, _ = federation.round(state)
    return state


def test_several_inputs_with_an_image_come_back_as_they_were() -> None:
    x = {"image": torch.randint(0, 255, (5, SIDE, SIDE, 3), dtype=torch.uint8), "age": torch.randn(5, 2)}
    seen: list[Any] = []
    changed = OwnTransform(sample=lambda one: seen.append(one) or one).augment(x, torch.arange(5))
    assert seen[0]["image"].shape == (3, SIDE, SIDE), "a sample's channels come first"
    assert all(torch.equal(changed[name], x[name]) for name in x)
