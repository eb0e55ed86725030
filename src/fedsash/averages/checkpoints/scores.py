"""The best checkpoints by a metric, which their names, their trainer's states or a file in JSON say."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...settings.errors import RunError, SettingError, check, check_choice, check_count, some
from ...system.paths import plain_file
from .formats import whole_number
from .order import IN_NAMES, Ordered, folder_of, full_title, has_folder, title_of

LOWER = {"loss", "error", "err", "perplexity", "ppl", "nll", "mse", "rmse", "mae", "wer", "cer", "fid"}
"""Words in the names of metrics of which the lower value is the better one."""

HIGHER = {
    "accuracy",
    "acc",
    "f1",
    "auc",
    "auroc",
    "bleu",
    "rouge",
    "rougel",
    "map",
    "iou",
    "miou",
    "precision",
    "recall",
}
"""Words in the names of metrics of which the higher value is the better one."""

STEP_NAMES = ("step", "global_step")
"""What a row of a history calls its step."""

Metrics = dict[str, float]
"""The numbers that belong to a checkpoint, by the names of the metrics."""


def best(
    ordered: Sequence[Ordered], count: int, by: str, mode: str, file: Path | None, say: Callable[[str], None]
) -> list[Ordered]:
    """The `count` best checkpoints by the metric `by`, from the oldest to the newest; of equal ones, the newer.

    The numbers are those in `file`, if one is named, else those in the names (`val_loss=0.12`), else those in the
    trainers' states. One that is NaN is never the best. `mode` is `min` or `max`; if it is empty, the metric's name
    must say which is better.

    Raises `SettingError` if it does not say it, or if there are fewer numbers, and `RunError` if one is missing.
    """
    check_count("best", count)
    check(bool(by), "by", by, "must name the metric by which the best are chosen")
    lower = _lower_is_better(by, mode)
    numbers = []
    for entry, score in zip(ordered, _scores(ordered, by, file, say), strict=True):
        if math.isnan(score):
            say(f"left out, since its {by} is NaN: {entry.checkpoint.path}")
        else:
            numbers.append((score, entry))
    if count > len(numbers):
        raise SettingError.at("best", count, f"must be at most {len(numbers)}, the number of checkpoints with a {by}")
    numbers.reverse()  # of equal ones, the newer comes first
    numbers.sort(key=lambda pair: pair[0], reverse=not lower)
    chosen = numbers[:count]
    for score, entry in numbers[count:]:
        if score == chosen[-1][0]:
            say(f"{entry.checkpoint.path} is as good as the last of the best, and older: it is left out")
    direction = "lower" if lower else "higher"
    say(f"chosen by {by}, the {direction} the better: {some(score for score, _ in chosen)}")
    paths = {entry.checkpoint.path for _, entry in chosen}
    return [entry for entry in ordered if entry.checkpoint.path in paths]


def _lower_is_better(by: str, mode: str) -> bool:
    """Whether the lowest number is the best. Raises `SettingError` if nobody says it."""
    check_choice("mode", mode, "", "min", "max")
    if mode:
        return mode == "min"
    words = set(re.split(r"[^a-z0-9]+", by.lower()))
    words |= {word.rstrip("0123456789") for word in words}
    lower = bool(words & LOWER)
    higher = bool(words & HIGHER)
    if lower == higher:
        raise SettingError.at("by", by, "does not say whether lower or higher is better: add the mode, min or max")
    return lower


def _scores(ordered: Sequence[Ordered], by: str, file: Path | None, say: Callable[[str], None]) -> list[float]:
    """The metric of each checkpoint. Raises `RunError` if one has none; says if it is an average's."""
    if file is None:
        place = "neither its name nor a trainer_state.json"
        metrics = _from_names_and_states(ordered)
    else:
        place = f"no entry of {file}"
        metrics = _from_file(file, ordered)
    scores = []
    for entry, known in zip(ordered, metrics, strict=True):
        if by not in known:
            line = f"{entry.checkpoint.path}: {place} says its {by}; known: {some(known) or 'nothing'}"
            if file is not None:
                line += f"; an entry is {json.dumps({title_of(entry.checkpoint.path): {by: 0.12}})}"
            raise RunError(line)
        scores.append(known[by])
    _say_whose(metrics, by, say)
    return scores


def _say_whose(metrics: Sequence[Metrics], by: str, say: Callable[[str], None]) -> None:
    """Say if numbers are those of an average that was in the model's place, as `fedsash`'s trainers note it."""
    owners = dict[str, None]()
    for known in metrics:
        for name in known:
            owner = name.removeprefix(f"{by}_of_")
            if owner not in (name, "model"):
                owners[owner] = None
    if owners:
        say(f"{by} is that of the average {some(owners)}, which was evaluated in place of the checkpoints' models")


def _from_names_and_states(ordered: Sequence[Ordered]) -> list[Metrics]:
    """The metrics of each checkpoint; what its name says goes before what a trainer's state says."""
    by_step = dict[int, Metrics]()
    for entry in ordered:
        path = entry.checkpoint.path
        state = folder_of(path) / "trainer_state.json"
        if has_folder(path) and state.is_file():
            for step, metrics in _rows(_json(state), state).items():
                by_step[step] = metrics | by_step.get(step, {})  # a step's own state goes before later ones
    metrics_of_each = []
    for entry in ordered:
        in_name = {name: float(number) for name, number in IN_NAMES.findall(full_title(entry.checkpoint.path))}
        in_state = {} if entry.step is None else by_step.get(entry.step, {})
        metrics_of_each.append(in_state | in_name)
    return metrics_of_each


def _from_file(file: Path, ordered: Sequence[Ordered]) -> list[Metrics]:
    """The metrics of each checkpoint in a file: `{NAME: {METRIC: NUMBER}}`, or rows that have a step.

    A NAME is that of the checkpoint's file, with or without its ending, or of its folder, or its step.
    """
    content = _json(file)
    if isinstance(content, list) or "log_history" in content:
        by_step = _rows(content, file)
        return [{} if entry.step is None else by_step.get(entry.step, {}) for entry in ordered]
    metrics = []
    for entry in ordered:
        path = entry.checkpoint.path
        known = Metrics()
        for name in (str(entry.step), title_of(path), path.name):
            values = content.get(name, {})
            if not isinstance(values, Mapping):
                raise RunError(f"{file}: {name} must be an object of metrics, such as {{'val_loss': 0.12}}")
            known |= _numbers(values)
        metrics.append(known)
    return metrics


def _json(file: Path) -> Any:
    try:
        content = json.loads(plain_file(file).read_bytes())
    except ValueError:
        raise RunError(f"{file} is not in JSON") from None
    if not isinstance(content, dict | list):
        raise RunError(f"{file} must be a JSON object, or a list of rows with a step")
    return content


def _rows(content: Any, file: Path) -> dict[int, Metrics]:
    """The metrics of each step in a history: a list of rows, or the `log_history` of a trainer's state."""
    if isinstance(content, dict):
        content = content.get("log_history", [])
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise RunError(f"{file}: its history must be a list of rows, such as {{'step': 500, 'eval_loss': 0.12}}")
    by_step = dict[int, Metrics]()
    for row in content:
        for name in STEP_NAMES:
            step = whole_number(row.get(name))
            if step is not None:
                by_step.setdefault(step, {}).update(_numbers(row))
    return by_step


def _numbers(values: Mapping[str, Any]) -> Metrics:
    numbers = Metrics()
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = float(value)
    return numbers
