"""What a window brings without a federation: a small transformer on Shakespeare, a small ResNet on CIFAR-10.

FEDSASH_DATA=FOLDER python -m benchmarks.centralised [transformer] [resnet]

It prints the tables of docs/how-to/falling-rate.md and writes its pictures into docs/how-to/tracker/.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fedsash as fs
from fedsash.averages.base import Average
from fedsash.runs.pictures.paper import draw
from fedsash.runs.pictures.picture import Axis, Line, Panel, Picture
from fedsash.runs.pictures.styles import QUIET, look

DATA = Path(os.environ.get("FEDSASH_DATA", "data"))
PLACE = Path(__file__).parents[1] / "docs" / "how-to" / "tracker"
SEEDS = (0, 1, 2)
POINTS = 8
"""How often the averages are evaluated in a training."""

Batch = tuple[Tensor, Tensor]
Scores = dict[str, list[float]]


@dataclass(frozen=True)
class Problem:
    """A model, its training and how it is scored.

    `batch(generator)` draws one, `score(model)` is a loss or an accuracy on data that are not trained on. `span` is
    the number of steps that the long window has.
    """

    model: Callable[[], nn.Module]
    optimiser: Callable[[nn.Module], torch.optim.Optimizer]
    batch: Callable[[torch.Generator], Batch]
    score: Callable[[nn.Module], float]
    metric: str
    steps: int
    span: int

    @property
    def averages(self) -> dict[str, Average]:
        """WiMA's windows of all models, LAWA's window of six models of the same span, an EMA."""
        return {
            f"WiMA-{self.span // 4}": fs.Window(self.span // 4),
            f"WiMA-{self.span}": fs.Window(self.span),
            f"LAWA-6x{self.span // 6}": fs.Window(6, every=self.span // 6),
            "EMA-0_99": fs.EMA(0.99, warmup=True),
        }


class Transformer(nn.Module):
    """A causal transformer of two layers that predicts the next character."""

    def __init__(self, characters: int, width: int = 96, context: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.places = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.classifier = nn.Linear(width, characters)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        places = self.places(torch.arange(x.shape[1]))
        return self.classifier(self.encoder(self.embedding(x) + places, mask=mask, is_causal=True))


class Block(nn.Module):
    """A residual block with BatchNorm; its shortcut is a convolution."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        first = [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.residual = nn.Sequential(*first, nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.residual(x) + self.shortcut(x))


def resnet() -> nn.Module:
    """A ResNet of eight layers with 12, 24 and 48 channels."""
    trunk = [nn.Conv2d(3, 12, 3, 1, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()]
    blocks = [Block(12, 12, 1), Block(12, 24, 2), Block(24, 48, 2)]
    return nn.Sequential(*trunk, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10))


def shakespeare() -> Problem:
    """Characters of the plays; the last tenth of the text is held out."""
    written = (DATA / "shakespeare" / "input.txt").read_text()
    known = sorted(set(written))
    numbers = torch.tensor([known.index(c) for c in known])
    text = numbers[torch.tensor(np.searchsorted(known, list(written)))]
    train = text[: len(text) * 9 // 10]
    test = text[len(text) * 9 // 10 :][: 33 * 400].view(400, 33)

    def batch(generator: torch.Generator) -> Batch:
        begins = torch.randint(len(train) - 33, (16, 1), generator=generator)
        chosen = train[begins + torch.arange(33)]
        return chosen[:, :-1], chosen[:, 1:]

    def score(model: nn.Module) -> float:
        return float(F.cross_entropy(model(test[:, :-1]).flatten(0, 1), test[:, 1:].flatten()))

    return Problem(
        lambda: Transformer(len(known)),
        lambda model: torch.optim.AdamW(model.parameters(), lr=3e-3),
        batch,
        score,
        "held-out loss (nats a character)",
        steps=960,
        span=192,
    )


def images(file: str, count: int) -> Batch:
    """The first images of a file of CIFAR-10, of half the height and width, and their labels."""
    import pandas as pd
    from PIL import Image

    rows = pd.read_parquet(DATA / "cifar10" / file).head(count)
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(image["bytes"]))) for image in rows["img"]])
    x = F.avg_pool2d(torch.tensor(pixels).permute(0, 3, 1, 2).float().div(127.5).sub(1), 2)
    return x, torch.tensor(rows["label"].to_numpy())


