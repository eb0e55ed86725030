from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.averages import Window
from fedsash.data import FederatedData, Samples, Transform
from fedsash.data.inputs import Inputs
from fedsash.evaluation import Evaluation
from fedsash.settings.errors import SettingError
from fedsash.tasks import Classification
from support.worlds import after, federation, identical
from support.worlds import data as world

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = [0, 1, 2, 0, 1, 2]


def test_lists_arrays_and_tensors_give_the_same_data() -> None:
    clients = [[0, 3], [5, 1, 2]]
    lists = FederatedData.from_arrays(X.tolist(), Y, clients)
    arrays = FederatedData.from_arrays(X, np.array(Y, dtype=np.uint8), [np.array(c, dtype=np.int32) for c in clients])
    tensors = FederatedData.from_arrays(torch.tensor(X), torch.tensor(Y), [torch.tensor(c) for c in clients])
    for data in (lists, arrays, tensors):
        assert torch.equal(data.train.x, torch.tensor(X))
        assert data.train.y.tolist() == Y
        assert [c.tolist() for c in data.clients] == clients
        assert {c.dtype for c in data.clients} == {np.dtype(np.int64)}
        assert data.classes == 3


def test_images_stay_uint8_and_get_a_channel_and_integers_become_int64() -> None:
    grey = np.zeros((6, 8, 9), dtype=np.uint8)
    assert FederatedData.from_arrays(grey, Y, [[0]]).train.x.shape == (6, 8, 9, 1)
    tokens = np.zeros((6, 4), dtype=np.int32)
    assert FederatedData.from_arrays(tokens, Y, [[0]]).train.x.dtype == torch.int64


def test_an_array_that_can_not_be_written_is_accepted() -> None:
    x = X.copy()
    x.flags.writeable = False
    assert torch.equal(FederatedData.from_arrays(x[::-1], Y, [[0]]).train.x, torch.tensor(X[::-1].copy()))


def test_sizes_and_counts() -> None:
    data = FederatedData.from_arrays(X, Y, [[0, 3, 1], [5], [2, 2]], classes=4)
    assert data.sizes.tolist() == [3, 1, 2]
    assert data.counts().tolist() == [[2, 1, 0, 0], [0, 0, 1, 0], [0, 0, 2, 0]]
    assert data.counts().dtype == data.sizes.dtype == np.int64


def test_the_number_of_classes_looks_at_the_test_set_too() -> None:
    assert FederatedData.from_arrays(X, Y, [[0]], test=(X[:2], [0, 6])).classes == 7


