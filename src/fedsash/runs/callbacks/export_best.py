"""Export of the best models while the run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...evaluation import Score
from ...server.federation import Federation
from ...settings.errors import check
from ...settings.setting import Accepts, default
from .. import Callback, LiveRun
from ..model_files import write_models


@dataclass(frozen=True)
class ExportBest(Callback, name="export_best"):
    """Writes the best version of a model as soon as it is found, to `models/NAME-best.safetensors` in the run's folder.

    Without it these files are written when a session ends. Which version is the best is decided by the run's own metric
    on `evaluation.best_on`, by default held-out samples. A file is replaced completely or not at all, so another
    process may read it at any moment.
    """

    models: Accepts[tuple[str, ...], list[str]] = default(())
    """the names of the models that are written; empty: all"""

    def fits(self, federation: Federation) -> None:
        models = ["model", *federation.averages]
        for name in self.models:
            check(name in models, "ExportBest.models", name, f"must be one of {', '.join(models)}")
        best_on = federation.evaluation.best_on
        held = federation.clients.held
        requirement = (
            'on held-out samples needs evaluation.held_out, for example 0.1; or set evaluation.best_on = "test"'
        )
        check(best_on == "test" or held, "evaluation.best_on", best_on, requirement)

    def begin(self, run: LiveRun) -> None:
        check(run.folder is not None, "out", None, "must be a folder: ExportBest writes into it")

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        assert run.folder is not None
        write_models(run.folder, self._new_files(run))

    def _new_files(self, run: LiveRun) -> Iterator[tuple[str, bytes]]:
        """The name and the content of each chosen model that is the best since this evaluation, made one by one."""
        for name, best in run.tally.best.items():
            chosen = name in self.models or not self.models
            if chosen and best.round == run.round:
                yield f"{name}-best", run.federation.export(best.w)