def cifar10() -> Problem:
    """10,000 images of CIFAR-10, shifted and mirrored by chance, and 1,000 of its test images."""
    x, y = images("train.parquet", 10_000)
    test, labels = images("test.parquet", 1000)
    x = F.pad(x, (2, 2, 2, 2))

    def batch(generator: torch.Generator) -> Batch:
        chosen = torch.randint(len(x), (32,), generator=generator)
        top, left, mirrored = (int(torch.randint(n, (), generator=generator)) for n in (5, 5, 2))
        cut = x[chosen, :, top : top + 16, left : left + 16]
        return (cut.flip(3) if mirrored else cut), y[chosen]

    def score(model: nn.Module) -> float:
        return 100 * float((model(test).argmax(1) == labels).float().mean())

    return Problem(
        resnet,
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4),
        batch,
        score,
        "test accuracy (%)",
        steps=1200,
        span=240,
    )


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant rate": lambda share: 1.0,
    "cosine to 0": lambda share: (1 + math.cos(math.pi * share)) / 2,
}


def train(problem: Problem, schedule: Callable[[float], float], seed: int) -> Scores:
    """The scores of the model and of its averages at `POINTS` moments of a training."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = problem.model()
    optimiser = problem.optimiser(model)
    tracker = fs.Tracker(problem.averages, model)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / 50) * schedule(step / problem.steps)
    )
    scores: Scores = {name: [] for name in ("model", *problem.averages)}
    for step in range(1, problem.steps + 1):
        x, y = problem.batch(generator)
        optimiser.zero_grad()
        F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
        optimiser.step()
        rate.step()
        tracker.update()
        if step % (problem.steps // POINTS) == 0:
            model.eval()
            with torch.no_grad():
                scores["model"].append(problem.score(model))
                for name in problem.averages:
                    with tracker.applied(name):
                        scores[name].append(problem.score(model))
            model.train()
    return scores


def picture(title: str, problem: Problem, found: dict[str, list[Scores]]) -> Picture:
    """A panel for each schedule: the means over the seeds."""
    x = [problem.steps // POINTS * (i + 1) for i in range(POINTS)]
    panels = []
    for schedule, seeds in found.items():
        styles = {"model": QUIET} | {name: look(i) for i, name in enumerate(problem.averages)}
        lines = [
            Line(name, x, [mean(s[name][i] for s in seeds) for i in range(POINTS)], style)
            for name, style in styles.items()
        ]
        panels.append(Panel(schedule, Axis(f"step, {schedule}"), Axis(problem.metric), lines))
    return Picture(title, panels, columns=2)


def table(found: dict[str, list[Scores]]) -> str:
    """The last scores, and those after half of the training, as a table of Markdown: mean and deviation."""
    columns = [(schedule, i) for schedule in found for i in (POINTS // 2 - 1, POINTS - 1)]
    heads = [f"{schedule}, {'half' if i < POINTS - 1 else 'end'}" for schedule, i in columns]
    rows = [f"| | {' | '.join(heads)} |", f"|---{'|---' * len(columns)}|"]
    for name in next(iter(found.values()))[0]:
        values = [[scores[name][i] for scores in found[schedule]] for schedule, i in columns]
        cells = " | ".join(f"{mean(v):.3f} ± {stdev(v):.3f}" for v in values)
        rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def main(chosen: list[str]) -> None:
    problems: dict[str, Callable[[], Problem]] = {"transformer": shakespeare, "resnet": cifar10}
    titles = {"transformer": "A transformer on Shakespeare", "resnet": "A ResNet on CIFAR-10"}
    torch.set_num_threads(1)
    PLACE.mkdir(exist_ok=True)
    for name in chosen or problems:
        problem = problems[name]()
        count = sum(p.numel() for p in problem.model().parameters())
        found: dict[str, list[Scores]] = {schedule: [] for schedule in SCHEDULES}
        for seed in SEEDS:
            for schedule, rate in SCHEDULES.items():
                found[schedule].append(train(problem, rate, seed))
                print(name, schedule, seed, {average: scores[-1] for average, scores in found[schedule][-1].items()})
        draw(picture(titles[name], problem, found), PLACE / f"{name}.png")
        print(f"{titles[name]}, {count:,} parameters\n\n{table(found)}\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
