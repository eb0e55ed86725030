"""MLflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...basics.errors import RunError, SettingError, library, one_line, shortened
from ...basics.resolve import check_address
from ...evaluation import Metrics
from ..files import flat
from ..runs import Callback, LiveRun, Result
from ..runs.driver import Driver
from .rows import Rows, named

log = logging.getLogger("fedsash")

TAG = "fedsash.run"
"""The tag of a run of MLflow that holds the id of the run here."""
SENT = "fedsash.rows"
"""The tag that says how many rows of the run MLflow has taken."""
MOST = 1000
"""MLflow takes so many numbers at a time."""


@dataclass
class MLflow(Callback):
    """Sends all recorded numbers and the settings to MLflow.

    A number is called `MODEL/SPLIT/METRIC`, such as `wima/test/accuracy`, and its step is the round. `experiment` is
    MLflow's word for a group of runs. `run_name` is the run's name there; empty: that of its folder. `uri` is where
    MLflow keeps them: a folder, a data base or a server; empty: what MLflow itself is set to (`MLFLOW_TRACKING_URI`).
    In a file it is refused unless the command line names it, too, or trusts the file by `--own-code`. A resumed run
    goes on in the same run of MLflow. If MLflow fails while the run goes on, a line says so, and the numbers are sent
    after the next evaluation.
    """

    experiment: str = "fedsash"
    run_name: str = ""
    uri: str = ""
    _rows: Rows = field(default_factory=Rows, init=False, repr=False, compare=False)
    _client: Any = field(default=None, init=False, repr=False, compare=False)
    _id: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.uri:
            otherwise = f"set it by MLFLOW_TRACKING_URI or --set track.mlflow.uri={self.uri}"
            check_address(self.uri, "MLflow", "uri", otherwise)

    def fits(self, federation: Driver) -> None:
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
            self._id, sent = self._found(run)
            self._client.update_run(self._id, status="RUNNING")
        except MlflowException as error:  # such as: the experiment was deleted
            raise RunError(f"MLflow: {shortened(one_line(error), 250)}") from error
        self._rows = Rows(min(sent, len(run.history)))
        self._send(run)

    def evaluation(self, run: LiveRun, metrics: list[Metrics]) -> None:
        self._send(run)

    def end(self, run: LiveRun, result: Result | None) -> None:
        self._send(run)
        status = "FAILED" if result is None else "KILLED" if result.interrupted else "FINISHED"
        with self._forgiven():
            self._client.set_terminated(self._id, status)

    def _found(self, run: LiveRun) -> tuple[str, int]:
        """The id of MLflow's run, and how many rows it has: of an earlier session, or a new one with the settings."""
        from mlflow.entities import Param

        client = self._client
        group = client.get_experiment_by_name(self.experiment)
        place = client.create_experiment(self.experiment) if group is None else group.experiment_id
        if before := client.search_runs([place], f"tags.`{TAG}` = '{run.id}'", max_results=1):
            return str(before[0].info.run_id), int(before[0].data.tags.get(SENT, 0))
        name = self.run_name or (run.folder.resolve().name if run.folder else None)
        new = str(client.create_run(place, tags={TAG: run.id}, run_name=name).info.run_id)
        client.log_batch(new, params=[Param(key, str(value)) for key, value in flat(run.config)])
        return new, 0

    def _send(self, run: LiveRun) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        with self._forgiven():
            found = [
                Metric(n, value, now, row["round"]) for row in self._rows.new(run) for n, value in named(row).items()
            ]
            for first in range(0, len(found), MOST):
                self._client.log_batch(self._id, metrics=found[first : first + MOST])
            self._client.set_tag(self._id, SENT, str(self._rows.sent))

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        """An error of MLflow here is a warning: it must not end the training. The rows are sent the next time."""
        from mlflow import MlflowException

        sent = self._rows.sent
        try:
            yield
        except MlflowException as error:
            self._rows.sent = sent
            log.warning("MLflow did not take the numbers, they are sent later: %s", shortened(one_line(error), 250))
