"""IMA's ten clients as the caption of its Table 6 has them: two shards of 250 images each, 5,000 of CIFAR-10's 50,000.

    fedsash reproduce ima-figure-2 --scale small --data DIR --out runs/small-shards --own-code \\
        --set 'partition={name="examples.findings.small_shards:SmallShards", clients=10}' --set local.epochs=2

docs/papers/ima.md says what came out.
"""

from dataclasses import dataclass

import numpy as np

from fedsash.data.partitions import IID, Shards


@dataclass(frozen=True)
class SmallShards:
    """Shards of a fixed size: as many images of each class, drawn by the seed, as `clients * classes` of them take."""

    clients: int
    classes: int = 2
    """how many shards each client gets"""
    shard: int = 250
    """how many images a shard has"""
    iid: bool = False
    """whether the same images are dealt at random instead"""

    def __call__(self, labels: np.ndarray, seed: int) -> list[np.ndarray]:
        """Each client's indices."""
        rng = np.random.default_rng(seed)
        known = np.unique(labels)
        each = self.clients * self.classes * self.shard // len(known)
        drawn = [rng.choice(np.flatnonzero(labels == label), each, replace=False) for label in known]
        held = np.sort(np.concatenate(drawn))
        rule = IID(self.clients) if self.iid else Shards(self.clients, self.classes)
        return [held[part] for part in rule(labels[held], seed)]
