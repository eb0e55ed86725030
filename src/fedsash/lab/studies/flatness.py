"""How flat the loss is around a run's models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...evaluation import Curvature
from ..analysis.flatness import lanczos, sharpness
from .opened import Opened, Progress, names_of, write

STEPS = 100
"""Products with the Hessian, at most, for a model's eigenvalues."""


def flatness(
    run: Opened,
    models: Sequence[str],
    name: str,
    split: str = "train",
    samples: int | None = None,
    eigenvalues: int = 5,
    rho: Sequence[float] = (0.05,),
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The largest `eigenvalues` of the Hessian at each model, and its `sharpness` at each distance; as written.

    `residuals` says how near to each value an eigenvalue lies.
    """
    federation, seen = run.federation, run.samples(split, samples)
    curvature = Curvature(
        federation.module, federation.training_data, seen, federation.loss, federation.evaluation.batch
    )
    found = {}
    for number, (model, called) in enumerate(zip(models, names_of(models), strict=True)):
        w, products = run.model(model), iter(range(1, STEPS + 1))

        def times(v: Tensor, w: Tensor = w, products: Any = products, begun: int = number * STEPS) -> Tensor:
            product = curvature.hessian_times(w, v)
            if progress is not None:
                progress(begun + next(products), len(models) * STEPS)
            return product

        values = lanczos(times, w, eigenvalues, steps=STEPS)
        found[called] = {
            "eigenvalues": values.values,
            "residuals": values.residuals,
            "sharpness": {f"{r:g}": sharpness(curvature, w, r) for r in rho},
        }
        if progress is not None:
            progress((number + 1) * STEPS, len(models) * STEPS)
    analysis = {
        "kind": "flatness",
        "title": f"{run.folder.name}: flatness of {', '.join(found)}",
        "command": command,
        "split": split,
        "samples": len(seen),
        "models": found,
    }
    return write(run.folder, name, analysis)
