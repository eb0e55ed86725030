"""The mean of checkpoints, tensor by tensor, as a checkpoint like the newest of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from mmap import mmap
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ...settings.errors import ModelError, check, some
from ...system.files import write_table
from ...system.machine import own_version
from ...vector.exact_means import weighted_mean
from ...vector.mixed_means import MIXED, mixed_mean
from ...vector.norms import is_statistic
from ..bema import BEMA
from . import distributed
from .checksums import Checksums
from .distributed import DistributedFolder
from .formats import (
    ENDINGS,
    NOTHING,
    Checkpoint,
    Flat,
    PickledFile,
    SafetensorsFile,
    ShardedCheckpoint,
    check_numbers,
    flat_numbers,
    has_mean,
    is_finite,
    same_bits,
)
from .lora import check_scales, factor_in, mean_of_adapters
from .order import (
    Ordered,
    chosen,
    files_of,
    in_order,
    initial_model,
    named_alone,
    step_read,
)
from .output import check_new, save_pickled, sync, whole
from .readers import parts_of
from .scores import best as best_of
from .weights import bema_weights, check_weights, decay_weights, ema_weights, shares

CHUNK = 1 << 20
"""How many entries are read at a time. `weighted_mean` takes them in pieces that stay in a core's cache."""

ALIGNED = 64
"""Tensors begin at multiples of so many bytes."""

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DDP, `torch.compile` and trainers put before the names of a model's tensors."""

OnProgress = Callable[[int, int], None]
"""Called with the numbers of entries that are done, and of all."""


@dataclass(frozen=True)
class Merged:
    """What was made, and where it is (`out`).

    `files` are the checkpoints from the oldest to the newest; `steps` are their steps of training, None where no name
    or file says it, and `weights` their shares of the mean, which add up to 1. `rule` says in words how they were
    weighted, and `notes` what should be known of it.
    """

    out: Path
    files: tuple[Path, ...]
    steps: tuple[int | None, ...]
    weights: tuple[float, ...]
    rule: str
    notes: tuple[str, ...]


