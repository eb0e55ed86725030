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
"""So many rows of missing clients are shown of each run, those of most rounds."""
MOST_SPANS = 8
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
    words = [str(value["name"])] if value.get("name") else []
    for key, inner in value.items():
        if inner and not isinstance(inner, Mapping | str):
            words.append(f"{key} {json.dumps(inner, default=str)}")
    return ", ".join(words)


def differing(runs: Sequence[CollectedRun]) -> Html:
    """The axes of sweeps and the settings in which runs differ."""
    settings = {run.name: _labels(run) | _settings(run) for run in runs}
    keys = dict.fromkeys(key for of_run in settings.values() for key in of_run)
    apart = [key for key in keys if len({of_run.get(key, MISSING) for of_run in settings.values()}) > 1]
    rows = [[name, *(of_run.get(key, MISSING) for key in apart)] for name, of_run in settings.items()]
    dash = f"; {MISSING} is a setting that a run does not have" if any(MISSING in row for row in rows) else ""
    return table(f"Each run's own settings{dash}", ["run", *apart], [(None, rows)], texts=len(apart) + 1)


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
        of_run = run.summary["models"]
        lead = leader(of_run, run.curves.criterion)
        rows.append([run.name, *(_best(_mean(run, of_run[m]), m == lead) if m in of_run else MISSING for m in models)])
    caption = f"{_unit(runs)}, mean ± standard deviation over {_last(runs)}; each run's best in bold"
    return table(caption, ["run", *models], [(None, rows)])


def results(runs: Sequence[CollectedRun]) -> Html:
    """A row for each model of each run. One metric decides all runs."""
    heads = ["model", "at the end", "mean ± std", "best", "in round", "gain", "rounds to target", "target"]
    groups = [(run.name if len(runs) > 1 else None, _rows(run)) for run in runs if run.summary["models"]]
    caption = (
        f"{_unit(runs)}. Mean and standard deviation are those over {_last(runs)}, the gain is how much better that "
        f"mean is than the model's own{', in percentage points' if runs[0].curves.criterion.share else ''}. "
        f"The best round was chosen on {_chosen_on(runs)}."
    )
    return table(caption, heads, groups)


def over_seeds(rows: Sequence[Row]) -> Html:
    """The comparison of runs that differ only in their seed."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(labels_text(row.labels), []).append(row)
    caption = (
        "Mean over the seeds of each run's mean, with the sample's standard deviation. The gain is how much better it "
        "is than the global model of the same run, with Student's interval over the seeds. Shares are in per cent, "
        "their gains in percentage points; each setting's best mean is in bold."
    )
    shown = [(setting if len(groups) > 1 else None, _over_seeds(of)) for setting, of in groups.items()]
    return table(caption, ["model", "seeds", "mean ± std", GAIN], shown)


def missing(runs: Sequence[CollectedRun]) -> Html | None:
    """A row for each client and reason, and one for each reason why rounds were skipped. None if all answered."""
    groups = []
    for run in runs:
        if rows := _missing(run):
            groups.append((run.name if len(runs) > 1 else None, rows))
    if not groups:
        return None
    caption = (
        f"Rounds from which clients are missing. Of each run the {MOST_MISSING} rows with the most rounds are shown."
    )
    return table(caption, ["client", "why", "how many rounds", "which"], groups, texts=2)


def _missing(run: CollectedRun) -> list[list[str]]:
    rounds: dict[tuple[str, str], list[int]] = {}
    for round, problems in run.problems.items():
        reasons = [(str(client), reason) for client, reason in problems.missing.items()]
        reasons += [(str(client), "upload refused: not finite, or too long") for client in problems.refused]
        if problems.skipped:
            reasons.append(("all", f"round skipped: {problems.skipped}"))
        for reason in dict.fromkeys(reasons):  # a client may be refused several times within a step of the server
            rounds.setdefault(reason, []).append(round)
    most = sorted(rounds.items(), key=lambda one: -len(one[1]))[:MOST_MISSING]
    return [[client, why, str(len(of)), _spans(of)] for (client, why), of in most]


def _spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as text, such as "1, 3 to 5"; at most `MOST_SPANS` parts."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in parts]
    return ", ".join(texts[:MOST_SPANS]) + (", ..." if len(texts) > MOST_SPANS else "")


def cost(runs: Sequence[CollectedRun]) -> Html:
    """Time and memory of each run that has ended."""
    heads = ["run", "device", "engine", "rounds", "time", "seconds a round", "samples a second", "peak memory"]
    rows = []
    for run in runs:
        s = run.summary
        seconds = s.get("seconds")
        speed = s.get("samples_per_second")
        memory = s.get("peak_memory_bytes")
        rows.append(
            [
                run.name,
                str(s.get("device", MISSING)),
                _engine(s.get("engine")),
                str(run.rounds),
                duration(seconds),
                MISSING if not seconds or not run.rounds else f"{seconds / run.rounds:.3g}",
                MISSING if not speed else f"{speed:,.0f}",
                MISSING if not memory else f"{memory / 2**20:,.0f} MiB",
            ]
        )
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
    last = run.summary.get("network") or run.network[max(run.network)].measures
    return [
        f"{last['time']:,.1f}",
        *(f"{last[key]:,}" for key in ("trips", "arrived", "failed_uploads")),
        *(f"{last[key] / 1e6:,.2f}" for key in ("bytes_up", "bytes_down")),
        f"{last['waiting']:.3g}" if "waiting" in last else MISSING,
        f"{last['staleness']:.2f}",
        f"{100 * last['link_use']:.0f} %" if "link_use" in last else MISSING,
    ]


def over_clients(runs: Sequence[CollectedRun]) -> Html:
    """A row for each model of each run on each split that clients score. One metric decides all runs."""
    criterion = runs[0].curves.criterion
    groups = []
    for run in runs:
        for split, models in run.summary["over_clients"].items():
            title = f"{run.name}, {SPLITS[split]}" if len(runs) > 1 else capital(SPLITS[split])
            shown = [[row[0], *map(signed, row[1:])] for row in client_rows(models, criterion, 2)]
            groups.append((f"{title}: {counted(models)}", shown))
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
        spent = run.summary["privacy"]
        epsilon = "infinite" if spent["epsilon"] is None else f"{spent['epsilon']:.3g}"
        rows.append([run.name, epsilon, f"{spent['delta']:.2g}", str(spent["round"]), spent["neighbours"]])
    caption = (
        "Differential privacy of each client, for all models up to this round. The server is trusted, and the rows of "
        "one client in several runs add up."
    )
    return table(caption, ["run", "epsilon", "delta", "after round", "for"], [(None, rows)])


def versions(runs: Sequence[CollectedRun]) -> Html:
    """The software versions of the runs. Runs with the same versions share a row."""
    groups: dict[str, list[str]] = {}
    known: dict[str, dict[str, Any]] = {}
    for run in runs:
        of_run = run.summary.get("versions") or {}
        key = json.dumps(of_run, sort_keys=True)
        groups.setdefault(key, []).append(run.name)
        known[key] = of_run
    names = list(dict.fromkeys(name for of_run in known.values() for name in of_run))
    rows = []
    for key, of_key in groups.items():
        label = "all runs" if len(groups) == 1 and len(runs) > 1 else some(of_key)
        rows.append([label, *(str(known[key].get(name, MISSING)) for name in names)])
    return table("Versions, as the runs recorded them", ["runs", *names], [(None, rows)], texts=9)


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
    cells = [[cell(value) for value in row] for row in rows]
    texts = next((i for i in range(1, len(columns)) if any(NUMBER.match(row[i]) for row in cells)), len(columns))
    return table(
        "Published numbers beside those measured here",
        [str(column) for column in columns],
        [(None, cells)],
        texts=texts,
    )


def cell(value: Any) -> str:
    """A reproduction's value as text."""
    if value is None:
        return MISSING
    return f"{value:.6g}".replace("-", MINUS) if isinstance(value, float) else str(value)


