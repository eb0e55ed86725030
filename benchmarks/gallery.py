"""The page of partitions, docs/how-to/partitions.md, with a picture of each rule. Synthetic labels: it needs no data.

python -m benchmarks.gallery
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedsash.data import (
    IID,
    PARTITIONS,
    ClassPairs,
    Dirichlet,
    DirichletClasses,
    DirichletReuse,
    Domains,
    Flwr,
    Pachinko,
    Quantity,
    Samples,
    Shards,
    Source,
    Transform,
    Users,
)
from fedsash.data.partitions.common import Partition
from fedsash.lab.config.tables import plain
from fedsash.lab.config.words import show, summary
from fedsash.runs.partition import record, table
from fedsash.runs.pictures.paper import draw
from fedsash.runs.pictures.partition import partition

Ints = NDArray[np.int64]

HOW_TO = Path(__file__).parents[1] / "docs" / "how-to"
COLOURS = 32
"""How many colours a picture keeps, so that it is small."""

ALPHAS = (0, 0.05, 0.1, 0.2, 0.5, 1, 10, 100)
PUBLISHED = (1, 1.32, 1.54, 2.19, 3.57, 4.78, 9.28, 9.9)
"""Classes a client in the split files of CIFAR-10 published by Caldarola et al. (2022), for each of `ALPHAS`."""
SEEDS = range(10)

CIFAR10 = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
CIFAR100 = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
DIGITS = np.random.default_rng(0).integers(0, 10, 5 * 7438)

PAGE = """\
# Partitions

Who holds what. An experiment file chooses a rule as below, in Python it is `fs.Dirichlet(clients=100,
alpha=0.1)`; `fedsash list partitions NAME` says more about it, and `fedsash partition FILE --out clients.png`
draws what it makes of your data, and so does `fs.plot_clients(data)`. Every rule is a pure function of the samples'
labels (coarse labels, users, domains) and the seed, and either ends or says in one line why not.

In a picture a column is a client: its samples, coloured by class, and below them a dot for each class that it holds,
its area in proportion to the class's share. Labels are synthetic, in the proportions of CIFAR-10 where nothing else is
said. `python -m benchmarks.gallery` makes this page and its pictures.

## Three rules called "Dirichlet(alpha)"

The same alpha means a different skew in each. Classes that one of 100 clients holds on average on CIFAR-10, from the
lowest to the highest mean of {seeds} seeds, and in the split files published by Caldarola et al. (2022), which are one
draw each:

{skews}
{sections}
## `flwr`

{flwr} No picture, since there are many.

```toml
partition = {{ name = "flwr", clients = 10, partitioner = "LinearPartitioner" }}
```
"""

SECTION = """
## {title}

{text}

```toml
partition = {table}
```

![{file}](partitions/{file}.png)

{facts}.
"""


def source(y: Ints, domain_names: tuple[str, ...] = (), **numbers: Ints) -> Source:
    """Samples with these labels, and nothing to see on them."""
    tensors = {name: torch.from_numpy(values) for name, values in numbers.items()}
    samples = Samples(torch.zeros(len(y), 1), torch.from_numpy(y), **tensors)
    return Source(samples, None, int(y.max()) + 1, Transform(), domain_names=domain_names)


def writers(labels: Ints, count: int, seed: int = 0) -> Ints:
    """A user for each sample: users differ in how much they write (log-normal), and in what (Dir(1))."""
    rng = np.random.default_rng(seed)
    weight = rng.lognormal(sigma=0.8, size=(count, 1)) * rng.dirichlet(np.ones(labels.max() + 1), count)
    users = np.empty_like(labels)
    for c, p in enumerate((weight / weight.sum(axis=0)).T):
        users[labels == c] = rng.choice(count, size=(labels == c).sum(), p=p)
    return users


PLAIN = source(CIFAR10)
FIVE = source(
    DIGITS, ("mnist", "mnist_m", "svhn", "synthdigits", "usps"), domain=np.repeat(np.arange(5), len(DIGITS) // 5)
)
GALLERY: dict[str, tuple[Any, Source, str]] = {
    "iid": (IID(100), PLAIN, ""),
    "shards": (Shards(100), PLAIN, ""),
    "class_pairs": (ClassPairs(100), PLAIN, ""),
    "dirichlet": (Dirichlet(100, 0.1), PLAIN, ""),
    "dirichlet_classes": (DirichletClasses(100, 0.1), PLAIN, ""),
    "dirichlet_reuse": (DirichletReuse(100, 0.1), PLAIN, ""),
    "pachinko": (
        Pachinko(100, 500),
        source(CIFAR100, coarse=CIFAR100 // 5),
        "By default 500 clients hold 100 samples each. Labels in the proportions of CIFAR-100, where five lie below "
        "each of twenty coarse labels: here these are neighbours.",
    ),
    "quantity": (Quantity(100, 0.5, min_size=10), PLAIN, ""),
    "users": (
        Users(min_samples=100, max_users=100),
        source(CIFAR10, user=writers(CIFAR10, 200)),
        "Here of 200 made-up users, who differ in how much they write, and in what.",
    ),
    "domains": (Domains(20), FIVE, "Here five domains of 7,438 digits each; the lowest dots are a client's domain."),
    "domains_dirichlet_classes": (
        Domains(20, DirichletClasses(20, 0.1)),
        FIVE,
        "The same five domains, with a label skew inside each. The inner rule's `clients` may be left out.",
    ),
}
"""By the name of its picture: a rule, what it shares out, and what to know about that."""


def section(file: str, rule: Any, samples: Source, text: str) -> str:
    """Draw a rule's picture, and write what the page says about it."""
    data = samples.partition(rule)
    path = HOW_TO / "partitions" / f"{file}.png"
    draw(partition(record(data)), path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    options = plain(rule, Partition)
    inner = options["name"] != file
    title = f"`{options['name']}`" + (f" with `{options['inner']['name']}` inside" if inner else "")
    text = text if inner else f"{summary(type(rule))} {text}"
    facts = "; ".join(table(data).split("\n\n")[0].splitlines())
    return SECTION.format(title=title, text=fill(text, 120), table=show(options), file=file, facts=fill(facts, 119))


def skews() -> str:
    """A table of the classes that a client holds by each Dirichlet rule and in the published files."""
    rows = [["alpha", *map(str, ALPHAS)], ["---"] * (1 + len(ALPHAS)), ["published files", *map(str, PUBLISHED)]]
    for name in ("dirichlet", "dirichlet_classes", "dirichlet_reuse"):
        rows.append([f"`{name}`", *(held(PARTITIONS[name], alpha) for alpha in ALPHAS)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def held(make: Any, alpha: float) -> str:
    """The lowest and the highest mean number of classes a client."""
    if make is not Dirichlet and alpha < 0.1:  # not defined at 0, and DirichletClasses at 0.05 needs too many tries
        return ""
    means = [np.mean([len(np.unique(CIFAR10[part])) for part in make(100, alpha)(CIFAR10, seed)]) for seed in SEEDS]
    low = f"{min(means):.2f}"
    high = f"{max(means):.2f}"
    return low if low == high else f"{low} to {high}"


def main() -> None:
    (HOW_TO / "partitions").mkdir(exist_ok=True)
    sections = "".join(section(file, *entry) for file, entry in GALLERY.items())
    page = PAGE.format(seeds=len(SEEDS), skews=skews(), sections=sections, flwr=summary(Flwr))
    (HOW_TO / "partitions.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
