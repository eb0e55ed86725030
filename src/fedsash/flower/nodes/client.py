"""The client half: an app for the nodes of a federation, which trains their clients as a simulation does."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ...client.messages import Collector, Reply, Request
from ...client.store import StateVersions
from ...data.federated import FederatedData
from ...engines import ClientWork, LocalEngine, Training, pick_device
from ...engines.clients import set_aside
from ...engines.in_process import InProcess
from ...evaluation import Evaluation
from ...evaluation.first_batch import suited, try_out
from ...settings.errors import check, library, one_line
from ...settings.resolve import Allowed
from ...vector.arrays import joined
from ...vector.layout import Layout
from ...vector.saved import versions
from ...vector.sharing import Sharing
from ...vector.spaces import ClientState, Uploaded
from . import wire
from .alike import alike
from .settings import checksum, decoded
from .versions import Versions

log = logging.getLogger("fedsash")

ONE_BY_ONE = LocalEngine("sequential", workers=1, block=1, compile=False, memory_format="channels_last", threads=1)
"""How a node trains by default: nothing is measured, since each message may start a process."""

FOLDER = Path.home() / ".fedsash" / "clients"
"""Where a node keeps its clients' state by default."""

NodeData = FederatedData | Callable[[Any], FederatedData]


def client_app(
    data: NodeData,
    *,
    model: nn.Module | None = None,
    engine: LocalEngine = ONE_BY_ONE,
    device: str = "",
    own_code: Allowed = False,
    folder: Path | str | None = None,
    mods: Sequence[Any] = (),
) -> Any:
    """A `ClientApp` of Flower whose clients train on a node's own `data`, as the server's federation says.

        app = client_app(FederatedData.from_arrays(x, y, [range(len(y))], classes=10))

    `data` are the samples of the node's clients, or a function of Flower's `Context` that loads them. Their `numbers`
    are the clients' numbers in the federation. Without them, the node's `partition-id` is the number of its client: the
    only one in the data, or the one of this number. Data of all clients are split as in a simulation before the node
    takes its own: what one client holds out, no other one trains on.

    What is trained comes with each request. The node builds registered names only, and code of one's own as far as
    `own_code` allows it: all (True) or these places; without it, the places that the node's configuration lists as
    `own-code`, with spaces between them. With a `model` of the node's own, the server's name of a model is not used.
    `device` is where clients train, a name as in a federation such as `"auto"`; without it, what the node's
    configuration names as `device`, or the CPU. The clients' state is kept in `folder`, or in the one that the node's
    configuration names as `state`, or in `~/.fedsash/clients`. `engine` must have no "auto" settings. `mods` are
    Flower's.

    Raises `LibraryError` without Flower, and `SettingError` for `data` that are neither, for an engine with "auto"
    settings, or a `device` that is not there.
    """
    with library("flwr", "fedsash.flower", "fedsash[flower]"):
        from flwr.app import Message
        from flwr.clientapp import ClientApp

    right = "must be FederatedData, or a function of Flower's Context that gives them"
    check(isinstance(data, FederatedData) or callable(data), "client_app.data", data, right)
    check(engine.resolved, "client_app.engine", engine, "must have no setting that is measured: no auto")
    if device:
        pick_device(device)
    nodes: dict[int, Node] = {}

    def node(context: Any) -> Node:
        if context.node_id not in nodes:
            own = data if isinstance(data, FederatedData) else data(context)
            place = folder or context.node_config.get("state") or FOLDER
            share = Share(own, context.node_config.get("partition-id"))
            allowed = own_code or str(context.node_config.get("own-code", "")).split()
            where = pick_device(device or str(context.node_config.get("device", "cpu")))
            nodes[context.node_id] = Node(share, model, engine, where, allowed, Versions(Path(place)))
        return nodes[context.node_id]

    def answered(message: Any, context: Any) -> Any:
        try:
            content = node(context).answer(message.metadata.message_type, message.content)
        except Exception as error:  # the server is told in one line; the node's log has the whole
            log.exception("the request was not answered")
            content = wire.refused(f"{type(error).__name__}: {one_line(error)}")
        return Message(content, reply_to=message)

    app = ClientApp(mods=list(mods))
    for kind in (*wire.ACTIONS.values(), wire.ROLL_CALL):
        category, _, action = kind.partition(".")
        getattr(app, category)(*filter(None, [action]))(answered)
    return app


@dataclass(frozen=True, eq=False)
class Share:
    """The data of a node's clients: all of the `data` if these have numbers, otherwise those of one client.

    `partition` is the node's `partition-id`, or None. Raises `SettingError` if it is needed and can't be right.
    """

    data: FederatedData
    partition: Any

    def __post_init__(self) -> None:
        if self.data.numbers is None:
            given = self.partition
            clients = len(self.data.clients)
            right = (
                "must be the number of this node's client: set partition-id in --node-config, or numbers in the data"
            )
            check(isinstance(given, int) and given >= 0, "partition-id", given, right)
            check(clients == 1 or given < clients, "partition-id", given, f"the data have {clients} clients")

    def split(self, evaluation: Evaluation, seed: int) -> FederatedData:
        """The node's clients with their numbers, after samples are set aside as in a simulation."""
        if self.data.numbers is None and len(self.data.clients) > 1:  # a client alone would get the whole test set
            return set_aside(self.data, evaluation, seed).shard([self.partition])
        alone = self.data if self.data.numbers is not None else replace(self.data, numbers=np.array([self.partition]))
        return set_aside(alone, evaluation, seed)


