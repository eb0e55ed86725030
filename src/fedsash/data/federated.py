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
from ..tasks import Classification, Task
from .encoded import EncodedImages, Pixels
from .transform import PLAIN, Transform

CLASSIFICATION = Classification()


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Shown):
    """`n` labelled samples on one device.

    `x` holds raw images, uint8 `[n, H, W, channels]`, or `EncodedImages` of this shape, or features of any other type,
    `[n, ...]`. Images have their channels last, so that a batch `x[idx]` becomes a channels-last batch without a copy.
    `y` holds the labels, int64 `[n]` (`[n, T]` for sequences). Where the data have them, `domain`, `user` and `coarse`
    hold the numbers of each sample's domain, user and coarse label, int64 `[n]`.

    Raises `SettingError` if there is no sample, if the lengths differ, or if uint8 data are not images.
    """

    x: Pixels
    y: Tensor
    domain: Tensor | None = None
    user: Tensor | None = None
    coarse: Tensor | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.x.shape)
        check(self.x.ndim > 0 and len(self.x) > 0, "Samples.x", shape, "must hold at least one sample")
        check(0 not in shape, "Samples.x", shape, "a sample must hold at least one number")
        check(
            self.x.dtype != torch.uint8 or (self.x.ndim == 4 and self.x.shape[-1] <= 4),
            "Samples.x",
            shape,
            "uint8 data must be images [n, height, width, channels]; give other features as float",
        )
        for name in ("y", "domain", "user", "coarse"):
            if (numbers := getattr(self, name)) is not None:
                check(numbers.dtype == torch.int64, f"Samples.{name}", numbers.dtype, "must be int64")
                shape, right = tuple(numbers.shape), f"must be one number for each of {len(self.x)}"
                check(shape[:1] == (len(self.x),) and (name == "y" or len(shape) == 1), f"Samples.{name}", shape, right)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Tensor) -> Samples:
        """The samples at `index` (int64 or bool), in that order."""
        return self._each(lambda x: x.only(index) if isinstance(x, EncodedImages) else x[index])

    def to(self, device: torch.device | str) -> Samples:
        """The same samples on `device`."""
        return self._each(lambda x: x.to(device))

    def _each(self, change: Callable[[Pixels], Any]) -> Samples:
        return Samples(**{name: change(x) for name, x in vars(self).items() if x is not None})


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Shown):
    """The learning problem without the training samples. The fields are those of `FederatedData`."""

    test: Samples | None
    classes: int
    transform: Transform = PLAIN
    label_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    task: Task = CLASSIFICATION


@dataclass(frozen=True, eq=False, repr=False)
class FederatedData(Shown):
    """Training samples that are distributed over `N` clients, and a central test set.

    `clients[i]` are the indices into `train` that client i holds (any sequence of integers; kept as int64 arrays). An
    index may occur more than once, since some partitions use samples again. `classes` is the number of classes,
    `transform` turns raw images into the model's input, and `task` says what is learned. `held[i]` are the indices of
    client i's held-out samples (see `hold_out`). In a shard of a larger federation (see `shard`), `numbers` `[N]` are
    the clients' numbers in that federation, ascending; all draws are made by these numbers.

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
    task: Task = CLASSIFICATION
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
        self._check_samples("train", self.train)
        if self.test is not None:
            self._check_samples("test", self.test)
            shape, right = tuple(self.test.x.shape[1:]), tuple(self.train.x.shape[1:])
            check(shape == right, "FederatedData.test.x", shape, f"a sample must have the training samples' {right}")

    def _check_samples(self, name: str, samples: Samples) -> None:
        numbers = [("y", samples.y, self.classes)]
        if samples.domain is not None and self.domain_names:
            numbers.append(("domain", samples.domain, len(self.domain_names)))
        for field, values, count in numbers:
            bad = _first((values < 0) | (values >= count))
            if bad is not None:
                value = int(values.flatten()[bad])
                check(False, f"FederatedData.{name}.{field}[{bad}]", value, f"must be 0 to {count - 1}")
        if isinstance(samples.x, Tensor) and samples.x.is_floating_point():
            bad = _first(~torch.isfinite(samples.x.flatten(1)).all(1))
            check(bad is None, f"FederatedData.{name}.x[{bad}]", "nan or infinite", "features must be finite")

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        clients: Sequence[Any],
        *,
        test: tuple[Any, Any] | None = None,
        classes: int | None = None,
        transform: Transform = PLAIN,
        label_names: tuple[str, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> FederatedData:
        """Federated data from NumPy arrays, tensors or lists: `x`, labels `y`, each client's indices, `test = (x, y)`.

        Images are uint8, `[n, H, W]` or `[n, H, W, channels]`, and keep their type. Floating-point features become
        `dtype`, by default float32 like the models. Other integers become int64. `classes` is by default the largest
        label plus one. Raises `SettingError` as the class does, and for labels that are not integers.
        """
        train = Samples(_features(x, dtype), _labels(y))
        held_out = None if test is None else Samples(_features(test[0], dtype), _labels(test[1]))
        if classes is None:
            classes = 1 + max(int(samples.y.max()) for samples in (train, held_out) if samples is not None)
        return cls(train, held_out, clients, classes, transform, label_names)

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
        return Problem(self.test, self.classes, self.transform, self.label_names, self.domain_names, self.task)

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
        """The number of labels of each class that each client holds, `[N, classes]`."""
        y = self.train.y.cpu().numpy()
        return np.stack([np.bincount(y[client].ravel(), minlength=self.classes) for client in self.clients])

    def to(self, device: torch.device | str) -> FederatedData:
        """The same data with all samples on `device`; the clients' indices stay on the host."""
        return replace(self, train=self.train.to(device), test=None if self.test is None else self.test.to(device))


def _first(bad: Tensor) -> int | None:
    """The first index at which `bad` holds, or None."""
    return int(bad.int().argmax()) if bool(bad.any()) else None


def _tensor(values: Any) -> Tensor:
    """A tensor of `values`. It shares the memory of NumPy arrays where possible."""
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _features(values: Any, dtype: torch.dtype) -> Tensor:
    x = _tensor(values)
    if x.dtype == torch.uint8:
        return x.unsqueeze(-1) if x.ndim == 3 else x
    return x.to(dtype if x.is_floating_point() else torch.int64)


def _labels(values: Any) -> Tensor:
    y = _tensor(values)
    check(not y.is_floating_point(), "FederatedData.from_arrays: y", y.dtype, "labels must be integers")
    return y.to(torch.int64)


def _indices(client: Any, i: int) -> NDArray[np.int64]:
    indices = client.cpu().numpy() if isinstance(client, Tensor) else np.asarray(client)
    whole = indices.ndim == 1 and (indices.size == 0 or np.issubdtype(indices.dtype, np.integer))
    check(whole, f"FederatedData.clients[{i}]", f"{indices.dtype} {list(indices.shape)}", "must be a list of indices")
    return indices.astype(np.int64)
