"""The tables: settings, results of runs, who was missing, cost, and reproductions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....evaluation import SPLITS
from ....runs.client_results import HEADS, client_rows, counted
from ....runs.pictures.curves import capital
from ....runs.table import leader
from ....settings.errors import RunError, some
from ....system.files import flat
from ....tasks.criterion import UNKNOWN
from ...config.experiment import CARRIED_OUT
from ..collect import Analysis, CollectedRun
from ..comparison import GAIN, Row
from .markup import MISSING, Html, join, table, tag
from .seeds import labels_text

MINUS = "\N{MINUS SIGN}"
NUMBER = re.compile(rf"[+{MINUS}-]?\d")
MOST_MISSING = 100
"""The most rows of missing clients that are shown of a run: the clients that missed most rounds."""
MOST_SPANS = 8
"""The most parts of a list of rounds, such as "1, 3 to 5"; the rest is left out."""
GLANCE = {
    "data": "data",
    "transform": "transform",
    "partition": "partition",
    "model": "model",
    "method": "method",
    "clients train with": "local",
    "who takes part": "sampling",
    "server": "server",
    "broadcast": "broadcast",
    "scheduler": "scheduler",
    "rounds": "rounds",
    "seed": "seed",
}
"""The main settings: what the page calls them, and their keys."""


def common(runs: Sequence[CollectedRun]) -> list[tuple[str, str]]:
    """The main settings that are the same in all runs."""
    pairs = []
    for title, key in GLANCE.items():
        texts = {_glance(run.settings.get(key)) for run in runs}
        if len(texts) == 1 and (text := texts.pop()):
            pairs.append((title, text))
    return pairs


def _glance(value: Any) -> str:
    """A table as `name, key value, key value`."""
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return str(value)
    words = []
    if value.get("name"):
        words.append(str(value["name"]))
    for key, inner in value.items():
        if inner and not isinstance(inner, Mapping | str):
            words.append(f"{key} {json.dumps(inner, default=str)}")
    return ", ".join(words)


def differing(runs: Sequence[CollectedRun]) -> Html:
    """The axes of sweeps and the settings in which runs differ."""
    settings = {run.name: _labels(run) | _settings(run) for run in runs}
    all_keys = dict.fromkeys(key for of_run in settings.values() for key in of_run)
    keys = []
    for key in all_keys:
        different = {of_run.get(key, MISSING) for of_run in settings.values()}
        if len(different) > 1:
            keys.append(key)
    rows = []
    caption = "Each run's own settings"
    for name, of_run in settings.items():
        values = [of_run.get(key, MISSING) for key in keys]
        rows.append([name, *values])
    if any(MISSING in row for row in rows):
        caption += f"; {MISSING} is a setting that a run does not have"
    return table(caption, ["run", *keys], [(None, rows)], texts=len(keys) + 1)


def _settings(run: CollectedRun) -> dict[str, str]:
    """The settings of what a run computes; an engine's precision changes numbers by more than rounding."""
    settings = {key: value for key, value in run.settings.items() if key not in CARRIED_OUT}
    engine = run.config.get("engine", {})
    if "precision" in engine:
        settings["engine"] = {"precision": engine["precision"]}
    texts = {}
    for key, value in flat(settings):
        texts[key] = value if isinstance(value, str) else json.dumps(value, default=str)
    return texts


def _labels(run: CollectedRun) -> dict[str, str]:
    """The run's labels on its sweep's axes. An axis that is a setting is left out."""
    settings = dict(flat(run.config))
    return {axis: label for axis, label in run.labels.items() if axis not in settings}


def overview(runs: Sequence[CollectedRun]) -> Html:
    """One row for each run: the mean of each model over the last evaluations. One metric decides all runs."""
    models = list(dict.fromkeys(model for run in runs for model in run.summary["models"]))
    rows = []
    for run in runs:
        summaries = run.summary["models"]
        lead = leader(summaries, run.curves.criterion)
        row = [run.name]
        for model in models:
            if model in summaries:
                row.append(_best(_mean(run, summaries[model]), model == lead))
            else:
                row.append(MISSING)
        rows.append(row)
    caption = f"{_unit(runs)}, mean ± standard deviation over {_last(runs)}; each run's best in bold"
    return table(caption, ["run", *models], [(None, rows)])


