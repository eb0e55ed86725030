"""The summary of a run: means over the last evaluations, best rounds, and what the run took."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from ..evaluation import Chronicle, Curves, Evaluation, History, last_rounds, mean_or_none
from ..server.federation import Federation
from ..server.state import State
from ..settings.errors import RunError, SettingError
from ..system import files
from ..system.machine import versions
from ..system.posix import forget_peak_memory, peak_memory
from ..tasks import Criterion
from .client_results import CLIENTS
from .cures import remake
from .tally import Tally

GOAL = "goal.json"
"""The file of a run that says which number decides, over how many evaluations, and on what: see `goal_content`."""


def goal_content(criterion: Criterion, evaluation: Evaluation) -> dict[str, Any]:
    """The content of `goal.json`: the fields of the criterion, and the evaluation's `last` and `best_on`."""
    return asdict(criterion) | {"last": evaluation.last, "best_on": evaluation.best_on}


def goal_of(folder: Path) -> tuple[Criterion, Evaluation]:
    """The criterion of the run in a folder, and its evaluation, of which only `last` and `best_on` are known.

    Raises `RunError` if the file is lost or damaged.
    """
    file = folder / GOAL
    table = run_table(file)
    if table is None:
        raise RunError(f"{file} is missing: {remake(folder)}")
    names = [*(field.name for field in fields(Criterion)), "last", "best_on"]
    try:
        if table.keys() != set(names):
            raise KeyError
        evaluation = Evaluation(last=table.pop("last"), best_on=table.pop("best_on"))
        return Criterion(**table), evaluation
    except (KeyError, TypeError, SettingError):
        raise RunError(f"{file} is damaged: it must have the fields {', '.join(names)}; {remake(folder)}") from None


