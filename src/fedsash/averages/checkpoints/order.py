"""Which files are checkpoints, and from which training step each is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...settings.errors import RunError, SettingError, check_count, some
from ...system.paths import similar
from .distributed import METADATA
from .formats import ENDINGS, INDICES, Checkpoint, check_numbers, same_bits, whole_number
from .readers import has_parts, open_checkpoint, parts_of

MODELS = ("model", "pytorch_model", "adapter_model", "diffusion_pytorch_model", "consolidated")
"""The names that weights have in a folder of one checkpoint, without their endings."""

SHARD = re.compile(r"-\d+-of-\d+$")
"""How the name of a part of a checkpoint ends, before its ending."""

PART_OF_TENSORS = re.compile(r"^consolidated\.\d+$")
"""The name of a part of Llama's checkpoints, which has a slice of each tensor; a small model has one alone, whole."""

BESIDE = re.compile(
    r"^(optimizer.*|scheduler.*|sampler.*|rng_state.*|scaler|training_args|random_states.*|generator.*)$"
)
"""The names of files in which a training keeps what is not its model, without their endings."""

AGAIN = re.compile(r"last|best|latest|final", re.IGNORECASE)
"""What the names say of files that hold a checkpoint again."""

CHECKPOINT = re.compile(r"checkpoint|ckpt|step|epoch", re.IGNORECASE)
"""What the name of a folder says if it is meant to hold a checkpoint."""

DEEPSPEED = re.compile(r"^global_step\d+$")
"""Into which folder beside a model DeepSpeed saves its state."""

WITHIN = "pytorch_model_fsdp_0"
"""Into which folder of a checkpoint accelerate saves a model of several processes."""

ZERO = "zero_to_fp32.py"
"""What DeepSpeed leaves beside the parts of a checkpoint, to put them together."""

CARD = "merge.json"
"""What a mean is made of: the name of this file in its folder, and how it ends beside a mean that is a file."""

STEP_IN_NAME = re.compile(r"step[=_-]?(\d+)", re.IGNORECASE)
"""A number in a name that is a step for certain."""

COUNTS_IN_NAMES = (
    STEP_IN_NAME,
    re.compile(r"iter(?:ation)?[=_-]?(\d+)", re.IGNORECASE),
    re.compile(r"epoch[=_-]?(\d+)", re.IGNORECASE),
)
"""Numbers in names that say the order, the most certain first."""

IN_NAMES = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][\w/]*)=([-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf))")
"""A metric in a name, such as `val_loss=0.12`."""

NO_COUNT = re.compile(r"\d+(?:\.\d+)+|(?<![A-Za-z])(?:fp|bf|float|int)\d+")
"""A number in a name that counts nothing: a metric's `0.12`, a version, or a type such as `fp16`."""

DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")
"""A date in a name: `2024-05-30`, `2024_05_30` or `20240530`."""

CLOCK = re.compile(r"(?<!\d)(\d\d)[-_:h.](\d\d)(?:[-_:m.](\d\d))?(?!\d)")
"""A time of day in a name, whose parts stand apart: `22-05` or `22-05-59`."""


@dataclass(frozen=True)
class Ordered:
    """A checkpoint and the step that it is from; of a single one, nobody may know it."""

    checkpoint: Checkpoint
    step: int | None


def files_of(paths: Sequence[Path], say: Callable[[str], None]) -> list[Path]:
    """The files of the checkpoints that the paths name: files, folders of them, folders of such folders.

    Means that were merged before, and lie in a folder with what they are made of, are no checkpoints. A folder such as
    `checkpoint-500` without weights, which a training that was killed may leave beside others, is said.

    Raises `RunError` for a path that does not exist, and for a folder without checkpoints or with a link to nothing in
    the place of one.
    """
    checkpoints = list[Path]()
    for path in paths:
        if not path.exists():
            raise RunError(f"{path} does not exist{similar(path)}")
        if path.is_dir():
            checkpoints += _in_folder(path, say)
        else:
            checkpoints.append(path)
    unique = list(dict.fromkeys(checkpoints))
    if not unique:
        raise RunError("no checkpoint is named")
    return unique


