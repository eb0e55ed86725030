"""FedAvg with a free window against the zoo: settings are chosen, final runs follow, and a table compares them.

    python -m benchmarks.zoo choose TUNING --out FINAL.toml     the final sweep, from the finished tuning sweep
    python -m benchmarks.zoo table TUNING FINAL                 the tables of docs/studies/zoo.md, in Markdown
    python -m benchmarks.zoo draw TUNING FINAL --out FILE       its picture: each method's gain without and with windows

TUNING is the folder of examples/findings/zoo.toml, or of a part of it (`--only data=digits`). In each setting, a data
set with a heterogeneity, each method gets the number and the rate that are most accurate on held-out data over the
tuning seeds: once for the model, once for the window of 20.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from fedsash.lab.config.files import merged, read
from fedsash.lab.report.collect import CollectedRun, collect
from fedsash.runs.pictures import Picture
from fedsash.runs.records import Records
from fedsash.vector.arrays import Floats

from .paired import Gain, gain, holm, picture

SWEEP = Path(__file__).parents[1] / "examples" / "findings" / "zoo.toml"
SEEDS = range(5)
BASE = "FedAvg"
PRIMARY = "w20"
MODELS = ("model", "w5", PRIMARY, "w50")
LEVEL = 0.05


class Place(NamedTuple):
    """A setting: a data set and a heterogeneity."""

    data: str
    alpha: str


class Settings(NamedTuple):
    """What was tried: a label of the axis `method`, which begins with the method's name, and a rate."""

    label: str
    rate: str

    @property
    def method(self) -> str:
        return self.label.partition(" ")[0]


Chosen = Mapping[tuple[Place, str, str], Settings]
"""By setting, method, and what they were chosen for: `"model"` or `PRIMARY`."""


def settings_of(run: CollectedRun) -> tuple[Place, Settings]:
    labels = run.labels
    return Place(labels["data"], labels["alpha"]), Settings(labels["method"], labels["rate"])


def chosen(tuning: Path) -> Chosen:
    """The settings with the highest mean held-out accuracy over the tuning seeds; of equal ones the first."""
    tried: dict[tuple[Place, str, str], dict[Settings, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in collect([tuning]).runs:
        place, settings = settings_of(run)
        held_out = Records(run.folder).load().curves(run.curves.criterion, "held_out").models
        for model in ("model", PRIMARY):
            values = list(held_out[model].values())[-run.evaluation.last :]
            tried[place, settings.method, model][settings].append(fmean(values))
    return {key: max(values, key=lambda settings: fmean(values[settings])) for key, values in tried.items()}


def arm(place: Place, settings: Settings) -> str:
    """The label of a final run."""
    return f"{place.data} {place.alpha} {settings.label} rate {settings.rate}"


def final(found: Chosen) -> dict[str, Any]:
    """The sweep of the final runs: all that was chosen, with other seeds."""
    sweep = read(SWEEP)
    axes = sweep["axes"]
    arms = {}
    for (place, _, _), settings in found.items():
        parts = (("data", place.data), ("alpha", place.alpha), ("rate", settings.rate), ("method", settings.label))
        table: dict[str, Any] = {}
        for axis, label in parts:
            table = merged(table, axes[axis][label])
        arms[arm(place, settings)] = table
    title = "FedAvg with a free window against the zoo: final runs"
    return {"title": title, "base": sweep["base"], "axes": {"seed": list(SEEDS), "arm": arms}}


class Results:
    """The final accuracies of what was chosen, in per cent."""

    def __init__(self, found: Chosen, folder: Path) -> None:
        self.chosen = found
        self.by_arm = {
            (run.labels["arm"], int(run.config["seed"])): run.summary["models"] for run in collect([folder]).runs
        }

    @property
    def places(self) -> list[Place]:
        return list(dict.fromkeys(place for place, _, _ in self.chosen))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for _, method, _ in self.chosen))

    def accuracy(self, place: Place, method: str, model: str) -> Floats:
        """By seed `[seeds]`: of the settings chosen for the model, or for a window those chosen for `PRIMARY`."""
        settings = self.chosen[place, method, "model" if model == "model" else PRIMARY]
        runs = [self.by_arm[arm(place, settings), seed] for seed in SEEDS]
        return np.array([100 * run[model]["last_mean"] for run in runs])

    def gain(self, method: str, model: str, base_model: str) -> Gain:
        """Of a method over FedAvg, each with a model, as the mean over all settings.

        Runs of one seed on one data set share their draws, so heterogeneities are averaged first.
        """
        by_data: dict[str, list[Floats]] = defaultdict(list)
        for place in self.places:
            own = self.accuracy(place, method, model)
            other = self.accuracy(place, BASE, base_model)
            by_data[place.data].append(own - other)
        return gain([np.mean(each, axis=0) for each in by_data.values()])


