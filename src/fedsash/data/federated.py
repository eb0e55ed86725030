"""The federated data set: samples on one device, and the indices that each client holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..basics.errors import check
from ..basics.randomness import Purpose, generator
from ..basics.shown import Shown
from ..tasks import Loss, Task, chosen_task, refuse_beyond
from . import arrays
from .encoded import EncodedImages, Features
from .inputs import Inputs
from .partitions.common import Partition, assigned
from .transform import PLAIN, Transform


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Shown):
    """`n` labelled samples on one device.

    `x` holds raw images, uint8 `[n, H, W, channels]`, or `EncodedImages` of this shape, or features of any other type,
    `[n, ...]`, or `Inputs` with several tensors. Images have their channels last, so that a batch `x[idx]` becomes a
    channels-last batch without a copy. `y` holds the labels, `[n]` or `[n, ...]`, int64 or of a floating-point type.
    Where the data have them, `domain`, `user` and `coarse` hold the numbers of each sample's domain, user and coarse
    label, int64 `[n]`.

    Raises `SettingError` if there is no sample, if the lengths differ, or if uint8 data are not images.
    """

    x: Features
    y: Tensor
    domain: Tensor | None = None
    user: Tensor | None = None
    coarse: Tensor | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.x, Inputs):
            self._check_tensor(self.x)
        check(len(self.x) > 0, "Samples.x", self.x.shape, "must hold at least one sample")
        for name in ("y", "domain", "user", "coarse"):
            if (numbers := getattr(self, name)) is not None:
                right = "must be int64 or of a floating-point type" if name == "y" else "must be int64"
                suits = numbers.dtype == torch.int64 or (name == "y" and numbers.is_floating_point())
                check(suits, f"Samples.{name}", numbers.dtype, right)
                shape, right = tuple(numbers.shape), f"must be one number for each of {len(self.x)}"
                check(shape[:1] == (len(self.x),) and (name == "y" or len(shape) == 1), f"Samples.{name}", shape, right)

    @staticmethod
    def _check_tensor(x: Tensor | EncodedImages) -> None:
        check(x.ndim > 0, "Samples.x", tuple(x.shape), "must hold at least one sample")
        check(0 not in x.shape[1:], "Samples.x", tuple(x.shape), "a sample must hold at least one number")
        images = x.dtype != torch.uint8 or (x.ndim == 4 and x.shape[-1] <= 4)
        right = "uint8 data must be images [n, height, width, channels]; give other features as float"
        check(images, "Samples.x", tuple(x.shape), right)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Tensor) -> Samples:
        """The samples at `index` (int64 or bool), in that order."""
        return self._each(lambda x: x[index] if isinstance(x, Tensor) else x.only(index))

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on `device`."""
        return self._each(lambda x: x.to(device))

    def cast(self, dtype: torch.dtype, integers: bool) -> Samples:
        """The same samples with floating-point features and labels as `dtype`; with `integers`, integer features stay.

        Images stay as they are.
        """

        def converted(x: Tensor) -> Tensor:
            return x.to(dtype) if x.is_floating_point() or (x.dtype == torch.int64 and not integers) else x

        x = self.x
        if isinstance(x, Inputs):
            x = x.each(converted)
        elif isinstance(x, Tensor):
            x = converted(x)
        return replace(self, x=x, y=self.y.to(dtype) if self.y.is_floating_point() else self.y)

    def _each(self, change: Callable[[Features], Any]) -> Samples:
        return Samples(**{name: change(x) for name, x in vars(self).items() if x is not None})


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Shown):
    """The learning problem without the training samples. The fields are those of `FederatedData`."""

    test: Samples | None
    classes: int
    transform: Transform
    label_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    task: Task


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData(Shown):
    """Training samples that are distributed over `N` clients, and a central test set.

    `clients[i]` are the indices into `train` that client i holds (any sequence of integers; kept as int64 arrays). An
    index may occur more than once, since some partitions use samples again. `classes` is the number of classes (0 if
    labels are no classes), `transform` turns raw images into the model's input, and `task` says what is learned. If it
    is None, the federation's loss decides, and without a loss of its own it is a classification. Labels get the type
    that the task needs, where none of them changes. `held[i]` are the indices of client i's held-out samples (see
    `hold_out`). In a shard of a larger federation (see `shard`), `numbers` `[N]` are the clients' numbers in that
    federation, ascending; all draws are made by these numbers.

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
    held: Sequence[NDArray[np.int64]] = ()
    numbers: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", [_indices(client, i) for i, client in enumerate(self.clients)])
        check(len(self.clients) > 0, "FederatedData.clients", [], "must hold at least one client")
        n = len(self.train)
        for i, client in enumerate(self.clients):
            check(client.size > 0, f"FederatedData.clients[{i}]", [], "must hold at least one sample")
            worst = int(client.max() if client.max() >= n else client.min())
            check(0 <= worst < n, f"FederatedData.clients[{i}]", worst, f"must be indices from 0 to {n - 1}")
        self.transform.fits(self.train.x)
        self._convert_labels()
        self._check_samples("train", self.train)
        if self.test is not None:
            self._check_samples("test", self.test)
            shape, right = _sample_shape(self.test.x), _sample_shape(self.train.x)
            check(shape == right, "FederatedData.test.x", shape, f"a sample must have the training samples' {right}")

    def _convert_labels(self) -> None:
        if self.task is None:
            return
        for name in ("train", "test"):
            samples: Samples | None = getattr(self, name)
            if samples is not None and (y := self.task.labelled(samples.y)) is not samples.y:
                object.__setattr__(self, name, replace(samples, y=y))

    def _check_samples(self, name: str, samples: Samples) -> None:
        place = f"FederatedData.{name}"
        task = chosen_task(self.task, samples.y)
        task.check_labels(samples.y, self.classes, f"{place}.y")
        if samples.domain is not None and self.domain_names:
            refuse_beyond(samples.domain, len(self.domain_names), f"{place}.domain")
        for x in samples.x.tensors.values() if isinstance(samples.x, Inputs) else (samples.x,):
            if isinstance(x, Tensor) and x.is_floating_point():
                bad = _first(~torch.isfinite(x.flatten(1)).all(1))
                check(bad is None, f"{place}.x[{bad}]", "nan or infinite", "features must be finite")

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        clients: Any = None,
        *,
        users: Any = None,
        partition: Partition | None = None,
        seed: int = 0,
        test: tuple[Any, Any] | None = None,
        task: Task | None = None,
        classes: int | None = None,
        transform: Transform = PLAIN,
        label_names: tuple[str, ...] = (),
    ) -> FederatedData:
        """Federated data from NumPy arrays, tensors or lists: `x`, labels `y`, and a test set `test = (x, y)`.

        Clients are given in one of three ways: each client's indices, a column `users` `[n]` with the user of each
        sample, or a rule `partition` with its `seed`. Images are uint8, `[n, H, W]` or `[n, H, W, channels]`. A dict of
        arrays is passed to the model by name, a tuple by position. Floating-point numbers are later converted to the
        model's type. Integer features stay integers if the model takes only integers, as an embedding does. `task` says
        what is learned; labels that are no integers need it. `classes` is by default what the labels show.

        Raises `SettingError` as the class does.
        """
        train = Samples(arrays.features(x), arrays.labels(y))
        held_out = None if test is None else Samples(arrays.features(test[0]), arrays.labels(test[1]))
        if partition is not None:
            check(clients is None and users is None, "partition", partition, "give it, or clients=, or users=")
            clients = assigned(partition, train, seed)
        else:
            clients = arrays.indices(clients, users, len(train))
        if classes is None:
            kind = chosen_task(task, train.y)
            classes = max(kind.classes(samples.y) for samples in (train, held_out) if samples is not None)
        return cls(train, held_out, clients, classes, transform, label_names, task=task)

    @classmethod
    def from_datasets(cls, datasets: Sequence[Any], test: Any = None, **settings: Any) -> FederatedData:
        """Federated data from PyTorch data sets, one for each client, such as a list of `Subset`s.

        Items are `(x, y)`, or dicts with `labels`. All samples are read once and kept in memory; so a transform of the
        data set is applied once. `test` is a data set, too. `settings` are those of `from_arrays`.
        """
        parts = [arrays.of_dataset(dataset) for dataset in datasets]
        check(len(parts) > 0, "datasets", datasets, "must hold a data set for each client")
        x, y = arrays.joined([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        ends = np.cumsum([len(y) for _, y in parts])
        clients = np.split(np.arange(len(y)), ends[:-1])
        return cls.from_arrays(x, y, clients, test=None if test is None else arrays.of_dataset(test), **settings)

    def learning(self, loss: Loss | None) -> FederatedData:
        """The same data with the task that is learned with a federation's own `loss`, or None."""
        return replace(self, task=chosen_task(self.task, self.train.y, loss))

    def cast(self, dtype: torch.dtype, integers: bool) -> FederatedData:
        """The same data for a model of type `dtype`, which takes integer features as `integers` or as numbers."""
        test = None if self.test is None else self.test.cast(dtype, integers)
        return replace(self, train=self.train.cast(dtype, integers), test=test)

    def facts(self) -> dict[str, object]:
        """The facts that are shown of the data. Clients are shown by their number and sizes."""
        least, most = self.sizes.min(), self.sizes.max()
        each = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        clients = f"{len(self.clients):,} with {each} samples"
        return {"clients": clients} | {name: value for name, value in super().facts().items() if name != "clients"}

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of samples of each client, `[N]`."""
        return np.array([client.size for client in self.clients], dtype=np.int64)

    @property
    def problem(self) -> Problem:
        """The learning problem without the training samples."""
        task = chosen_task(self.task, self.train.y)
        return Problem(self.test, self.classes, self.transform, self.label_names, self.domain_names, task)

    def hold_out(self, fraction: float, seed: int) -> FederatedData:
        """The same data, where a `fraction` of each client's samples is held out, drawn by `seed`.

        Of a client's n samples, floor(fraction * n) are moved to its `held`; at least one stays for training. No client
        trains on a held-out sample. If several clients hold the same sample, the first of them has it in `held`.
        """
        if fraction == 0:
            return self
        numbers = range(len(self.clients)) if self.numbers is None else self.numbers.tolist()
        draws = [
            generator(seed, Purpose.HELD_OUT, number).permutation(client)
            for number, client in zip(numbers, self.clients, strict=True)
        ]
        taken = set(np.concatenate([d[: int(fraction * len(d))] for d in draws]).tolist())
        for drawn in draws:
            if taken.issuperset(drawn.tolist()):
                taken.discard(int(drawn[-1]))
        left, held = np.array(sorted(taken), dtype=np.int64), []
        clients = [client[~np.isin(client, left)] for client in self.clients]
        for client in self.clients:
            held.append(np.intersect1d(client, left))
            left = np.setdiff1d(left, client)
        return replace(self, clients=clients, held=held)

    def shard(self, ids: Sequence[int] | NDArray[np.int64]) -> FederatedData:
        """The same data with the clients `ids` only, as on a machine that holds no others."""
        rows = np.unique(np.asarray(ids, dtype=np.int64))
        held = [self.held[row] for row in rows] if len(self.held) else ()
        numbers = rows if self.numbers is None else self.numbers[rows]
        return replace(self, clients=[self.clients[row] for row in rows], held=held, numbers=numbers)

    def counts(self) -> NDArray[np.int64]:
        """How many labels of each class each client holds, `[N, classes]`. Without classes the `sizes`, `[N, 1]`."""
        if self.classes == 0:
            return self.sizes[:, None]
        task, y = self.problem.task, self.train.y.cpu()
        return np.stack([task.occurrences(y[torch.from_numpy(c)], self.classes).numpy() for c in self.clients])

    def to(self, device: torch.device | str) -> FederatedData:
        """The same data with all samples on `device`; the clients' indices stay on the host."""
        return replace(self, train=self.train.to(device), test=None if self.test is None else self.test.to(device))


def _first(bad: Tensor) -> int | None:
    """The first index at which `bad` holds, or None."""
    return int(bad.int().argmax()) if bool(bad.any()) else None


def _sample_shape(x: Features) -> object:
    return {name: shape[1:] for name, shape in x.shape.items()} if isinstance(x, Inputs) else tuple(x.shape[1:])


def _indices(client: Any, i: int) -> NDArray[np.int64]:
    indices = client.cpu().numpy() if isinstance(client, Tensor) else np.asarray(client)
    whole = indices.ndim == 1 and (indices.size == 0 or np.issubdtype(indices.dtype, np.integer))
    check(whole, f"FederatedData.clients[{i}]", f"{indices.dtype} {list(indices.shape)}", "must be a list of indices")
    return indices.astype(np.int64)
