"""What IMA's gain is made of: the arms of examples/findings/feedback.toml, as docs/studies/feedback.md compares them.

    python -m benchmarks.feedback runs/feedback PICTURE.png
    python -m benchmarks.feedback runs/observing PICTURE.png      the arms and differences of observing.toml

Prints tables in Markdown: the accuracy of each model in each arm, and differences between arms, paired by seed, as
means over all methods and places (a data set, a heterogeneity), and by method. Of observing.toml also the rounds to the
accuracy with which the model ends that has no average. The picture has the differences. Numbers are per cent of the
test set and points of it. With a third argument, a folder, evidence for two claims of IMA (D10, D15) is entered there,
for `fedsash reproduce --merge`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedsash.lab.papers.claims import Evidence
from fedsash.lab.papers.ima_claims import CLAIMS, lengths
from fedsash.lab.papers.ledger import Ledger
from fedsash.lab.papers.numbers import Key, Numbers
from fedsash.lab.report.collect import CollectedRun, collect
from fedsash.vector.arrays import Floats

from .paired import Gain, gain, holm, picture

Cell = tuple[str, str, str, str]
"""The method, the place, the arm and the model."""
Pair = tuple[tuple[str, str], tuple[str, str]]
"""An arm and a model, and those from which they differ."""
MODELS = ("model", "window5", "window20")
OFF = "off"
EARLY = "IMA early"
COMPARED: dict[str, Pair] = {
    "window 20 that observes, less IMA": (("off", "window20"), ("IMA", "window5")),
    "IMA, less mild steps with a window of 5 that observes": (("IMA", "window5"), ("mild", "window5")),
    "feedback with constant steps, less window 5 that observes": (("feedback", "window5"), ("off", "window5")),
    "mild steps, less constant steps, window 20 observes": (("mild", "window20"), ("off", "window20")),
    "mild steps alone, less window 20 that observes": (("mild", "model"), ("off", "window20")),
}
COMPARED_ON_IMAGES: dict[str, Pair] = {
    "window 20 that observes, less IMA": (("off", "window20"), ("IMA", "window5")),
    "IMA, less mild steps with a window of 5 that observes": (("IMA", "window5"), ("mild", "window5")),
    "early IMA, less early mild steps with a window of 5": ((EARLY, "window5"), ("mild early", "window5")),
    "mild steps, less the usual decay, window 5 observes": (("mild", "window5"), ("off", "window5")),
    "SWA that observes, less IMA": (("off", "swa_late"), ("IMA", "window5")),
    "SWA from the early start, less early IMA": (("off", "swa_early"), (EARLY, "window5")),
    "window 5 that observes, less IMA": (("off", "window5"), ("IMA", "window5")),
}
TIMED = (
    ("off", "model"),
    ("off", "window5"),
    ("off", "window20"),
    ("off", "swa_early"),
    ("off", "swa_late"),
    ("IMA", "window5"),
    ("mild", "window5"),
    (EARLY, "window5"),
    ("mild early", "window5"),
)
"""Of which the rounds to the target are counted; SWA has no model before its start."""
STARTS = {"200": 150, "300": 225}
"""The round of each start by the round of the paper's 400 that is as late."""
ARMS_FROM = {"200": ("IMA early", "mild early", "swa_early"), "300": ("IMA", "mild", "swa_late")}
"""The arms of IMA and of its smaller steps alone, and the SWA that observes, by start."""
SOURCE = "python -m benchmarks.feedback runs/observing observing.png FOLDER"


def accuracies(folder: Path) -> dict[Cell, Floats]:
    """The mean accuracy over the last rounds by seed `[seeds]`, in per cent."""
    found: dict[Cell, dict[int, float]] = defaultdict(dict)
    for run in collect([folder]).runs:
        for model, results in run.summary["models"].items():
            cell = (run.labels["method"], _place(run), run.labels["arm"], model)
            found[cell][int(run.config["seed"])] = 100 * results["last_mean"]
    return _by_seed(found)