def merge_checkpoints(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    last: int | None = None,
    every: int = 1,
    best: int | None = None,
    by: str = "",
    mode: Literal["", "min", "max"] = "",
    scores: str | Path | None = None,
    ema: float | None = None,
    decay: str | None = None,
    weights: Sequence[float] | None = None,
    bema: BEMA | None = None,
    initial: str | Path | None = None,
    key: str = "",
    lora: Literal["", "exact", "factors"] | int = "",
    progress: OnProgress | None = None,
) -> Merged:
    """Write the weighted mean of checkpoints into `out`: a new file, or a new folder if the name has no ending.

    With the n checkpoints w_1, ..., w_n from the oldest to the newest and their weights a_i, each entry is

        (a_1 w_1 + ... + a_n w_n) / (a_1 + ... + a_n)

    exactly, rounded once to the type of the newest checkpoint (see `vector.exact_means`). All a_i are 1, or by one of
    `ema` (the D of a_i = D^(n-i)), `decay` (`linear`, `cosine`, `1-sqrt`, see `decay_weights`: WSM, arXiv 2507.17634)
    and `weights` `[n]`.

    `paths` are files of safetensors or `torch.save`, folders of `torch.distributed.checkpoint`, or folders of these. If
    each names one checkpoint and the order plays no role, they need no steps: the last named counts as the newest.
    `key` chooses one of several state dictionaries in a file. The mean has the layout and the names of the newest
    checkpoint; tensors of integers are the newest's. It is whole or absent. A card beside it says what it is made of.

    `last` takes the newest so many, `every` of these every so many, and `best` of these the best so many `by` a metric.
    `mode` says whether less (`min`) or more (`max`) is better, if the metric's name does not; `scores` is a file with
    the metric of each. See `scores.best`. `bema` needs the model `initial`, from which the training began; its weights
    are those of `bema_weights`.

    Adapters of LoRA need `lora`: `exact`, the mean of the products of their factors, whose rank is the sum of theirs; a
    rank to which it is cut; or `factors`, the mean factors, whose product is not the mean of the products.

    `progress(done, total)` is called with the numbers of entries that are done, and of all.

    Raises `SettingError` for a wrong argument; `RunError` for a path without checkpoints, for a file that can't be
    read, and if `out` is there already; `ModelError` for models whose tensors differ in names or shapes, with the
    file; `OSError` if the disk has no room.
    """
    notes = list[str]()
    if isinstance(paths, str | Path):
        paths = [paths]
    out = Path(out)
    check_new(out)
    for name, value in (("by", by), ("mode", mode), ("scores", scores)):
        check(not value or best is not None, name, value, "needs best, the number of checkpoints that are taken")
    sources = [Path(path) for path in paths]
    files = files_of(sources, notes.append)
    order_counts = every != 1 or any(value is not None for value in (last, best, ema, decay, weights, bema))
    ordered = in_order(files, key, notes.append, named_alone(sources), order_counts)
    ordered = chosen(ordered, last, every)
    if best is not None:
        score_file = None if scores is None else Path(scores)
        ordered = best_of(ordered, best, by, mode, score_file, notes.append)
    check((bema is None) == (initial is None), "initial", initial, "belongs to bema, and bema needs it")
    if initial is not None:
        ordered = [initial_model(Path(initial), key), *ordered]
    rule, chosen_weights = _rule(ema, decay, weights, bema, ordered)
    checkpoints = [entry.checkpoint for entry in ordered]
    models = [_Named.of(checkpoint, checkpoints[-1], notes.append) for checkpoint in checkpoints]
    _check_alike(models, notes.append)
    newest = checkpoints[-1]
    adapters = _averages_products(checkpoints, lora, notes.append)
    if adapters:
        check(not out.name.endswith(ENDINGS), "out", str(out), "must name a folder: it takes the configuration, too")
    if newest.left_out:
        notes.append(f"left out of the mean: {some(newest.left_out)}")
    if any(is_statistic(name) and has_mean(newest.form(name)) for name in newest.names):
        averaged = "averaged, too"
        if _extrapolates(chosen_weights):
            averaged = "the newest's, since a negative weight could make a variance negative"
        notes.append(f"BatchNorm's statistics are {averaged}: better update them (torch.optim.swa_utils.update_bn)")
    share_of_each = list(map(float, shares(chosen_weights, len(ordered))))
    parts = [parts_of(checkpoint.path) for checkpoint in checkpoints]
    with Checksums(parts) as checksums, whole(out, newest.path) as (file, card):
        if adapters:
            rank = lora if isinstance(lora, int) else None
            mean_of = partial(_mean, models, weights=chosen_weights)
            mean_of_adapters(checkpoints, models, chosen_weights, rank, mean_of, notes.append).write(file)
        else:
            counter = _EntryCounter(newest, checksums, progress)
            _write(file, models, chosen_weights, counter)
            _say_not_finite(counter.not_finite, models, notes.append)
        write_table(card, _card(out, ordered, share_of_each, checksums.finish(), rule, notes))
    steps = tuple(entry.step for entry in ordered)
    return Merged(out, tuple(c.path for c in checkpoints), steps, tuple(share_of_each), rule, tuple(notes))


@dataclass(frozen=True)
class _Named:
    """A checkpoint whose tensors are asked for by the newest's names."""

    checkpoint: Checkpoint
    names: Mapping[str, str]

    @classmethod
    def of(cls, checkpoint: Checkpoint, newest: Checkpoint, say: Callable[[str], None]) -> _Named:
        """Match the names, without the prefixes if need be. Raises `ModelError` if some are missing or too many."""
        if set(checkpoint.names) == set(newest.names):
            return cls(checkpoint, {name: name for name in newest.names})
        names = {plain_name(name): name for name in checkpoint.names}
        wanted = {plain_name(name): name for name in newest.names}
        missing = [name for plain, name in wanted.items() if plain not in names]
        extra = [name for plain, name in names.items() if plain not in wanted]
        if missing:
            raise ModelError(f"{checkpoint.path} lacks {some(missing)}, which {newest.path} has")
        if extra:
            raise ModelError(f"{checkpoint.path} has {some(extra)}, which {newest.path} lacks")
        if len(names) < len(checkpoint.names) or len(wanted) < len(newest.names):
            raise ModelError(f"{checkpoint.path} has other names than {newest.path}, alike but for their prefixes")
        first = checkpoint.names[0]
        say(f"{checkpoint.path} names its tensors otherwise, such as {first}: matched without {', '.join(PREFIXES)}")
        return cls(checkpoint, {name: names[plain] for plain, name in wanted.items()})

    def form(self, name: str) -> Tensor:
        return self.checkpoint.form(self.names[name])

    def tensor(self, name: str) -> Tensor:
        return self.checkpoint.tensor(self.names[name])

    def flat(self, name: str) -> Flat:
        return self.checkpoint.flat(self.names[name])


