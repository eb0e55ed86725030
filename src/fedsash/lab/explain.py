"""One round of an experiment, step by step: who acts, what is sent and kept, and which keys of the file decide it.

Nothing is trained. The steps come from the federation that the experiment builds: from its sampling, method, rule,
server optimiser, averages and evaluation, and from the upload of a client that has not trained (see
`engines.upload_like`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import prod
from textwrap import wrap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..averages import Average, Observer
from ..client import RoundPlan, RoundPlans
from ..client.messages import Request
from ..engines import upload_like
from ..evaluation import Evaluation
from ..methods import Aggregation
from ..methods.base import Hook
from ..methods.schedules import Constant
from ..methods.server_optimisers import ServerSGD
from ..network.schedulers import Synchronous
from ..server.federation import Federation
from ..settings.errors import check, some
from ..vector.arrays import Ints, Vectors
from ..vector.spaces import Download, Uploaded
from .config import ConfigError, Experiment, NetworkExperiment, OwnExperiment
from .config.registries import REGISTRIES
from .config.tables import plain
from .config.words import show, summary

WIDTH = 100
"""The longest line of the text."""

_LEFT = "   "

HOOKS: dict[Hook, str] = {
    "round_state": "The method makes vectors for this round alone.",
    "direction": "The method makes the direction of a step from gradients.",
    "objective": "The method adds a term to the loss.",
    "after_step": "The method acts after each step.",
}
"""What the hooks of a method do while a client trains."""


@dataclass(frozen=True)
class Item:
    """A vector that is `sent` or `kept`: its name, its shape, its type, its bytes, and how many of it there are where.

    `copies` is the number of senders, receivers or owners, and `at` says who they are.
    """

    act: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    copies: int
    at: str

    @classmethod
    def of(cls, act: str, vectors: Mapping[str, Tensor], copies: int, at: str) -> list[Item]:
        """Each of these vectors."""
        items = []
        for name, value in vectors.items():
            items.append(cls(act, name, tuple(value.shape), _type(value.dtype), value.nbytes, copies, at))
        return items


@dataclass(frozen=True)
class Step:
    """A step of the round: who acts, what happens in sentences, the vectors, and the keys that decide it.

    A key may be that of a whole table.
    """

    title: str
    who: str
    says: list[str]
    items: list[Item]
    keys: list[str]


class Round:
    """One round of a federation: `steps` has its ten steps. `number` counts from 1, `rounds` is the run's length.

    `ids` `[s]` are the clients that take part. If there are none, `trained` are all clients, so that the
    steps of a client can be described.
    """

    def __init__(self, federation: Federation, number: int, rounds: int) -> None:
        self.federation = federation
        self.number = number
        self.rounds = rounds
        self.ids = federation.sampling.clients(number - 1, federation.sizes, federation.seed)
        self.trained: Ints = self.ids if len(self.ids) else np.arange(len(federation.sizes))
        self.s = len(self.ids)
        self.N = len(federation.sizes)
        self._training = federation.training()
        self._first = replace(self._training.first(np.zeros(1, dtype=np.int64)), round=number - 1)
        self._common = federation.sharing.common_of(self._first.sent)

    @property
    def steps(self) -> list[Step]:
        """The steps in their order."""
        return [
            self._choose(),
            self._send(),
            self._train(),
            self._upload(),
            self._rule(),
            self._method(),
            self._server(),
            self._clients(),
            self._averages(),
            self._evaluate(),
        ]

    @cached_property
    def model(self) -> Item:
        """What is sent of a model: all but what stays with the clients."""
        sharing = self.federation.sharing
        size = sharing.layout.size - sharing.own_size
        dtype = sharing.layout.dtype
        return Item("sent", "model", (size,), _type(dtype), size * dtype.itemsize, self.s, "to each client")

    @cached_property
    def plan(self) -> RoundPlan:
        """How much the clients train."""
        federation = self.federation
        plans = RoundPlans(
            federation.local,
            federation.method,
            seed=federation.seed,
            alone=federation.sharing.personal.alone,
            normalises=federation.aggregation.normalises,
        )
        return plans.of(replace(self._first, ids=self.trained), federation.sizes[self.trained])

    @cached_property
    def probe(self) -> Uploaded:
        """What a client answers to the method's probe; empty if there is none."""
        if "probe" not in self.federation.method.overridden:
            return Uploaded({})
        return upload_like(self._training, replace(self._first, job="probe", server_state=Download({})))

    @cached_property
    def request(self) -> Request:
        """A request to train one client: with the means of the probe, if there was one."""
        means = {name: value[0] for name, value in self.probe.items()}
        return replace(self._first, server_state=Download(self._first.server_state | means))

    @cached_property
    def upload(self) -> Vectors:
        """The upload of a client, without the dimension of clients."""
        return _of_one(upload_like(self._training, self.request))

    def _choose(self) -> Step:
        federation = self.federation
        sampling = federation.sampling
        drawn = sampling.draw(self.number - 1, federation.sizes.copy(), federation.seed)
        selected = len(np.asarray(drawn))
        says = [summary(type(sampling))]
        if self.s:
            says.append(f"In this round {self.s} of {self.N} clients: {some(self.ids.tolist(), 12)}.")
        else:
            says.append(f"In this round none of {self.N} clients; what follows holds for any of them.")
        if selected > self.s:
            says.append(f"{selected} are asked, and {selected - self.s} of them do not answer.")
        says.append(f"They hold {_span(federation.sizes[self.trained], 'training sample')} each.")
        return Step("Choose clients", "server", says, [], ["sampling", "seed", "partition", "partition_seed"])

    def _send(self) -> Step:
        federation = self.federation
        says = [self._what_is_sent()]
        if "send" in federation.method.overridden:
            says.append("The method changes it, or chooses which of its vectors go along.")
        items = [self.model]
        if self.probe:
            says.append(
                "First they receive the model alone, as a probe. The mean of their answers goes with the model."
            )
            items += Item.of("sent", _of_one(self.probe), self.s, "from each client, in answer to the probe")
            items.append(self.model)
        items += Item.of("sent", self.request.server_state, self.s, "to each client")
        if federation.sharing.own_size:
            says.append(f"Another {federation.sharing.own_size:,} numbers of the model stay with each client.")
        return Step("Send", "server, to each client", says, items, ["model", "broadcast", "personal", "buffers"])

    def _what_is_sent(self) -> str:
        """The model, or an average in its place."""
        broadcast = self.federation.broadcast
        finished = self.number - 1
        model = "Clients receive the first model"
        if finished:
            model = f"Clients receive the model after round {finished}"
        if broadcast is None:
            return f"{model}."
        names = " or ".join(broadcast.averages)
        if broadcast.order != "after":
            return f"{model}; the average {names} acts on it in step 7."
        if broadcast.adaptive:
            return f"{model}, or in its place the average {names}, as evaluations on held-out samples decide."
        if broadcast.first().sends(finished):
            return (
                f"Clients receive the average {names} in place of the model, since {broadcast.start} rounds are over."
            )
        assert isinstance(broadcast.start, int)
        return f"{model}; from round {broadcast.start + 1} on, the average {names} in its place."

    def _train(self) -> Step:
        federation = self.federation
        method = federation.method
        plan = self.plan
        local = plan.local
        says = [summary(type(method)), *self._equations("methods", method)]
        says += [does for hook, does in HOOKS.items() if hook in method.overridden]
        size = f"up to {local.batch} samples"
        if local.batch == "full":
            size = "all of its samples"
        who = "A client"
        if federation.sharing.personal.alone:
            says.append(f"First the part that stays with a client trains alone, by {_span(plan.steps_alone, 'step')}.")
            who = "Then the rest trains alone. A client"
        says.append(f"{who} takes {_span(plan.steps, 'step')}, on batches of {size}.")
        if local.steps is None:
            says.append(f"That is {_span(plan.amounts, 'pass', 'passes')} over its samples.")
        says.append(self._rates())
        if local.clip is not None:
            says.append(f"A direction longer than {local.clip:g} is clipped.")
        moments = _of_one(local.optimiser.moments(self._first.sent[: federation.sharing.trained].unsqueeze(0)))
        since = "for this round"
        if local.keep_moments:
            since = "from round to round"
        items = Item.of("kept", moments, self.s, f"by each client, {since}")
        return Step("Train", "each client", says, items, ["local", "method"])

    def _equations(self, kind: str, thing: object) -> list[str]:
        """Where the equations of a thing of the library are, if it is not the simplest one."""
        name = REGISTRIES[kind].name_of(thing)
        if name in ("fedavg", "mean") or ":" in name:
            return []
        return [f"Its equations: fedsash list {kind} {name}."]

    def _rates(self) -> str:
        """The learning rates of the round's steps."""
        rates = self.plan.rates[:, 0]
        rates = rates[: self.plan.steps[0]]
        text = f"The learning rate is {rates[0]:.4g}"
        if self.federation.local.schedule != Constant():
            text = f"In this round the learning rate is {rates[0]:.4g}"
        if rates.min() < rates.max():
            text += f" in the first step and {rates[-1]:.4g} in the last"
        return f"{text}."

    def _upload(self) -> Step:
        numbers = "its numbers of samples and steps"
        if self.federation.aggregation.normalises:
            numbers += " and FedNova's normaliser"
        says = [
            "delta is where a client ended minus what it received, without what stays with it.",
            f"A client also says {numbers}.",
        ]
        items = Item.of("sent", self.upload, self.s, "from each client")
        return Step("Upload", "each client, to the server", says, items, ["method", "buffers"])

    def _rule(self) -> Step:
        federation = self.federation
        rule = federation.aggregation
        memory = rule.init(federation.sampling, self.N)
        upload = {name: value.unsqueeze(0) for name, value in self.upload.items()}
        summed = _of_one(rule.derive(upload, self.plan.effort.only([0]), memory))
        says = [summary(type(rule)), *self._equations("aggregations", rule)]
        says.append(f"Left out is an upload that is not finite, or with a vector longer than {rule.limit:g}.")
        says.append(self._weights(summed))
        if type(rule).derive is not Aggregation.derive:
            says.append("The rule changes each upload before it is added.")
        if type(rule).release is not Aggregation.release:
            says.append("The rule changes the mean before anything is made of it.")
        if rule.keeps_updates:
            says.append("The rule needs every single update, and keeps them all until the end of the round.")
        if rule.least == 0:
            says.append("A round moves the model without any upload, too.")
        items = Item.of("kept", summed, 1, "by the server, as a sum over the clients")
        if rule.keeps_updates:
            items += Item.of("kept", {"delta": self.upload["delta"]}, self.s, "by the server")
        items += Item.of("kept", memory, 1, "by the server, from round to round")
        privacy = rule.privacy(federation.sampling, self.N, self.rounds)
        if privacy is not None:
            says.append(f"After {self.rounds} rounds epsilon is {privacy.epsilon:.4g} at delta = {privacy.delta:.3g}.")
        return Step("Rule", "server", says, items, ["aggregation", "method.weighting", "engine.pieces"])

    def _weights(self, summed: Iterable[str]) -> str:
        """The weights of the clients in the sums."""
        method = self.federation.method
        if method.weighting == "uniform":
            return "In their mean each of the s uploads has the weight 1/s."
        sizes = self.federation.sizes[self.trained]
        shares = sizes / sizes.sum()
        text = f"In their mean the weights are p_i = n_i / (sum of n_j): {shares.min():.3g} to {shares.max():.3g}"
        uniform = {*method.uniform, *self.federation.aggregation.uniform}.intersection(summed)
        if uniform:
            text += f"; 1/s for {', '.join(sorted(uniform))}"
        return f"{text}."

    def _method(self) -> Step:
        method = self.federation.method
        remembered = method.server_state(self._common, self.federation.sharing.common)
        says = ["The update is the one that the rule made."]
        if "server_update" in method.overridden:
            says = ["The method makes the model's update from that of the rule and from the means of the uploads."]
            if remembered:
                says.append(f"It moves what it remembers: {', '.join(remembered)}.")
        items = Item.of("kept", remembered, 1, "by the server, from round to round")
        return Step("Method", "server", says, items, ["method"])

    def _server(self) -> Step:
        federation = self.federation
        broadcast = federation.broadcast
        says = ["The new model is what was sent plus the update."]
        if federation.server != ServerSGD():
            says = [summary(type(federation.server)), "It moves the model from what was sent, along the update."]
        if broadcast is not None and broadcast.order != "after":
            name = broadcast.averages[0]
            says.append(
                f"Before, the average {name} sees the clients' mean. From the model after {broadcast.start} rounds "
                f"on, the update leads to this average."
            )
        if federation.sharing.means:
            says.append("Running statistics move by the mean of the clients' changes.")
        items = Item.of("kept", {"model": self._first.sent}, 1, "by the server: the new model")
        items += Item.of("kept", federation.server.init(self._common), 1, "by the server, from round to round")
        return Step("Server optimiser", "server", says, items, ["server", "broadcast.order"])

    def _clients(self) -> Step:
        remembered = self._training.memory.first(self._first.sent)
        says = ["Clients remember nothing from round to round."]
        if remembered:
            says = [f"The clients whose upload counts have a new state: {', '.join(remembered)}."]
            where = "in rows of this simulation, for"
            if self.federation.clients.remember:
                where = "by the clients themselves, all"
            says.append(f"It is kept {where} {self.N} clients.")
        items = Item.of("kept", remembered, self.N, "of each client, from round to round")
        return Step("Client state", "clients", says, items, ["method", "local.keep_moments", "personal", "buffers"])

    def _averages(self) -> Step:
        federation = self.federation
        says = ["There is none."]
        if federation.averages:
            says = ["Averages observe the new model, and change nothing."]
        items = []
        for name, average in federation.averages.items():
            says.append(self._observes(name, average))
            items += self._memory_of(name, average)
        broadcast = federation.broadcast
        if broadcast is not None:
            names = " or ".join(broadcast.averages)
            says[0] = f"Averages observe the new model. {names} is fed back to the clients: see step 2."
            if broadcast.order != "after":
                says[0] = f"Averages observe the new model; {names} has observed the clients' mean in step 7."
        return Step("Averages", "server", says, items, ["averages", "broadcast"])

    def _observes(self, name: str, average: Average) -> str:
        """Whether an average takes the model of this round, and which part of it."""
        takes = "takes" if average.observes(self.number) else "does not take"
        part = average.part if isinstance(average.part, str) else some(average.part)
        of = "the model" if part == "all" else f"the part {part} of the model"
        kind = REGISTRIES["averages"].name_of(average)
        return f"{name}, of the kind {kind}, {takes} {of} after round {self.number}."

    def _memory_of(self, name: str, average: Average) -> list[Item]:
        """The vectors that an average remembers: its state without its counters, and the past models it needs again."""
        sharing = self.federation.sharing
        observer = Observer.of(average, sharing.layout, sharing.own_names)
        part = observer.slice(self._first.sent)
        state = {f"{name}: {key}": value for key, value in average.init(part).items() if value.is_floating_point()}
        items = Item.of("kept", state, 1, "by the server, from round to round")
        retention = average.retention()
        if retention is not None:
            dtype = part.dtype if retention.kept_as == "model" else getattr(torch, retention.kept_as)
            shape = (retention.size, len(part))
            size = prod(shape) * dtype.itemsize
            items.append(Item("kept", f"{name}: models", shape, _type(dtype), size, 1, "by the server, at most"))
        return items

    def _evaluate(self) -> Step:
        federation = self.federation
        evaluation = federation.evaluation
        says = [self._when(evaluation)]
        names = ["model", *federation.averages]
        says.append(f"Scored are {', '.join(names)}, by {', '.join(federation.goal.names)}.")
        held = federation.clients.held
        test = evaluation.tested(federation.clients.problem.test, held, personal=federation.sharing.own_size > 0)
        if test is not None:
            says.append(f"The server scores them on a test set of {len(test):,} samples.")
        for job, splits in evaluation.client_splits(held).items():
            tuned = ", each with its own fine-tuned copy" if job == "tune" else ""
            says.append(f"All {self.N} clients score them on {', '.join(splits)}{tuned}.")
        broadcast = federation.broadcast
        if broadcast is not None and broadcast.adaptive:
            says.append("The scores on held-out samples decide what is sent to clients.")
        else:
            says.append("An evaluation changes nothing.")
        who = "clients" if test is None else "server"
        if test is not None and evaluation.client_splits(held):
            who = "server and clients"
        return Step("Evaluate", who, says, [], ["evaluation", "metrics", "rounds"])

    def _when(self, evaluation: Evaluation) -> str:
        """Whether this round is followed by an evaluation, and else when the next one is."""
        due = next(round for round in range(self.number, self.rounds + 1) if evaluation.due(round, self.rounds))
        if due == self.number:
            return "Models are scored after this round."
        return f"Models are not scored after this round; the next time is after round {due}."


