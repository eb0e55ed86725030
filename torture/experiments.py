"""The small experiments with which the campaign works: digits, a second of training, every kind of state."""

from __future__ import annotations

from pathlib import Path

ENGINE = """
[engine]
kind = "sequential"
workers = 1
block = 1
threads = 1
compile = false
memory_format = "contiguous"
start = "fork"
"""

RUN = """
rounds = 12
broadcast = { average = ["w3", "ema"], start = "auto", patience = 1 }
[partition]
clients = 12
alpha = 0.5
[model]
name = "mlp"
hidden = [8]
[method]
name = "scaffold"
[server]
name = "adam"
lr = 0.05
[local]
lr = 0.05
batch = 20
epochs = 1
[sampling]
count = 4
dropout = 0.1
[averages]
w3 = { name = "window", size = 3 }
w6 = { name = "window", size = 6, part = "classifier" }
ema = { name = "ema", decay = 0.8 }
swa = { name = "swa", start = 5 }
[evaluation]
every = 1
last = 3
held_out = 0.1
[checkpoint]
every = 2
keep = [4]
[trajectory]
every = 3
"""

SWEEP = """
base = "plain.toml"
[axes]
seed = [0, 1]
[axes.ima.off]
[axes.ima.on]
broadcast = { average = "w3", start = 5 }
"""

SMALL = """
[model]
name = "mlp"
hidden = [8]
[local]
lr = 0.05
batch = 20
epochs = 1
[averages]
w3 = { name = "window", size = 3 }
[evaluation]
every = 1
last = 3
"""

PLAIN = """
rounds = 8
[partition]
clients = 6
alpha = 0.5
[sampling]
count = 3
[checkpoint]
every = 3
"""

NETWORK = """
rounds = 8
[partition]
name = "shards"
clients = 5
classes = 2
[checkpoint]
every = 2
[network.link]
rate = 2e4
latency = 0.05
[network.clients]
seconds = 2.0
spread = 0.5
[scheduler]
name = "fedwindow"
window = 3
"""

TIMING = NETWORK.replace("[network.link]", "[network]\nlearning = false\nbytes = 5000\n[network.link]").replace(
    "[network.clients]", "[network.clients]\ncount = 5"
)


def write(folder: Path) -> None:
    """Write all of them into a folder."""
    workers = ENGINE.replace("workers = 1", "workers = 2")
    files = {"run": RUN + ENGINE, "workers": RUN + workers, "plain": PLAIN + SMALL + ENGINE, "sweep": SWEEP}
    files |= {"network": NETWORK + SMALL + ENGINE, "timing": TIMING + SMALL}
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