def matched(checkpoint: Checkpoint, newest: Checkpoint, say: Callable[[str], None]) -> Callable[[str], Tensor]:
    """A checkpoint's tensors by the newest's names. Raises `ModelError` if some are missing or too many."""
    return _Named.of(checkpoint, newest, say).tensor


def plain_name(name: str) -> str:
    """A tensor's name without prefixes."""
    while name.startswith(PREFIXES):
        name = name.partition(".")[2]
    return name


def _averages_products(checkpoints: Sequence[Checkpoint], lora: str | int, say: Callable[[str], None]) -> bool:
    """Whether products of factors are averaged.

    Raises `ModelError` if there are factors and nobody says how, or if factors are averaged that have other scales.
    """
    newest = checkpoints[-1]
    if not isinstance(lora, int):
        check(lora in ("", "exact", "factors"), "lora", lora, "must be 'exact', a rank, or 'factors'")
    factor = factor_in(newest)
    reason = "the product of mean factors is not the mean of the products"
    if not factor:
        check(lora in ("", "factors"), "lora", lora, f"needs adapters of LoRA, and {newest.path} has no factors")
        return False
    if lora == "":
        how = "take lora = 'exact', a rank to which the mean of the products is cut, or 'factors' all the same"
        raise ModelError(f"{newest.path} has factors of LoRA ({factor}): {reason}; {how}")
    if lora == "factors":
        check_scales(checkpoints)
        say(f"the factors of LoRA are averaged: {reason}")
        return False
    return True


def _rule(
    ema: float | None,
    decay: str | None,
    weights: Sequence[float] | None,
    bema: BEMA | None,
    ordered: Sequence[Ordered],
) -> tuple[str, list[float] | None]:
    """How the weights were chosen, in words, and the weights `[n]`; None if all are equal."""
    n = len(ordered)
    ways = {"ema": ema, "decay": decay, "weights": weights, "bema": bema}
    named = [name for name, value in ways.items() if value is not None]
    check(len(named) <= 1, "weights", named, "must be chosen in one way")
    if ema is not None:
        return f"ema {ema}", ema_weights(ema, n)
    if decay is not None:
        return f"decay {decay}", decay_weights(decay, n)
    if weights is not None:
        check(all(isinstance(weight, Real) for weight in weights), "weights", weights, "must be numbers")
        listed = [float(weight) for weight in weights]
        check_weights(listed, n)
        return "weights", listed
    if bema is not None:
        check(isinstance(bema, BEMA), "bema", bema, "must be a BEMA, such as BEMA()")
        words = f"bema kappa {bema.kappa}, eta {bema.eta}, rho {bema.rho}, gamma {bema.gamma}, least {bema.least}"
        return words, bema_weights(bema, [step_read(entry) for entry in ordered[1:]])
    return "plain mean", None


def _check_alike(models: Sequence[_Named], say: Callable[[str], None]) -> None:
    """Raise `ModelError` if shapes or kinds of tensors differ, if weights are codes, or if nothing has a mean.

    Say which types are mixed, and which numbers do not count since the newest has integers in their place.
    """
    newest = models[-1]
    if not any(has_mean(newest.form(name)) for name in newest.names):
        raise ModelError(f"{newest.checkpoint.path} {NOTHING}")
    for model in models:
        check_numbers(model.checkpoint)
        mixed = dict[str, None]()
        without_mean = list[str]()
        for name in newest.names:
            tensor = model.form(name)
            wanted = newest.form(name)
            if tensor.shape != wanted.shape:
                shapes = f"{list(tensor.shape)} in {model.checkpoint.path}, {list(wanted.shape)} in the newest"
                raise ModelError(f"{name} has the shape {shapes}")
            if tensor.dtype != wanted.dtype and has_mean(wanted):
                types = f"{tensor.dtype} in {model.checkpoint.path}, {wanted.dtype} in {newest.checkpoint.path}"
                of_one_kind = tensor.is_complex() == wanted.is_complex()
                if not of_one_kind or not {tensor.dtype.to_real(), wanted.dtype.to_real()} <= set(MIXED):
                    raise ModelError(f"{name} is {types}: these have no common mean")
                mixed[types] = None
            if has_mean(tensor) and not has_mean(wanted):
                without_mean.append(name)
        for types in mixed:
            say(f"some tensors are {types}: their means are rounded once, to the newest's type")
        if without_mean:
            say(f"{some(without_mean)}: integers in the newest, which are taken, and none in {model.checkpoint.path}")