def results(runs: Sequence[CollectedRun]) -> Html:
    """A row for each model of each run. One metric decides all runs."""
    heads = ["model", "at the end", "mean ± std", "best", "in round", "gain", "rounds to target", "target"]
    groups = [(_name_among(runs, run), _rows(run)) for run in runs if run.summary["models"]]
    points = ", in percentage points" if runs[0].curves.criterion.share else ""
    caption = (
        f"{_unit(runs)}. Mean and standard deviation are those over {_last(runs)}, the gain is how much better that "
        f"mean is than the model's own{points}. The best round was chosen on {_chosen_on(runs)}."
    )
    return table(caption, heads, groups)


def _name_among(runs: Sequence[CollectedRun], run: CollectedRun) -> str | None:
    """The name of a group of rows that are one run's; None if the table is of this run only."""
    return run.name if len(runs) > 1 else None


def over_seeds(rows: Sequence[Row]) -> Html:
    """The comparison of runs that differ only in their seed."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(labels_text(row.labels), []).append(row)
    caption = (
        f"{capital(rows[0].decided.title)}: mean over the seeds of each run's mean, with the sample's standard "
        "deviation. The gain is how much better it is than the global model of the same run, with Student's interval "
        "over the seeds. Shares are in per cent, their gains in percentage points; each setting's best mean is in bold."
    )
    named: list[tuple[str | None, list[list[str]]]] = []
    for setting, of_setting in groups.items():
        name = setting if len(groups) > 1 else None
        named.append((name, _over_seeds(of_setting)))
    return table(caption, ["model", "seeds", "mean ± std", GAIN], named)


def missing(runs: Sequence[CollectedRun]) -> Html | None:
    """A row for each client and reason, and one for each reason why rounds were skipped. None if all answered."""
    groups = []
    for run in runs:
        rows = _missing(run)
        if rows:
            groups.append((_name_among(runs, run), rows))
    if not groups:
        return None
    caption = (
        f"Rounds from which clients are missing. Of each run the {MOST_MISSING} rows with the most rounds are shown."
    )
    return table(caption, ["client", "why", "how many rounds", "which"], groups, texts=2)


def _missing(run: CollectedRun) -> list[list[str]]:
    """The rows of one run: those of most rounds first, `MOST_MISSING` at most."""
    rounds: dict[tuple[str, str], list[int]] = {}
    for round, problems in run.problems.items():
        reasons = [(str(client), reason) for client, reason in problems.missing.items()]
        reasons += [(str(client), "upload refused: not finite, or too long") for client in problems.refused]
        if problems.skipped:
            reasons.append(("all", f"round skipped: {problems.skipped}"))
        for reason in dict.fromkeys(reasons):  # a client may be refused several times within a step of the server
            rounds.setdefault(reason, []).append(round)
    most = sorted(rounds.items(), key=lambda item: -len(item[1]))[:MOST_MISSING]
    rows = []
    for (client, why), missed in most:
        rows.append([client, why, str(len(missed)), _spans(missed)])
    return rows


def _spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, such as "1, 3 to 5"; at most `MOST_SPANS` parts."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in parts]
    if len(texts) > MOST_SPANS:
        texts = [*texts[:MOST_SPANS], "..."]
    return ", ".join(texts)


def cost(runs: Sequence[CollectedRun]) -> Html | None:
    """Time and memory of each run that has ended. None without runs."""
    if not runs:
        return None
    heads = ["run", "device", "engine", "rounds", "time", "seconds a round", "samples a second", "peak memory"]
    rows = []
    for run in runs:
        summary = run.summary
        seconds = summary.get("seconds")
        samples_per_second = summary.get("samples_per_second")
        memory = summary.get("peak_memory_bytes")
        row = {head: MISSING for head in heads}
        row["run"] = run.name
        row["device"] = str(summary.get("device", MISSING))
        row["engine"] = _engine(summary.get("engine"))
        row["rounds"] = str(run.rounds)
        row["time"] = duration(seconds)
        if seconds and run.rounds:
            row["seconds a round"] = f"{seconds / run.rounds:.3g}"
        if samples_per_second:
            row["samples a second"] = f"{samples_per_second:,.0f}"
        if memory:
            row["peak memory"] = f"{memory / 2**20:,.0f} MiB"
        rows.append(list(row.values()))
    caption = "Evaluation included. A run that has not ended has not said yet."
    return table(caption, heads, [(None, rows)], texts=3)


def network(runs: Sequence[CollectedRun]) -> Html:
    """The numbers of the simulated network for each run."""
    heads = ["run", "time, s", "trips", "arrived", "failed uploads", "MB up", "MB down", "waiting, s", "staleness"]
    rows = [[run.name, *_on_network(run)] for run in runs]
    caption = (
        "Time is simulated, or real if the clients were on nodes; a trip is one client's training and upload. Waiting "
        "is an upload's time beyond what it takes alone, staleness the server's steps since the client's model: means "
        "over the uploads that arrived."
    )
    return table(caption, [*heads, "link in use"], [(None, rows)])


def _on_network(run: CollectedRun) -> list[str]:
    """The cells of a run after its name: its measures at the end, or those of its last evaluation so far.

    A run over real nodes has no waiting and no use of a link.
    """
    last = run.summary.get("network") or run.network[max(run.network)].measures
    waiting = MISSING
    link_use = MISSING
    if "waiting" in last:
        waiting = f"{last['waiting']:.3g}"
    if "link_use" in last:
        link_use = f"{100 * last['link_use']:.0f} %"
    return [
        f"{last['time']:,.1f}",
        f"{last['trips']:,}",
        f"{last['arrived']:,}",
        f"{last['failed_uploads']:,}",
        f"{last['bytes_up'] / 1e6:,.2f}",
        f"{last['bytes_down'] / 1e6:,.2f}",
        waiting,
        f"{last['staleness']:.2f}",
        link_use,
    ]


def over_clients(runs: Sequence[CollectedRun]) -> Html:
    """A row for each model of each run on each split that clients score. One metric decides all runs."""
    criterion = runs[0].curves.criterion
    groups = []
    for run in runs:
        for split, models in run.summary["over_clients"].items():
            title = capital(SPLITS[split])
            if len(runs) > 1:
                title = f"{run.name}, {SPLITS[split]}"
            rows = []
            for model, *numbers in client_rows(models, criterion, 2):
                rows.append([model, *map(signed, numbers)])
            groups.append((f"{title}: {counted(models)}", rows))
    unit = " in per cent" if criterion.share else ""
    caption = (
        f"{capital(criterion.name)} of each client{unit}: means over {_last(runs)}. All clients count the same. The "
        "worst tenth is the mean of the worst 10 % of the clients, at least one; the gain is how much better it is "
        "than the model's own. The spread is the standard deviation over the clients."
    )
    return table(caption, HEADS, groups)


def privacy(runs: Sequence[CollectedRun]) -> Html:
    """What each run has spent of its clients' privacy."""
    rows = []
    for run in runs:
        privacy = run.summary["privacy"]
        epsilon = "infinite" if privacy["epsilon"] is None else f"{privacy['epsilon']:.3g}"
        rows.append([run.name, epsilon, f"{privacy['delta']:.2g}", str(privacy["round"]), privacy["neighbours"]])
    caption = (
        "Differential privacy of each client, for all models up to this round. The server is trusted, and the rows of "
        "one client in several runs add up."
    )
    return table(caption, ["run", "epsilon", "delta", "after round", "for"], [(None, rows)])


