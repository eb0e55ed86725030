"""Data as people have it, each from what they hold to a trained round."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from fedsash.client import LocalTraining
from fedsash.data import IID, FederatedData, Users
from fedsash.data.partitions import as_partition
from fedsash.evaluation import Evaluation
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.settings.errors import DataError, FedsashError, SettingError
from fedsash.tasks import Classification, Regression
from support.worlds import SEQUENTIAL

N = 24
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 5))
Y = np.arange(N) % 3
USERS = np.array([f"user {i % 4}" for i in range(N)])
TOKENS = RNG.integers(0, 9, (N, 6))


class Bag(nn.Module):
    """The mean of the embeddings of some tokens; without a mask all of them count."""

    def __init__(self, outputs: int = 3, tokens: int = 300) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, 4)
        self.out = nn.Linear(4, outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mean = (self.embedding(input_ids) * mask.unsqueeze(-1)).sum(-2) / mask.sum(-1, keepdim=True)
        return self.out(mean)


@pytest.mark.parametrize("kind", [">f4", ">f8", "longdouble", "<f4"])
def test_numbers_of_any_order_and_width_are_taken(kind: str) -> None:
    x = X.astype(kind)
    y = Y.astype(">i8")
    mean = FederatedData.from_arrays(x, y, np.array_split(np.arange(N), 4)).train
    assert mean.x.tolist() == X.astype(kind).astype(float).tolist() and mean.y.tolist() == Y.tolist()  # type: ignore[union-attr]


def trained(model: nn.Module, data: FederatedData, **settings: Any) -> tuple[Federation, list[str]]:
    """A federation after its first round, and what was said at its start."""
    local = LocalTraining(lr=0.1, batch=4)
    federation = Federation(model, data, local=local, sampling=Uniform(2), engine=SEQUENTIAL, **settings)
    with federation:
        lines = federation.prepare(1)
        state, report = federation.round(federation.start())
        assert not report.skipped and not torch.equal(state.w, federation.layout.flatten(federation.module))
    return federation, lines


# Arrays.


def test_arrays_and_a_column_of_users_are_one_line() -> None:
    data = FederatedData.from_arrays(X, Y, users=USERS, test=(X, Y))
    _, lines = trained(nn.Linear(5, 3), data)
    assert data.sizes.tolist() == [6] * 4 and lines == []
    assert data.train.user is not None and [set(data.train.user[c].tolist()) for c in data.clients] == [
        {0},
        {1},
        {2},
        {3},
    ]


@pytest.mark.parametrize(
    "users", [["Bern", "Basel", "Bern"], [7, 3, 7], [*map(np.int64, (10, 9, 10))], [True, False, True], [2.5, 0.5, 2.5]]
)
def test_clients_have_the_names_of_their_users(users: list[Any]) -> None:
    names = tuple(str(name) for name in sorted(set(users)))
    x = np.zeros((3, 1))
    y = np.array([0, 1, 0])
    data = FederatedData.from_arrays(x, y, users=users)
    assert data.client_names == names == data.user_names
    assert data.shard([1]).client_names == names[1:]
    assert FederatedData.from_arrays(x, y, users=users, partition=Users(min_samples=2)).client_names == names[1:]
    assert FederatedData.from_arrays(x, y, users=users, partition=IID(2)).client_names == ()


def test_a_dict_names_the_clients() -> None:
    x = np.zeros((3, 1))
    y = np.array([0, 1, 0])
    assert FederatedData.from_arrays(x, y, clients={"Basel": [0], "Bern": [1, 2]}).client_names == ("Basel", "Bern")
    each = {"Basel": [(x[0], 0)], "Bern": [(x[1], 1), (x[2], 0)]}
    assert FederatedData.from_datasets(each).client_names == ("Basel", "Bern")
    assert FederatedData.from_arrays(x, y, clients=[[0], [1, 2]]).client_names == ()
    with pytest.raises(SettingError, match=r"client_names = '1 names': must be a name for each of 2 clients"):
        replace(FederatedData.from_arrays(x, y, clients=[[0], [1, 2]]), client_names=("Basel",))


@given(st.lists(st.one_of(st.integers(-5, 5), st.text("a é漢", max_size=2)), min_size=1, max_size=40))
def test_every_sample_is_given_once_and_each_client_is_one_user(users: list[Any]) -> None:
    names = [str(user) for user in users]
    data = FederatedData.from_arrays(np.zeros((len(users), 1)), np.zeros(len(users), int), users=names)
    assert sorted(np.concatenate(list(data.clients)).tolist()) == list(range(len(users)))
    assert [{names[i] for i in client} for client in data.clients] == [{name} for name in sorted(set(names))]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 99))
def test_users_as_a_column_are_the_clients_of_the_partition_by_users(users: list[int], seed: int) -> None:
    x = np.zeros((len(users), 1))
    y = np.zeros(len(users), int)
    column = FederatedData.from_arrays(x, y, users=users)
    rule = FederatedData.from_arrays(x, y, users=users, partition=Users(), seed=seed)
    assert [c.tolist() for c in column.clients] == [c.tolist() for c in rule.clients]


@pytest.mark.parametrize("partition", [IID(4), {"name": "iid", "clients": 4}, lambda y, seed: IID(4)(y, seed)])
def test_a_partition_is_given_as_an_object_as_a_table_or_as_a_function(partition: Any) -> None:
    data = FederatedData.from_arrays(X, Y, partition=partition, seed=3)
    assert [c.tolist() for c in data.clients] == [c.tolist() for c in IID(4)(Y, 3)]


def test_a_partition_that_needs_nothing_is_given_by_its_name() -> None:
    assert as_partition("users") == Users()
    for name in ("iid", "shards", "dirichlet", "quantity"):
        with pytest.raises(ValueError, match=f"partition = '{name}': it needs .*: give fedsash"):
            as_partition(name)


def test_double_features_reach_a_double_model_to_the_last_digit() -> None:
    x = np.full((4, 1), 1 + 2.0**-50)
    seen: list[Tensor] = []

    class Recorder(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    data = FederatedData.from_arrays(x, x[:, 0], [[0, 1], [2, 3]], task=Regression(), test=(x, x[:, 0]))
    federation, _ = trained(Recorder(1, 1).double(), data)
    federation.evaluate(federation.start())
    federation.close()
    assert all(x.dtype == torch.float64 and (x == 1 + 2.0**-50).all() for x in seen)
    assert federation.training_data.train.y[0] == 1 + 2.0**-50


# Integers.


def test_token_ids_reach_an_embedding_as_integers_and_a_line_says_so() -> None:
    federation, lines = trained(Bag(), FederatedData.from_arrays(TOKENS, Y, users=USERS, test=(TOKENS, Y)))
    assert federation.training_data.train.x.dtype == torch.int64
    assert lines == [
        "integer features reach the model as integers, since it does not take them as floating-point numbers"
    ]


def test_a_table_of_integers_reaches_a_linear_model_as_numbers_and_a_line_says_so() -> None:
    federation, lines = trained(nn.Linear(6, 3), FederatedData.from_arrays(TOKENS, Y, users=USERS, test=(TOKENS, Y)))
    assert federation.training_data.train.x.dtype == torch.float32
    assert lines == ["integer features reach the model as float32 numbers"]


class Both(Bag):
    """Takes numbers, too, and makes them integers itself."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(input_ids.long(), attention_mask)


