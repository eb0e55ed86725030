"""A federation: its settings, what they check, and what is asked of it between rounds; `server_round` makes these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..averages import Average, Observer, Observers, check_names
from ..client import LocalTraining
from ..client.messages import Answers, Request, RoundReport
from ..client.store import ClientStore, StateRows
from ..data.federated import FederatedData
from ..engines import Engine, LocalEngine, Training, pick_device
from ..engines.clients import Clients, LazyExecutor, Reached, clients_of
from ..engines.processes import threads
from ..engines.training import first_memory
from ..engines.uploads import Uploads
from ..evaluation import Calibration, Decision, Evaluation, Goal, Score, Scorer
from ..evaluation.first_batch import check_single, suited_problem, try_out
from ..evaluation.purity import check_no_gradient_hooks, check_no_parameters
from ..methods import Aggregation, FedAvg, Method, Privacy, WeightedMean
from ..methods.sampling import Sampling, Uniform
from ..methods.schedules import Constant
from ..methods.server_optimisers import Server, ServerSGD
from ..settings.errors import RunError, check
from ..settings.fingerprint import fingerprint
from ..settings.limits import Seed
from ..settings.setting import Accepts, Setting, default
from ..tasks import Loss, check_task
from ..vector.arrays import Ints
from ..vector.layout import Layout, ModelSlice, check_start, copied
from ..vector.randomness import check_repeats
from ..vector.sharing import OWN, Buffers, Personal, Sharing
from ..vector.shown import Shown
from ..vector.spaces import AggregationMemory, ClientState, ExecutorMemory, OptimiserState, ServerState, WholeModel
from .broadcast import Broadcast, Broadcaster, settings_with
from .evaluator import Evaluator
from .round import ServerRound
from .state import State


@dataclass(frozen=True, eq=False, repr=False)
class Federation(Setting, Reached, Shown):
    """A federation of clients and its training: `start()` gives the first state, `round(state)` the next one.

    `close()` or `with` ends all workers. Derived fields: `module`, the copy of the model, its `layout` and `sharing`,
    `clients`, `goal` and `observers`. Two samples are tried out: raises `ModelError` or `SettingError` if model, loss
    or metrics do not fit them.
    """

    model: nn.Module
    """any `nn.Module`; it is copied and never changed"""
    data: FederatedData | Clients
    """samples in this process, on which `engine` trains, or `Clients` elsewhere"""
    method: Method = field(default_factory=FedAvg)
    """the federated algorithm, as a change of FedAvg"""
    local: LocalTraining = field(default_factory=LocalTraining)
    """what a client does in a round"""
    aggregation: Aggregation = field(default_factory=WeightedMean)
    """how the clients' updates become one"""
    server: Server = field(default_factory=ServerSGD)
    """how that update moves the model"""
    averages: Mapping[str, Average] = field(default_factory=dict, metadata={"example": '{"w5": Window(5)}'})
    """means of the models of several rounds, by name; they observe the global models and never change the training"""
    broadcast: Accepts[Broadcast | None, str] = default(None)
    """what sends one of the averages to the clients in place of the model; left out: the model is sent"""
    sampling: Sampling = field(default_factory=Uniform)
    """which clients take part in a round"""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """when and on what the model and all averages are evaluated"""
    loss: Loss | None = None
    """`loss(output, y)` gives one number for each sample; left out: the task's loss"""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """more metrics by name: a `Metric`, an object of torchmetrics, or a function of `(output, y)`"""
    engine: Engine = field(default_factory=LocalEngine)
    """how the work is done on this machine, or on a cluster"""
    buffers: Buffers = "refuse"
    """what becomes of the running statistics of BatchNorm: "refuse" such a model; "average": the model has the weighted
    mean of the clients' statistics; "local": each client keeps its own (SiloBN); "local_norm": it keeps its affine
    parameters of these layers, too (FedBN)"""
    personal: Accepts[Personal, ModelSlice | list[str]] = default(factory=Personal)
    """the part of the model that stays with each client"""
    seed: Seed = 0
    """all random numbers are determined by it"""
    device: str = "auto"
    """where models are trained and evaluated: as PyTorch names it, or "auto", which takes a GPU if there is one"""

    module: nn.Module = field(init=False, repr=False)
    layout: Layout = field(init=False, repr=False)
    sharing: Sharing = field(init=False, repr=False)
    clients: Clients = field(init=False, repr=False)
    observers: Observers = field(init=False, repr=False)
    goal: Goal = field(init=False, repr=False)
    remembers: bool = field(init=False, repr=False)
    server_round: ServerRound = field(init=False, repr=False)
    _evaluator: Evaluator = field(init=False, repr=False)
    _calibration: Calibration = field(init=False, repr=False)
    _lazy: LazyExecutor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_names(self.averages)
        self.local.fits(self.method, self.aggregation)
        check(isinstance(self.model, nn.Module), "Federation.model", self.model, "must be an nn.Module")
        check_no_gradient_hooks(self.model)
        check_no_parameters(self.loss)
        derive = partial(object.__setattr__, self)
        derive("averages", MappingProxyType(dict(self.averages)))
        derive("module", copied(self.model).to(pick_device(self.device)))
        check_start(self.module, Layout(self.module))
        derive("sharing", Sharing.of(self.module, self.buffers, self.personal))
        derive("layout", self.sharing.layout)
        derive("clients", clients_of(self.data, self.module, self.engine, self.loss, self.evaluation, self.seed))
        problem = self.clients.problem
        data = self.clients.data
        problem = suited_problem(self.module, problem) if data is None else problem
        if data is not None and self.loss is None:
            check_task(problem.task, data.train.y)
        derive("goal", self.evaluation.goal(problem.task, self.loss, self.metrics))
        if samples := problem.test if data is None else data.train:
            try_out(self.module, problem, samples, self.goal, self.loss)
        if data is not None:
            check_single(self.module, problem, data.train, *self.local.single(self.sizes, self.method))
        if self.broadcast is not None:
            self.broadcast.fits(self.averages, self.clients.held)
        for error in self.aggregation.refuses(self):
            raise error
        observers = {name: Observer.of(a, self.layout, self.sharing.own_names) for name, a in self.averages.items()}
        derive("observers", Observers(observers, self.broadcast.apart if self.broadcast else ()))
        if self.sharing.own_size:  # refuses a part that the method needs, and that stays with the clients
            self.method.server_state(self.sharing.common_of(self._initial), self.sharing.common)
        derive("remembers", bool(first_memory(self.method, self.local, self.sharing, self._initial)))
        tested = self.evaluation.tested(problem.test, self.clients.held, personal=self.sharing.own_size > 0)
        scorer = Scorer(self.module, self.layout, self.goal, replace(problem, test=tested), self.evaluation.batch)
        derive("_evaluator", Evaluator(scorer, len(self.sizes), self.evaluation.client_splits(self.clients.held)))
        calibrated = [name for name, average in self.averages.items() if average.buffers == "re-estimate"]
        derive("_calibration", Calibration(self.module, self.layout, data, self.evaluation, calibrated))
        derive("_lazy", LazyExecutor(self.clients, self.training))
        derive(
            "server_round",
            ServerRound(
                clients=self.clients,
                sampling=self.sampling,
                seed=self.seed,
                method=self.method,
                sharing=self.sharing,
                aggregation=self.aggregation,
                server=self.server,
                broadcaster=None if self.broadcast is None else Broadcaster(self.broadcast, self.observers),
                observers=self.observers,
                pieces=self.engine.pieces,
                executor=self._lazy,
            ),
        )
        for round in (0, 1):
            draw = partial(self.sampling.clients, round, self.sizes, self.seed)
            check_repeats("Federation.sampling", self.sampling, draw)
            if self.local.schedule != Constant():
                check_repeats("LocalTraining.schedule", self.local.schedule, partial(self.local.scheduled, round))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also one in another process, is made anew from the settings, and has an executor of its own."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        settings |= {"model": self.module, "averages": dict(self.averages)}
        return partial(type(self), **settings), ()

    @property
    def federation(self) -> Federation:
        """The federation itself, which makes the rounds of its runs (see `fedsash.runs.Driver`)."""
        return self

    @property
    def training_data(self) -> FederatedData:
        """The data on which clients train, on the device; raises `RunError` if the clients live elsewhere."""
        if self.clients.data is None:
            raise RunError("the clients' samples are not in this process: this needs a federation with FederatedData")
        return self.clients.data

    @property
    def sizes(self) -> Ints:
        """The number of training samples of each client, `[N]`."""
        return self.clients.sizes

    def start(self, folder: Path | None = None) -> State:
        """The state before the first round; models and client state on disk are put into `folder`."""
        w = self._initial
        clients = len(self.sizes)
        common = self.sharing.common_of(w)
        own = ClientState({}) if self.clients.remember else first_memory(self.method, self.local, self.sharing, w)
        last = torch.zeros(clients if self.remembers else 0, dtype=torch.int64)
        held = bool(own) and self.engine.holds(sum(value.nbytes for value in own.values()))
        averages, past = self.observers.init(w, folder)
        return State(
            round=0,
            w=w,
            optimiser=OptimiserState(self.server.init(common)),
            server_state=ServerState(self.method.server_state(common, self.sharing.common)),
            clients=ClientStore.start(own, last, clients, folder, held),
            averages=averages,
            aggregation=AggregationMemory(self.aggregation.init(self.sampling, clients)),
            past=past,
            choice=self.broadcast.first() if self.broadcast and self.broadcast.adaptive else None,
        )

    @torch.no_grad()
    def round(self, state: State) -> tuple[State, RoundReport]:
        """Run one round. It uses the given state up: its averages and client state are updated in place.

        To go on from one state twice, give each round a copy: `round(copy.deepcopy(state))`. Raises `RunError` for a
        state that is used up.
        """
        clients = len(self.clients.sizes)
        if state.clients.count != clients:
            raise RunError(f"the state is of {state.clients.count} clients, and this federation has {clients}")
        if not self._lazy.started:
            self.prepare(state=state)
        return self.server_round.one_round(state)

    def ask(self, state: State, *, ids: Ints | None = None, probed: Uploads | None = None) -> Request:
        """The request to the clients of the next round (see `ServerRound.ask`)."""
        return self.server_round.ask(state, ids=ids, probed=probed)

    def collect(self, request: Request) -> Uploads:
        """Let the executor answer a request, and sum up the answers."""
        return self.server_round.collect(request)

    def models(self, state: State) -> dict[str, Tensor]:
        """The global model as `"model"`, and the averages that have seen a model by their names; all are `[D]`.

        Raises `RunError` for a state that a later round has used up.
        """
        state.check_usable()
        return {"model": state.w} | self._calibration.values(self.observers.values(state, state.w))

    def evaluate(self, state: State, each: Callable[[list[str]], Iterable[str]] = iter) -> list[Score]:
        """The scores of all `models` on every chosen split; the state does not change; `each` passes names on."""
        models = self.models(state)
        return [m for name in each(list(models)) for m in self.judge(models[name], state.round, name, state)]

    def judge(self, w: Tensor, round: int, name: str, state: State | None = None) -> list[Score]:
        """The scores of any model `w` `[D]` on every split, recorded with this round and name.

        Each client scores it with the entries that it keeps of a model in `state`, or as it is without a state.
        """

        def ask(request: Request) -> Answers:
            if state is not None and self.sharing.own_size:
                request = replace(request, clients=state.everybody(OWN))
            elif self.sharing.own_size:
                own = self.sharing.own_of_all(len(request.ids), request.sent)
                request = replace(request, clients=StateRows(ClientState({OWN: own})))
            return self.executor.work(request)

        with threads(self._lazy.current.threads):
            return self._evaluator.evaluate(w, round, name, ask)

    def privacy(self, state: State) -> Privacy | None:
        """How private all rounds so far are if all were made with these settings; None if they are not private."""
        return self.aggregation.privacy(self.sampling, len(self.sizes), state.round)

    def learn(self, state: State, scores: list[Score]) -> tuple[State, list[Decision]]:
        """The state in which an adaptive broadcast has heard an evaluation, and its decision.

        It decides every `evaluation.every` rounds. Raises `RunError` for a state that a later round has used up.
        """
        state.check_usable()
        if state.choice is None or state.round % self.evaluation.every:
            return state, []
        choice, decisions = state.choice.heard(scores, self.goal.criterion)
        return replace(state, choice=choice), decisions

    def export(self, w: Tensor) -> bytes:
        """The model `w` `[D]` as safetensors of a state dictionary that loads into the plain `nn.Module`."""
        return self.layout.export(self.module, w)

    def module_of(self, w: Tensor) -> nn.Module:
        """The model `w` `[D]` as a new `nn.Module`, a copy of the plain one."""
        return self.layout.copied(self.module, w)

    @property
    def _initial(self) -> WholeModel:
        """The model before the first round."""
        return WholeModel(self.layout.flatten(self.module))

    @property
    def fingerprint(self) -> dict[str, str]:
        """The settings that determine a run's numbers, by name, and those of each average; without the run's length."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> dict[str, str]:
        names = "seed method local aggregation buffers personal server broadcast sampling layout.order"
        named = {n: attrgetter(n)(self) for n in f"{names} evaluation.held_out engine.pieces engine.precision".split()}
        named |= {"loss": self.goal.loss, "model": self.module} | {f"averages.{n}": a for n, a in self.averages.items()}
        named |= settings_with(self.broadcast, self.averages, self.server, self.evaluation.every, self.goal)
        return fingerprint(named) | self.clients.fingerprint(self.training())

    def saved(self, state: State) -> State:
        """The state to save: with the executor's vectors. Raises `RunError` if a later round has used it up."""
        state.check_usable()
        executor = self._lazy.current.saved() if self._lazy.started else state.executor
        return replace(state, executor=ExecutorMemory(executor))

    def prepare(self, rounds: int | None = None, state: State | None = None) -> list[str]:
        """Start the executor for `rounds` rounds, to continue from `state`; returns lines that say what it chose."""
        notes = [*self.sharing.notes(self.evaluation.tests_clients(self.clients.held)), *self._lazy.start(rounds)]
        if state is not None:
            self.executor.load(state.executor)
        return notes

    def described(self) -> dict[str, Any]:
        """The settings of the executor if it has been started, else those of the engine."""
        return self._lazy.current.described() if self._lazy.started else asdict(self.engine)

    def settled(self, began: Mapping[str, Any]) -> Federation:
        """This federation with "auto" settings replaced by those that the executor `described` when the run began."""
        data = self.data if isinstance(self.data, FederatedData) else self.data.settled(began)
        engine = self.engine.settled(began)
        return self if engine == self.engine and data is self.data else replace(self, engine=engine, data=data)

    def training(self) -> Training:
        """All that an executor must know of this federation, except the samples."""
        own = {n: getattr(self, n) for n in ("module", "goal", "method", "local", "aggregation", "sharing", "seed")}
        problem = replace(self.clients.problem, test=None)
        asked = self.evaluation.client_splits(self.clients.held)
        own |= {"batch": self.evaluation.batch, "fine_tuning": self.evaluation.fine_tuning}
        return Training(problem=problem, asked=asked, sample=self.sampling.first(self.sizes, self.seed), **own)
