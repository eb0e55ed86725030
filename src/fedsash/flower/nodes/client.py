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

    requirement = "must be FederatedData, or a function of Flower's Context that gives them"
    check(isinstance(data, FederatedData) or callable(data), "client_app.data", data, requirement)
    check(engine.resolved, "client_app.engine", engine, "must have no setting that is measured: no auto")
    if device:
        pick_device(device)
    nodes: dict[int, Node] = {}

    def new_node(context: Any) -> Node:
        config = context.node_config
        node_data = data if isinstance(data, FederatedData) else data(context)
        return Node(
            share=Share(node_data, config.get("partition-id")),
            model=model,
            engine=engine,
            device=pick_device(device or str(config.get("device", "cpu"))),
            own_code=own_code or str(config.get("own-code", "")).split(),
            versions=Versions(Path(folder or config.get("state") or FOLDER)),
        )

    def answer(message: Any, context: Any) -> Any:
        try:
            # A process may answer for several nodes, and a node keeps its trainers between messages.
            if context.node_id not in nodes:
                nodes[context.node_id] = new_node(context)
            content = nodes[context.node_id].answer(message.metadata.message_type, message.content)
        except Exception as error:  # the server gets one line; the node's log has the traceback
            log.exception("the request was not answered")
            content = wire.failure_content(f"{type(error).__name__}: {one_line(error)}")
        return Message(content, reply_to=message)

    app = ClientApp(mods=list(mods))
    for kind in (*wire.ACTIONS.values(), wire.ROLL_CALL):
        category, _, action = kind.partition(".")
        register = getattr(app, category)  # app.train, app.evaluate or app.query
        if action:
            register(action)(answer)
        else:
            register()(answer)
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
            number = self.partition
            clients = len(self.data.clients)
            requirement = (
                "must be the number of this node's client: set partition-id in --node-config, or numbers in the data"
            )
            check(isinstance(number, int) and number >= 0, "partition-id", number, requirement)
            check(clients == 1 or number < clients, "partition-id", number, f"the data have {clients} clients")

    def split(self, evaluation: Evaluation, seed: int) -> FederatedData:
        """The node's clients with their numbers, after samples are set aside as in a simulation."""
        if self.data.numbers is not None:
            return set_aside(self.data, evaluation, seed)
        if len(self.data.clients) == 1:
            single = replace(self.data, numbers=np.array([self.partition]))
            return set_aside(single, evaluation, seed)
        # Set aside before the node takes its own client: one client in the data would get the whole test set.
        return set_aside(self.data, evaluation, seed).shard([self.partition])


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
            return self.roll_call(json.loads(content[wire.REQUEST]["numbers"]))
        request, settings = wire.read_request(content, self.device)
        work = self.work(settings, request.sent.dtype)
        replies, without = self.replies(work, request)
        sizes = [work.sizes[client] for client in request.ids.tolist()]
        return wire.reply_content(replies, work.fingerprint, sizes, without)

    def roll_call(self, asked: Mapping[str, Any]) -> Any:
        """The answer to a roll call: the numbers of the node's clients, their numbers of samples, and its versions."""
        from flwr.app import ConfigRecord, RecordDict

        evaluation = Evaluation(held_out=asked["held_out"], client_test=asked["client_test"])
        data = self.share.split(evaluation, int(asked["seed"]))
        numbers = {
            "clients": _numbers(data).tolist(),
            "sizes": data.sizes.tolist(),
            "held": _counts(data, data.held),
            "tested": _counts(data, data.client_test),
        }
        return RecordDict({wire.REPLY: ConfigRecord({"numbers": json.dumps(numbers), "versions": versions()})})

    def replies(self, work: Work, request: Request) -> tuple[list[Reply], dict[int, str]]:
        """The replies of the node's clients to a request, and why some can't answer, by their places in it.

        The clients' new state stays on the node if the server does not keep it. Then the server can't see a state that
        is not finite. So the client's upload becomes NaN, which the server refuses.
        """
        if not isinstance(request.clients, StateVersions):
            return work.replies(request), {}
        start = work.training.memory.first(request.sent)
        answerable, rows, without = self.versions.read(request, start)
        replies = work.replies(replace(answerable, clients=rows))
        new_state = ClientState(joined([reply.client_state for reply in replies]))
        if not new_state:
            return replies, without
        self.versions.write(answerable, new_state)
        nothing = ClientState({})
        replies = [replace(reply, client_state=nothing, upload=_without_not_finite(reply)) for reply in replies]
        return replies, without

    def _work(self, settings: str, dtype: torch.dtype) -> Work:
        """The trainer for requests with these settings, for models of this type."""
        setting = decoded(settings, self.model, self.own_code)
        training = setting.training
        module = training.module.to(self.device)
        if Layout(module).dtype != dtype:  # a frozen part may have another type, which it keeps
            module = module.to(dtype)
        sharing = Sharing.of(module, training.sharing.buffers, training.sharing.personal)
        problem = training.problem
        data = self.share.split(setting.evaluation, training.seed)  # by its own labels, as for the roll call
        data, _ = suited(module, alike(data, problem))
        try_out(module, problem, data.train, training.goal, training.local.batch)
        training = replace(training, module=module, sharing=sharing)
        trainer = self.engine.trainer(ClientWork(training, data))
        assert isinstance(self.engine.block, int) and isinstance(self.engine.threads, int)
        executor = InProcess(trainer, block=self.engine.block, threads=self.engine.threads, described={})
        sizes = dict(zip(_numbers(data).tolist(), data.sizes.tolist(), strict=True))
        return Work(training, executor, checksum(training), sizes)


@dataclass(frozen=True, eq=False)
class Work:
    """A training with its executor, its fingerprint, and the number of samples of each client."""

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


def _without_not_finite(reply: Reply) -> Uploaded:
    """The uploads `[C, ...]` of clients, all NaN for those whose upload or new state is not finite."""
    finite = torch.isfinite(reply.norms)
    if finite.all():
        return reply.upload
    upload = {}
    for name, rows in reply.upload.items():
        shape = [-1] + [1] * (rows.dim() - 1)  # [C, 1, ...], beside the rows [C, ...]
        upload[name] = rows.where(finite.view(shape), torch.nan)
    return Uploaded(upload)


def _counts(data: FederatedData, indices: Sequence[Any]) -> list[int]:
    """The number of indices of each client; 0 for all if no samples were set aside."""
    if not len(indices):
        return [0] * len(data.clients)
    return [len(client) for client in indices]