def rounds_to_the_end(folder: Path) -> dict[Cell, Floats]:
    """The first evaluated round with the accuracy of the arm `off`'s model, by seed `[seeds]`; NaN if there is none.

    This accuracy is the mean over the model's last rounds.
    """
    runs = collect([folder]).runs
    ends = {}
    for run in runs:
        if run.labels["arm"] == OFF:
            ends[run.labels["method"], _place(run), run.config["seed"]] = run.summary["models"]["model"]["last_mean"]
    found: dict[Cell, dict[int, float]] = defaultdict(dict)
    for run in runs:
        end = ends[run.labels["method"], _place(run), run.config["seed"]]
        for model, curve in run.curves.models.items():
            first = min((round for round, accuracy in curve.items() if accuracy >= end), default=np.nan)
            found[run.labels["method"], _place(run), run.labels["arm"], model][int(run.config["seed"])] = first
    return _by_seed(found)


def _place(run: CollectedRun) -> str:
    """The labels of a run besides its seed, method, arm and sweep, such as its data set and heterogeneity."""
    others = [label for axis, label in run.labels.items() if axis not in ("seed", "method", "arm", "sweep")]
    return ", ".join(others)


def _by_seed(found: Mapping[Cell, Mapping[int, float]]) -> dict[Cell, Floats]:
    return {cell: np.array([values[seed] for seed in sorted(values)]) for cell, values in found.items()}


def whole_places(found: Mapping[Cell, Floats]) -> dict[Cell, Floats]:
    """The cells of the places that are finished: each has all methods, arms and models, with the same seeds."""
    most = max(len(values) for values in found.values())
    cells = {(method, arm, model) for method, _, arm, model in found}
    whole = {}
    for place in dict.fromkeys(place for _, place, _, _ in found):
        of_place = {(method, place, arm, model) for method, arm, model in cells}
        if all(cell in found and len(found[cell]) == most for cell in of_place):
            whole |= {cell: found[cell] for cell in found if cell in of_place}
        else:
            print(f"left out, as it is not finished: {place}")
    return whole


def levels(found: Mapping[Cell, Floats]) -> Iterator[str]:
    """A row for each method and heterogeneity."""
    arms = list(dict.fromkeys(arm for _, _, arm, _ in found))
    yield "| method | place | " + " | ".join(f"{arm}: {', '.join(MODELS)}" for arm in arms) + " |"
    yield "|---" * (2 + len(arms)) + "|"
    for method, place in dict.fromkeys(cell[:2] for cell in found):
        cells = (", ".join(f"{found[method, place, arm, model].mean():.1f}" for model in MODELS) for arm in arms)
        yield f"| {method} | {place} | " + " | ".join(cells) + " |"


def times(found: Mapping[Cell, Floats]) -> Iterator[str]:
    """A row for each method and place: the median of the rounds to the target; a seed without it is the slowest."""
    yield "| method | place | " + " | ".join(f"{arm}: {model}" for arm, model in TIMED) + " |"
    yield "|---" * (2 + len(TIMED)) + "|"
    for method, place in dict.fromkeys(cell[:2] for cell in found):
        cells = []
        for arm, model in TIMED:
            median = float(np.median(np.nan_to_num(found[method, place, arm, model], nan=np.inf)))
            cells.append("not reached" if np.isinf(median) else f"{median:.0f}")
        yield f"| {method} | {place} | " + " | ".join(cells) + " |"


def pairs(found: Mapping[Cell, Floats]) -> dict[str, Pair]:
    """The comparisons of the plan whose arms these are."""
    on_images = any(arm == EARLY for _, _, arm, _ in found)
    return COMPARED_ON_IMAGES if on_images else COMPARED


def methods_of(found: Mapping[Cell, Floats]) -> list[str]:
    return list(dict.fromkeys(method for method, _, _, _ in found))


def compared(found: Mapping[Cell, Floats]) -> dict[str, list[Gain]]:
    """Each difference over all methods, and then by method.

    What has one seed shares its draws, so the unit is the seed: methods and places are averaged first.
    """
    places = list(dict.fromkeys(place for _, place, _, _ in found))
    rows = {}
    for name, (one, other) in pairs(found).items():
        by_method = [
            np.mean([found[method, place, *one] - found[method, place, *other] for place in places], axis=0)
            for method in methods_of(found)
        ]
        rows[name] = [gain([np.mean(by_method, axis=0)]), *(gain([each]) for each in by_method)]
    return rows


