"""Who holds what, and who takes part when, in IMA's published code: the draws of NumPy's generator from its seeds.

    fedsash reproduce ima-table-1 --data DIR --out runs/draw --only "row=FMNIST a=0.1" --only method=FedAvg \\
        --set 'partition={name="examples.findings.published_draw:Split", clients=100, alpha=0.1}' \\
        --set 'sampling={name="function", function="examples.findings.published_draw:cohort"}' --own-code

The rule of the split is that of `dirichlet_classes`; only the draw differs. docs/papers/ima.md says what came out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState

SPLIT_SEED = 1
ROUND_SEED = 2023
LEAST = 10
"""Every client has so many samples, or all is drawn again."""


@dataclass(frozen=True)
class Split:
    """A Dirichlet per class over the clients, drawn in the order in which the published code draws.

    How many images of each class a client holds is as there. Which ones depends on the order of the file.
    """

    clients: int
    alpha: float

    def __call__(self, labels: np.ndarray, seed: int) -> list[np.ndarray]:
        """Each client's indices. `seed` has no effect: there is one draw."""
        rng = RandomState(SPLIT_SEED)
        held = np.zeros(self.clients, dtype=int)
        parts: list[list[np.ndarray]] = []
        while held.min() < LEAST:
            held = np.zeros(self.clients, dtype=int)
            parts = []
            for label in range(labels.max() + 1):
                pool = np.flatnonzero(labels == label)
                rng.shuffle(pool)
                p = rng.dirichlet(np.full(self.clients, self.alpha)) * (held < len(labels) / self.clients)
                parts.append(np.split(pool, (np.cumsum(p / p.sum())[:-1] * len(pool)).astype(int)))
                held += [len(part) for part in parts[-1]]
        return [np.sort(np.concatenate(own)) for own in zip(*parts, strict=True)]


def cohort(round: int, sizes: np.ndarray, seed: int) -> np.ndarray:
    """The ten clients of a round, counted from 0."""
    return RandomState(ROUND_SEED + round).choice(len(sizes), 10, replace=False)
