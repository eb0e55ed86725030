"""What IMA's gain is made of: the arms of examples/findings/feedback.toml, as docs/studies/feedback.md compares them.

    python -m benchmarks.feedback runs/feedback PICTURE.png

Prints two tables in Markdown: the accuracy of each model in each arm, and differences between arms, paired by seed, as
means over all methods and heterogeneities, and by method. The picture has the differences. Numbers are per cent of the
test set and points of it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from fedsash.lab.report.collect import collect
from fedsash.vector.arrays import Floats

from .paired import Gain, gain, holm, picture

Cell = tuple[str, str, str, str]
"""The method, the heterogeneity, the arm and the model."""
MODELS = ("model", "window5", "window20")
COMPARED = {
    "window 20 that observes, less IMA": (("off", "window20"), ("IMA", "window5")),
    "IMA, less mild steps with a window of 5 that observes": (("IMA", "window5"), ("mild", "window5")),
    "feedback with constant steps, less window 5 that observes": (("feedback", "window5"), ("off", "window5")),
    "mild steps, less constant steps, window 20 observes": (("mild", "window20"), ("off", "window20")),
    "mild steps alone, less window 20 that observes": (("mild", "model"), ("off", "window20")),
}


def accuracies(folder: Path) -> dict[Cell, Floats]:
    """The mean accuracy over the last rounds by seed `[seeds]`, in per cent."""
    found: dict[Cell, dict[int, float]] = defaultdict(dict)
    for run in collect([folder]).runs:
        for model, results in run.summary["models"].items():
            cell = (run.labels["method"], run.labels["alpha"], run.labels["arm"], model)
            found[cell][int(run.config["seed"])] = 100 * results["last_mean"]
    return {cell: np.array([values[seed] for seed in sorted(values)]) for cell, values in found.items()}


def levels(found: Mapping[Cell, Floats]) -> Iterator[str]:
    """A row for each method and heterogeneity."""
    arms = list(dict.fromkeys(arm for _, _, arm, _ in found))
    yield "| method | alpha | " + " | ".join(f"{arm}: {', '.join(MODELS)}" for arm in arms) + " |"
    yield "|---" * (2 + len(arms)) + "|"
    for method, alpha in dict.fromkeys(cell[:2] for cell in found):
        cells = (", ".join(f"{found[method, alpha, arm, model].mean():.1f}" for model in MODELS) for arm in arms)
        yield f"| {method} | {alpha} | " + " | ".join(cells) + " |"


def methods_of(found: Mapping[Cell, Floats]) -> list[str]:
    return list(dict.fromkeys(method for method, _, _, _ in found))


def compared(found: Mapping[Cell, Floats]) -> dict[str, list[Gain]]:
    """Each difference over all methods, and then by method.

    What has one seed shares its draws, so the unit is the seed: methods and heterogeneities are averaged first.
    """
    alphas = list(dict.fromkeys(alpha for _, alpha, _, _ in found))
    rows = {}
    for name, (one, other) in COMPARED.items():
        by_method = [
            np.mean([found[method, alpha, *one] - found[method, alpha, *other] for alpha in alphas], axis=0)
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


def main(folder: Path, file: Path) -> None:
    found = accuracies(folder)
    print("\n".join([*levels(found), "", *differences(found)]))
    picture("IMA's two parts", ["all", *methods_of(found)], compared(found)).save(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
