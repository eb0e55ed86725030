"""How the cost of a round grows: with clients, models and averages, as in docs/design/speed.md.

    python -m benchmarks.growth [AXIS ...]          # AXIS: asked, clients, model, window, averages

One process, one thread, random data, no evaluation. A point is the fastest of some rounds. `asked`, `clients`: an MLP
64-16-10 (1,210 numbers), 18 samples a client, batch 10, one epoch, stacked; `asked` of 1,000 clients take part, or 10
of all `clients`, with SCAFFOLD, whose clients have state. `model`: two clients with 10 samples each, one step, an MLP
64-n-10. `window`, `averages`: what it takes to show one model of 100,000 numbers to a full window of this size, or to
so many windows of 5, 10, 15 ... models.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

import fedsash as fs
from fedsash import methods, models
from fedsash.averages import Observer, Observers
from fedsash.engines import LocalEngine
from fedsash.runs.pictures.paper import draw
from fedsash.runs.pictures.picture import Axis, Line, Panel, Picture
from fedsash.runs.pictures.styles import look

PLACE = Path("docs/design/speed")
STACKED = LocalEngine("vectorised", 1, 10, False, "contiguous", 1)
ONE_BY_ONE = LocalEngine("sequential", 1, 1, False, "contiguous", 1)
SECONDS = 3.0
"""How long a point is measured, if it is not done after `LEAST` rounds."""
LEAST = 3


def fastest(call: Callable[[], object]) -> float:
    """The seconds of the fastest of some calls, after a first one."""
    call()
    found: list[float] = []
    while len(found) < LEAST or (sum(found) < SECONDS and len(found) < 1000):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


def a_round(clients: int, asked: int, samples: int, hidden: int, engine: LocalEngine, **settings: Any) -> float:
    """The seconds of a round of `asked` out of `clients` clients, with an MLP 64-hidden-10."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * samples, 64)).astype(np.float32)
    y = rng.integers(0, 10, clients * samples)
    data = fs.FederatedData.from_arrays(x, y, np.split(np.arange(len(y)), clients), classes=10)
    with fs.Federation(
        models.MLP((64,), 10, (hidden,)),
        data,
        local=fs.LocalTraining(lr=0.01, batch=10),
        sampling=fs.Uniform(asked),
        engine=engine,
        device="cpu",
        **settings,
    ) as federation:
        federation.prepare()
        state = federation.start()

        def step() -> None:
            nonlocal state
            state, _ = federation.round(state)

        return fastest(step)


def observing(sizes: list[int], numbers: int = 100_000) -> float:
    """The seconds to show a model to full windows of these sizes together."""
    w = torch.randn(numbers)
    observers = Observers({f"window{i}": Observer(fs.Window(size), [(0, numbers)]) for i, size in enumerate(sizes)})
    seen = SimpleNamespace(**dict(zip(("averages", "past"), observers.init(w), strict=True)))
    rounds = iter(range(1, 10**6))
    for _ in range(max(sizes)):
        observers.observe(seen, w, next(rounds))
    return fastest(lambda: observers.observe(seen, w, next(rounds)))


def width(numbers: int) -> int:
    """The width of the hidden layer of an MLP 64-n-10 of about so many numbers."""
    return max(round((numbers - 10) / 75), 1)


AXES: dict[str, tuple[str, list[int], Callable[[int], float]]] = {
    "asked": ("clients in a round", [10, 30, 100, 300, 1000], lambda n: a_round(1000, n, 18, 16, STACKED)),
    "clients": (
        "clients",
        [100, 1000, 10_000, 100_000],
        lambda n: a_round(n, 10, 18, 16, STACKED, method=methods.Scaffold()),
    ),
    "model": (
        "numbers in the model",
        [10**4, 10**5, 10**6, 10**7, 10**8],
        lambda n: a_round(2, 2, 10, width(n), ONE_BY_ONE),
    ),
    "window": ("size of the window", [1, 10, 100, 1000], lambda n: observing([n])),
    "averages": ("windows", [1, 2, 5, 10, 20], lambda n: observing([5 * (i + 1) for i in range(n)])),
}


def panel(label: str, points: list[int], ms: list[float]) -> Panel:
    """The panel of an axis; times go over whole decades, so that a flat line looks flat."""
    low = 10.0 ** math.floor(math.log10(min(ms)))
    high = 10.0 ** math.ceil(math.log10(max(ms)))
    line = Line("", points, ms, look(0))
    return Panel(label, Axis(label, log=True), Axis("ms", low, high, log=True), [line])


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    panels = []
    for name in chosen or AXES:
        label, points, measure = AXES[name]
        seconds = []
        print(f"\n| {label} | ms | ms each |\n|---|---|---|")
        for point in points:
            seconds.append(measure(point))
            print(f"| {point:,} | {1e3 * seconds[-1]:.3g} | {1e3 * seconds[-1] / point:.3g} |", flush=True)
        panels.append(panel(label, points, [1e3 * s for s in seconds]))
    if not chosen:
        PLACE.mkdir(exist_ok=True)
        draw(Picture("How the cost of a round grows", panels, columns=3), PLACE / "growth.png")


if __name__ == "__main__":
    main(sys.argv[1:])