@dataclass(eq=False)
class Node:
    """A node: the data of its clients, and the trainers that it has made of settings."""

    share: Share
    model: nn.Module | None
    engine: LocalEngine
    device: torch.device
    own_code: Allowed
    versions: Versions

    def __post_init__(self) -> None:
        self.work = lru_cache(maxsize=2)(self._work)

    def answer(self, kind: str, content: Any) -> Any:
        """The content of the answer to a message of Flower's type `kind`."""
        if kind == wire.ROLL_CALL:
            return self.named(json.loads(content[wire.ASKED]["numbers"]))
        request, settings = wire.request_of(content, self.device)
        work = self.work(settings, request.sent.dtype)
        replies, without = self.replies(work, request)
        sizes = [work.sizes[client] for client in request.ids.tolist()]
        return wire.replied(replies, work.fingerprint, sizes, without)

    def named(self, asked: Mapping[str, Any]) -> Any:
        """The answer to a roll call: the numbers of the node's clients, their numbers of samples, and its versions."""
        from flwr.app import ConfigRecord, RecordDict

        evaluation = Evaluation(held_out=asked["held_out"], client_test=asked["client_test"])
        data = self.share.split(evaluation, int(asked["seed"]))
        each = [data.sizes.tolist(), _counts(data, data.held), _counts(data, data.client_test)]
        clients = {"clients": _numbers(data).tolist(), "sizes": each[0], "held": each[1], "tested": each[2]}
        return RecordDict({wire.SAID: ConfigRecord({"numbers": json.dumps(clients), "versions": versions()})})

    def replies(self, work: Work, request: Request) -> tuple[list[Reply], dict[int, str]]:
        """The replies of the node's clients to a request, and why some can't answer, by their places in it.

        The clients' new state stays here if the server does not keep it. Then the server can't see a state that is not
        finite. So the client's upload becomes NaN, which it refuses.
        """
        if not isinstance(request.clients, StateVersions):
            return work.replies(request), {}
        here, rows, without = self.versions.read(request, work.training.memory.first(request.sent))
        replies = work.replies(replace(here, clients=rows))
        made = ClientState(joined([reply.client_state for reply in replies]))
        if made:
            self.versions.write(here, made)
            replies = [replace(reply, client_state=ClientState({}), upload=_withdrawn(reply)) for reply in replies]
        return replies, without

    def _work(self, settings: str, dtype: torch.dtype) -> Work:
        """What answers requests with these settings, for models of this type."""
        found = decoded(settings, self.model, self.own_code)
        training = found.training
        module = training.module.to(self.device)
        if Layout(module).dtype != dtype:  # a frozen part may have another type, which it keeps
            module = module.to(dtype)
        sharing = Sharing.of(module, training.sharing.buffers, training.sharing.personal)
        problem = training.problem
        data = self.share.split(found.evaluation, training.seed)  # by its own labels, as for the roll call
        data = suited(module, alike(data, problem))[0]
        try_out(module, problem, data.train, training.goal)
        training = replace(training, module=module, sharing=sharing)
        trainer = self.engine.trainer(ClientWork(training, data))
        assert isinstance(self.engine.block, int) and isinstance(self.engine.threads, int)
        executor = InProcess(trainer, block=self.engine.block, threads=self.engine.threads, described={})
        sizes = dict(zip(_numbers(data).tolist(), data.sizes.tolist(), strict=True))
        return Work(training, executor, checksum(training), sizes)


@dataclass(frozen=True, eq=False)
class Work:
    """What answers requests with some settings: the training, its executor, its fingerprint, and the clients' sizes."""

    training: Training
    executor: InProcess
    fingerprint: str
    sizes: dict[int, int]

    def replies(self, request: Request) -> list[Reply]:
        """The replies of all clients of a request, which contains their state."""
        return Collector(request.ids).replies(self.executor.work(request))


def _numbers(data: FederatedData) -> Any:
    assert data.numbers is not None
    return data.numbers


def _withdrawn(reply: Reply) -> Uploaded:
    """The uploads of clients, without a number of those whose upload or new state is not finite."""
    bad = ~torch.isfinite(reply.norms)
    if not bad.any():
        return reply.upload
    return Uploaded(
        {name: rows.where(~bad.view(-1, *[1] * (rows.dim() - 1)), torch.nan) for name, rows in reply.upload.items()}
    )


def _counts(data: FederatedData, of: Sequence[Any]) -> list[int]:
    return [len(one) for one in of] if len(of) else [0] * len(data.clients)