def verdict(without: tuple[Gain, float], with_window: tuple[Gain, float]) -> str:
    """What is left of a gain, from the gains and their corrected p-values (docs/studies/zoo.md)."""
    if not (without[0].mean > 0 and without[1] < LEVEL):
        return "no gain shown"
    if with_window[0].mean > 0 and with_window[1] < LEVEL:
        return "left"
    return "gone" if with_window[0].mean + with_window[0].half < without[0].mean / 2 else "undecided"


def gains(results: Results) -> Iterator[str]:
    """A row for each method: its gain over FedAvg without windows, with both windowed, and against FedAvg's alone."""
    yield "| method | without windows | p | both with w20 | p | left? | over FedAvg's w20 |"
    yield "|---|---|---|---|---|---|---|"
    methods = [method for method in results.methods if method != BASE]
    columns = []
    for model in ("model", PRIMARY):
        found = [results.gain(method, model, model) for method in methods]
        columns.append(list(zip(found, holm([each.p for each in found]), strict=True)))
    for method, without, windowed in zip(methods, *columns, strict=True):
        alone = results.gain(method, "model", PRIMARY)
        cells = (f"{without[0]}", f"{without[1]:.1g}", f"{windowed[0]}", f"{windowed[1]:.1g}")
        yield f"| {method} | {' | '.join(cells)} | {verdict(without, windowed)} | {alone} |"
    mean = [fmean(found.mean for found, _ in column) for column in columns]
    yield f"| mean of all | {mean[0]:+.2f} | | {mean[1]:+.2f} | | | |"


def levels(results: Results, place: Place) -> Iterator[str]:
    """A row for each method in one setting: what was chosen, and the accuracies."""
    yield f"| {place.data}, alpha = {place.alpha} | chosen for the model | for w20 | {' | '.join(MODELS)} |"
    yield "|---" * (3 + len(MODELS)) + "|"
    for method in results.methods:
        picked = (results.chosen[place, method, purpose] for purpose in ("model", PRIMARY))
        names = (f"{settings.label.partition(' ')[2]} at {settings.rate}".strip() for settings in picked)
        values = (results.accuracy(place, method, model) for model in MODELS)
        cells = (f"{value.mean():.1f} ± {value.std(ddof=1):.1f}" for value in values)
        yield f"| {method} | {' | '.join([*names, *cells])} |"


def drawn(results: Results) -> Picture:
    """Each method's gain over FedAvg without windows, and with the window of 20 on both sides; the largest first."""
    methods = [method for method in results.methods if method != BASE]
    methods.sort(key=lambda method: -results.gain(method, "model", "model").mean)
    compared = {"without windows": "model", "both with a window of 20": PRIMARY}
    rows = {name: [results.gain(method, each, each) for method in methods] for name, each in compared.items()}
    return picture("FedAvg with a free window against the zoo: gains over FedAvg", methods, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    choose = commands.add_parser("choose")
    choose.add_argument("tuning", type=Path)
    choose.add_argument("--out", type=Path, required=True)
    for name in ("table", "draw"):
        shown = commands.add_parser(name)
        shown.add_argument("tuning", type=Path)
        shown.add_argument("final", type=Path)
    shown.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "choose":
        given.out.write_text(tomli_w.dumps(final(chosen(given.tuning))))
        return
    results = Results(chosen(given.tuning), given.final)
    if given.command == "draw":
        drawn(results).save(given.out)
        return
    print("\n".join(gains(results)))
    for place in results.places:
        print("\n" + "\n".join(levels(results, place)))


if __name__ == "__main__":
    main()