@dataclass(frozen=True)
class Explanation:
    """A round of an `experiment` in words: its `head`, and its steps."""

    experiment: Experiment
    head: list[str]
    steps: list[Step]

    def record(self) -> list[dict[str, Any]]:
        """The steps as plain data, with the values of the keys that decide."""
        return [asdict(step) | {"keys": self._decided_by(step)} for step in self.steps]

    def text(self) -> str:
        """The steps as text, in lines of at most `WIDTH`."""
        head: list[str] = []
        for sentence in self.head:
            head += wrap(sentence, WIDTH)
        parts = ["\n".join(head)]
        for number, step in enumerate(self.steps, start=1):
            lines = [f"{number:>2} {step.title} ({step.who})"]
            for sentence in step.says:
                lines += _indented(sentence)
            lines += _table(step.items)
            settings = [_with_value(key, value) for key, value in self._decided_by(step).items()]
            lines += _indented(f"decided by: {', '.join(settings)}")
            parts.append("\n".join(lines))
        return "\n\n".join(parts)

    def _decided_by(self, step: Step) -> dict[str, Any]:
        """The keys of the file that decide a step, each with its value; None if it is not set."""
        if isinstance(self.experiment, OwnExperiment):
            return {"built_by": self.experiment.built_by}
        table = plain(self.experiment, levels=2)
        return {key: _value_at(table, key) for key in step.keys}


