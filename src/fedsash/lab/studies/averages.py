"""Any window or EMA of a finished run: a single one, or all of them in comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...averages import profiles
from ...basics.files import replace_file
from ...basics.paths import check_file
from ...evaluation import Goal, Score
from ...runs.pictures import Axis, Line, Panel, Picture, Rule, look
from ...runs.pictures.styles import QUIET
from ...runs.records import Records
from ...settings.errors import SettingError, check, check_fraction
from ...tasks import Criterion
from .afterwards import Afterwards, Judged, best_of, best_window
from .opened import OpenRun
from .study import Answer, Findings, OnProgress, Rows, Study, number, option, share, times, unseen


@dataclass(frozen=True)
class AveragesStudy(Study):
    """Every window that can end after round `at` (None: the last round with a saved sum), and EMAs of equal length.

    An EMA has the length of a window of W models if its decay is (W - 1) / (W + 1) (see `profiles.decay_of`). `error`
    is the error of its profile. `chosen` is the window that is best on held-out data, None without such data.

    With a `window`, the decay of an `ema`, or the sigma_rel of a `power`-function EMA, the study evaluates only this
    average, and writes it to the file `out`. Raises `ValueError` if more than one of these is given, or `out` without
    any of them.
    """

    kinds: ClassVar = ("averages",)
    examples: ClassVar = """\
  fedsash run experiment.toml --out runs/a --set trajectory.every=10    keeps the sum of its models, every 10 rounds
  fedsash average runs/a                                    every window and EMA that can end after the last of them
  fedsash average runs/a --window 40 --at 290               the mean of the models of rounds 251 to 290
  fedsash average runs/a --ema 0.95 --out ema.safetensors
  fedsash average runs/a --window auto                      the window that held-out data choose