def versions(runs: Sequence[CollectedRun]) -> Html | None:
    """The software versions of the runs. Runs with the same versions share a row. None without runs."""
    if not runs:
        return None
    runs_by_versions: dict[str, list[str]] = {}
    versions_by_text: dict[str, dict[str, Any]] = {}
    for run in runs:
        versions = run.summary.get("versions") or {}
        text = json.dumps(versions, sort_keys=True)
        runs_by_versions.setdefault(text, []).append(run.name)
        versions_by_text[text] = versions
    packages = list(dict.fromkeys(name for versions in versions_by_text.values() for name in versions))
    rows = []
    for text, names in runs_by_versions.items():
        label = some(names)
        if len(runs_by_versions) == 1 and len(runs) > 1:
            label = "all runs"
        cells = [str(versions_by_text[text].get(package, MISSING)) for package in packages]
        rows.append([label, *cells])
    return table("Versions, as the runs recorded them", ["runs", *packages], [(None, rows)], texts=9)


def reproduction(result: Analysis) -> Html:
    """A reproduction's table, with published and measured numbers in the reproduction's layout.

    Raises `ValueError` if the data are not a table.
    """
    columns = result.content.get("columns")
    rows = result.content.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list) or not columns:
        raise RunError("it must have columns and rows")
    if any(not isinstance(row, list) or len(row) != len(columns) for row in rows):
        raise RunError(f"each row must have {len(columns)} cells")
    cells = [list(map(cell, row)) for row in rows]
    heads = [str(column) for column in columns]
    texts = _text_columns(cells, len(columns))
    return table("Published numbers beside those measured here", heads, [(None, cells)], texts=texts)