@pytest.mark.parametrize("integers", [True, False])
def test_what_becomes_of_integers_can_be_said(integers: bool) -> None:
    data = FederatedData.from_arrays(TOKENS, Y, users=USERS, test=(TOKENS, Y), integers=integers)
    federation, lines = trained(Both(), data)
    assert federation.training_data.train.x.dtype == (torch.int64 if integers else torch.float32) and lines == []


def test_integers_that_the_model_does_not_take_as_it_is_said_are_refused() -> None:
    with pytest.raises(FedsashError, match="the model does not take samples of shape"):
        Federation(Bag(), FederatedData.from_arrays(TOKENS, Y, users=USERS, integers=False))


def test_yes_and_no_reach_a_linear_model_as_numbers_and_masks_stay() -> None:
    federation, _ = trained(nn.Linear(5, 3), FederatedData.from_arrays(X > 0, Y, users=USERS, test=(X > 0, Y)))
    assert federation.training_data.train.x.dtype == torch.float32
    mask = torch.ones(N, 6, dtype=torch.bool)
    federation, _ = trained(
        Bag(), FederatedData.from_arrays({"input_ids": TOKENS, "attention_mask": mask}, Y, users=USERS)
    )
    assert federation.training_data.train.x.tensors["attention_mask"].dtype == torch.bool  # type: ignore[union-attr]


