"""Any window or EMA of a finished run: a single one, or all of them in comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...averages import profiles
from ...evaluation import SPLITS, Goal, Score
from ...runs.pictures import Axis, Line, Panel, Picture, Rule, look
from ...runs.pictures.styles import QUIET
from ...runs.records import Records
from ...settings.errors import SettingError, check, check_fraction
from ...system.files import replace_file
from ...system.paths import check_file
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
        single = [name for name in ("window", "ema", "power") if getattr(self, name) is not None]
        if len(single) > 1:
            requirement = f"can't be asked for together with {single[0]}"
            raise SettingError("AveragesStudy", single[1], getattr(self, single[1]), requirement)
        check_fraction("AveragesStudy.ema", self.ema)
        if self.power is not None:
            requirement = f"must be above 0 and at most {profiles.FLATTEST:.4f}"
            check(0 < self.power <= profiles.FLATTEST, "AveragesStudy.power", self.power, requirement)
        if self.out is not None:
            check_file(self.out)
            requirement = "needs window, ema or power, which say what to write"
            check(bool(single), "AveragesStudy.out", str(self.out), requirement)

    def answer(self, runs: Sequence[OpenRun]) -> Answer | None:
        if self.window is self.ema is self.power is None:
            return None
        (run,) = runs
        name, average, remark = self._single(Afterwards(run, self.at))
        score = average.metrics
        scores = [score]
        if average.held_out is not None and score.split != "held_out":
            scores.append(average.held_out)
        lines = [f"{run.folder.name}: {name}", *_columns_of_text(run.federation.goal, scores)]
        if remark:
            lines.append(remark)
        if self.window is None:
            lines.append(f"error: {100 * average.error:.3g} % of the weight lies on other models of the same block")
        if self.out is not None:
            replace_file(self.out, run.federation.export(average.w))
            run.warn_of_personal_part(str(self.out))
            lines.append(f"model:    {self.out}")
        data = {
            "run": str(run.folder),
            "average": name,
            "split": score.split,
            "metrics": {**score.values, "loss": score.loss},
            "error": average.error,
        }
        if average.held_out is not None:
            data["held_out"] = {**average.held_out.values, "loss": average.held_out.loss}
        return Answer(lines, data)

    def _single(self, averages: Afterwards) -> tuple[str, Judged, str]:
        """The one average that the settings name, in words; its metrics; and a remark on how it was chosen, if any."""
        if self.window is not None:
            return self._single_window(averages)
        if self.ema is not None:
            name = f"the EMA of decay {self.ema:g}"
            profile = profiles.ema(self.ema, averages.count)
        else:
            assert self.power is not None
            name = f"the power-function EMA of sigma_rel {self.power:g}"
            profile = profiles.power(self.power, averages.count)
        ((w, error),) = averages.weighted([profile])
        return f"{name} after round {averages.round}", averages.judge(w, error), ""

    def _single_window(self, averages: Afterwards) -> tuple[str, Judged, str]:
        remark = ""
        if self.window == "auto":
            size, windows = best_window(averages)
            name = f"the window of {size} models, the best on held-out data,"
            remark = _tie(windows, size, averages.run.federation.goal.criterion)
        else:
            assert self.window is not None
            size = self.window
            name = f"the window of {size} models,"
        before = averages.begins(size)
        rounds = f"all there are up to round {averages.round}"
        if before:
            rounds = f"of rounds {before + 1} to {averages.round}"
        return f"{name} {rounds}", averages.judge(averages.window(size)), remark

    def measure(self, runs: Sequence[OpenRun], progress: OnProgress = unseen) -> dict[str, Any]:
        (run,) = runs
        averages = Afterwards(run, self.at)
        criterion = run.federation.goal.criterion
        sizes = averages.sizes
        windows = {}
        emas = {}
        for size, w in averages.windows():
            windows[size] = averages.judge(w)
            progress(len(windows), 2 * len(sizes))
        decays = [profiles.decay_of(size) for size in sizes]
        approximations = averages.weighted([profiles.ema(decay, averages.count) for decay in decays])
        for size, (w, error) in zip(sizes, approximations, strict=True):
            emas[size] = averages.judge(w, error)
            progress(len(sizes) + len(emas), 2 * len(sizes))
        split = windows[sizes[0]].metrics.split
        recorded = Records(run.folder).load().curves(criterion, split).models.get("model", {})
        return {
            "title": f"{run.folder.name}: averages after round {averages.round}",
            "split": split,
            "metric": asdict(criterion),
            "round": averages.round,
            "models": averages.count,
            "model": recorded.get(averages.round),
            "sizes": sizes,
            "windows": _columns(windows, criterion),
            "emas": {
                "decay": decays,
                "error": [average.error for average in emas.values()],
                **_columns(emas, criterion),
            },
            "chosen": best_of(windows, criterion) if run.federation.evaluation.held_out else None,
        }

    @staticmethod
    def table(findings: Findings) -> Rows:
        windows = findings["windows"]
        emas = findings["emas"]
        chosen = findings["chosen"]
        criterion = Criterion(**findings["metric"])
        with_held_out = chosen is not None and findings["split"] == "test"
        heads = [
            "models",
            f"window on\n{SPLITS[findings['split']]}",
            "loss",
            "EMA of\ndecay",
            "\nEMA",
            "loss",
            "profile's\nerror",
        ]
        if with_held_out:
            heads.insert(3, "held\nout")
        yield heads
        for i, size in enumerate(findings["sizes"]):
            name = f"{size} (chosen)" if size == chosen else str(size)
            row = [
                name,
                criterion.text(windows["value"][i], 2),
                number(windows["loss"][i]),
                f"{emas['decay'][i]:.4f}",
                criterion.text(emas["value"][i], 2),
                number(emas["loss"][i]),
                share(emas["error"][i]),
            ]
            if with_held_out:
                row.insert(3, criterion.text(windows["held_out"][i], 2))
            yield row

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
        caption = (
            f"Averages after round {findings['round']}, by the number of models W; an EMA's is "
            "(1 + decay) / (1 - decay)."
        )
        if chosen is not None:
            caption += f" Held-out data choose the window of {chosen}."
        return Picture(findings["title"], panels, columns=2, caption=caption)


def _lines(findings: Findings, key: str, factor: float) -> list[Line]:
    """The windows' line and the EMAs'."""
    sizes = findings["sizes"]
    return [
        Line("the mean of the last W models", sizes, times(factor, findings["windows"][key]), look(0)),
        Line("EMA, W = (1 + decay) / (1 - decay)", sizes, times(factor, findings["emas"][key]), look(1)),
    ]


def _others(findings: Findings, scale: int) -> list[Line | Rule]:
    """The windows on held-out data, if these chose one, the chosen window, and the model itself."""
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
    """The numbers 1, 2, 5, 10, 20, ... within the range of the sizes, each with its text."""
    marks: dict[float, str] = {}
    for power in range(len(str(max(sizes)))):
        for digit in (1, 2, 5):
            mark = digit * 10**power
            if min(sizes) <= mark <= max(sizes):
                marks[mark] = f"{mark:,}"
    return marks


def _columns(averages: Mapping[int, Judged], criterion: Criterion) -> dict[str, list[float | None]]:
    """The results of averages as lists: the metric that decides, the loss, and the metric on held-out data."""
    name = criterion.name
    columns: dict[str, list[float | None]] = {"value": [], "loss": [], "held_out": []}
    for average in averages.values():
        columns["value"].append(average.metrics[name])
        columns["loss"].append(average.metrics.loss)
        columns["held_out"].append(None if average.held_out is None else average.held_out[name])
    return columns


def _columns_of_text(goal: Goal, scores: Sequence[Score]) -> list[str]:
    """A line for each metric and the loss below a line of splits, with a column for each score."""
    columns = [_texts(goal, score) for score in scores]
    heads = [SPLITS[score.split] for score in scores]
    names = list(columns[0])
    lines = [" ".join([" " * max(map(len, names)), *(f"{head:>15}" for head in heads)])]
    for name in names:
        texts = [f"{column[name]:>15}" for column in columns]
        lines.append(" ".join([f"{name:<{max(map(len, names))}}", *texts]))
    return lines


def _tie(windows: Mapping[int, Judged], chosen: int, criterion: Criterion) -> str:
    """A sentence on the loss, if it decided among windows that are equal on held-out data; else nothing."""
    held_out = {size: window.held_out for size, window in windows.items() if window.held_out is not None}
    best = held_out[chosen]
    losses = {}
    for size, score in held_out.items():
        if size != chosen and score[criterion.name] == best[criterion.name]:
            losses[size] = score.loss
    if not losses:
        return ""
    second = min(losses, key=losses.__getitem__)
    return (
        f"{1 + len(losses)} windows are equally good on held-out data; the loss there decided: "
        f"{number(best.loss)} with {chosen} models, {number(losses[second])} with {second}"
    )


def _texts(goal: Goal, score: Score) -> dict[str, str]:
    """All metrics and the loss as text."""
    texts = {}
    for name, value in score.values.items():
        texts[name] = share(value) if goal.metrics[name].share else number(value)
    texts["loss"] = number(score.loss)
    return texts
