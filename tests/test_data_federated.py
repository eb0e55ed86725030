from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsash.data import FederatedData, Samples, Transform

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = [0, 1, 2, 0, 1, 2]


def test_lists_arrays_and_tensors_give_the_same_data() -> None:
    clients = [[0, 3], [5, 1, 2]]
    lists = FederatedData.from_arrays(X.tolist(), Y, clients)
    arrays = FederatedData.from_arrays(X, np.array(Y, dtype=np.uint8), [np.array(c, dtype=np.int32) for c in clients])
    tensors = FederatedData.from_arrays(torch.tensor(X), torch.tensor(Y), [torch.tensor(c) for c in clients])
    for data in (lists, arrays, tensors):
        assert torch.equal(data.train.x, torch.tensor(X, dtype=torch.float32))
        assert data.train.y.tolist() == Y
        assert [c.tolist() for c in data.clients] == clients
        assert {c.dtype for c in data.clients} == {np.dtype(np.int64)}
        assert data.classes == 3


def test_float64_is_kept_only_where_it_is_asked_for() -> None:
    assert FederatedData.from_arrays(X, Y, [[0]]).train.x.dtype == torch.float32
    assert FederatedData.from_arrays(X, Y, [[0]], dtype=torch.float64).train.x.dtype == torch.float64


def test_images_stay_uint8_and_get_a_channel_and_integers_become_int64() -> None:
    grey = np.zeros((6, 8, 9), dtype=np.uint8)
    assert FederatedData.from_arrays(grey, Y, [[0]]).train.x.shape == (6, 8, 9, 1)
    tokens = np.zeros((6, 4), dtype=np.int32)
    assert FederatedData.from_arrays(tokens, Y, [[0]]).train.x.dtype == torch.int64


def test_an_array_that_can_not_be_written_is_accepted() -> None:
    x = X.copy()
    x.flags.writeable = False
    assert torch.equal(FederatedData.from_arrays(x[::-1], Y, [[0]]).train.x, torch.tensor(X[::-1].copy()).float())


def test_sizes_and_counts() -> None:
    data = FederatedData.from_arrays(X, Y, [[0, 3, 1], [5], [2, 2]], classes=4)
    assert data.sizes.tolist() == [3, 1, 2]
    assert data.counts().tolist() == [[2, 1, 0, 0], [0, 0, 1, 0], [0, 0, 2, 0]]
    assert data.counts().dtype == data.sizes.dtype == np.int64


def test_the_number_of_classes_looks_at_the_test_set_too() -> None:
    assert FederatedData.from_arrays(X, Y, [[0]], test=(X[:2], [0, 6])).classes == 7


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
    r"train.y\[1\] = -1: must be 0 to 2": {"y": [0, -1, 2, 0, 1, 2]},
    r"test.y\[0\] = 3: must be 0 to 2": {"test": (X[:1], [3]), "classes": 3},
    r"Samples.y = \(5,\): must be one number for each of 6": {"y": Y[:5]},
    r"labels must be integers": {"y": [0.0] * 6},
    r"train.x\[3\] = 'nan or infinite': features must be finite": {"x": np.where(X == 7, np.nan, X)},
    r"test.x = \(3,\): a sample must have the training samples' \(2,\)": {"test": (np.zeros((1, 3)), [0])},
    r"Samples.x = \(0, 2\): must hold at least one sample": {"x": X[:0], "y": np.zeros(0, int), "classes": 3},
    r"must be images \[n, height, width, channels\]": {"x": np.zeros((6, 3, 8, 8), dtype=np.uint8)},
    r"Transform.mean = \(0.5,\): must have one number for each of 3 channels": {
        "x": np.zeros((6, 8, 8, 3), dtype=np.uint8),
        "transform": Transform((0.5,), (0.5,)),
    },
    r"acts on uint8 images, and the data are torch.float32 features": {"transform": Transform(flip=True)},
}


@pytest.mark.parametrize("line", REFUSED)
def test_bad_data_are_refused_in_one_line(line: str) -> None:
    with pytest.raises(ValueError, match=line) as caught:
        FederatedData.from_arrays(**{"x": X, "y": Y, "clients": [[0]]} | REFUSED[line])
    assert "\n" not in str(caught.value)


def test_a_domain_out_of_range_is_refused() -> None:
    samples = Samples(torch.tensor(X), torch.tensor(Y), torch.tensor([0, 0, 0, 0, 0, 2]))
    with pytest.raises(ValueError, match=r"train.domain\[5\] = 2: must be 0 to 1"):
        FederatedData(samples, None, [np.array([0])], 3, domain_names=("photo", "sketch"))
