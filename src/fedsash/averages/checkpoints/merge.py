"""The mean of checkpoints, tensor by tensor, as a checkpoint like the newest of them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import IO, Any, Literal

import torch
from torch import Tensor

from ...settings.errors import ModelError, RunError, SettingError, check, check_choice, some
from ...system.files import write_table
from ...system.machine import own_version
from ...system.paths import beside, check_folder, clear_beside, similar, sync_folder
from ...vector.exact_means import weighted_mean
from .formats import (
    ENDINGS,
    INDEX,
    Checkpoint,
    PickledFile,
    SafetensorsFile,
    ShardedSafetensors,
    check_numbers,
    parts_of,
)
from .order import Ordered, chosen, files_of, in_order, without_copies
from .weights import check_weights, decay_weights, ema_weights

CHUNK = 1 << 20
"""How many entries are read at a time. `weighted_mean` takes them in pieces that stay in a core's cache."""

ALIGNED = 64
"""Tensors begin at multiples of so many bytes."""

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DDP, `torch.compile` and trainers put before the names of a model's tensors."""

COPIED = ("*config*.json", "*token*", "vocab*", "merges.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")
"""The configuration, the tokenizer and the code of a model, which lie beside a checkpoint."""

FACTORS = ("lora_A", "lora_B")
"""What LoRA names the two factors of a change of a weight."""

OnProgress = Callable[[int, int], None]
"""Called with the numbers of entries that are done, and of all."""


@dataclass(frozen=True)
class Merged:
    """What was made: the files, from the oldest to the newest, each with its step, share and checksum."""

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
    ema: float | None = None,
    decay: str | None = None,
    weights: Sequence[float] | None = None,
    key: str = "",
    lora: Literal["", "factors"] = "",
    progress: OnProgress | None = None,
) -> Merged:
    """Write the weighted mean of checkpoints into `out`: a new file, or a new folder if the name has no ending.

    `paths` are files of safetensors or `torch.save`, or folders of them. Weights are equal, or by one of `ema` (the D
    of D^(n-i)), `decay` (`linear`, `cosine`, `1-sqrt`, see `decay_weights`) and `weights`, from the oldest on. `key`
    chooses one of several state dictionaries in a file. The mean has the layout, the names and the types of the newest
    checkpoint; tensors of integers are the newest's. It is whole or absent. A card beside it says what it is made of.
    Adapters of LoRA are refused, since the product of mean factors is not the mean of products; `lora="factors"`
    averages the factors all the same.

    Raises `RunError`, `ModelError` and `SettingError`, which name the file, and `OSError`.
    """
    notes = list[str]()
    if isinstance(paths, str | Path):
        paths = [paths]
    out = Path(out)
    _check_out(out)
    files = files_of([_existing(Path(path)) for path in paths])
    files = without_copies(files, notes.append)
    ordered = chosen(in_order(files, key, notes.append), last, every)
    rule, chosen_weights = _rule(ema, decay, weights, len(ordered))
    checkpoints = [entry.checkpoint for entry in ordered]
    models = [_Named.of(checkpoint, checkpoints[-1], notes.append) for checkpoint in checkpoints]
    _check_alike(models)
    newest = checkpoints[-1]
    _check_adapter(newest, lora, notes.append)
    if newest.left_out:
        notes.append(f"left out of the mean: {some(newest.left_out)}")
    if any("running_mean" in name for name in newest.names):
        notes.append("BatchNorm's statistics are averaged, too: better update them (torch.optim.swa_utils.update_bn)")
    shares = _shares(chosen_weights, len(ordered))
    pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))
    try:
        sums = pool.map(_sha256, [parts_of(checkpoint.path) for checkpoint in checkpoints])
        with _whole(out, newest.path) as (file, card):
            _write(file, models, chosen_weights, progress)
            write_table(card, _card(out, ordered, shares, list(sums), rule, notes))
    finally:
        pool.shutdown(cancel_futures=True)
    steps = tuple(entry.step for entry in ordered)
    return Merged(out, tuple(c.path for c in checkpoints), steps, tuple(shares), rule, tuple(notes))


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
        names = {_plain(name): name for name in checkpoint.names}
        wanted = {_plain(name): name for name in newest.names}
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

    def tensor(self, name: str) -> Tensor:
        return self.checkpoint.tensor(self.names[name])


def matched(checkpoint: Checkpoint, newest: Checkpoint, say: Callable[[str], None]) -> Callable[[str], Tensor]:
    """A checkpoint's tensors by the newest's names. Raises `ModelError` if some are missing or too many."""
    return _Named.of(checkpoint, newest, say).tensor


def _plain(name: str) -> str:
    """A tensor's name without prefixes."""
    while name.startswith(PREFIXES):
        name = name.partition(".")[2]
    return name


