"""The engine of a Ray cluster: its settings."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Interval

from ...client.messages import Executor
from ...settings.errors import check, library
from ...settings.limits import Count
from ..base import Engine
from ..gradients import MemoryFormat
from ..local_engine import BlockSize, LocalEngine
from ..training import ClientWork

PIECES = 64
"""The default number of pieces of a round. It keeps so many actors at work, and does not depend on their number."""

MOST_ACTORS = 65_536
"""A bound that the largest clusters keep."""

LEAST = 100 * 1024
"""From so many bytes on, a client's state stays in the cluster. Ray would send a smaller object back to the server."""


@dataclass(frozen=True)
class RayEngine(Engine, name="ray"):
    """Trains the clients of a round on the actors of a Ray cluster (`pip install "fedsash[cluster]"`).

    The bytes of a run do not depend on the number, the order or the deaths of actors. With `block = 1` they are those
    of a `LocalEngine` with `kind = "sequential"`, the same `pieces` and one thread.
    """

    sums: ClassVar[bool] = True

    kind: Literal["ray"] = field(default="ray", metadata={"chooses": True})
    """always `"ray"`, by which a file may choose this engine in place of a name"""
    actors: Annotated[int, Interval(ge=1, le=MOST_ACTORS)] | None = None
    """the number of processes, each with one thread on a core of its own. Left out: as many as the cluster has cores,
    but not more than a round has clients or pieces"""
    address: str | None = None
    """the address of a cluster, as Ray takes it, such as `"auto"` for the one on this machine or `"head:6379"`. Left
    out: Ray is started on this machine"""
    block: BlockSize = 1
    """how many clients an actor stacks. With 1 it trains one client after another"""
    memory_format: MemoryFormat = "channels_last"
    """the memory format of images"""
    _: KW_ONLY
    pieces: Count = PIECES
    """in how many pieces P actors sum up the uploads of a round, which has at most P actors at work; the bytes of a run
    depend on P"""

    @property
    def here(self) -> LocalEngine:
        """What an actor does with the clients that it is given."""
        kind: Literal["sequential", "vectorised"] = "vectorised"
        if self.block == 1:
            kind = "sequential"
        return LocalEngine(
            kind,
            workers=1,
            block=self.block,
            compile=False,
            memory_format=self.memory_format,
            threads=1,
            pieces=self.pieces,
            precision=self.precision,
        )

    def holds(self, size: int) -> bool:
        return size >= LEAST

    def open(self, work: ClientWork, rounds: int | None = None) -> tuple[Executor, list[str]]:
        """An executor as in `Engine.open`.

        Raises `LibraryError` without Ray, and `SettingError` if the samples are not on the CPU, if the cluster can't be
        reached or has fewer cores than `actors`, or if a part of the training can't be sent to another process.
        """
        requirement = 'actors train on the CPU: set device = "cpu"'
        check(work.on_cpu, "device", str(work.data.train.x.device), requirement)
        with library("ray", "an engine on a cluster", "fedsash[cluster]"):
            import ray as _  # noqa: F401
        from .on_ray import opened

        return opened(self, work)