def holds_checkpoints(folder: Path) -> bool:
    """Whether checkpoints lie in the folder."""
    return folder.is_dir() and bool(_in_folders_of(folder, unsaid) or _weights(folder, unsaid))


def unsaid(line: str) -> None:
    """Say nothing: it is said when other checkpoints are read."""


def _in_folder(folder: Path, say: Callable[[str], None]) -> list[Path]:
    """The checkpoints in a folder. Raises `RunError` if there are none, as means of an earlier merge are none."""
    checkpoints = _lying_in(folder, say)
    if checkpoints:
        return checkpoints
    means = [path for path in sorted(folder.iterdir()) if _is_mean(path)]
    if means:
        raise RunError(
            f"{folder} has no checkpoint but means of earlier merges: name those that you want, {some(means)}"
        )
    raise RunError(f"{folder} has no checkpoint: no file in it ends in {', '.join(ENDINGS)}")


def _lying_in(folder: Path, say: Callable[[str], None]) -> list[Path]:
    """The checkpoints in folders such as `checkpoint-500`, else the folder's own; empty if there are none.

    Raises `RunError` if there are both, and no folder is called like one of a checkpoint.
    """
    by_child = _in_folders_of(folder, say)
    if not by_child:
        return _weights(folder, say)
    beside = _files_in(folder)
    if beside and not any(CHECKPOINT.search(child.name) for child in by_child):
        both = f"{beside[0].name} and {next(iter(by_child)).name}"
        raise RunError(f"{folder} has checkpoints in files and in folders ({both}): name those that you want")
    if beside:
        say(f"left out, beside folders with checkpoints: {some(beside)}")
    return [path for paths in by_child.values() for path in paths]


def _in_folders_of(folder: Path, say: Callable[[str], None]) -> dict[Path, list[Path]]:
    """The checkpoints in each folder with a number in its name, such as `checkpoint-500`, if it has any."""
    by_child = dict[Path, list[Path]]()
    empty = list[Path]()
    without_number = list[Path]()
    for child in sorted(folder.iterdir()):
        if child.name.startswith(".") or BESIDE.match(child.name) or _is_mean(child):  # such as a killed merge's
            continue
        if _is_deepspeeds(child):
            continue
        if number_of(child.name) is None:
            if child.is_dir() and _files_in(child):
                without_number.append(child)
            continue
        if not child.suffix:
            _check_link(child)
        if not child.is_dir():
            continue
        weights = _weights(child, say)
        if weights:
            by_child[child] = weights
        elif CHECKPOINT.search(child.name):
            empty.append(child)
    if by_child and empty:
        say(f"left out, without weights: {some(empty)}")
    if by_child and without_number:
        say(f"left out, since nobody knows its step: {some(without_number)}")
    return by_child


def _is_deepspeeds(child: Path) -> bool:
    """Whether a folder has DeepSpeed's state of the model beside it, or the parts for the script beside it."""
    folder = child.parent
    return DEEPSPEED.match(child.name) is not None and ((folder / ZERO).is_file() or bool(_files_in(folder)))