def explain(experiment: Experiment, number: int = 1) -> Explanation:
    """Round `number` of an experiment, from 1. Nothing is trained.

    Raises `ConfigError` if its parts do not fit together, or if the server moves without rounds.
    """
    requirement = f"must be at least 1 and at most rounds = {experiment.rounds}"
    check(1 <= number <= experiment.rounds, "--round", number, requirement)
    if experiment.stateless:
        raise ConfigError(
            "network.learning = false: nobody trains, so there is no round to explain", "network.learning"
        )
    if isinstance(experiment, NetworkExperiment) and not isinstance(experiment.scheduler, Synchronous):
        name = REGISTRIES["schedulers"].name_of(experiment.scheduler)
        raise ConfigError(
            f"scheduler: {name} moves the server without rounds, so there is none to explain", "scheduler"
        )
    round = Round(experiment.federation(), number, experiment.rounds)
    steps = round.steps
    layout = round.federation.layout
    size = _size(layout.size * layout.dtype.itemsize)
    head = [
        f"Round {number} of {experiment.rounds}, with {round.s} of {round.N} clients. The model has {layout.size:,} "
        f"numbers ({_type(layout.dtype)}, {size}).",
        f"Down to clients go {_total(steps, 'to each client')}, and {_total(steps, 'from each client')} come up.",
        "Keys with their defaults are left out in tables inside of tables; fedsash list TABLE names all.",
    ]
    if isinstance(experiment, NetworkExperiment):
        head.append("On the simulated network an answer may be lost, or come too late.")
    return Explanation(experiment, head, steps)


