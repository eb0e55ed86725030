"""The best models, written while the run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedsash import Callback, Evaluation, ExportBest, SettingError, run
from fedsash.extend import LiveRun
from fedsash.testing import check_callback
from support.observing import observed, start

HELD = Evaluation(every=1, last=1, held_out=0.3)


def test_after_every_evaluation_the_files_hold_the_best_models_so_far(tmp_path: Path) -> None:
    class Looks(Callback):
        rounds = 0

        def evaluation(self, run: LiveRun, metrics: Any) -> None:
            for name, best in run.tally.best.items():
                file = tmp_path / "models" / f"{name}-best.safetensors"
                assert file.read_bytes() == run.federation.export(best.w)
            self.rounds += 1

    looks = Looks()
    start(observed(evaluation=HELD), 5, tmp_path, callbacks=[ExportBest(), looks])
    assert looks.rounds == 5


def test_only_the_models_that_are_named_are_written_during_the_run(tmp_path: Path) -> None:
    seen: set[str] = set()

    class Looks(Callback):
        def evaluation(self, run: LiveRun, metrics: Any) -> None:
            seen.update(path.name for path in (tmp_path / "models").iterdir())

    start(observed(evaluation=HELD), 4, tmp_path, callbacks=[ExportBest(models=("ema",)), Looks()])
    assert seen == {"ema-best.safetensors"}


def test_it_keeps_the_identities_of_callbacks() -> None:
    check_callback(ExportBest(models=("w",)))


def test_what_it_can_not_export_is_refused() -> None:
    with pytest.raises(SettingError, match=r"ExportBest.models = 'wima': must be one of model, window"):
        run(observed(), 1, progress=False, callbacks=[ExportBest(models=("wima",))])
    with pytest.raises(SettingError, match=r"evaluation.best_on = 'held_out': on held-out samples needs"):
        run(observed(evaluation=Evaluation()), 1, progress=False, callbacks=[ExportBest()])
    with pytest.raises(SettingError, match="out = None: must be a folder"):
        run(observed(evaluation=HELD), 1, progress=False, callbacks=[ExportBest()])