def _weights(folder: Path, say: Callable[[str], None]) -> list[Path]:
    """The files with weights in a folder; an index, or a file of a known name, stands alone there, which is said.

    Raises `RunError` if the folder holds parts of a checkpoint without an index that can be read.
    """
    for place in (folder, folder / WITHIN):
        if (place / METADATA).is_file():
            return [place / METADATA]
    files = _files_in(folder)
    for ending in INDICES:
        indices = sorted(path for path in folder.glob(f"*{ending}") if not path.name.startswith("."))
        if indices:
            _say_beside(indices[0], [*files, *indices], say)
            return indices[:1]
    for path in files:
        _check_link(path)
    if not files and (folder / ZERO).is_file():
        raise RunError(
            f"{folder} has the parts of DeepSpeed's ZeRO: python {folder / ZERO} {folder} {folder} makes a model"
        )
    slices = [path for path in files if PART_OF_TENSORS.match(path.stem)]
    if len(slices) > 1:
        raise RunError(f"{some(slices)} are parts of one model, with slices of its tensors: put them together first")
    for name in MODELS:
        for path in files:
            if path.stem == name:
                _say_beside(path, files, say)
                return [path]
    for path in files:
        if SHARD.search(path.stem):
            raise RunError(f"{path} is a part of a checkpoint, and {folder} has no index of them (NAME{INDICES[0]})")
    return files


def _files_in(folder: Path) -> list[Path]:
    """The files in a folder that may have a model's weights, by their names, with links to nothing among them."""
    files = []
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(ENDINGS) or path.name.startswith(".") or BESIDE.match(path.stem):
            continue
        if not path.is_dir() and not _is_mean(path):
            files.append(path)
    return files


def _say_beside(taken: Path, files: Sequence[Path], say: Callable[[str], None]) -> None:
    """Say which files lie beside the one that is taken, and are none of its parts."""
    parts = {path.name for path in parts_of(taken)}
    others = [path for path in files if path.name not in parts]
    if others:
        say(f"left out, beside {taken}: {some(path.name for path in others)}")


def _is_mean(path: Path) -> bool:
    """Whether a file or a folder is the mean of an earlier merge, and so has its card."""
    return (path / CARD).is_file() or card_of(path).is_file()


def _check_link(path: Path) -> None:
    """Raise `RunError` for a link to nothing, such as one into a cache that was emptied: its model would be missing."""
    if path.is_symlink() and not path.exists():
        raise RunError(f"{path} is a link to nothing: remove it, or name the checkpoints that are there")


def card_of(path: Path) -> Path:
    """Where it is said what a mean at this path is made of."""
    return path.with_name(f"{path.name}.{CARD}")


def named_alone(paths: Sequence[Path]) -> set[Path]:
    """The checkpoints that are named one by one: each by its file, or by a folder that holds no other."""
    alone = set[Path]()
    for path in paths:
        checkpoints = [path]
        if path.is_dir():
            checkpoints = _lying_in(path, unsaid)
        if len(checkpoints) == 1:
            alone.update(checkpoints)
    return alone


def in_order(
    paths: Sequence[Path], key: str, say: Callable[[str], None], named: Collection[Path] = (), needed: bool = True
) -> list[Ordered]:
    """The checkpoints from the oldest to the newest: by the step in them, else by the number in the name.

    Copies of a model count once. None that was `named` one by one is left out for want of a step. If all were, and the
    order is not `needed`, they may do without it: then it is that in which they are named.

    Raises `RunError` if neither says the order, or if two models are from one step.
    """
    checkpoints = [open_checkpoint(path, key) for path in paths]
    entries = [Ordered(checkpoint, step_of(checkpoint)) for checkpoint in checkpoints]
    entries = _without_copies(entries, say)
    if len(entries) == 1:
        return entries
    entries = _without_unnumbered(entries, named, say)
    entries = _with_numbers(entries)
    disorder = _disorder(entries)
    if not disorder:
        by_step = {entry.step: entry for entry in entries if entry.step is not None}
        return [by_step[step] for step in sorted(by_step)]
    if needed or not all(entry.checkpoint.path in named for entry in entries):
        raise RunError(disorder)
    newest = entries[-1].checkpoint.path
    say(f"their steps say no order, and a plain mean needs none: {newest}, the last, counts as the newest")
    return entries


def initial_model(path: Path, key: str) -> Ordered:
    """The model at a path, from which a training began. Raises `RunError` unless it is a single one."""
    files = files_of([path], unsaid)
    if len(files) > 1:
        raise RunError(f"{path} holds {len(files)} checkpoints, and must be the one model that the training began with")
    return Ordered(open_checkpoint(files[0], key), None)