def _total(steps: Iterable[Step], way: str) -> str:
    """The bytes of all that is sent this way."""
    total = 0
    for step in steps:
        for item in step.items:
            if item.act == "sent" and item.at.startswith(way):
                total += item.bytes * item.copies
    return _size(total)


def _table(items: Iterable[Item]) -> list[str]:
    """Vectors as lines in columns."""
    rows = []
    for item in items:
        copies = "" if item.copies == 1 else f"{item.copies} x "
        rows.append((item.act, item.name, f"{item.dtype} {list(item.shape)}", copies + _size(item.bytes), item.at))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_LEFT + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _value_at(table: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key in a table; None if it is not set."""
    value: Any = table
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _with_value(key: str, value: Any) -> str:
    """A key and its value as in a file."""
    if value is None:
        return f"{key} (not set)"
    if value == {}:
        return f"{key} (none)"
    return f"{key} = {show(value)}"


def _of_one(vectors: Vectors | Uploaded) -> Vectors:
    """The vectors of the first client."""
    return {name: value[0] for name, value in vectors.items()}


def _indented(text: str) -> list[str]:
    """A text in lines; a key and its value stay together."""
    bound = text.replace(" = ", "\u00a0=\u00a0")
    lines = wrap(bound, WIDTH, initial_indent=_LEFT, subsequent_indent=_LEFT, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def _span(counts: Ints, one: str, many: str = "") -> str:
    """The range of some numbers of things: `1 step`, `2 to 3 steps`."""
    least = counts.min()
    most = counts.max()
    if most == 1:
        return f"{least} {one}"
    things = many or f"{one}s"
    if least == most:
        return f"{least:,} {things}"
    return f"{least:,} to {most:,} {things}"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _size(count: float) -> str:
    """A number of bytes in a unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
