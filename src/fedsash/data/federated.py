"""The federated data set: samples on one device, and the indices that each client has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..settings.errors import SettingError, check, some
from ..tasks import (
    Classification,
    Loss,
    OnlyLoss,
    Task,
    are_classes,
    check_all_count,
    check_unnamed,
    chosen_task,
    refuse_beyond,
)
from ..vector.shown import Shown
from . import arrays, torch_datasets
from .members import Members, deal_test_samples
from .partitions import as_partition
from .partitions.common import assigned
from .samples import Samples, Scales
from .transform import PLAIN, Transform


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Shown):
    """The learning problem without the training samples. The fields are those of `FederatedData`."""

    test: Samples | None
    classes: int
    transform: Transform
    label_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    task: Task
    feature_names: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData(Shown):
    """Training samples that are distributed over `N` clients, and a central test set.

    `clients[i]` are the indices into `train` that client i holds (any sequence of integers; kept as int64 arrays). An
    index may occur more than once, since some partitions use samples again. `classes` is the number of classes (0 if
    labels are no classes), `transform` turns raw samples into the model's input, and `task` says what is learned. If it
    is None, the federation's loss decides, and without a loss of its own it is a classification. Labels get the type
    that the task needs, where none of them changes. `integers` says whether integer features reach the model as
    integers (True) or as floating-point numbers (False). If it is None, the first batch decides.

    `held[i]` are the indices of client i's held-out samples (see `hold_out`). `client_test[i]` are indices into `test`:
    the test samples of client i's own (see `deal_test`). In a shard of a larger federation (see `shard`), `numbers`
    `[N]` are the clients' numbers in that federation, ascending; all draws are made by these numbers. `label_names`,
    `domain_names` and `user_names` are the names of classes, domains and users by their number, `feature_names` those
    of a table's columns of features in their order, `feature_scales` their means and deviations where they were
    standardised. The users' names are also `client_names`, if each client holds the samples of another user.

    Raises `SettingError`, naming the client or the sample, if there are no clients, if a client has no sample, if an
    index or a label is out of range, if a feature is not finite, or if test and training samples differ in shape.
    """

    train: Samples
    test: Samples | None
    clients: Sequence[NDArray[np.int64]]
    classes: int
    transform: Transform = PLAIN
    label_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    task: Task | None = None
    integers: bool | None = None
    held: Sequence[NDArray[np.int64]] = ()
    client_test: Sequence[NDArray[np.int64]] = field(default=(), repr=False)
    numbers: NDArray[np.int64] | None = None
    user_names: tuple[str, ...] = field(default=(), repr=False)
    client_names: tuple[str, ...] = field(default=(), repr=False)
    feature_names: tuple[str, ...] = field(default=(), repr=False)
    feature_scales: Scales = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", arrays.of_clients(self.clients, "clients", len(self.train)))
        check(len(self.clients) > 0, "FederatedData.clients", [], "must hold at least one client")
        smallest = int(self.sizes.argmin())
        check(self.sizes[smallest] > 0, f"FederatedData.clients[{smallest}]", [], "must hold at least one sample")
        object.__setattr__(self, "held", Members.of(self.held))
        self._convert_client_test()
        self._name_clients()
        self.transform.fits(self.train.x, self.train.y)
        self._convert_labels()
        self._check_samples("train", self.train)
        if self.test is not None:
            self._check_samples("test", self.test)
            object.__setattr__(self, "test", self.test.like(self.train, "FederatedData.test"))

    def _convert_client_test(self) -> None:
        """Check `client_test` and keep it as `Members`."""
        count = len(self.client_test)
        requirement = f"must be indices into the test set for each of {len(self.clients)} clients"
        check(count in (0, len(self.clients)), "FederatedData.client_test", f"{count} clients", requirement)
        test_size = 0
        if self.test is not None:
            test_size = len(self.test)
        object.__setattr__(self, "client_test", arrays.of_clients(self.client_test, "client_test", test_size))

    def _name_clients(self) -> None:
        """Give the clients the names of their users, unless they have names."""
        if not self.client_names and self.user_names and self.train.user is not None:
            names = Members.of(self.clients).names(self.train.user.cpu().numpy(), self.user_names)
            object.__setattr__(self, "client_names", names)
        count = len(self.client_names)
        requirement = f"must be a name for each of {len(self.clients)} clients"
        check(count in (0, len(self.clients)), "FederatedData.client_names", f"{count} names", requirement)

    def _convert_labels(self) -> None:
        """Give the labels the type that the task needs, and count the classes."""
        task = chosen_task(self.task, self.train.y)
        if self.task is None and isinstance(task, Classification) and bool((self.train.y >= 0).all()):
            highest = f"{int(self.train.y.max()):,}"
            requirement = (
                f"must be classes, numbered from 0 on; of numbers up to {highest} name the task, such as regression"
            )
            check(are_classes(self.train.y.cpu().numpy()), "FederatedData.train.y", highest, requirement)
        check_unnamed(task, self.label_names, "FederatedData.label_names")
        if task.labels == "numbers":
            object.__setattr__(self, "classes", 0)
        for name in ("train", "test"):
            samples: Samples | None = getattr(self, name)
            if samples is not None:
                y = task.labelled(samples.y)
                if y is not samples.y:
                    object.__setattr__(self, name, replace(samples, y=y))
        if task.labels == "integers":
            self._count_classes(task)

    def _count_classes(self, task: Task) -> None:
        """Count the classes if their number is not given, and check that each has a name, if they have names."""
        are_named = len(self.label_names) > 0 and not isinstance(task, OnlyLoss)
        if not self.classes:
            classes = _class_count(task, self.train, self.test)
            if are_named:
                classes = max(classes, len(self.label_names))
            object.__setattr__(self, "classes", classes)
        if are_named:
            count = len(self.label_names)
            requirement = f"must be a name for each of {self.classes:,} classes"
            check(count == self.classes, "FederatedData.label_names", f"{count:,} names", requirement)

    def _check_samples(self, name: str, samples: Samples) -> None:
        place = f"FederatedData.{name}"
        chosen_task(self.task, self.train.y).check_labels(samples.y, self.classes, f"{place}.y")
        if samples.domain is not None and self.domain_names:
            refuse_beyond(samples.domain, len(self.domain_names), f"{place}.domain")
        row = samples.not_finite
        check(row is None, f"{place}.x[{row}]", "nan or infinite", "features must be finite")

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        clients: Any = None,
        *,
        users: Any = None,
        partition: Any = None,
        seed: int = 0,
        test: tuple[Any, Any] | None = None,
        task: Task | None = None,
        classes: int | None = None,
        integers: bool | None = None,
        transform: Transform = PLAIN,
        label_names: tuple[str, ...] = (),
        client_test: Sequence[Any] = (),
    ) -> FederatedData:
        """Federated data from NumPy arrays, tensors or lists: `x`, labels `y`, and a test set `test = (x, y)`. Arrays
        and tensors may share their memory with the data, so do not change them afterwards.

        Images are uint8, `[n, H, W]` or `[n, H, W, channels]`. A dict of arrays is passed to the model by name, a tuple
        by position. Floating-point numbers are later converted to the model's type. What becomes of integers is decided
        by `integers`, or by the first batch. `task` says what is learned; labels that are no integers need it.
        `classes` is by default what the labels show, or the number of `label_names`.

        Clients are given in one of three ways: as `clients`, each client's indices; as `users` `[n]`, the name or
        number of each sample's user; or by a rule `partition` with its `seed`. The rule is an object, its name, or a
        dict as in an experiment file. With `users`, too, it may use them. Clients have the names of their users, or the
        keys of `clients`, if it is a dict. `client_test` are each client's indices of its own test samples; by default
        they are dealt out when they are needed (`deal_test`).

        Raises `SettingError` as the class does.
        """
        x = arrays.features(x)
        user = None
        user_names: tuple[str, ...] = ()
        if users is not None:
            user, user_names = arrays.user_numbers(users, len(x))
        train = Samples(x, arrays.labels(y), user=user)
        test_samples = None
        if test is not None:
            check(isinstance(test, tuple | list) and len(test) == 2, "test", type(test).__name__, "must be (x, y)")
            test_x, test_y = test
            test_samples = Samples(arrays.features(test_x), arrays.labels(test_y))
        indices = _client_indices(clients, train, partition, seed)
        client_names: tuple[str, ...] = ()
        if isinstance(clients, Mapping):
            client_names = tuple(map(str, clients))
        return cls(
            train,
            test_samples,
            indices,
            classes or 0,
            transform,
            label_names,
            task=task,
            integers=integers,
            client_test=client_test,
            user_names=user_names,
            client_names=client_names,
        )

    @classmethod
    def from_datasets(
        cls,
        datasets: Any,
        clients: Any = None,
        *,
        test: Any = None,
        label: str = "",
        users: Any = None,
        **settings: Any,
    ) -> FederatedData:
        """Federated data from data sets of PyTorch or of Hugging Face, in memory.

        `datasets` are several, one for each client, such as a list of `Subset`s, or a dict of them by the clients'
        names; or a single one, and its clients are given as in `from_arrays`. Items are `(x, y)` or dicts. In dicts,
        `label` and `users` may name the labels and the users; without a name the labels are `labels`, `label` or `y`.
        Images of Pillow must be of one size.

        All samples are read once and kept in memory. So a transform of the data set that draws at random is drawn once,
        and not anew in each round: for that give the federated data a `transform`. `test` is a data set, too.
        `settings` are those of `from_arrays`.

        Raises `DataError`, naming the item, for text and for items of different shapes, and for data sets that call
        their classes differently.
        """
        users_key = ""
        if isinstance(users, str):
            users_key = users
        columns, indices, test_columns = torch_datasets.of_datasets(datasets, label, users_key, test)
        if users_key:
            users = columns.pop("users", None)
        if indices is not None:
            check(clients is None, "clients", clients, "there is one data set for each client already")
            clients = indices
        test_pair = None
        if test_columns is not None:
            test_pair = (test_columns["x"], test_columns["y"])
        settings |= {"users": users, "test": test_pair}
        return cls.from_arrays(**columns, clients=clients, **settings)

    def learning(self, loss: Loss | None) -> FederatedData:
        """The same data with the task that is learned with a federation's own `loss`, or None."""
        task = chosen_task(self.task, self.train.y, loss)
        labels = {"train": self.train.y}
        if self.test is not None:
            labels["test"] = self.test.y
        check_all_count(loss, labels)
        classes = self.classes
        if not isinstance(task, OnlyLoss | type(self.problem.task)):
            classes = task.classes(task.labelled(self.train.y))
        return replace(self, task=task, classes=classes)

    def cast(self, dtype: torch.dtype, integers: bool) -> FederatedData:
        """The same data for a model of type `dtype`, which takes integer features as `integers` or as numbers.

        Raises `SettingError` for the first sample with a feature that is too large for this type.
        """
        kind = str(dtype).removeprefix("torch.")
        train = self.train.cast(dtype, integers)
        test = self.test
        if test is not None:
            test = test.cast(dtype, integers)
        for name, samples in (("train", train), ("test", test)):
            if samples is not None:
                row = samples.not_finite
                place = f"FederatedData.{name}.x[{row}]"
                check(row is None, place, "too large", f"features must be finite as {kind}")
        return replace(self, train=train, test=test)

    def facts(self) -> dict[str, object]:
        """The facts that are shown of the data. Clients are shown by their number and sizes."""
        smallest = self.sizes.min()
        largest = self.sizes.max()
        sizes = f"{smallest:,} to {largest:,}"
        if smallest == largest:
            sizes = f"{largest:,}"
        facts: dict[str, object] = {"clients": f"{len(self.clients):,} with {sizes} samples"}
        for name, value in super().facts().items():
            if name != "clients":
                facts[name] = value
        return facts

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of samples of each client, `[N]`."""
        return Members.of(self.clients).sizes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input of the model, without the batch; empty if there are several inputs."""
        x = self.transform.prepare(self.train.x[:2])
        if not isinstance(x, Tensor):
            return ()
        return tuple(x.shape[1:])

    @property
    def outputs(self) -> int:
        """The number of outputs of the model for one sample, as the task needs them."""
        return self.problem.task.width(self.train.y, self.classes)

    @property
    def problem(self) -> Problem:
        """The learning problem without the training samples."""
        return Problem(
            self.test,
            self.classes,
            self.transform,
            self.label_names,
            self.domain_names,
            chosen_task(self.task, self.train.y),
            self.feature_names,
        )

    def hold_out(self, fraction: float, seed: int) -> FederatedData:
        """The same data, where a `fraction` of each client's samples is held out, drawn by `seed`.

        Of a client's n samples, floor(fraction * n) are moved to its `held`; at least one stays for training. No client
        trains on a held-out sample: of clients that share one, the first has it in `held`, and the others lose it.
        Raises `SettingError` if samples are held out already.
        """
        if fraction == 0:
            return self
        check(len(self.held) == 0, "evaluation.held_out", fraction, "must be 0: some samples are held out already")
        numbers: Sequence[int] = range(len(self.clients))
        if self.numbers is not None:
            numbers = self.numbers.tolist()
        clients, held = Members.of(self.clients).hold_out(fraction, seed, numbers)
        return replace(self, clients=clients, held=held)

    def deal_test(self, seed: int = 0, by: Sequence[str] = ("y",)) -> FederatedData:
        """The same data, where the test set is dealt out to the clients as their own test samples, `client_test`.

        Each client's test samples are distributed over the labels (over the fields of the samples that `by` names) as
        its training samples are; `deal_test_samples` says how exactly. Raises `SettingError` without a test set.
        """
        if self.test is None:
            requirement = "must be false: there is no test set to deal out to the clients"
            raise SettingError.at("evaluation.client_test", True, requirement)
        client_test = deal_test_samples(self.train, self.test, self.clients, by, seed)
        return replace(self, client_test=client_test)

    def shard(self, ids: Sequence[int] | NDArray[np.int64]) -> FederatedData:
        """The same data with the clients `ids` only, as on a machine that holds no others."""
        rows = np.unique(np.asarray(ids, dtype=np.int64))
        numbers = rows
        if self.numbers is not None:
            numbers = self.numbers[rows]
        client_names = self.client_names
        if client_names:
            client_names = tuple(client_names[row] for row in rows)
        return replace(
            self,
            clients=Members.of(self.clients).only(rows),
            held=Members.of(self.held).only(rows),
            client_test=Members.of(self.client_test).only(rows),
            numbers=numbers,
            client_names=client_names,
        )

    def counts(self) -> NDArray[np.int64]:
        """How many labels of each class each client holds, `[N, classes]`; without classes `sizes[:, None]`."""
        if self.classes == 0:
            return self.sizes[:, None]
        task = self.problem.task
        y = self.train.y.cpu()
        if y.dim() == 1 and not y.is_floating_point() and bool(task.counted(y).all()):
            members = Members.of(self.clients)
            pairs = members.owners * self.classes + y.numpy()[members.flat]
            return np.bincount(pairs, minlength=len(members) * self.classes).reshape(len(members), -1)
        counts = []
        for indices in self.clients:
            counts.append(task.occurrences(y[torch.from_numpy(indices)], self.classes).numpy())
        return np.stack(counts)

    def to(self, device: torch.device | str) -> FederatedData:
        """The same data with all samples on `device`; the clients' indices stay on the host."""
        test = self.test
        if test is not None:
            test = test.to(device)
        return replace(self, train=self.train.to(device), test=test)