def differences(found: Mapping[Cell, Floats]) -> Iterator[str]:
    """A row for each comparison: over everything, with its corrected p-value, and by method."""
    methods = methods_of(found)
    rows = compared(found)
    yield "| difference | all | p | " + " | ".join(methods) + " |"
    yield "|---" * (3 + len(methods)) + "|"
    corrected = holm([whole.p for whole, *_ in rows.values()])
    for (name, (whole, *by_method)), p in zip(rows.items(), corrected, strict=True):
        yield f"| {name} | {whole} | {p:.1g} | " + " | ".join(map(str, by_method)) + " |"


def evidence(found: Mapping[Cell, Floats], reached: Mapping[Cell, Floats], rounds: int) -> dict[str, Evidence]:
    """What D10 and D15 need: accuracies and rounds by start and model, all with IMA's smaller steps.

    In each seed they are means over methods and places, of the rounds over those alone in which nothing has reached the
    target before the start: there all models are still the same. A seed that misses the target has one round more than
    the runs. Rounds that no method and place has are not known.
    """
    accuracy: dict[Key, list[float]] = {}
    to_target: dict[Key, list[float]] = {}
    of_cells = list(dict.fromkeys(cell[:2] for cell in found))
    for start, first in STARTS.items():
        models = models_from(start)
        still_open = [
            where
            for where in of_cells
            if all(np.nanmin([rounds, *reached[*where, *each]]) > first for each in models.values())
        ]
        for name, each in models.items():
            accuracy[start, name] = np.mean([found[*where, *each] for where in of_cells], axis=0).tolist()
            counted = [np.nan_to_num(reached[*where, *each], nan=rounds + 1) for where in still_open]
            unknown = np.full(len(accuracy[start, name]), np.nan)
            to_target[start, name] = (np.mean(counted, axis=0) if counted else unknown).tolist()
    dims = ("start", "model")
    both = {"accuracy": Numbers.measured(dims, accuracy), "rounds": Numbers.measured(dims, to_target)}
    seeds = max(len(values) for values in accuracy.values())
    length = {"length": lengths(rounds, map(str, range(seeds)))}
    fed_back = {name: _renamed(table, {"IMA": "fed back", "window": "observed"}) for name, table in both.items()}
    return {"D10": fed_back | length, "D15": both | length}


def models_from(start: str) -> dict[str, tuple[str, str]]:
    """The models of D15 from a start, each an arm's."""
    ima, mild, swa = ARMS_FROM[start]
    return {"none": (mild, "model"), "IMA": (ima, "window5"), "window": (mild, "window5"), "SWA": (mild, swa)}


def _renamed(numbers: Numbers, names: Mapping[str, str]) -> Numbers:
    """The numbers of some models alone, under other names."""
    chosen = {}
    for (start, model), quantity in numbers.items():
        if model in names:
            chosen[start, names[str(model)]] = quantity
    return Numbers(numbers.dims, chosen)


def enter(folder: Path, of_claims: Mapping[str, Evidence], found: Mapping[Cell, Floats], rounds: int) -> None:
    """Enter the evidence into a ledger."""
    places = dict.fromkeys(place for _, place, _, _ in found)
    means = f"means over {'; '.join(places)}; {', '.join(methods_of(found))}"
    setting = f"ours: {means}; {rounds} rounds, two starts; the target is the end of the run without IMA"
    for claim, numbers in of_claims.items():
        finding = Ledger(folder).enter_own("IMA", CLAIMS[claim], numbers, setting, SOURCE)
        print(f"{claim}: {finding}")


def main(folder: Path, file: Path, rows: Path | None = None) -> None:
    found = whole_places(accuracies(folder))
    print("\n".join([*levels(found), "", *differences(found)]))
    if pairs(found) is COMPARED_ON_IMAGES:
        reached = {cell: rounds for cell, rounds in rounds_to_the_end(folder).items() if cell in found}
        print("\n".join(["", *times(reached)]))
        if rows is not None:
            rounds = max(run.rounds for run in collect([folder]).runs)
            enter(rows, evidence(found, reached, rounds), found, rounds)
    picture("IMA's two parts", ["all", *methods_of(found)], compared(found)).save(file)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
