"""Clients as branches of one CUDA graph (`benchmarks/branches.py`), beside the engines that fedsash has.

    python -m benchmarks.gpu_branches [--seconds 480] [--tiny] [--precisions full] [--cases IMA W2] [--ways branches]

A row of the table is printed as soon as it is measured, and none begins after `--seconds`. The most important come
first: IMA's CIFAR-10 CNN and the works W2 to W4 in bfloat16, then in full precision, then momentum, control variates,
clients of unequal sizes and BatchNorm. Images are random numbers, which does not change the time.

`difference` compares the update of the first round with that of one client at a time, in the same precision: the
largest difference of a number, divided by the largest number. `start` is the time of the first round, with everything
that is compiled and recorded.

`--tiny` takes few samples and float64 in place of full precision: then a difference is rounding, below 1e-12. Without
a GPU everything but the graphs and streams is tried so.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

import fedsash as fs
from fedsash.engines import Engine, pick_device
from fedsash.engines.gradients import Precision
from fedsash.methods import Scaffold
from fedsash.settings.errors import one_line, shortened

from . import gpu
from .branches import BranchEngine
from .peers.modules import MODULES
from .peers.own import federation_on
from .peers.works import WORKS

ALONE = "one client at a time"
COMPILED = "stacked, compiled"
WAYS: Mapping[str, Engine] = {
    ALONE: gpu.ENGINES[ALONE],
    COMPILED: gpu.ENGINES[COMPILED],
    "branches, loss compiled": BranchEngine(compile="loss"),
    "branches": BranchEngine(),
    "branches, contiguous": BranchEngine(channels_last=False),
    "branches, step compiled": BranchEngine(compile="step"),
    "branches, 5 steps a graph": BranchEngine(window=5),
    "branches, 5 steps a graph, loss compiled": BranchEngine(window=5, compile="loss"),
    "stacked": gpu.ENGINES["stacked"],
}
"""The most important first. All but the first are compared with it."""

PRECISIONS: Sequence[Precision] = ("bfloat16", "full")
"""The most important first."""

GOAL = 1.15
"""So many times as fast as stacked clients branches must be to be kept, on two of the first four cases in bfloat16."""
SECONDS = 2.0
"""A way is timed for so long at least, and for `LEAST` rounds."""
LEAST = 2
TINY_CLIENTS = 12
TINY_SAMPLES = 400
DECAYED = fs.SGD(momentum=0.9, weight_decay=1e-3)

HEADER = """\
| case | precision | way | ms a round | samples/s | alone = 1 | stacked = 1 | difference | start, s |
|---|---|---|---|---|---|---|---|---|"""


def ima(device: str, tiny: bool) -> fs.Federation:
    """IMA's federation without its averages: ten clients of 50 steps with momentum and weight decay."""
    samples = 50_000
    if tiny:
        samples = TINY_SAMPLES
    return replace(gpu.ima(device, samples), averages={})


def of_work(name: str, device: str, tiny: bool) -> fs.Federation:
    """A work of the comparison with other simulators."""
    work = WORKS[name]
    if tiny:
        sizes = [1 + size % 11 for size in work.sizes[:TINY_CLIENTS]]
        work = replace(work, sizes=tuple(sizes), distinct=0, batch=4)
    arrays = work.arrays()
    torch.manual_seed(0)
    return federation_on(work, arrays["x"], arrays["y"], arrays["clients"], MODULES[name](), 0, device)


def with_momentum(name: str, device: str, tiny: bool) -> fs.Federation:
    """A work with momentum and weight decay."""
    federation = of_work(name, device, tiny)
    return replace(federation, local=replace(federation.local, optimiser=DECAYED))


def ima_by_scaffold(device: str, tiny: bool) -> fs.Federation:
    """IMA's clients with control variates."""
    return replace(ima(device, tiny), method=Scaffold())


def with_batch_norm(device: str, tiny: bool) -> fs.Federation:
    """W2 with BatchNorm behind its convolutions."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 62)),
    )
    return replace(of_work("W2", device, tiny), model=model, buffers="average")


MAIN: Mapping[str, Callable[[str, bool], fs.Federation]] = {
    "IMA": ima,
    "W2": partial(of_work, "W2"),
    "W3": partial(of_work, "W3"),
    "W4": partial(of_work, "W4"),
}
OTHERS: Mapping[str, Callable[[str, bool], fs.Federation]] = {
    "W2, momentum": partial(with_momentum, "W2"),
    "IMA, SCAFFOLD": ima_by_scaffold,
    "W5, unequal sizes": partial(of_work, "W5"),
    "W4, momentum": partial(with_momentum, "W4"),
    "W2, BatchNorm": with_batch_norm,
    "W1": partial(of_work, "W1"),
}
CASES = {**MAIN, **OTHERS}
"""What is trained, the most important first."""


@dataclass(frozen=True)
class Measurement:
    """The seconds of a round, which trains on so many `samples`, those of the first one, and its update `[D]`."""

    seconds: float
    samples: int
    start: float
    update: Tensor


def measured(federation: fs.Federation, seconds: float) -> Measurement:
    """The time of the federation's rounds, the median over at least so many seconds."""
    times: list[float] = []
    with federation:
        began = time.perf_counter()
        state = federation.start()
        before = state.w.clone()
        state, report = federation.round(state)
        update = (state.w - before).double().cpu()  # waits for the device, as below
        start = time.perf_counter() - began
        while len(times) < LEAST or sum(times) < seconds:
            began = time.perf_counter()
            state, report = federation.round(state)
            float(state.w[0])
            times.append(time.perf_counter() - began)
    return Measurement(statistics.median(times), report.samples, start, update)