A window begins and ends at a saved sum, and is exact. An EMA is approximated by the means of the blocks between sums.
Its error is the share of its weight that lies on another model of the same block.
"""

    window: int | Literal["auto"] | None = field(
        default=None,
        metadata=option(
            "the mean of the last W models, exactly; auto: the W that is best on held-out data", metavar="W"
        ),
    )
    ema: float | None = field(
        default=None, metadata=option("the exponential moving average, approximately", metavar="DECAY")
    )
    power: float | None = field(
        default=None, metadata=option("the power-function EMA of this sigma_rel, approximately", metavar="SIGMA")
    )
    at: int | None = field(
        default=None, metadata=option("a round whose sum was saved (default: the last one)", metavar="N")
    )
    out: Path | None = field(default=None, metadata=option("write the average there, as safetensors", metavar="FILE"))

    def __post_init__(self) -> None:
        given = [name for name in ("window", "ema", "power") if getattr(self, name) is not None]
        if len(given) > 1:
            first, second, *_ = given
            right = f"can't be asked for together with {first}"
            raise SettingError("AveragesStudy", second, getattr(self, second), right)
        check_fraction("AveragesStudy.ema", self.ema)
        if self.power is not None:
            right = f"must be above 0 and at most {profiles.FLATTEST:.4f}"
            check(0 < self.power <= profiles.FLATTEST, "AveragesStudy.power", self.power, right)
        if self.out is not None:
            check_file(self.out)
        right = "needs window, ema or power, which say what to write"
        check(self.out is None or bool(given), "AveragesStudy.out", str(self.out), right)

    def answer(self, runs: Sequence[OpenRun]) -> Answer | None:
        if self.window is self.ema is self.power is None:
            return None
        (run,) = runs
        what, judged = self._one(Afterwards(run, self.at))
        lines = [f"{run.folder.name}: {what}"]
        width = max(map(len, ("error", "loss", *judged.metrics.values)))
        lines += [f"{name:<{width}}  {text}" for name, text in _texts(run.federation.goal, judged.metrics).items()]
        if self.window is None:
            lines.append(
                f"{'error':<{width}}  {100 * judged.error:.3g} % of the weight lies on other models of the same block"
            )
        if self.out is not None:
            replace_file(self.out, run.federation.export(judged.w))
            lines.append(f"model:    {self.out}")
        values = {**judged.metrics.values, "loss": judged.metrics.loss}
        told = {"run": str(run.folder), "average": what, "split": judged.metrics.split}
        return Answer(lines, {**told, "metrics": values, "error": judged.error})

    def _one(self, trail: Afterwards) -> tuple[str, Judged]:
        """The average that was asked for, in words, and its metrics."""
        if self.window is not None:
            size = best_window(trail) if self.window == "auto" else self.window
            since = trail.begins(size)
            chosen = ", the best on held-out data," if self.window == "auto" else ","
            which = f"of rounds {since + 1} to {trail.round}" if since else f"all there are up to round {trail.round}"
            return f"the window of {size} models{chosen} {which}", trail.judge(trail.window(size))
        if self.ema is not None:
            what = f"the EMA of decay {self.ema:g}"
            profile = profiles.ema(self.ema, trail.count)
        else:
            assert self.power is not None
            what = f"the power-function EMA of sigma_rel {self.power:g}"
            profile = profiles.power(self.power, trail.count)
        ((w, error),) = trail.weighted([profile])
        return f"{what} after round {trail.round}", trail.judge(w, error)

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        trail = Afterwards(run, self.at)
        criterion = run.federation.goal.criterion
        sizes = trail.sizes
        windows = {}
        emas = {}
        for size, w in trail.windows():
            windows[size] = trail.judge(w)
            progress(len(windows), 2 * len(sizes))
        decays = [profiles.decay_of(size) for size in sizes]
        made = trail.weighted([profiles.ema(decay, trail.count) for decay in decays])
        for size, (w, error) in zip(sizes, made, strict=True):
            emas[size] = trail.judge(w, error)
            progress(len(sizes) + len(emas), 2 * len(sizes))
        split = next(iter(windows.values())).metrics.split
        return {
            "kind": self.kind,
            "title": f"{run.folder.name}: averages after round {trail.round}",
            "split": split,
            "metric": asdict(criterion),
            "round": trail.round,
            "models": trail.count,
            "model": Records(run.folder).load().curves(criterion, split).models.get("model", {}).get(trail.round),
            "sizes": sizes,
            "windows": _columns(windows, criterion),
            "emas": {"decay": decays, "error": [of.error for of in emas.values()]} | _columns(emas, criterion),
            "chosen": best_of(windows, criterion) if run.federation.evaluation.held_out else None,
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        windows = findings["windows"]
        emas = findings["emas"]
        chosen = findings["chosen"]
        criterion = Criterion(**findings["metric"])
        also = chosen is not None and findings["split"] == "test"
        yield [
            "models",
            "window",
            "loss",
            *(["held\nout"] if also else []),
            "EMA of\ndecay",
            "\nEMA",
            "loss",
            "profile's\nerror",
        ]
        for i, size in enumerate(findings["sizes"]):
            yield [
                f"{size} (chosen)" if size == chosen else f"{size}",
                *(criterion.text(windows["value"][i], 2), number(windows["loss"][i])),
                *([criterion.text(windows["held_out"][i], 2)] if also else []),
                *(f"{emas['decay'][i]:.4f}", criterion.text(emas["value"][i], 2), number(emas["loss"][i])),
                share(emas["error"][i]),
            ]

    @staticmethod
    def picture(findings: Findings) -> Picture:
        """The metric and the loss of windows and of EMAs, by the number of models that they average."""
        split = findings["split"]
        chosen = findings["chosen"]
        criterion = Criterion(**findings["metric"])
        sizes = Axis("W, the number of models", ticks=_marks(findings["sizes"]), log=True)
        values = [*_lines(findings, "value", criterion.scale), *_others(findings, criterion.scale)]
        label = criterion.label(split)
        panels = [
            Panel(criterion.name, sizes, Axis(label), values, width=6, height=4.4),
            Panel("loss", sizes, Axis(f"loss ({split})"), _lines(findings, "loss", 1), width=6, height=4.4),
        ]
        choice = "" if chosen is None else f" Held-out data choose the window of {chosen}."
        what = "by the number of models W; an EMA's is (1 + decay) / (1 - decay)"
        caption = f"Averages after round {findings['round']}, {what}.{choice}"
        return Picture(findings["title"], panels, columns=2, caption=caption)


def _lines(findings: Findings, key: str, factor: float) -> list[Line]:
    """The windows' line and the EMAs'."""
    names = {"windows": "the mean of the last W models", "emas": "EMA, W = (1 + decay) / (1 - decay)"}
    return [
        Line(name, findings["sizes"], times(factor, findings[of][key]), look(place))
        for place, (of, name) in enumerate(names.items())
    ]


def _others(findings: Findings, scale: int) -> list[Line | Rule]:
    """More values: those on held-out data, if they chose a window, and that of the model."""
    layers: list[Line | Rule] = []
    if findings["chosen"] is not None:
        if findings["split"] == "test":
            held_out = times(scale, findings["windows"]["held_out"])
            layers.append(Line("the mean, on held-out data", findings["sizes"], held_out, QUIET))
        layers.append(Rule(findings["chosen"], "x", "chosen"))
    if findings["model"] is not None:
        layers.append(Rule(scale * findings["model"], "y", "the model itself", "dash"))
    return layers


def _marks(sizes: Sequence[int]) -> dict[float, str]:
    """Those of the numbers 1, 2, 5, 10, 20, ... that lie within the range of the sizes."""
    marks = (digit * 10**power for power in range(len(str(max(sizes)))) for digit in (1, 2, 5))
    return {mark: f"{mark:,}" for mark in marks if min(sizes) <= mark <= max(sizes)}


def _columns(averages: Mapping[int, Judged], criterion: Criterion) -> dict[str, list[float | None]]:
    judged = list(averages.values())
    name = criterion.name
    return {
        "value": [of.metrics[name] for of in judged],
        "loss": [of.metrics.loss for of in judged],
        "held_out": [None if of.held_out is None else of.held_out[name] for of in judged],
    }


def _texts(goal: Goal, found: Score) -> dict[str, str]:
    """All metrics and the loss as text."""
    shares = {name: metric.share for name, metric in goal.metrics.items()}
    texts = {name: share(value) if shares[name] else number(value) for name, value in found.values.items()}
    return texts | {"loss": number(found.loss)}
