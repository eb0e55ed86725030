"""FedWindow's experiments: windows of 2, 3 and 4 of five clients on a ring, beside synchronous rounds ("vanilla").

The server sends and receives as the window slides along the ring. What counts is accuracy by client trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from .figures import CurvesFigure
from .pick import Labels, Pick, pick
from .reproduction import Reproduction, Scale, Settings, combined, prose
from .tables import Table

# MNIST with LeNet-5: five clients, of which each has sent and received once after five slides of the window.
MNIST = {
    "rounds": 500,
    "data": {"name": "mnist"},
    "partition": {"name": "iid", "clients": 5},
    "model": {"name": "lenet5"},
    "local": {"lr": 0.05, "batch": 32, "epochs": 2},
    "evaluation": {"every": 1, "target": 0.9},
    "engine": {"kind": "sequential", "workers": 1},
    "network": {
        "link": {"rate": 1e5, "latency": 0.05},  # 0.4 uploads of LeNet-5 per second
        "clients": {"seconds": 5.0, "spread": 0.5},
    },
    "scheduler": {"name": "fedwindow"},
}
CIFAR_10 = {"data": {"name": "cifar10", "augment": False}, "evaluation": {"target": 0.6}}

NETWORKS: dict[str, Settings] = {"LeNet-5": {}, "ResNet-18": {"model": {"name": "resnet18_gn"}}}
TWO_CLASSES: Settings = {"partition": {"name": "shards", "clients": 5, "classes": 2}}
DIRICHLET: Settings = {"partition": {"name": "dirichlet_classes", "clients": 5, "alpha": 0.5}}

# An entering client trains from its own model, or from the newest. With W = 4 of five clients these are the same.
READINGS = {"own": "own models", "newest": "newest model"}
SCHEMES: dict[str, Settings] = {
    "vanilla": {"rounds": 100, "scheduler": {"name": "synchronous"}},
    "W = 2, own": {"scheduler": {"window": 2}},
    "W = 3, own": {"scheduler": {"window": 3}},
    "W = 2, newest": {"scheduler": {"window": 2, "start": "newest"}},
    "W = 3, newest": {"scheduler": {"window": 3, "start": "newest"}},
    "W = 4": {"scheduler": {"window": 4}},
}

TOLD_IID = "W = 2 is best, 3 and 4 are slightly lower, and all are above vanilla; nothing is said of 3 against 4"
TOLD_NON_IID = "W = 4 is comparable to vanilla, 2 and 3 are lower; nothing is said of 2 against 3"
RING = """
    The text describes a round in two ways, as a turn of the ring, in which every client sends and receives once, and as
    one slide of the window. Here it is a turn, so 100 rounds are 500 client trips, with every scheme. Which model an
    entering client trains from is stated twice, differently. In Algorithm 1 (line 15) it is its own, the one that it
    received when it left the window. In the proof (a sixth assumption, without a number) it is the newest. On IID data
    the two give opposite orders of W. "own" and "newest" are these readings; with five clients and W = 4 they are the
    same run. Our reading: SGD with rate 0.05 in batches of 32, one seed, no augmentation; the cache of the first W
    models begins with w_0. ResNet-18 has GroupNorm. Training takes 5 s on average, and the link carries 0.4 uploads of
    LeNet-5 a second.
    """


def _digits(run: Labels) -> Iterator[Settings]:
    yield {
        "rounds": 3 if run["scheme"] == "vanilla" else 15,
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "local": {"batch": 10},
        "evaluation": {"last": 3, "target": 0.6},
        "network": {"link": {"rate": 1e4}},
    }


SCALES = {
    # all trips of LeNet-5: 25 minutes of one core for each run on CIFAR-10
    "small": Scale(only={"network": ["LeNet-5"]}, values={"seed": [0, 1, 2]}),
    "tiny": Scale(only={"network": ["LeNet-5"]}, changes=_digits),
}

# --- Table I: client trips to a target ---

TASKS: dict[str, Settings] = {"MNIST 90 %": {}, "CIFAR-10 60 %": CIFAR_10}
SPLITS: dict[str, Settings] = {"IID": {}, "two classes": TWO_CLASSES}

TABLE_1 = Reproduction(
    name="fedwindow-table-1",
    title="FedWindow, Table I: client trips to 90 % on MNIST and 60 % on CIFAR-10",
    paper="FedWindow",
    shows=prose(
        """
        Client trips until an accuracy, and how many times fewer than with synchronous rounds (vanilla), for windows of
        2, 3 and 4 clients, in two readings.
        """
    ),
    note=prose(
        f"""
        The printed table has no numbers. What the text says of Figures 3 and 4: on CIFAR-10, IID, {TOLD_IID}; on
        CIFAR-10, non-IID, {TOLD_NON_IID}. It has FedWindow 1.5 times as efficient as synchronous methods, without a
        definition, W, data or split. Stated: five clients in a ring, W = 2, 3, 4, two local epochs, LeNet-5 and
        ResNet-18, 100 rounds, both targets; no network or split of the table, and neither optimiser, rate, batch size,
        rule for non-IID nor seed. {RING} Non-IID deals two shards of one class to each client.
        """
    ),
    base=MNIST,
    axes={"seed": [0], "task": TASKS, "network": NETWORKS, "split": SPLITS, "scheme": SCHEMES},
    tables=[
        Table(
            rows={
                f"{task}, {network}, {split}": pick(task=task, network=network, split=split)
                for network, task, split in product(NETWORKS, TASKS, SPLITS)
            },
            columns="scheme",
            cells={"trips": pick(statistic="trips_to_target"), "speed-up": pick(statistic="trips_speed_up")},
            form="{} ({})",
            against=pick(scheme="vanilla"),
        )
    ],
    scales={
        "small": SCALES["small"],
        "tiny": Scale(only={"task": ["MNIST 90 %"], "network": ["LeNet-5"]}, changes=_digits),
    },
)

# --- Figures 3 and 4: accuracy by client trips ---


def _curves(name: str, title: str, reading: str, where: Pick) -> CurvesFigure:
    """Accuracy by client trips of vanilla and of each window, in one reading."""
    lines = {
        "vanilla": pick(scheme="vanilla"),
        "W = 2": pick(scheme=f"W = 2, {reading}"),
        "W = 3": pick(scheme=f"W = 3, {reading}"),
        "W = 4": pick(scheme="W = 4"),
    }
    return CurvesFigure(f"{name}-{reading}", f"{title}, {READINGS[reading]}", where, lines, by="trips")


FIGURE_3 = Reproduction(
    name="fedwindow-figure-3",
    title="FedWindow, Figure 3: accuracy by client trips, IID",
    paper="FedWindow",
    shows=prose(
        """
        Accuracy on CIFAR-10 against client trips, IID: windows of 2, 3 and 4 clients, in two readings, beside
        synchronous rounds (vanilla).
        """
    ),
    note=prose(
        f"""
        What the text says: {TOLD_IID}. Stated: five clients in a ring, W = 2, 3, 4, two local epochs, LeNet-5 and
        ResNet-18 (the printed figure is ResNet-18's), 100 rounds; no optimiser, rate, batch size or seed. {RING}
        """
    ),
    base=combined(MNIST, CIFAR_10),
    axes={"seed": [0], "network": NETWORKS, "scheme": SCHEMES},
    figures=[
        _curves(f"fedwindow-figure-3-{network.lower()}", "FedWindow, Figure 3: IID", reading, pick(network=network))
        for network, reading in product(NETWORKS, READINGS)
    ],
    scales=SCALES,
)

NON_IID = {"two classes": TWO_CLASSES, "alpha = 0.5": DIRICHLET}
FILES = {"two classes": "two-classes", "alpha = 0.5": "alpha"}

FIGURE_4 = Reproduction(
    name="fedwindow-figure-4",
    title="FedWindow, Figure 4: accuracy by client trips, non-IID",
    paper="FedWindow",
    shows=prose(
        """
        Accuracy on CIFAR-10 against client trips, non-IID: windows of 2, 3 and 4 clients, in two readings, beside
        synchronous rounds (vanilla).
        """
    ),
    note=prose(
        f"""
        What the text says: {TOLD_NON_IID}. Stated: five clients in a ring, W = 2, 3, 4, two local epochs, LeNet-5 and
        ResNet-18 (the printed figure is ResNet-18's), 100 rounds; no optimiser, rate, batch size, rule for non-IID or
        seed. {RING} Two non-IID splits: two shards of one class for each client, and a Dirichlet draw a class with
        alpha = 0.5. There clients differ in samples: vanilla weights them by samples, a window's mean is uniform
        (eq. 4).
        """
    ),
    base=combined(MNIST, CIFAR_10),
    axes={"seed": [0], "network": NETWORKS, "split": NON_IID, "scheme": SCHEMES},
    figures=[
        _curves(
            f"fedwindow-figure-4-{network.lower()}-{FILES[split]}",
            f"FedWindow, Figure 4: {split}",
            reading,
            pick(network=network, split=split),
        )
        for network, split, reading in product(NETWORKS, NON_IID, READINGS)
    ],
    scales=SCALES,
)

REPRODUCTIONS = [TABLE_1, FIGURE_3, FIGURE_4]