def _existing(path: Path) -> Path:
    if not path.exists():
        raise RunError(f"{path} does not exist{similar(path)}")
    return path


def _check_adapter(newest: Checkpoint, lora: str, say: Callable[[str], None]) -> None:
    """Raise `ModelError` if the tensors are factors, unless their means are asked for."""
    check_choice("lora", lora, "", "factors")
    factors = [name for name in newest.names if any(word in name for word in FACTORS)]
    if not factors:
        return
    reason = "the product of mean factors is not the mean of the products"
    if not lora:
        how = "merge the adapters into their model first, or take lora = 'factors'"
        raise ModelError(f"{newest.path} has factors of LoRA ({factors[0]}): {reason}; {how}")
    say(f"the factors of LoRA are averaged: {reason}")


def _check_out(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise RunError(f"{out} is there already: name a new file or folder")
    check_folder(out.parent)


def _rule(
    ema: float | None, decay: str | None, weights: Sequence[float] | None, n: int
) -> tuple[str, list[float] | None]:
    """How the weights were chosen, in words, and the weights `[n]`; None if all are equal."""
    named = [name for name, value in (("ema", ema), ("decay", decay), ("weights", weights)) if value is not None]
    check(len(named) <= 1, "weights", named, "must be chosen in one way")
    if ema is not None:
        return f"ema {ema}", ema_weights(ema, n)
    if decay is not None:
        return f"decay {decay}", decay_weights(decay, n)
    if weights is not None:
        listed = [float(weight) for weight in weights]
        check_weights(listed, n)
        return "weights", listed
    return "plain mean", None


def _shares(weights: list[float] | None, n: int) -> list[float]:
    if weights is None:
        return [1 / n] * n
    total = sum(weights)
    return [weight / total for weight in weights]


def _check_alike(models: Sequence[_Named]) -> None:
    """Raise `ModelError` if shapes or kinds of tensors differ, or if weights are codes."""
    newest = models[-1]
    for model in models:
        check_numbers(model.checkpoint)
        for name in newest.names:
            tensor = model.tensor(name)
            wanted = newest.tensor(name)
            if tensor.shape != wanted.shape:
                shapes = f"{list(tensor.shape)} in {model.checkpoint.path}, {list(wanted.shape)} in the newest"
                raise ModelError(f"{name} has the shape {shapes}")
            if tensor.dtype != wanted.dtype and _has_mean(wanted):
                types = f"{tensor.dtype} in {model.checkpoint.path}, {wanted.dtype} in {newest.checkpoint.path}"
                raise ModelError(f"{name} is {types}: all must be of one type")


def _has_mean(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _chunks(models: Sequence[_Named], name: str, weights: list[float] | None) -> Iterator[Tensor]:
    """The mean of a tensor, flat, in pieces; of integers, the newest's."""
    newest = models[-1].tensor(name)
    if not _has_mean(newest):
        yield newest.reshape(-1)
        return
    flat = [_real(model.tensor(name)) for model in models]
    for start in range(0, flat[-1].numel(), CHUNK):
        pieces = [values[start : start + CHUNK] for values in flat]
        yield weighted_mean(pieces, weights)


def _real(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, flat; a complex one has two for each of its entries."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def _write(file: Path, models: Sequence[_Named], weights: list[float] | None, progress: OnProgress | None) -> None:
    """Write the mean into a file of the newest's format; if that is an index, into its shards beside it."""
    newest = models[-1].checkpoint
    total = sum(newest.tensor(name).numel() for name in newest.names)
    counter = _EntryCounter(total, progress)
    if isinstance(newest, SafetensorsFile):
        _write_safetensors(file, newest, models, weights, counter)
    elif isinstance(newest, ShardedSafetensors):
        for name, shard in newest.shards.items():
            _write_safetensors(file.with_name(name), shard, models, weights, counter)
        file.write_bytes(newest.index)
    elif isinstance(newest, PickledFile):
        _write_pickled(file, newest, models, weights, counter)


class _EntryCounter:
    """Counts the entries that are written, and reports them to `progress`."""

    def __init__(self, total: int, progress: OnProgress | None) -> None:
        self.total = total
        self.done = 0
        self.progress = progress

    def add(self, entries: int) -> None:
        self.done += entries
        if self.progress is not None:
            self.progress(self.done, self.total)


def _write_safetensors(
    path: Path, newest: SafetensorsFile, models: Sequence[_Named], weights: list[float] | None, counter: _EntryCounter
) -> None:
    """The newest's header, byte for byte, and then the means in the order in which it names them."""
    with path.open("xb") as file:
        file.write(newest.header)
        for name in newest.names:
            for chunk in _chunks(models, name, weights):
                file.write(_bytes_of(chunk))
                counter.add(chunk.numel())
        _sync(file)


def _write_pickled(
    path: Path, newest: PickledFile, models: Sequence[_Named], weights: list[float] | None, counter: _EntryCounter
) -> None:
    """The newest's content with means in place of its tensors, which lie in a nameless file until they are saved."""
    tied = _tied(models)
    starts: dict[str, int] = {}
    with tempfile.TemporaryFile(dir=path.parent) as scratch:
        for name in newest.names:
            if name in tied or not newest.tensor(name).numel():
                continue
            starts[name] = scratch.tell()
            for chunk in _chunks(models, name, weights):
                scratch.write(_bytes_of(chunk))
                counter.add(chunk.numel())
            scratch.write(b"\0" * (-scratch.tell() % ALIGNED))
        scratch.flush()
        means: dict[str, Tensor] = {}
        if starts:
            mapped = mmap(scratch.fileno(), 0)
            means = {name: _like(newest.tensor(name), mapped, start) for name, start in starts.items()}
        for name, first in tied.items():
            means[name] = means[first]
        with path.open("xb") as file:
            torch.save(newest.filled(means), file)
            _sync(file)


def _tied(models: Sequence[_Named]) -> dict[str, str]:
    """Of tensors that are one in the newest checkpoint, all but the first, each with the first one's name.

    Raises `ModelError` if an older checkpoint has other numbers in them.
    """
    newest = models[-1].checkpoint
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
        one = _real(model.tensor(first)).contiguous().view(torch.uint8)
        two = _real(model.tensor(other)).contiguous().view(torch.uint8)
        if not torch.equal(one, two):
            raise ModelError(
                f"{first} and {other} are one tensor in the newest file, and two in {model.checkpoint.path}"
            )


def _like(tensor: Tensor, mapped: mmap, start: int) -> Tensor:
    """The numbers from byte `start` of a mapped file on, in the shape and the order of the tensor."""
    flat = torch.frombuffer(mapped, dtype=tensor.dtype, count=tensor.numel(), offset=start)
    mean = flat.view(tensor.shape)
    if tensor.is_contiguous():
        return mean
    return torch.empty_like(tensor).copy_(mean)


def _bytes_of(chunk: Tensor) -> memoryview:
    return chunk.contiguous().view(torch.uint8).numpy().data


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _whole(out: Path, newest: Path) -> Iterator[tuple[Path, Path]]:
    """The paths at which the mean and its card are written; they get their names when all is there."""
    out.parent.mkdir(parents=True, exist_ok=True)
    clear_beside(out)
    unfinished = beside(out)
    if out.suffix in ENDINGS:
        _check_ending(out, newest)
        card = out.with_name(f"{out.name}.merge.json")
        try:
            yield unfinished, card
            unfinished.replace(out)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            card.unlink(missing_ok=True)
            raise
    else:
        unfinished.mkdir()
        try:
            _copy_beside(newest.parent, unfinished)
            yield unfinished / newest.name, unfinished / "merge.json"
            sync_folder(unfinished)
            unfinished.rename(out)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    sync_folder(out.parent)


def _check_ending(out: Path, newest: Path) -> None:
    """Raise `SettingError` if a file's ending is that of another format than the newest checkpoint's."""
    if newest.name.endswith(INDEX):
        raise SettingError.at("out", str(out), f"must name a folder, without an ending: {newest} has shards")
    if (out.suffix == ".safetensors") != (newest.suffix == ".safetensors"):
        raise SettingError.at("out", str(out), f"must end in {newest.suffix}, as {newest} does")


def _copy_beside(source: Path, target: Path) -> None:
    """Copy what lies beside a checkpoint and is needed to load it."""
    for pattern in COPIED:
        for path in source.glob(pattern):
            if path.is_file():
                shutil.copyfile(path, target / path.name)


def _sha256(paths: Sequence[Path]) -> dict[str, str]:
    """The checksum of each file of a checkpoint, by its name."""
    sums = {}
    for path in paths:
        with path.open("rb") as file:
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def _card(
    out: Path,
    ordered: Sequence[Ordered],
    shares: Sequence[float],
    sums: Sequence[Mapping[str, str]],
    rule: str,
    notes: Sequence[str],
) -> dict[str, Any]:
    """What the mean is made of."""
    rows = []
    for entry, share, sha256 in zip(ordered, shares, sums, strict=True):
        rows.append({"file": str(entry.checkpoint.path), "step": entry.step, "share": share, "sha256": sha256})
    versions = {"fedsash": own_version(), "torch": torch.__version__}
    return {"out": out.name, "rule": rule, "checkpoints": rows, "notes": list(notes), "versions": versions}
