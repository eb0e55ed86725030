"""Scores of models on the clients' own samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..basics.arrays import Ints, Vectors, joined
from ..data.federated import FederatedData
from ..data.samples import Samples
from ..evaluation import Scorer, Split, SplitsOf, scored
from ..exchange import Job
from ..methods import Upload

NO_ROWS = np.empty(0, dtype=np.int64)


class ClientScorer:
    """Scores models on the samples of clients, in each job of an evaluation on the splits that are `asked`."""

    def __init__(self, scorer: Scorer, data: FederatedData, asked: SplitsOf) -> None:
        self._scorer, self._asked = scorer, asked
        test = data.train if data.test is None else data.test
        self._samples: dict[Split, tuple[Samples, Sequence[Ints]]] = {
            "held_out": (data.train, data.held),
            "client_test": (test, data.client_test),
            "clients": (data.train, data.clients),
        }

    def of_one(self, job: Job, w: Tensor, rows: Ints) -> Upload:
        """The scores `[C, k]` of one model `w` `[D]` on the samples of the clients in these rows, split by split."""
        found: Upload = {}
        for split in self._asked[job]:
            samples, of = self._samples[split]
            scores = self._scorer.scores(w, samples, [of[row] if len(of) else NO_ROWS for row in rows])
            found |= {scored(split, name): torch.from_numpy(sums) for name, sums in scores.items()}
        return found

    def of_each(self, job: Job, models: Iterable[Tensor], rows: Ints) -> Upload:
        """The scores `[C, k]` of each client's own model `[D]` on its samples."""
        return joined([self.of_one(job, w, row) for w, row in zip(models, np.split(rows, len(rows)), strict=True)])

    def shapes(self, w: Tensor) -> dict[Job, Vectors]:
        """Scores `[1, k]` of the model `w` `[D]` for each job, with the names and lengths of what clients send."""
        found = self._scorer.scores(w, self._samples["clients"][0], [NO_ROWS]) if self._asked else {}
        return {
            job: {scored(split, name): torch.from_numpy(sums) for split in splits for name, sums in found.items()}
            for job, splits in self._asked.items()
        }