def test_each_class_has_a_name_also_one_without_samples() -> None:
    assert FederatedData.from_arrays(X, Y, [[0]], label_names=tuple("abcdefg")).counts().shape == (1, 7)
    for names, classes in (("ab", None), ("abcd", 5)):
        with pytest.raises(SettingError, match=r"label_names = '. names': must be a name for each of [35] classes"):
            FederatedData.from_arrays(X, Y, [[0]], label_names=tuple(names), classes=classes)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_to_a_device_moves_samples_and_keeps_clients(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    data = FederatedData.from_arrays(X, Y, [[0, 3]], test=(X, Y), label_names=("a", "b", "c"))
    moved = data.to(device)
    assert moved.test is not None
    assert {moved.train.x.device.type, moved.train.y.device.type, moved.test.x.device.type} == {device}
    assert torch.equal(moved.train.x.cpu(), data.train.x)
    assert moved.clients[0].tolist() == [0, 3]
    assert (moved.classes, moved.label_names) == (3, ("a", "b", "c"))


@pytest.mark.parametrize("images", ["train", "test"])
def test_only_one_of_training_and_test_samples_can_not_be_images(images: str) -> None:
    pixels = np.zeros((4, 3, 3, 1), dtype=np.uint8)
    numbers = np.zeros((4, 3, 3, 1), dtype=np.float32)
    x, tested = (pixels, numbers) if images == "train" else (numbers, pixels)
    with pytest.raises(SettingError, match=r"^FederatedData.test.x = .*: both must be images, or neither"):
        FederatedData.from_arrays(x, [0, 1, 0, 1], [[0, 1], [2, 3]], test=(tested, [0, 1, 0, 1]))


@pytest.mark.parametrize("dtype", [np.int64, bool])
@pytest.mark.parametrize("several", [False, True])
def test_whole_test_features_become_the_numbers_that_the_training_features_are(dtype: type, several: bool) -> None:
    x = np.full((4, 2), 0.5)
    tested = np.eye(4, 2).astype(dtype)
    inputs: Any = ({"a": x}, {"a": tested}) if several else (x, tested)
    data = FederatedData.from_arrays(inputs[0], [0, 1, 0, 1], [[0, 1], [2, 3]], test=(inputs[1], [0, 1, 0, 1]))
    assert data.test is not None
    x_of_test = data.test.x.tensors["a"] if isinstance(data.test.x, Inputs) else data.test.x
    assert x_of_test.dtype == torch.float64
    assert x_of_test.tolist() == np.eye(4, 2).tolist()


def test_samples_are_chosen_with_their_labels_and_domains() -> None:
    samples = Samples(torch.tensor(X), torch.tensor(Y), torch.tensor([0, 0, 0, 1, 1, 1]))
    some = samples[torch.tensor([5, 0])]
    assert some.domain is not None
    assert (some.y.tolist(), some.domain.tolist(), len(some)) == ([2, 0], [1, 0], 2)
    assert torch.equal(some.x, torch.tensor(X[[5, 0]]))


REFUSED = {
    r"FederatedData.clients = \[\]: must hold at least one client": {"clients": []},
    r"clients\[1\] = \[\]: must hold at least one sample": {"clients": [[0], []]},
    r"clients\[1\] = 6: must be indices from 0 to 5": {"clients": [[0], [1, 6, -1]]},
    r"clients\[0\] = -1: must be indices from 0 to 5": {"clients": [[0, -1]]},
    r"clients\[0\] = 'float64 \[2\]': must be a list of indices": {"clients": [[0.0, 1.5]]},
    r"train.y\[2\] = 2: must be 0 to 1": {"classes": 2},
    r"train.y\[1\] = -1: classes are numbered from 0 on \(-1 is pandas": {"y": [0, -1, 2, 0, 1, 2]},
    r"test.y\[0\] = 3: must be 0 to 2": {"test": (X[:1], [3]), "classes": 3},
    r"Samples.y = \(5,\): must be one number for each of 6": {"y": Y[:5]},
    r"train.y\[1\] = nan: must be finite": {"y": [0.0, math.nan] * 3},
    r"train.y = 'torch.float64': labels of the task Classification must be integers": {
        "y": [0.5] * 6,
        "task": Classification(),
    },
    r"train.x\[3\] = 'nan or infinite': features must be finite": {"x": np.where(X == 7, np.nan, X)},
    r"test.x = \(3,\): a sample must have the training samples' \(2,\)": {"test": (np.zeros((1, 3)), [0])},
    r"Samples.x = \(0, 2\): must hold at least one sample": {"x": X[:0], "y": np.zeros(0, int), "classes": 3},
    r"must be images \[n, height, width, channels\]": {"x": np.zeros((6, 3, 8, 8), dtype=np.uint8)},
    r"Transform.mean = \(0.5,\): must have one number for each of 3 channels": {
        "x": np.zeros((6, 8, 8, 3), dtype=np.uint8),
        "transform": Transform((0.5,), (0.5,)),
    },
    r"acts on uint8 images, and the data are torch.float64 features": {"transform": Transform(flip=True)},
}


def test_features_that_are_too_large_for_a_models_type_are_named() -> None:
    data = FederatedData.from_arrays(X, Y, [[0]], test=(np.where(X == 7, 1e300, X), Y))
    assert data.cast(torch.float64, False).test is not None
    with pytest.raises(ValueError, match=r"test.x\[3\] = 'too large': features must be finite as float32"):
        data.cast(torch.float32, False)


@pytest.mark.parametrize("line", REFUSED)
def test_bad_data_are_refused_in_one_line(line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        FederatedData.from_arrays(**{"x": X, "y": Y, "clients": [[0]]} | REFUSED[line])
    assert "\n" not in str(caught.value)


def test_a_domain_out_of_range_is_refused() -> None:
    samples = Samples(torch.tensor(X), torch.tensor(Y), torch.tensor([0, 0, 0, 0, 0, 2]))
    with pytest.raises(ValueError, match=r"train.domain\[5\] = 2: must be 0 to 1"):
        FederatedData(samples, None, [np.array([0])], 3, domain_names=("photo", "sketch"))


# Held-out samples.

N = 60
fractions = st.floats(0, 0.999)
seeds = st.integers(0, 2**31)


def shared_out(clients: list[list[int]]) -> FederatedData:
    """`N` samples, of which each client holds the given ones."""
    return FederatedData.from_arrays(np.zeros((N, 1)), np.zeros(N, dtype=int), clients)


@st.composite
def disjoint(draw: st.DrawFn) -> list[list[int]]:
    """Clients that share no sample."""
    order = draw(st.permutations(range(N)))
    cuts = sorted(draw(st.sets(st.integers(1, N - 1), max_size=8)))
    return [order[a:b] for a, b in zip([0, *cuts], [*cuts, N], strict=True)]


def held_in(data: FederatedData) -> np.ndarray:
    """All samples that are held out, ascending."""
    return np.sort(np.concatenate([*data.held, np.empty(0, dtype=np.int64)]))


overlapping = st.lists(st.lists(st.integers(0, N - 1), min_size=1, max_size=30), min_size=1, max_size=6)
"""Clients that may hold the same sample, and one sample more than once, as rules that re-use samples make them."""


@given(clients=disjoint() | overlapping, fraction=fractions, seed=seeds)
def test_no_client_trains_on_a_held_out_sample_and_each_keeps_at_least_one(
    clients: list[list[int]], fraction: float, seed: int
) -> None:
    data = shared_out(clients).hold_out(fraction, seed)
    held_out = held_in(data)
    assert sorted(set(held_out.tolist())) == held_out.tolist(), "no sample is held by two clients"
    assert all(set(indices.tolist()) <= set(client) for indices, client in zip(data.held, clients, strict=False))
    for remaining, indices in zip(data.clients, clients, strict=True):
        assert remaining.tolist() == [index for index in indices if index not in set(held_out.tolist())]
        assert len(remaining) > 0
    assert set(held_out.tolist()) <= {index for indices in clients for index in indices}


@given(clients=disjoint(), fraction=fractions, seed=seeds)
def test_of_n_samples_a_client_gives_the_whole_part_of_its_fraction(
    clients: list[list[int]], fraction: float, seed: int
) -> None:
    data = shared_out(clients).hold_out(fraction, seed)
    counts = [len(indices) - len(remaining) for indices, remaining in zip(clients, data.clients, strict=True)]
    assert counts == [math.floor(fraction * len(indices) + 1e-9) for indices in clients], "0.29 of 100 is 29"
    if fraction == 0:
        counts = []
    assert [len(indices) for indices in data.held] == counts


@given(clients=disjoint() | overlapping, fraction=fractions, seed=seeds)
def test_what_is_held_out_is_a_function_of_the_data_and_the_seed(
    clients: list[list[int]], fraction: float, seed: int
) -> None:
    source = shared_out(clients)
    one = source.hold_out(fraction, seed)
    other = source.hold_out(fraction, seed)
    assert [h.tolist() for h in one.held] == [h.tolist() for h in other.held]
    assert [c.tolist() for c in one.clients] == [c.tolist() for c in other.clients]
    assert [c.tolist() for c in source.clients] == clients, "the source stays as it is"


def test_other_seeds_hold_out_other_samples_and_other_clients_draw_on_their_own() -> None:
    source = shared_out([list(range(30)), list(range(30, 60))])
    held_out = [held_in(source.hold_out(0.5, seed)) for seed in range(4)]
    assert len({tuple(h.tolist()) for h in held_out}) == 4
    assert all((h[:15] + 30).tolist() != h[15:].tolist() for h in held_out)
    alone = held_in(shared_out([list(range(30))]).hold_out(0.5, 0))
    assert alone.tolist() == held_out[0][:15].tolist()


@given(clients=disjoint() | overlapping, seed=seeds)
def test_nothing_is_held_out_of_a_fraction_of_nothing(clients: list[list[int]], seed: int) -> None:
    data = shared_out(clients).hold_out(0.0, seed)
    assert len(held_in(data)) == 0 and [c.tolist() for c in data.clients] == clients


def test_samples_that_are_held_out_are_evaluated_on_and_not_trained_on() -> None:
    """The run is that on the clients' other samples; what is held out may as well be anything else."""
    averages = {"wima": Window(2)}
    holding = federation(averages=averages, evaluation=Evaluation(held_out=0.4))
    less = world().hold_out(0.4, holding.seed)
    held_out = held_in(less)
    less = replace(less, held=())
    assert len(held_out) > 0 and holding.sizes.tolist() == less.sizes.tolist()
    other = less.train.x.clone()
    other[held_out] = 1e6
    without = federation(averages=averages, data=replace(less, train=replace(less.train, x=other)))
    one = after(holding, 4)
    two = after(without, 4)
    splits = {m.split for m in holding.evaluate(one)}, {m.split for m in without.evaluate(two)}
    assert splits == ({"test", "held_out"}, {"test"})
    assert identical(one, two)


def test_the_accuracy_on_what_is_held_out_is_that_of_a_test_set_of_these_samples() -> None:
    holding = federation(evaluation=Evaluation(held_out=0.4))
    less = world().hold_out(0.4, holding.seed)
    tested = federation(data=replace(less, test=less.train[torch.from_numpy(held_in(less))], held=()))
    state = after(holding, 2)
    on_held_out = next(score for score in holding.evaluate(state) if score.split == "held_out")
    on_test = next(score for score in tested.evaluate(state) if score.split == "test")
    assert on_held_out.values == on_test.values
    assert on_held_out.loss == pytest.approx(on_test.loss, rel=1e-14)


def test_a_run_that_holds_nothing_out_is_the_run_bitwise() -> None:
    assert identical(after(federation(evaluation=Evaluation(held_out=0.0)), 4), after(federation(), 4))