def _extrapolates(weights: Sequence[float] | None) -> bool:
    """Whether a weight is negative, so that the mean may lie beyond all models."""
    return weights is not None and min(weights) < 0


def _count(tensor: Tensor) -> int:
    """How many numbers a tensor has; a complex one has two for each of its entries."""
    if tensor.is_complex():
        return 2 * tensor.numel()
    return tensor.numel()


def _chunks(models: Sequence[_Named], name: str, weights: list[float] | None) -> Iterator[Tensor]:
    """The mean of a tensor, flat, in pieces; of integers, the newest's, as of statistics with a negative weight."""
    newest = models[-1]
    kept = _extrapolates(weights) and is_statistic(name)
    if kept or not has_mean(newest.form(name)):
        yield newest.tensor(name).reshape(-1)
        return
    flat = [model.flat(name) for model in models]
    dtype = newest.form(name).dtype.to_real()
    mixed = any(model.form(name).dtype.to_real() != dtype for model in models)
    for start in range(0, flat[-1].numel(), CHUNK):
        pieces = [values[start : start + CHUNK] for values in flat]
        if mixed:
            yield mixed_mean(pieces, weights, dtype)
        else:
            yield weighted_mean(pieces, weights)


def _mean(models: Sequence[_Named], name: str, weights: list[float] | None) -> Tensor:
    """The mean of a tensor, as a whole."""
    form = models[-1].form(name)
    flat = torch.cat([torch.empty(0, dtype=form.dtype.to_real()), *_chunks(models, name, weights)])
    if form.is_complex():
        return torch.view_as_complex(flat.view(*form.shape, 2))
    return flat.view(form.shape)


def _write(file: Path, models: Sequence[_Named], weights: list[float] | None, counter: _EntryCounter) -> None:
    """Write the mean into a file of the newest's format; if that is an index, into its shards beside it."""
    newest = models[-1].checkpoint
    if isinstance(newest, SafetensorsFile):
        _write_safetensors(file, newest, models, weights, counter)
    elif isinstance(newest, ShardedCheckpoint):
        for name, shard in newest.shards.items():
            if isinstance(shard, SafetensorsFile):
                _write_safetensors(file.with_name(name), shard, models, weights, counter)
            else:
                _write_pickled(file.with_name(name), shard, models, weights, counter)
        file.write_bytes(newest.index)
    elif isinstance(newest, PickledFile):
        _write_pickled(file, newest, models, weights, counter)
    elif isinstance(newest, DistributedFolder):
        with _means(file.parent, newest, {}, models, weights, counter) as means:
            distributed.save(file.parent, newest.filled(means))


class _EntryCounter:
    """Counts the entries that are written, reports them to `progress`, and keeps the checksums a chunk ahead."""

    def __init__(self, newest: Checkpoint, checksums: Checksums, progress: OnProgress | None) -> None:
        self.total = sum(_count(newest.form(name)) for name in newest.names)
        self.done = 0
        self.not_finite = dict[str, None]()
        """The names of the tensors whose mean has a value that is not finite."""
        self.checksums = checksums
        self.progress = progress
        self._advance()

    def add(self, name: str, chunk: Tensor) -> None:
        """Count a chunk of a tensor's mean."""
        self.done += chunk.numel()
        if chunk.is_floating_point() and not is_finite(chunk):
            self.not_finite[name] = None
        self._advance()
        if self.progress is not None and chunk.numel():
            self.progress(self.done, self.total)

    def _advance(self) -> None:
        ahead = self.done + 2 * CHUNK  # while the next chunk is averaged, the one after it is read
        if ahead < self.total:
            self.checksums.advance(ahead / self.total)


def _say_not_finite(names: Collection[str], models: Sequence[_Named], say: Callable[[str], None]) -> None:
    """Say which means are not finite, and because of which checkpoints."""
    if not names:
        return
    line = f"the mean of {some(names)} is not finite"
    causes = []
    for model in models:
        if not all(is_finite(flat_numbers(model.tensor(name))) for name in names):
            causes.append(model.checkpoint.path)
    if causes:
        line += f", as it is not in {some(causes)}"
    say(line)


