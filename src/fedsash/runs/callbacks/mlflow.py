"""MLflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...evaluation import Score
from ...server.federation import Federation
from ...settings.errors import RunError, SettingError, library, one_line, shortened
from ...settings.resolve import check_address
from ...system.files import flat
from .. import Callback, LiveRun, Result
from .rows import by_round, run_name

log = logging.getLogger("fedsash")

TAG = "fedsash.run"
"""The tag of a run of MLflow that holds the id of the run here."""
MOST = 1000
"""MLflow takes so many numbers at a time."""


@dataclass
class MLflow(Callback, name="mlflow"):
    """Sends all recorded numbers and the settings to MLflow.

    A number is called `MODEL/SPLIT/METRIC`, such as `wima/test/accuracy`, and its step is the round. A resumed run
    goes on in the same run of MLflow. If MLflow fails while the run goes on, a line says so, and the numbers are sent
    after the next evaluation.
    """

    experiment: str = "fedsash"
    """the experiment, which is MLflow's word for a group of runs"""
    run_name: str = ""
    """the run's name there; empty: that of its folder"""
    uri: str = ""
    """where MLflow keeps the runs: a folder, a data base or a server; empty: what MLflow itself is set to
    (`MLFLOW_TRACKING_URI`). In a file it is refused unless the command line names it, too, or trusts the file by
    `--own-code`"""

    _sent: int = field(default=0, init=False, repr=False, compare=False)
    _client: Any = field(default=None, init=False, repr=False, compare=False)
    _id: str = field(default="", init=False, repr=False, compare=False)
    _taken: set[tuple[str, int]] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.uri:
            otherwise = f"set it by MLFLOW_TRACKING_URI or --set track.mlflow.uri={self.uri}"
            check_address(self.uri, "MLflow", "uri", otherwise)

    def fits(self, federation: Federation) -> None:
        with library("mlflow", "MLflow", "fedsash[mlflow]"):
            from mlflow import MlflowClient, MlflowException
        try:
            self._client = MlflowClient(self.uri or None)
            self._client.get_experiment_by_name(self.experiment)  # which fails without a connection
        except MlflowException as error:
            raise SettingError("MLflow", "uri", self.uri, shortened(one_line(error), 250)) from error

    def begin(self, run: LiveRun) -> None:
        from mlflow import MlflowException

        try:
            self._id = self._mlflow_run(run)
            self._client.update_run(self._id, status="RUNNING")
        except MlflowException as error:  # such as: the experiment was deleted
            raise RunError(f"MLflow: {shortened(one_line(error), 250)}") from error
        self._sent = 0
        self._taken = None
        self._send(run)

    def evaluation(self, run: LiveRun, scores: list[Score]) -> None:
        self._send(run)

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._send(run)
        status = "FINISHED"
        if result is None:
            status = "FAILED"
        elif result.interrupted:
            status = "KILLED"
        with self._errors_as_warnings():
            self._client.set_terminated(self._id, status)

    def _mlflow_run(self, run: LiveRun) -> str:
        """The id of MLflow's run: that of an earlier session, or of a new one with the settings."""
        from mlflow.entities import Param

        client = self._client
        experiment = client.get_experiment_by_name(self.experiment)
        experiment_id = client.create_experiment(self.experiment) if experiment is None else experiment.experiment_id
        earlier = client.search_runs([experiment_id], f"tags.`{TAG}` = '{run.id}'", max_results=1)
        if earlier:
            return str(earlier[0].info.run_id)
        name = run_name(self.run_name, run.folder) or None
        run_id = str(client.create_run(experiment_id, tags={TAG: run.id}, run_name=name).info.run_id)
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in flat(run.config)])
        return run_id

    def _send(self, run: LiveRun) -> None:
        """Send the new numbers that MLflow does not have, so that it has each once, whenever a session was killed."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        with self._errors_as_warnings():
            if self._taken is None:
                self._taken = self._numbers_in_mlflow()
            metrics = []
            for index, values in by_round(run.history[self._sent :]):
                for name, value in values.items():
                    if (name, index) not in self._taken:
                        metrics.append(Metric(name, value, now, index))
            for first in range(0, len(metrics), MOST):
                batch = metrics[first : first + MOST]
                self._client.log_batch(self._id, metrics=batch)
                self._taken.update((metric.key, metric.step) for metric in batch)
            self._sent = len(run.history)

    def _numbers_in_mlflow(self) -> set[tuple[str, int]]:
        """The names and steps of all numbers that MLflow has of the run."""
        numbers = set()
        for name in self._client.get_run(self._id).data.metrics:
            for metric in self._client.get_metric_history(self._id, name):
                numbers.add((name, metric.step))
        return numbers

    @contextmanager
    def _errors_as_warnings(self) -> Iterator[None]:
        """An error of MLflow inside becomes a warning: it must not end the training. The numbers are sent later."""
        from mlflow import MlflowException

        try:
            yield
        except MlflowException as error:
            self._taken = None  # it may have taken some of them
            log.warning("MLflow did not take the numbers, they are sent later: %s", shortened(one_line(error), 250))
