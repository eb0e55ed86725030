"""The page of partitions, docs/how-to/partitions.md, with a picture of each rule. Synthetic labels: it needs no data.

python -m benchmarks.gallery
"""

from __future__ import annotations

from pathlib import Path
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
    Pachinko,
    Quantity,
    Samples,
    Shards,
    Source,
    Transform,
    Users,
)
from fedsash.runs.partition import record
from fedsash.runs.pictures.paper import draw
from fedsash.runs.pictures.partition import partition

Ints = NDArray[np.int64]

HOW_TO = Path(__file__).parents[1] / "docs" / "how-to"
COLOURS = 32
"""How many colours a picture keeps, so that it is small."""

ALPHAS = (0.1, 0.5, 1)
PUBLISHED = (1.54, 3.57, 4.78)
"""Classes a client in the split files of CIFAR-10 published by Caldarola et al. (2022), for each of `ALPHAS`."""
SEEDS = range(10)

CIFAR10 = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
CIFAR100 = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
DIGITS = np.random.default_rng(0).integers(0, 10, 5 * 7438)

PAGE = """\
# Divide data over clients: IID, Dirichlet, shards

```toml
partition = {{ name = "dirichlet", clients = 100, alpha = 0.1 }}
```

    fedsash partition mine.toml --out clients.png      # draws who holds what

In Python it is `partition=fs.Dirichlet(clients=100, alpha=0.1)`, and `fs.plot_clients(data)` draws it. Below, n samples
of C classes go to N clients. `fedsash list partitions NAME` has the exact definition.

{rules}

## Three rules are called "Dirichlet(alpha)"

Say which one you use. Classes that one of 100 clients holds on average on CIFAR-10, from the lowest to the highest of
{seeds} seeds, and in the split files of Caldarola et al. (2022):

{skews}

## Pictures

A column is a client. Labels are made up. `python -m benchmarks.gallery` makes this page.
{pictures}"""

PICTURE = """
`{rule}`

![{file}](partitions/{file}.png)
"""

RULES = {
    "iid": ("a random order, cut into N equal parts", ""),
    "shards": ("samples sorted by label, cut into N · `classes` shards; `classes` shards each", "McMahan 2017"),
    "class_pairs": ("two classes each; a class is cut equally among its clients", "Li 2022; IMA"),
    "dirichlet": ("each client: n/N labels from q, with q ~ Dir(alpha · prior)", "Hsu 2019; WiMA"),
    "dirichlet_classes": (
        "each class: cut by p ~ Dir(alpha) over the N clients; drawn until all have `min_size`",
        "Yurochkin 2019; IMA",
    ),
    "dirichlet_reuse": (
        "each client: n/N labels from q, with q ~ Dir(alpha) over C classes; **a sample may be used twice**",
        "FedSWA",
    ),
    "pachinko": (
        "each client: Dir(alpha) over coarse labels, Dir(beta) over the labels of each; **not all samples are used**",
        "Reddi 2021; WiMA",
    ),
    "quantity": ("random labels, sizes from Dir(alpha) over the N clients", "Li 2022"),
    "users": ("each [user](split-by-user.md) is a client", "Caldas 2018"),
    "domains": ("each domain goes to `clients_per_domain` clients, by another rule, `inner`", "IMA"),
    "flwr": ('a `partitioner` of flwr-datasets, such as `"LinearPartitioner"`', ""),
}
"""Who holds what by each rule, and where the rule is from."""


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
GALLERY: dict[str, tuple[Any, Source]] = {
    "iid": (IID(100), PLAIN),
    "shards": (Shards(100), PLAIN),
    "class_pairs": (ClassPairs(100), PLAIN),
    "dirichlet": (Dirichlet(100, 0.1), PLAIN),
    "dirichlet_classes": (DirichletClasses(100, 0.1), PLAIN),
    "dirichlet_reuse": (DirichletReuse(100, 0.1), PLAIN),
    "pachinko": (Pachinko(100, 500), source(CIFAR100, coarse=CIFAR100 // 5)),
    "quantity": (Quantity(100, 0.5, min_size=10), PLAIN),
    "users": (Users(min_samples=100, max_users=100), source(CIFAR10, user=writers(CIFAR10, 200))),
    "domains": (Domains(20), FIVE),
}
"""By the name of its picture: a rule, and what it shares out."""


def picture(file: str, rule: Any, samples: Source) -> str:
    """Draw a rule's picture, and show it on the page below the rule and its options."""
    data = samples.partition(rule)
    path = HOW_TO / "partitions" / f"{file}.png"
    draw(partition(record(data)), path)
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    return PICTURE.format(rule=rule, file=file)


def rules() -> str:
    """A table of who holds what by each rule."""
    rows = [["rule", "who holds what", "source"], ["---"] * 3]
    rows += [[f"`{name}`", meaning, origin] for name, (meaning, origin) in RULES.items()]
    return _table(rows)


def skews() -> str:
    """A table of the classes that a client holds by each Dirichlet rule and in the published files."""
    rows = [["alpha", *map(str, ALPHAS)], ["---"] * (1 + len(ALPHAS)), ["published files", *map(str, PUBLISHED)]]
    for name in ("dirichlet", "dirichlet_classes", "dirichlet_reuse"):
        rows.append([f"`{name}`", *(held(PARTITIONS[name], alpha) for alpha in ALPHAS)])
    return _table(rows)


def _table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def held(make: Any, alpha: float) -> str:
    """The lowest and the highest mean number of classes of a client."""
    means = [np.mean([len(np.unique(CIFAR10[part])) for part in make(100, alpha)(CIFAR10, seed)]) for seed in SEEDS]
    low = f"{min(means):.2f}"
    high = f"{max(means):.2f}"
    return low if low == high else f"{low} to {high}"


def main() -> None:
    (HOW_TO / "partitions").mkdir(exist_ok=True)
    pictures = "".join(picture(file, *entry) for file, entry in GALLERY.items())
    page = PAGE.format(seeds=len(SEEDS), rules=rules(), skews=skews(), pictures=pictures)
    (HOW_TO / "partitions.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