def _write_safetensors(
    path: Path, newest: SafetensorsFile, models: Sequence[_Named], weights: list[float] | None, counter: _EntryCounter
) -> None:
    """The newest's header, byte for byte, and then the means in the order in which it names them."""
    with path.open("xb") as file:
        file.write(newest.header)
        for name in newest.names:
            for chunk in _chunks(models, name, weights):
                file.write(_bytes_of(chunk))
                counter.add(name, chunk)
        sync(file)


def _write_pickled(
    path: Path, newest: PickledFile, models: Sequence[_Named], weights: list[float] | None, counter: _EntryCounter
) -> None:
    """The newest's content with means in place of its tensors."""
    tied = _tied(newest, models)
    with _means(path.parent, newest, tied, models, weights, counter) as means:
        for name, first in tied.items():
            means[name] = means[first]
        save_pickled(path, newest.filled(means))


@contextmanager
def _means(
    folder: Path,
    newest: Checkpoint,
    tied: Container[str],
    models: Sequence[_Named],
    weights: list[float] | None,
    counter: _EntryCounter,
) -> Iterator[dict[str, Tensor]]:
    """The means of the newest's tensors that are not tied, in a nameless file in the folder until they are saved."""
    starts: dict[str, int] = {}
    with tempfile.TemporaryFile(dir=folder) as scratch:
        for name in newest.names:
            if name in tied or not newest.form(name).numel():
                continue
            starts[name] = scratch.tell()
            for chunk in _chunks(models, name, weights):
                scratch.write(_bytes_of(chunk))
                counter.add(name, chunk)
            scratch.write(b"\0" * (-scratch.tell() % ALIGNED))
        scratch.flush()
        means: dict[str, Tensor] = {}
        if starts:
            mapped = mmap(scratch.fileno(), 0)
            means = {name: _like(newest, name, mapped, start) for name, start in starts.items()}
        yield means


def _tied(newest: PickledFile, models: Sequence[_Named]) -> dict[str, str]:
    """Of tensors that are one in the newest checkpoint, all but the first, each with the first one's name.

    Raises `ModelError` if an older checkpoint has other numbers in them.
    """
    tied = {}
    seen: dict[tuple[object, ...], str] = {}
    for name in newest.names:
        tensor = newest.tensor(name)
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        first = seen.setdefault(place, name)
        if first != name and tensor.numel():
            _check_tied(models, first, name)
            tied[name] = first
    return tied


def _check_tied(models: Sequence[_Named], first: str, other: str) -> None:
    """Raise `ModelError` if two names of one tensor in the newest checkpoint hold other numbers in an older one."""
    for model in models[:-1]:
        if not same_bits(model.tensor(first), model.tensor(other)):
            raise ModelError(
                f"{first} and {other} are one tensor in the newest file, and two in {model.checkpoint.path}"
            )


def _like(newest: Checkpoint, name: str, mapped: mmap, start: int) -> Tensor:
    """The numbers from byte `start` of a mapped file on, in the shape and the order of the newest's tensor."""
    tensor = newest.form(name)
    flat = torch.frombuffer(mapped, dtype=tensor.dtype, count=tensor.numel(), offset=start)
    mean = flat.view(tensor.shape)
    if tensor.is_contiguous():
        return mean
    return torch.empty_like(tensor, device="cpu").copy_(mean)


def _bytes_of(chunk: Tensor) -> memoryview:
    return chunk.contiguous().view(torch.uint8).numpy().data


def _card(
    out: Path,
    ordered: Sequence[Ordered],
    share_of_each: Sequence[float],
    sums: Sequence[Mapping[str, str]],
    rule: str,
    notes: Sequence[str],
) -> dict[str, Any]:
    """What the mean is made of."""
    rows = []
    for entry, share, sha256 in zip(ordered, share_of_each, sums, strict=True):
        rows.append({"file": str(entry.checkpoint.path), "step": entry.step, "share": share, "sha256": sha256})
    versions = {"fedsash": own_version(), "torch": torch.__version__}
    return {"out": out.name, "rule": rule, "checkpoints": rows, "notes": list(notes), "versions": versions}