class Table:
    """The rows of the table, and what has been measured of each case and precision, by way."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, Precision], dict[str, Measurement]] = {}

    def add(self, case: str, precision: Precision, way: str, measurement: Measurement) -> str:
        """The row of a measurement."""
        of_case = self._measured.setdefault((case, precision), {})
        of_case[way] = measurement
        ratio_to_alone = "-"
        difference = "-"
        alone = of_case.get(ALONE)
        if alone is not None:
            ratio_to_alone = f"{alone.seconds / measurement.seconds:.2f}"
            difference = f"{difference_between(measurement.update, alone.update):.0e}"
        ratio_to_stacked = "-"
        stacked = fastest(of_case, "stacked")
        if stacked is not None:
            ratio_to_stacked = f"{stacked.seconds / measurement.seconds:.2f}"
        cells = [
            case,
            precision,
            way,
            f"{1e3 * measurement.seconds:.2f}",
            f"{measurement.samples / measurement.seconds:,.0f}",
            ratio_to_alone,
            ratio_to_stacked,
            difference,
            f"{measurement.start:.1f}",
        ]
        return f"| {' | '.join(cells)} |"

    def verdict(self, precision: Precision) -> str:
        """On how many of the main cases branches reach their goal in this precision."""
        ratios: dict[str, float] = {}
        for case in MAIN:
            of_case = self._measured.get((case, precision), {})
            stacked = fastest(of_case, "stacked")
            branches = fastest(of_case, "branches")
            if stacked is not None and branches is not None:
                ratios[case] = stacked.seconds / branches.seconds
        reached = sum(ratio >= GOAL for ratio in ratios.values())
        each = "nothing was compared"
        if ratios:
            each = ", ".join(f"{case} {ratio:.2f}" for case, ratio in ratios.items())
        return f"{precision}: branches are {GOAL:g} times as fast as stacked clients in {reached} cases ({each})"


def fastest(of_case: Mapping[str, Measurement], kind: str) -> Measurement | None:
    """The fastest of the ways of this kind that were measured, if there is one."""
    of_kind = [measurement for way, measurement in of_case.items() if way.startswith(kind)]
    return min(of_kind, key=lambda measurement: measurement.seconds, default=None)


def difference_between(update: Tensor, expected: Tensor) -> float:
    """The largest difference of a number `[D]`, divided by the largest number that is expected."""
    return float((update - expected).abs().max() / expected.abs().max())


def rows(
    cases: Sequence[str],
    ways: Sequence[str],
    precisions: Sequence[Precision] = PRECISIONS,
    *,
    device: str,
    tiny: bool,
    left: Callable[[], float],
) -> Iterator[str]:
    """The rows of the table, as long as there is time `left`, and what they come to."""
    table = Table()
    seconds = SECONDS
    if tiny:
        seconds = 0.0
    for precision, case in order(cases, precisions):
        if left() <= 0:
            yield f"the time is over before {case} in {precision} precision"
            break
        federation = CASES[case](device, tiny)
        if tiny and precision == "full":
            federation = replace(federation, model=federation.model.double())
        for way in ways:
            if left() <= 0:
                break
            try:
                measurement = measured(with_engine(federation, WAYS[way], precision), seconds)
            except Exception as error:  # the others are measured nevertheless
                yield f"| {case} | {precision} | {way} | {type(error).__name__}: {shortened(one_line(error), 300)} |"
            else:
                yield table.add(case, precision, way, measurement)
            gc.collect()
            if device == "cuda":
                torch.cuda.empty_cache()
        torch.compiler.reset()  # code of another model is not tried first
    for precision in precisions:
        yield table.verdict(precision)


def order(cases: Sequence[str], precisions: Sequence[Precision]) -> Iterator[tuple[Precision, str]]:
    """Each of these precisions with each of these cases, the most important first."""
    for part in (MAIN, OTHERS):
        for precision in precisions:
            for case in part:
                if case in cases:
                    yield precision, case


def with_engine(federation: fs.Federation, engine: Engine, precision: Precision) -> fs.Federation:
    """The federation, whose clients this engine trains in this precision."""
    return replace(federation, engine=replace(engine, precision=precision))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.gpu_branches")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS, metavar="PRECISION")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--device", default=str(pick_device("auto")))
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    if options.device == "cuda":
        print(torch.cuda.get_device_name(), f"PyTorch {torch.__version__}", flush=True)
    print(HEADER, flush=True)
    settings = {"device": options.device, "tiny": options.tiny, "left": lambda: end - time.monotonic()}
    for row in rows(options.cases, options.ways, options.precisions, **settings):
        print(row, flush=True)


if __name__ == "__main__":
    main()