def signed(text: str) -> str:
    """A number as text, with a true minus sign."""
    return MISSING if text == UNKNOWN else text.replace("-", MINUS)


def duration(seconds: float | None) -> str:
    """Seconds as hours, minutes and seconds."""
    if seconds is None:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"


def _over_seeds(rows: Sequence[Row]) -> list[list[str]]:
    """The rows of one setting. Only models of the same seeds, as many as there are, can be the best."""
    most = max((row.values.keys() for row in rows), key=len)
    alike = {row.model: row.mean for row in rows if row.values.keys() == most}
    lead = rows[0].decided.criterion.best(alike) if len(alike) > 1 else None
    return [
        [row.model, str(len(row.values)), _best(signed(row.mean_text(2)), row.model == lead), signed(row.gain_text(2))]
        for row in rows
    ]


def _rows(run: CollectedRun) -> list[list[str]]:
    models: dict[str, dict[str, Any]] = run.summary["models"]
    criterion = run.curves.criterion
    lead = leader(models, criterion)
    to_target = criterion.target
    rows = []
    for name, model in models.items():
        best = model.get("best") or {}
        gain = None if name == "model" else model.get("gain")
        reached = model.get("rounds_to_target")
        rows.append(
            [
                name,
                signed(criterion.spread(model.get("value"), None, 2)),
                _best(_mean(run, model), name == lead),
                signed(criterion.spread(best.get("value"), None, 2)),
                str(best.get("round", MISSING)),
                signed(criterion.spread(gain, None, 2, sign="+")),
                MISSING if to_target is None else "not reached" if reached is None else str(reached),
                MISSING if to_target is None else criterion.plain(to_target),
            ]
        )
    return rows


def _mean(run: CollectedRun, model: dict[str, Any]) -> str:
    return signed(run.curves.criterion.spread(model.get("last_mean"), model.get("last_std"), 2))


def _unit(runs: Sequence[CollectedRun]) -> str:
    """What the numbers of runs are that one metric decides."""
    first = runs[0].curves
    return f"{capital(first.title)}{' in per cent' if first.criterion.share else ''}"


def _chosen_on(runs: Sequence[CollectedRun]) -> str:
    """The splits on which best rounds were chosen."""
    each = [of["best"] for run in runs for of in run.summary["models"].values() if of.get("best")]
    return " and ".join(SPLITS[split] for split in sorted({best["chosen_on"] for best in each})) or SPLITS["test"]


def _best(text: str, best: bool) -> str:
    return tag("strong", text, join([" ", tag("span", "(best)", class_="unseen")])) if best else text


def _last(runs: Sequence[CollectedRun]) -> str:
    numbers = sorted({run.summary["averaged"] for run in runs})
    return f"the last {' or '.join(map(str, numbers))} evaluations"


def _engine(engine: dict[str, Any] | None) -> str:
    if not engine:
        return MISSING
    if engine.get("kind") == "ray":
        return f"ray, {engine['actors']} actors" if engine.get("actors") else "ray"
    plural = "" if engine.get("workers") == 1 else "s"
    compiled = ", compiled" if engine.get("compile") else ""
    return f"{engine.get('kind')}, {engine.get('workers')} worker{plural}{compiled}"