def chosen(ordered: Sequence[Ordered], last: int | None, every: int) -> list[Ordered]:
    """The last so many checkpoints, and of these every so many, counted back from the newest."""
    check_count("last", last)
    check_count("every", every)
    if last is not None and last > len(ordered):
        raise SettingError.at("last", last, f"must be at most {len(ordered)}, the number of checkpoints")
    newest = list(ordered)
    if last is not None:
        newest = newest[-last:]
    backwards = newest[::-1][::every]
    return backwards[::-1]


def step_of(checkpoint: Checkpoint) -> int | None:
    """The step that the file names, or the `trainer_state.json` beside a file that has its folder for itself."""
    if checkpoint.step is not None:
        return checkpoint.step
    if not has_folder(checkpoint.path):
        return None
    state = folder_of(checkpoint.path) / "trainer_state.json"
    if not state.is_file():
        return None
    try:
        step = json.loads(state.read_bytes()).get("global_step")
    except (ValueError, AttributeError):
        raise RunError(f"{state} is no JSON object") from None
    return whole_number(step)


def step_read(entry: Ordered) -> int:
    """The step of a checkpoint, as it says it itself: in the file, in `trainer_state.json`, or as `step` in its name.

    Raises `RunError` for one whose name has another number, which may count epochs.
    """
    path = entry.checkpoint.path
    step = step_of(entry.checkpoint)
    if step is not None:
        return step
    marked = STEP_IN_NAME.search(full_title(path))
    if marked is None:
        raise RunError(
            f"{path} does not say its step, which BEMA needs: in the file, a trainer_state.json or as step=500"
        )
    return int(marked[1])


def title_of(path: Path) -> str:
    """The name of a checkpoint: its file's without the ending, or its folder's where each has one."""
    if has_folder(path):
        return folder_of(path).name
    return path.stem


def has_folder(path: Path) -> bool:
    """Whether a checkpoint of this name has its folder for itself."""
    return path.stem in MODELS or has_parts(path)


def folder_of(path: Path) -> Path:
    """The folder that a checkpoint has for itself."""
    folder = path.absolute().parent
    if folder.name == WITHIN:
        return folder.parent
    return folder


def full_title(path: Path) -> str:
    """The name of a checkpoint; Lightning makes a folder of what stands before the `/` in the name of a metric."""
    title = title_of(path)
    folder = path.absolute().parent.name
    if "=" in folder and not has_folder(path):
        return f"{folder}/{title}"
    return title


def number_of_file(path: Path) -> int | None:
    """The number in a file's name, or in that of its folder where each checkpoint has one."""
    return number_of(full_title(path))


def number_of(name: str) -> int | None:
    """The number in a name that says the order: that of a step, an iteration or an epoch, else the last whole one.

    Those of metrics, such as `acc=87`, fractions and types say none. In a name with a date the digits of the date, and
    those of a time, stand before it.
    """
    for count in COUNTS_IN_NAMES:
        marked = count.search(name)
        if marked:
            return int(marked[1])
    without_metrics = IN_NAMES.sub("", name)
    date = DATE.search(without_metrics)
    if date is None:
        return _last_number(without_metrics)
    rest = f"{without_metrics[: date.start()]} {without_metrics[date.end() :]}"
    clock = CLOCK.search(rest)
    number = _last_number(CLOCK.sub("", rest))
    if not date[2] and clock is None and number is None:  # eight digits alone, which may be a step
        return int(date[0])
    time = 0
    if clock:
        time = int("".join(part or "00" for part in clock.groups()))
    day = int(date[1] + date[3] + date[4])
    return (day * 10**6 + time) * 10**10 + (number or 0)


def _last_number(name: str) -> int | None:
    """The last whole number in a name, if there is one."""
    numbers = re.findall(r"\d+", NO_COUNT.sub("", name))
    return int(numbers[-1]) if numbers else None