# No test set.


def test_a_missing_test_set_is_said_with_what_would_help() -> None:
    data = FederatedData.from_arrays(X, Y, users=USERS)
    _, [lines] = trained(nn.Linear(5, 3), data)
    assert lines == (
        "there is no test set: no model is tested; give test samples, or hold some of the clients' back by "
        "evaluation.held_out"
    )
    assert trained(nn.Linear(5, 3), data, evaluation=Evaluation(held_out=0.2))[1] == []


# Data sets of PyTorch.


class Shouted(Dataset[Any]):
    """Items that are made when they are asked for."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.asked = 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        self.asked += 1
        return self.items[i]


def test_a_list_of_subsets_is_a_client_each_and_one_data_set_is_shared_out() -> None:
    whole = TensorDataset(torch.tensor(X), torch.tensor(Y))
    parts = [Subset(whole, range(0, 10)), Subset(whole, range(10, N))]
    several = FederatedData.from_datasets(parts, test=whole)
    one = FederatedData.from_datasets(whole, [range(0, 10), range(10, N)], test=whole)
    arrays = FederatedData.from_arrays(X, Y, [range(0, 10), range(10, N)], test=(X, Y))
    for data in (several, one):
        assert torch.equal(data.train.x, arrays.train.x) and torch.equal(data.train.y, arrays.train.y)  # type: ignore[arg-type]
        assert [c.tolist() for c in data.clients] == [c.tolist() for c in arrays.clients]
        assert data.test is not None and len(data.test) == N
    trained(nn.Linear(5, 3), several)


def test_items_may_be_dicts_or_hold_several_inputs_and_are_read_once() -> None:
    dicts = Shouted(*({"a": x, "b": x[:2], "label": y, "who": u} for x, y, u in zip(X, Y, USERS, strict=True)))
    data = FederatedData.from_datasets(dicts, users="who")
    assert data.train.x.shape == {"a": (N, 5), "b": (N, 2)} and len(data.clients) == 4 and dicts.asked == N
    pairs = FederatedData.from_datasets(Shouted(*(((x, x[:2]), y) for x, y in zip(X, Y, strict=True))), users=USERS)
    assert pairs.train.x.shape == {"0": (N, 5), "1": (N, 2)}


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield 1, 2


def images_of(*modes: str) -> list[Any]:
    pillow = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
    return [(pillow.new(mode, (5, 4)), 0) for mode in modes]


def test_images_of_pillow_become_images() -> None:
    data = FederatedData.from_datasets(Shouted(*images_of("RGB", "RGB")), [[0, 1]])
    assert data.train.x.shape == (2, 4, 5, 3) and data.train.x.dtype == torch.uint8  # type: ignore[union-attr]
    assert FederatedData.from_datasets(Shouted(*images_of("L")), [[0]]).train.x.shape == (1, 4, 5, 1)


WRONG: dict[str, Any] = {
    r"dataset\[1\]: x has the shape \[4, 5\], and the first has \[4, 5, 3\]: give all samples": lambda: images_of(
        "RGB", "L"
    ),
    r"image.mode = 'P': must be L or RGB: use image.convert": lambda: images_of("P"),
    r"dataset\[0\]: x = 'a film' is no number: turn text into token ids first \(fedsash.data.tokenise\)": lambda: [
        ("a film", 0)
    ],
    r"dataset\[1\]: y = 'dog' is no number": lambda: [(X[0], 0), (X[1], "dog")],
    r"dataset\[0\]: y = None is no number": lambda: [(X[0], None)],
    r"dataset\[0\] is a float: must be \(x, y\) or a dict": lambda: [1.0],
    r"label = '': must name the labels; the items of dataset have x, z": lambda: [{"x": 1, "z": 2}],
}


@pytest.mark.parametrize("line", WRONG)
def test_items_that_are_no_samples_are_refused_in_one_line(line: str) -> None:
    with pytest.raises(FedsashError, match=line) as caught:
        FederatedData.from_datasets(Shouted(*WRONG[line]()), [[0]])
    assert "\n" not in str(caught.value)


GIVEN: dict[str, Any] = {
    "clients = None: give one of clients=.*, users= and partition=": {},
    "clients = .*: give one of clients=": {"clients": [[0]], "users": USERS},
    "partition = .*: give it, or clients=": {"clients": [[0]], "partition": IID(2)},
    "for a column of users give users=": {"clients": Y},
    r"users = '<U6 \[3\]': must name a user for each of 24": {"users": USERS[:3]},
    r"users\[0\] = None: must name a user": {"users": [None, *USERS[1:]]},
    r"users\[23\] = nan: must name a user": {"users": [*USERS[1:], float("nan")]},
    "partition = 'idd': must be one of dirichlet": {"partition": "idd"},
    r"partition = \['alpha'\]: iid has no such option; it has clients": {"partition": {"name": "iid", "alpha": 1}},
    "partition = 5: must be a rule such as": {"partition": 5},
    "partition = .*IID.*: must be a rule such as": {"partition": IID},
    "it partitions by user, which these data do not have": {"partition": "users"},
    "test = 'ndarray': must be": {"users": USERS, "test": X},
    "x: the samples have different shapes": {"users": USERS[:2], "x": [[1], [1, 2]]},
    "x = '<U1 .*': must be numbers: turn text into token ids": {"users": USERS[:2], "x": ["a", "b"]},
    r"x = 'object \[1, 2\]': must be numbers: give all columns one type: frame.astype": {
        "x": np.array([[2.5, True]], object)
    },
    "y = '<U1 .*': must be numbers.* and categories into integers": {"users": USERS, "y": ["a"] * N},
}


@pytest.mark.parametrize("line", GIVEN)
def test_what_is_given_wrongly_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(FedsashError, match=line) as caught:
        FederatedData.from_arrays(**{"x": X, "y": Y} | GIVEN[line])
    assert "\n" not in str(caught.value)


def test_data_sets_that_are_none_are_refused_in_one_line() -> None:
    with pytest.raises(FedsashError, match="only a data set with a length"):
        FederatedData.from_datasets(Endless(), partition=IID(2))
    with pytest.raises(FedsashError, match="datasets = 'tuple': must be a data set, or a list of data sets"):
        FederatedData.from_datasets([(X[0], 0), (X[1], 1)])
    with pytest.raises(FedsashError, match=r"datasets = \['train', 'test'\]: are splits: give the data set train"):
        FederatedData.from_datasets({"train": Shouted((X[0], 0)), "test": Shouted((X[0], 0))})


def test_whole_floating_point_labels_of_a_classification_are_classes() -> None:
    data = FederatedData.from_arrays(X, Y.astype(float), users=USERS, task=Classification())
    assert data.train.y.dtype == torch.int64 and data.classes == 3


def test_an_item_without_its_user_is_refused() -> None:
    items = [{"a": x, "label": y, "who": user} for x, y, user in zip(X[:2], Y[:2], ("ann", math.nan), strict=True)]
    with pytest.raises(DataError, match=r"^users\[1\] is missing"):
        FederatedData.from_datasets(Shouted(*items), users="who")
    numbered = [item | {"who": torch.tensor(number)} for number, item in enumerate(items)]
    assert FederatedData.from_datasets(Shouted(*numbered), users="who").user_names == ("0", "1")