def run_table(file: Path) -> dict[str, Any] | None:
    """The content of a JSON table in a run's folder, None if it is not there.

    Raises `RunError` if it is damaged, and says what to do.
    """
    try:
        return files.table(file, sealed=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except RunError as error:
        cure = "remove it" if file.name == CLIENTS else remake(file.parent)  # an evaluation writes it
        raise RunError(f"{error}; {cure}") from None


def summary(
    federation: Federation,
    state: State,
    tally: Tally,
    history: History,
    chronicle: Chronicle | None,
    stopped: str,
) -> dict[str, Any]:
    """The content of `summary.json`. The `federation` must still be at work, so that its processes' memory is counted.

    `stopped` says why a callback has stopped the run, or is empty.
    """
    criterion = federation.goal.criterion
    best_rounds = {name: best.round for name, best in tally.best.items()}
    result: dict[str, Any] = {}
    if chronicle is not None:
        result |= chronicle.summary(history, criterion)
    ended_early = stopped or result.get("ended_early", "")
    result |= summarise(history, federation.evaluation, criterion, best_rounds)
    samples_per_second = None
    if tally.training_seconds:
        samples_per_second = tally.samples / tally.training_seconds
    result |= {
        "stuck": history.stuck(state.round),
        "ended_early": ended_early,
        "rounds": state.round,
        "seconds": tally.seconds,
        "samples_per_second": samples_per_second,
        "peak_memory_bytes": _peak_memory(federation),
        "versions": versions() | {"torch": str(torch.__version__)},  # which names its build, too
        "device": str(state.w.device),
        "engine": federation.described(),
        "seed": federation.seed,
    }
    return result


def summarise(
    history: History,
    evaluation: Evaluation,
    criterion: Criterion,
    kept: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A run's results: its `metric`, those of all `models`, and the model that was `chosen` on held-out data.

    An average that the run observes no more is left out. `kept` has the rounds whose models the run keeps as the best
    of their names; those of other models are found in the history, which may begin before a fork.

    `metric` has the fields of the criterion, and the `split` on which models are compared. Each model has:

    - `value`: at the last evaluation.
    - `last_mean`, `last_std`: mean and population standard deviation (dividing by n) of the values at the run's last
      `evaluation.last` evaluations, or at all if there are fewer. This is the deviation over rounds, not over seeds. An
      average that begins among them has none, since it could not be compared.
    - `best`: `{"round", "value", "chosen_on"}`, the first round that is best on `evaluation.best_on`, or, without
      held-out data, on the split on which models are compared, and the value of this round.
    - `rounds_to_target`: the first evaluated round that reaches the criterion's target. None if there is no such round.
    - `gain`: how much better `last_mean` is than that of `"model"`.

    `over_clients` has the same means of the numbers over clients, by split and model (see `History.over_clients`).
    `averaged` is the number of evaluations that the means are of.
    A number is None if a value that is not finite makes it undefined. `chosen` is the model with the best mean on
    held-out data over the last evaluations, and None without such data. `privacy` is what was spent, with the
    fields of `Privacy` and the `round`; None if the aggregation does not protect clients.
    """
    kept = kept or {}
    curves = history.curves(criterion)
    held_out = history.curves(criterion, "held_out")
    deciding = curves
    if held_out and evaluation.best_on == "held_out":
        deciding = held_out
    models = {}
    last = last_rounds(curves.models, evaluation.last)
    for model, points in curves.models.items():
        if last[-1] not in points:
            continue
        best = _best(points, deciding.models.get(model, {}), criterion, kept.get(model))
        if best is not None:
            best["chosen_on"] = deciding.split
        models[model] = _summarise(points, last, criterion)
        models[model]["best"] = best
    base = models.get("model", {}).get("last_mean")
    for of_model in models.values():
        mean = of_model["last_mean"]
        of_model["gain"] = None
        if mean is not None and base is not None:
            of_model["gain"] = criterion.gain(mean, base)
    return {
        "metric": asdict(criterion) | {"split": curves.split},
        "models": models,
        "averaged": len(last),
        "over_clients": history.over_clients(evaluation.last),
        "chosen": _chosen(held_out, models, evaluation, criterion),
        "privacy": _privacy(history),
    }


def _chosen(held_out: Curves, models: Collection[str], evaluation: Evaluation, criterion: Criterion) -> str | None:
    """Which of the `models` has the best mean on held-out data over the last evaluations; None without such data.

    A model that was not evaluated at all of them can't be chosen.
    """
    last = last_rounds(held_out.models, evaluation.last)
    means = {}
    for model, points in held_out.models.items():
        if model in models and points.keys() >= set(last):
            means[model] = fmean(points[round] for round in last)
    best: str | None = criterion.best(means)
    return best


def forget_peaks() -> None:
    """Begin to measure the peak of memory anew: a process may train one run after another."""
    forget_peak_memory()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak_memory(federation: Federation) -> int | None:
    """The peak of memory in this session, in bytes; None if unknown.

    It is that of this process, of the federation's subprocesses and on a GPU.
    """
    peak = peak_memory()
    if peak is None:
        return None
    if torch.cuda.is_available():
        peak += torch.cuda.max_memory_allocated()
    return peak + federation.memory()


def metric_of(summary: Mapping[str, Any]) -> Criterion:
    """The criterion of a summary."""
    return Criterion(**{name: value for name, value in summary["metric"].items() if name != "split"})


def over(summary: Mapping[str, Any], rounds: int) -> bool:
    """Whether the run of this summary has ended, with so many `rounds` or early."""
    return bool(summary.get("ended_early")) or summary["rounds"] >= rounds


def stuck_text(since: Mapping[str, Any]) -> str:
    """Since when a run is stuck, in words. `since` is as in `History.stuck`."""
    hint = "; lower local.lr, or scale features and labels" if "not finite" in since["why"] else ""
    return f"stuck since round {since['round']}: {since['why']}{hint}"


def privacy_text(privacy: Mapping[str, Any]) -> str:
    """What a run has spent of its clients' privacy, as a sentence. `privacy` is as in `summarise`."""
    epsilon = privacy["epsilon"]
    delta = privacy["delta"]
    if epsilon is None or math.isinf(epsilon):
        return "no client is protected: the noise is 0"
    spent = f"epsilon = {epsilon:.3g} at delta = {delta:.2g}"
    return f"privacy after round {privacy['round']}: {spent}, for {privacy['neighbours']}"


def _privacy(history: History) -> dict[str, Any] | None:
    spent = history.privacy
    if spent is None:
        return None
    return {"round": spent.round, "epsilon": spent.epsilon, "delta": spent.delta, "neighbours": spent.neighbours}


def _summarise(points: Mapping[int, float], last: Sequence[int], criterion: Criterion) -> dict[str, Any]:
    """A model's numbers at the `last` rounds of evaluation, and the first round that reached the target."""
    values = [points.get(round, math.nan) for round in last]
    mean = mean_or_none(values)
    reached = [round for round, value in points.items() if criterion.reached(value)]
    return {
        "value": values[-1] if math.isfinite(values[-1]) else None,
        "last_mean": mean,
        "last_std": None if mean is None else pstdev(values),
        "rounds_to_target": reached[0] if reached else None,
    }


def _best(
    points: Mapping[int, float], deciding: Mapping[int, float], criterion: Criterion, kept: int | None
) -> dict[str, Any] | None:
    """The round that is `kept` as the best, or else is best by the deciding values, and its value.

    None if there is no such round, or its value is not finite.
    """
    round = kept
    if round is None:
        round = criterion.best({round: value for round, value in deciding.items() if round in points})
    if round is None:
        return None
    value = points.get(round, math.nan)
    if not math.isfinite(value):
        return None
    return {"round": round, "value": value}