def _without_copies(entries: Sequence[Ordered], say: Callable[[str], None]) -> list[Ordered]:
    """The checkpoints, of which those with equal tensors count once, unless they are from different steps.

    One that has no step, or is called `best` or the like, gives way to the other.
    """
    step_at = {entry.checkpoint.path: _sure_step(entry) for entry in entries}
    different = list[Checkpoint]()
    for entry in sorted(entries, key=lambda entry: step_at[entry.checkpoint.path] is None or _is_again(entry)):
        checkpoint = entry.checkpoint
        step = step_at[checkpoint.path]
        rivals = [other for other in different if step is None or step_at[other.path] in (None, step)]
        same = [other.path for other in rivals if _hold_one_model(checkpoint, other)]
        if same:
            say(f"{checkpoint.path} holds the model of {same[0]}, and counts once")
        else:
            different.append(checkpoint)
    paths = {checkpoint.path for checkpoint in different}
    return [entry for entry in entries if entry.checkpoint.path in paths]


def _hold_one_model(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints have the same tensors."""
    if set(one.names) != set(other.names):
        return False
    for checkpoint in (one, other):
        check_numbers(checkpoint)
    return all(same_bits(one.tensor(name), other.tensor(name)) for name in one.names)


def _sure_step(entry: Ordered) -> int | None:
    """The step in a checkpoint or in its name; the number in a name such as `best-1` may count anything."""
    if entry.step is None and not _is_again(entry):
        return number_of_file(entry.checkpoint.path)
    return entry.step


def _is_again(entry: Ordered) -> bool:
    return AGAIN.search(title_of(entry.checkpoint.path)) is not None


def _without_unnumbered(
    entries: Sequence[Ordered], named: Collection[Path], say: Callable[[str], None]
) -> list[Ordered]:
    """Without `last`, `best` and the like that lie in a folder, if they have neither a step nor a number."""
    numbered = list[Ordered]()
    again = list[str]()
    for entry in entries:
        path = entry.checkpoint.path
        unnumbered = entry.step is None and number_of_file(path) is None
        if unnumbered and _is_again(entry) and path not in named:
            again.append(str(path))
        else:
            numbered.append(entry)
    if not numbered:
        raise RunError(f"{some(again)}: neither the files nor their names say their steps, such as model-500.pt")
    if again:
        say(f"left out, since nobody knows its step: {some(again)}")
    return numbered


def _with_numbers(entries: Sequence[Ordered]) -> list[Ordered]:
    """The checkpoints with the numbers in their names where some have no step, unless others have another step."""
    numbered = [Ordered(entry.checkpoint, number_of_file(entry.checkpoint.path)) for entry in entries]
    agree = all(entry.step in (None, other.step) for entry, other in zip(entries, numbered, strict=True))
    some_have_none = any(entry.step is None for entry in entries)
    if agree and some_have_none:
        return numbered
    return list(entries)


def _disorder(entries: Sequence[Ordered]) -> str:
    """Why the steps of checkpoints do not say their order; empty if they do."""
    by_step = dict[int, Path]()
    for entry in entries:
        path = entry.checkpoint.path
        if entry.step is None:
            return _without_step(path, entries)
        other = by_step.setdefault(entry.step, path)
        if other != path:
            return f"{other} and {path} are both from step {entry.step}: name one of them"
    return ""


def _without_step(path: Path, entries: Sequence[Ordered]) -> str:
    """What is wrong with a checkpoint that has no step, beside others that may have one."""
    for entry in entries:
        if entry.step is not None and number_of_file(entry.checkpoint.path) != entry.step:
            why = f"{entry.checkpoint.path} is from {entry.step}, and names count otherwise"
            return f"{path} does not say its step; {why}: leave it out"
    return f"{path}: neither the file nor its name says its step, such as model-500.pt"
