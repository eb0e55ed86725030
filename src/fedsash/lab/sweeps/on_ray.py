"""The processes of a sweep on the machines of a Ray cluster: an actor holds each one on its machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...engines import LocalEngine
from ...engines.ray.on_ray import connect
from ...engines.ray.pool import PATIENCE, reason
from ...settings.errors import WorkerError, check, one_line, shortened
from ...system.machine import unlike, versions
from ...system.subprocesses import Child
from ..config import ConfigError, Experiment
from .machines import JOB, Machines, log_of
from .plan import Segment

ENVIRON = "PYTHONPATH", "FEDSASH_CACHE"
"""What a process has of this one's environment: where its code lies, and what it keeps."""

WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


class OnRay(Machines):
    """A process for each core of the cluster. Ray decides which machine has which, and starts one when a core is free.

    Raises `ConfigError` if a segment does not fit the cluster, or if a machine does not see the folder `out`.
    """

    together = False
    tries = 3

    def __init__(self, segments: Sequence[Segment], out: Path, jobs: int | None, address: str) -> None:
        for segment in segments:
            _check_fits(segment.experiment)
        connect(None if address == "local" else address, "cluster")
        self._out = out.absolute()
        self._width = max(_width(segment.experiment) for segment in segments)
        machines = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= self._width]
        places = sum(int(node["Resources"]["CPU"]) // self._width for node in machines)
        check(places > 0, "cluster", address, f"has no machine with the {self._width} cores that a run needs")
        _check_machines(machines, self._out)
        self.slots = range(min(jobs or places, places, len(segments)))

    def program(self, slot: int) -> OnActor:
        environ = dict(WITHOUT_GPU)
        for name in ENVIRON:
            if name in os.environ:
                environ[name] = os.environ[name]
        make: Any = ray.remote(num_cpus=self._width, max_restarts=0, max_task_retries=0, max_concurrency=3)(Child)
        return OnActor(make.remote(JOB, log_of(self._out, f"{{machine}}-{slot}"), os.getcwd(), environ))

    def cores(self, slots: Sequence[int]) -> Sequence[int]:
        return ()


class OnActor:
    """A program that an actor holds. What it is told before the actor has started, it gets then."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._log = actor.log.remote()

    def log(self) -> str:
        return str(_answer(self._log))

    def write(self, line: str) -> None:
        self._actor.write.remote(line)

    def said(self) -> bytes:
        output: bytes = _answer(self._actor.said.remote())
        return output

    def code(self) -> int:
        code = int(_answer(self._actor.code.remote()))
        ray.kill(self._actor)
        return code

    def signal(self, number: int) -> None:
        """Send it a signal; if it has not started, it does not start any more."""
        if ray.wait([self._log], timeout=0)[0]:
            self._actor.signal.remote(number)
        else:
            ray.kill(self._actor)

    def close(self) -> None:
        self._actor.close.remote()


def _answer(reference: Any) -> Any:
    """An actor's answer. Raises `WorkerError` if it is dead."""
    try:
        return ray.get(reference)
    except RayError as error:
        raise WorkerError(f"its actor died ({reason(error)})") from error


def _check_fits(experiment: Experiment) -> None:
    """Raise `ConfigError` if a run can't be trained by a process with a core or some."""
    if not isinstance(experiment.engine, LocalEngine):
        chosen = experiment.table()["engine"]
        key = "kind" if "kind" in chosen else "name"  # an engine of one's own has no kind
        raise ConfigError(f"engine.{key} = {chosen[key]!r}: a sweep over a cluster needs an engine of one machine")
    if experiment.device not in ("cpu", "auto"):
        raise ConfigError(f"device = {experiment.device!r}: a sweep over a cluster trains on the CPU")


def _width(experiment: Experiment) -> int:
    """How many cores a process needs: its workers and threads as far as they are given, else one."""
    engine = experiment.engine
    assert isinstance(engine, LocalEngine)
    workers = 1 if engine.workers == "auto" else int(engine.workers)
    threads = 1 if engine.threads == "auto" else int(engine.threads)
    return workers * threads


def _check_machines(machines: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Raise `ConfigError` if a machine of the cluster can't go on with what is in `out`."""
    marker = out / f".seen-{uuid4().hex[:8]}"
    marker.touch()
    try:
        # All are asked before the first answer is waited for. A list, because names may be equal.
        checks = [(node["NodeManagerHostname"], _start_check(node, str(marker))) for node in machines]
        for name, answer in checks:
            try:
                why = ray.get(answer, timeout=PATIENCE)
            except GetTimeoutError:
                why = f"has not answered in {PATIENCE:g} s"
            except RayError as error:
                why = f"can't be used ({shortened(one_line(error), 200)})"
            if why:
                raise ConfigError(f"cluster: the machine {name} {why}")
    finally:
        marker.unlink()


def _start_check(node: Mapping[str, Any], marker: str) -> Any:
    """Ask a machine in what it is unlike this one; its answer comes later."""
    on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task: Any = ray.remote(num_cpus=0, max_retries=0)(unlike)
    return task.options(scheduling_strategy=on_node).remote(marker, os.getcwd(), versions())
