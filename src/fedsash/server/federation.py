"""A federation: its settings, their checks, and what is asked of it between rounds; `server_round` makes the rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
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
from ..engines.clients import Clients, LazyExecutor, WithExecutor, clients_of
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
from ..vector.overlaps import check_no_overlap
from ..vector.randomness import check_repeats
from ..vector.sharing import OWN, Buffers, Personal, Sharing
from ..vector.shown import Shown
from ..vector.spaces import AggregationMemory, ClientState, ExecutorMemory, OptimiserState, ServerState, WholeModel
from .broadcast import Broadcast, Broadcaster, settings_with
from .evaluator import Evaluator
from .round import ServerRound
from .state import State


@dataclass(frozen=True, eq=False, repr=False)
class Federation(Setting, WithExecutor, Shown):
    """A federation of clients and its training: `start()` gives the first state, `round(state)` the next one.

    In a round the clients i that `sampling` draws receive the model w_t `[D]`, train it to w_i as `local` and `method`
    say, and send up w_i - w_t. With their weights p_i (the method's `weighting`), and the default `aggregation`,
    `server` makes the next model of

        delta = sum_i p_i (w_i - w_t),    by default w_{t+1} = w_t + delta

    All draws follow from `seed`, so the same federation gives the same models. `close()` or `with` ends all workers.
    Derived fields: `module`, the copy of the model, its `layout` and `sharing`, `clients`, `goal` and `observers`.

    Raises `SettingError` for settings that contradict each other. Two samples are tried out: raises `ModelError` or
    `SettingError` if model, loss or metrics do not fit them.
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
        check_no_overlap(self.model, Layout(self.module).names)
        derive("sharing", Sharing.of(self.module, self.buffers, self.personal))
        derive("layout", self.sharing.layout)
        derive("clients", clients_of(self.data, self.module, self.engine, self.loss, self.evaluation, self.seed))
        problem = self.clients.problem
        data = self.clients.data
        if data is None:
            problem = suited_problem(self.module, problem)
            samples = problem.test
        else:
            samples = data.train
            if self.loss is None:
                check_task(problem.task, data.train.y)
        derive("goal", self.evaluation.goal(problem.task, self.loss, self.metrics))
        if samples is not None and len(samples) > 0:
            try_out(self.module, problem, samples, self.goal, self.local.batch, self.loss, self.model)
        if data is not None:
            clients, why = self.local.single(self.sizes, self.method)
            check_single(self.module, problem, data.train, clients, why)
        apart: tuple[str, ...] = ()
        if self.broadcast is not None:
            self.broadcast.fits(self.averages, self.clients.held)
            apart = self.broadcast.apart
        for error in self.aggregation.refuses(self):
            raise error
        observers: dict[str, Observer] = {}
        for name, average in self.averages.items():
            observers[name] = Observer.of(average, self.layout, self.sharing.own_names)
        derive("observers", Observers(observers, apart))
        broadcaster = None
        if self.broadcast is not None:
            broadcaster = Broadcaster(self.broadcast, self.observers)
        if self.sharing.own_size:  # refuses a part that the method needs, and that stays with the clients
            self.method.server_state(self.sharing.common_of(self._initial), self.sharing.common)
        derive("remembers", bool(first_memory(self.method, self.local, self.sharing, self._initial)))
        tested = self.evaluation.tested(problem.test, self.clients.held, personal=self.sharing.own_size > 0)
        scorer = Scorer(self.module, self.layout, self.goal, replace(problem, test=tested), self.evaluation.batch)
        derive("_evaluator", Evaluator(scorer, len(self.sizes), self.evaluation.client_splits(self.clients.held)))
        calibrated = [name for name, average in self.averages.items() if average.buffers == "re-estimate"]
        derive("_calibration", Calibration(self.module, self.layout, data, self.evaluation, calibrated))
        derive("_lazy", LazyExecutor(self.clients, self.training()))
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
                broadcaster=broadcaster,
                observers=self.observers,
                pieces=self.engine.pieces,
                executor=self._lazy,
            ),
        )
        self._check_repeats(0)
        with suppress(LookupError):  # a plan of one's own may have one round
            self._check_repeats(1)

    def _check_repeats(self, round: int) -> None:
        """Raise `SettingError` unless sampling and schedule give the same in each call for `round` (from 0)."""
        draw = partial(self.sampling.clients, round, self.sizes, self.seed)
        check_repeats("Federation.sampling", self.sampling, draw)
        if self.local.schedule != Constant():
            check_repeats("LocalTraining.schedule", self.local.schedule, partial(self.local.at, round))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also one in another process, is made anew from the settings, and has an executor of its own."""
        settings = {setting.name: getattr(self, setting.name) for setting in fields(self) if setting.init}
        settings["model"] = self.module
        settings["averages"] = dict(self.averages)
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
        client_state = ClientState({})
        if not self.clients.remember:
            client_state = first_memory(self.method, self.local, self.sharing, w)
        versions = 0
        if self.remembers:
            versions = clients
        size = sum(value.nbytes for value in client_state.values())
        at_engine = bool(client_state) and self.engine.holds(size)
        averages, past = self.observers.init(w, folder)
        choice = None
        if self.broadcast is not None and self.broadcast.adaptive:
            choice = self.broadcast.first()
        return State(
            round=0,
            w=w,
            optimiser=OptimiserState(self.server.init(common)),
            server_state=ServerState(self.method.server_state(common, self.sharing.common)),
            clients=ClientStore.start(
                client_state, torch.zeros(versions, dtype=torch.int64), clients, folder, at_engine
            ),
            averages=averages,
            aggregation=AggregationMemory(self.aggregation.init(self.sampling, clients)),
            past=past,
            choice=choice,
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
        scores: list[Score] = []
        for name in each(list(models)):
            scores += self.judge(models[name], state.round, name, state)
        return scores

    def judge(self, w: Tensor, round: int, name: str, state: State | None = None) -> list[Score]:
        """The scores of any model `w` `[D]` on every split, recorded with this round and name.

        Each client scores it with the entries that it keeps of a model in `state`, or as it is without a state.
        """

        def ask(request: Request) -> Answers:
            if state is not None and not self._lazy.started:
                self.prepare(state=state)
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
        if state.choice is None or state.round % self.evaluation.every != 0:
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
        settings: dict[str, Any] = {
            "seed": self.seed,
            "method": self.method,
            "local": self.local,
            "aggregation": self.aggregation,
            "buffers": self.buffers,
            "personal": self.personal,
            "server": self.server,
            "broadcast": self.broadcast,
            "sampling": self.sampling,
            "layout.order": self.layout.order,
            "evaluation.held_out": self.evaluation.held_out,
            "engine.pieces": self.engine.pieces,
            "engine.precision": self.engine.precision,
            "loss": self.goal.loss,
            "model": self.module,
        }
        for name, average in self.averages.items():
            settings[f"averages.{name}"] = average
        settings |= settings_with(self.broadcast, self.averages, self.server, self.evaluation.every, self.goal)
        return fingerprint(settings) | self.clients.fingerprint(self.training())

    def saved(self, state: State) -> State:
        """The state to save: with the executor's vectors. Raises `RunError` if a later round has used it up."""
        state.check_usable()
        if not self._lazy.started:
            return replace(state)
        return replace(state, executor=ExecutorMemory(self._lazy.current.saved()))

    def prepare(self, rounds: int | None = None, state: State | None = None) -> list[str]:
        """Start the executor for `rounds` rounds, to continue from `state`; returns lines that say what it chose."""
        tests_clients = self.evaluation.tests_clients(self.clients.held)
        notes = [*self.sharing.notes(tests_clients), *self._lazy.start(rounds)]
        if state is not None:
            self.executor.load(state.executor)
        return notes

    def described(self) -> dict[str, Any]:
        """The settings of the executor if it has been started, else those of the engine."""
        if not self._lazy.started:
            return asdict(self.engine)
        return self._lazy.current.described()

    def settled(self, began: Mapping[str, Any]) -> Federation:
        """This federation with "auto" settings replaced by those that the executor `described` when the run began."""
        data = self.data
        if not isinstance(data, FederatedData):
            data = data.settled(began)
        engine = self.engine.settled(began)
        if engine == self.engine and data is self.data:
            return self
        return replace(self, engine=engine, data=data)

    def training(self) -> Training:
        """All that an executor must know of this federation, except the samples."""
        return Training(
            module=self.module,
            problem=replace(self.clients.problem, test=None),
            goal=self.goal,
            method=self.method,
            local=self.local,
            aggregation=self.aggregation,
            sharing=self.sharing,
            seed=self.seed,
            batch=self.evaluation.batch,
            asked=self.evaluation.client_splits(self.clients.held),
            fine_tuning=self.evaluation.fine_tuning,
            sample=self.sampling.first(self.sizes, self.seed),
        )
