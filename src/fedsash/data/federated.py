"""The federated data set: samples that stay on one device, and which client holds which of them."""

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
from ..tasks import Classification, Task
from .encoded import EncodedImages, Pixels
from .transform import PLAIN, Transform

CLASSIFICATION = Classification()


@dataclass(frozen=True, eq=False)
class Samples:
    """`n` labelled samples, resident on one device.

    `x` holds either raw images, uint8 `[n, H, W, channels]` (channels last, so that a batch `x[idx]` needs no copy to
    become a channels-last image batch), or the same still `Encoded`, or features of any other type, `[n, ...]`. `y`
    holds the labels, int64 `[n]` (for sequences `[n, T]`), and, where the data have them, `domain`, `user` and `coarse`
    the number of each sample's domain, of the user that it comes from and of the coarse label that its label is one of,
    int64 `[n]`.

    Raises `ValueError` if there is no sample, the lengths differ, or uint8 data are not images.
    """

    x: Pixels
    y: Tensor
    domain: Tensor | None = None
    user: Tensor | None = None
    coarse: Tensor | None = None

    def __post_init__(self) -> None:
        check(self.x.ndim > 0 and len(self.x) > 0, "Samples.x", tuple(self.x.shape), "must hold at least one sample")
        check(
            self.x.dtype != torch.uint8 or (self.x.ndim == 4 and self.x.shape[-1] <= 4),
            "Samples.x",
            tuple(self.x.shape),
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


@dataclass(frozen=True, eq=False)
class Problem:
    """What there is to learn, whoever holds the training samples; fields as in `FederatedData`."""

    test: Samples | None
    classes: int
    transform: Transform = PLAIN
    label_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    task: Task = CLASSIFICATION


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training samples shared out over `N` clients, and a central test set.

    `clients[i]` are the indices into `train` that client `i` holds (any sequence of integers; kept as int64 arrays).
    An index may occur more than once: rules that re-use samples need that. `classes` is the number of classes,
    `transform` turns raw images into what a model sees, and `task` says what is learned. `held[i]` are the indices of
    what client i has that nobody trains on (see `hold_out`). Where these clients are a part of a larger federation
    (see `shard`), `numbers` `[N]`, ascending, are their numbers in it, by which all their draws are made.

    Raises `ValueError`, naming the client or the sample, if there are no clients or an empty one, if an index or a
    label is out of range, if a feature is not finite, or if test samples differ in shape from training samples.
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

        Images are uint8, `[n, H, W]` or `[n, H, W, channels]`, and stay so. Real features become `dtype` whatever
        precision they come in, since models are float32 unless asked otherwise; other integers become int64.
        `classes` is the largest label plus one unless it is given. Raises `ValueError` as the class does.
        """
        train = Samples(_features(x, dtype), _labels(y))
        held_out = None if test is None else Samples(_features(test[0], dtype), _labels(test[1]))
        if classes is None:
            classes = 1 + max(int(samples.y.max()) for samples in (train, held_out) if samples is not None)
        return cls(train, held_out, clients, classes, transform, label_names)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many samples each client holds, `[N]`."""
        return np.array([client.size for client in self.clients], dtype=np.int64)

    @property
    def problem(self) -> Problem:
        """What there is to learn, whoever holds the samples."""
        return Problem(self.test, self.classes, self.transform, self.label_names, self.domain_names, self.task)

    def hold_out(self, fraction: float, seed: int) -> FederatedData:
        """The same data without a `fraction` of each client's samples, drawn by `seed`, which it has in `held`.

        Of n samples a client gives floor(fraction * n), and always keeps one. No client trains on what is held out,
        also where several hold the same sample; then the first of them has it in `held`.
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
        """The same data with these clients only, as somebody has them who holds no others."""
        rows = np.unique(np.asarray(ids, dtype=np.int64))
        held = [self.held[row] for row in rows] if len(self.held) else ()
        numbers = rows if self.numbers is None else self.numbers[rows]
        return replace(self, clients=[self.clients[row] for row in rows], held=held, numbers=numbers)

    def counts(self) -> NDArray[np.int64]:
        """How many labels of each class each client holds, `[N, classes]`."""
        y = self.train.y.cpu().numpy()
        return np.stack([np.bincount(y[client].ravel(), minlength=self.classes) for client in self.clients])

    def to(self, device: torch.device | str) -> FederatedData:
        """The same data with all samples on `device`; the clients' indices stay on the host."""
        return replace(self, train=self.train.to(device), test=None if self.test is None else self.test.to(device))


def _first(bad: Tensor) -> int | None:
    """The first index at which `bad` holds, or None."""
    return int(bad.int().argmax()) if bool(bad.any()) else None


def _tensor(values: Any) -> Tensor:
    """A tensor of `values`; NumPy arrays share their memory with it where they can."""
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