def untrained_classes(data: FederatedData) -> list[str]:
    """A line that names the classes of the test set that no client trains on, if there are any."""
    task = data.problem.task
    if data.test is None or not isinstance(task, Classification):
        return []
    indices = torch.from_numpy(Members.of(data.clients).flat)
    trained = task.occurrences(data.train.y.cpu()[indices], data.classes).tolist()
    tested = task.occurrences(data.test.y.cpu(), data.classes).tolist()
    names = dict(enumerate(data.label_names))
    missing = []
    for c, count in enumerate(tested):
        if count > 0 and trained[c] == 0:
            missing.append(f"{names.get(c, c)} ({count:,} samples)")
    if not missing:
        return []
    return [f"the test set has classes that no client trains on: {some(missing)}"]


def _class_count(task: Task, train: Samples, test: Samples | None) -> int:
    """The number of classes that the labels of both show."""
    classes = task.classes(train.y)
    if test is not None:
        classes = max(classes, task.classes(test.y))
    return classes


def _client_indices(clients: Any, samples: Samples, partition: Any, seed: int) -> Sequence[Any]:
    """The indices of each client's samples, from the one of the three ways that is given."""
    if partition is not None:
        check(clients is None, "partition", partition, "give it, or clients=")
        return assigned(as_partition(partition), samples, seed)
    ways = (clients is not None) + (samples.user is not None)
    check(ways == 1, "clients", clients, "give one of clients= (each client's indices), users= and partition=")
    if samples.user is None:
        return arrays.indices(clients)
    return arrays.by_user(samples.user)