def _text_columns(rows: Sequence[Sequence[str]], columns: int) -> int:
    """How many columns come before the first one with a number. The first column is always a name."""
    for column in range(1, columns):
        if any(NUMBER.match(row[column]) for row in rows):
            return column
    return columns


def cell(value: Any) -> str:
    """A reproduction's value as text."""
    if value is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", MINUS)
    return str(value)


def signed(text: str) -> str:
    """A number as text, with a true minus sign."""
    if text == UNKNOWN:
        return MISSING
    return text.replace("-", MINUS)


def duration(seconds: float | None) -> str:
    """Seconds as hours, minutes and seconds."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _over_seeds(rows: Sequence[Row]) -> list[list[str]]:
    """The rows of one setting. Only models of the same seeds, as many as there are, can be the best."""
    most_seeds = max((row.values.keys() for row in rows), key=len)
    means = {row.model: row.mean for row in rows if row.values.keys() == most_seeds}
    lead = None
    if len(means) > 1:
        lead = rows[0].decided.criterion.best(means)
    cells = []
    for row in rows:
        mean = _best(signed(row.mean_text(2)), row.model == lead)
        cells.append([row.model, str(len(row.values)), mean, signed(row.gain_text(2))])
    return cells


def _rows(run: CollectedRun) -> list[list[str]]:
    """A row for each model of a run, with the heads of `results`."""
    models: dict[str, dict[str, Any]] = run.summary["models"]
    criterion = run.curves.criterion
    lead = leader(models, criterion)
    rows = []
    for name, model in models.items():
        best = model.get("best") or {}
        gain = None if name == "model" else model.get("gain")
        rounds_to_target = MISSING
        target = MISSING
        if criterion.target is not None:
            reached = model.get("rounds_to_target")
            rounds_to_target = "not reached" if reached is None else str(reached)
            target = criterion.plain(criterion.target)
        rows.append(
            [
                name,
                signed(criterion.spread(model.get("value"), None, 2)),
                _best(_mean(run, model), name == lead),
                signed(criterion.spread(best.get("value"), None, 2)),
                str(best.get("round", MISSING)),
                signed(criterion.spread(gain, None, 2, sign="+")),
                rounds_to_target,
                target,
            ]
        )
    return rows


def _mean(run: CollectedRun, model: dict[str, Any]) -> str:
    return signed(run.curves.criterion.spread(model.get("last_mean"), model.get("last_std"), 2))


def _unit(runs: Sequence[CollectedRun]) -> str:
    """What the numbers of runs are that one metric decides."""
    decided = runs[0].curves
    title = capital(decided.title)
    return f"{title} in per cent" if decided.criterion.share else title


def _chosen_on(runs: Sequence[CollectedRun]) -> str:
    """The splits on which best rounds were chosen."""
    splits = set()
    for run in runs:
        for model in run.summary["models"].values():
            if model.get("best"):
                splits.add(model["best"]["chosen_on"])
    if not splits:
        return SPLITS["test"]
    return " and ".join(SPLITS[split] for split in sorted(splits))


def _best(text: str, best: bool) -> str:
    """The text of a cell, marked if it is the best."""
    if not best:
        return text
    return tag("strong", text, join([" ", tag("span", "(best)", class_="unseen")]))


def _last(runs: Sequence[CollectedRun]) -> str:
    numbers = sorted({run.summary["averaged"] for run in runs})
    return f"the last {' or '.join(map(str, numbers))} evaluations"


def _engine(engine: dict[str, Any] | None) -> str:
    """The engine of a run in words: its kind, and how many workers or actors it had."""
    if not engine:
        return MISSING
    kind = engine.get("kind")
    if kind == "ray":
        actors = engine.get("actors")
        return f"ray, {actors} actors" if actors else "ray"
    workers = engine.get("workers")
    plural = "" if workers == 1 else "s"
    compiled = ", compiled" if engine.get("compile") else ""
    return f"{kind}, {workers} worker{plural}{compiled}"
