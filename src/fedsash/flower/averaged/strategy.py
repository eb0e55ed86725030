"""Averages of the global models of any Flower strategy."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvgM, FedXgbBagging, FedXgbCyclic, Result, Strategy

from ...averages import Average
from ...averages.base import by_name
from ...server.broadcast import Broadcast
from ...settings.errors import RunError, check, check_choice
from ...settings.fingerprint import fingerprint
from ...system.lock import locked
from ...system.paths import check_folder
from .best import BestModel, KeptBest, Mode
from .memory import Memory, attributes, chain, changed, remembered, restore, undo, unknown, unsaved
from .training_state import TrainingState

log = logging.getLogger("flwr")

HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "summary")


class Evaluate(Protocol):
    """An `evaluate_fn`: the metrics of a model after a round."""

    def __call__(self, server_round: int, arrays: ArrayRecord, /) -> MetricRecord | None: ...


class Averaged(Strategy):  # type: ignore[misc]
    """Any Flower strategy with averages of its global models.

        strategy = Averaged(FedAvg(), {"wima": Window(100), "ema": EMA(0.99)}, serve="wima")
        result = strategy.start(grid, initial_arrays, num_rounds=300, evaluate_fn=evaluate)

    `averages` is one average, or several by their names. After each round they observe the strategy's model. The one
    that `serve` names (the first if it is None; `"model"` is the strategy's own model) takes the model's place
    wherever a model is looked at: clients and `evaluate_fn` evaluate it, and it is the `arrays` of the result.
    `evaluate_fn` evaluates the others beside it, as soon as they have a model: their metrics are in the same record as
    `"ema/accuracy"` and `"model/accuracy"`. With `evaluate = "served"` it is called once a round, with the served model
    alone, as a function that keeps something itself needs it. `value(name)` gives each of them, also after the
    training.

    The training does not change: clients receive the strategy's own model, bitwise what they would receive without
    averages. With a `broadcast` they receive an average in its place (IMA): its name, or a `Broadcast` with a start. It
    must be of the order "after", with one average and a round as its start.

    Averages have the names, shapes and types of the first model. Whole numbers are averaged and rounded. By an
    average's `buffers` arrays with PyTorch's names of statistics are averaged or the latest; its `part` names arrays.
    Arrays and modules that `latest` names are those of the latest model, for what is no weight: codebooks, counts. So
    are spectral norm's vectors by PyTorch's names of them, whose means have not the length 1.

    `best = ("accuracy", "max")` keeps the best served model by that metric, or with "min" by the smallest one; it is
    `best_model`. The metric is that of `evaluate_fn`, or of the clients' evaluation if it never gives it. The initial
    model does not count, of equal ones the earliest is kept, and one whose metric is NaN never is.

    A round without a model, or with one that is not finite, passes: nothing of it enters an average, and clients
    receive the last good model again. After one that is not finite, the strategy's attributes are those before it.

    With a `folder`, the state is saved there after each round, evaluation included: averages, models of past rounds,
    metrics, and what the strategy remembers in its attributes. `start` goes on from the newest state there. Then
    models, metrics and Flower's choice of nodes are those of a training without a stop. Noise for privacy is fresh.

    It must be the outermost strategy; a wrapper for differential privacy belongs inside. Raises `SettingError` for a
    wrong argument, a strategy for XGBoost among them, and when it starts: `ModelError` if the first model can't be
    averaged, `RunError` if the folder has the state of another training, or another training is at work in it.
    """

    def __init__(
        self,
        strategy: Strategy,
        averages: Average | Mapping[str, Average],
        serve: str | None = None,
        broadcast: str | Broadcast | None = None,
        *,
        evaluate: Literal["all", "served"] = "all",
        latest: Collection[str] = (),
        best: tuple[str, Mode] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        _check_strategy(strategy)
        self.strategy = strategy
        self.averages = by_name(averages, "Averaged")
        self.serve = next(iter(self.averages)) if serve is None else serve
        self._check_name("Averaged.serve", self.serve)
        self.broadcast = Broadcast.of(broadcast) if isinstance(broadcast, str) else broadcast
        requirement = "must be None, the name of an average or a Broadcast"
        check(isinstance(self.broadcast, Broadcast | None), "Averaged.broadcast", broadcast, requirement)
        self._check_broadcast()
        check_choice("Averaged.evaluate", evaluate, "all", "served")
        check(not isinstance(latest, str), "Averaged.latest", latest, "must be a list of names")
        self.evaluate = evaluate
        self.latest = tuple(latest)
        self.best = None if best is None else KeptBest.of(best)
        self.folder = None if folder is None else Path(folder)
        self._state: TrainingState | None = None
        self._settings: Memory = {}
        self._unknown: set[str] = set()
        # The records that Flower passes on from round to round, and what the caller has written into them.
        self._configs: dict[str, tuple[ConfigRecord, Memory]] = {}
        # The strategy's own methods, while this object's methods stand in their place.
        self._hooks: Any = None
        # The round after which the training was taken up, and the round that is not saved yet.
        self._before = 0
        self._open = 0

    def value(self, name: str) -> ArrayRecord:
        """An average, or the strategy's own model for the name "model", in the types of the first model."""
        self._check_name("Averaged.value: name", name)
        if self._state is None:
            raise RunError("Averaged.value: there is none before the training has begun")
        return self._state.value(name)

    @property
    def best_model(self) -> BestModel | None:
        """The best served model, its round and its score; None while no round has the metric.

        Raises `RunError` without `best`.
        """
        if self.best is None:
            raise RunError('Averaged.best_model: none is kept without best = ("accuracy", "max"), say')
        return self.best.model

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Train `num_rounds` rounds in all, with those of a state that was taken up: the strategy's own `start`."""
        arrays_place = "Averaged.start: initial_arrays"
        requirement = "must be an ArrayRecord, such as ArrayRecord(model.state_dict())"
        check(isinstance(initial_arrays, ArrayRecord), arrays_place, type(initial_arrays), requirement)
        if train_config is None:
            train_config = ConfigRecord()
        if evaluate_config is None:
            evaluate_config = ConfigRecord()
        self._configs = {
            "train": (train_config, dict(train_config)),
            "evaluate": (evaluate_config, dict(evaluate_config)),
        }
        with self._locked_folder(), self._hooked():
            state = self._begin(initial_arrays)
            self._before = state.round
            self._open = state.round
            result = self.strategy.start(
                grid=grid,
                initial_arrays=self.value(self.serve) if state.round else initial_arrays,
                num_rounds=max(num_rounds - state.round, 0),
                timeout=timeout,
                train_config=train_config,
                evaluate_config=evaluate_config,
                evaluate_fn=None if evaluate_fn is None else self._evaluating(evaluate_fn),
            )
            self._close()
        return self._complete(result, state)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to train from the strategy's own model, or from the average that is broadcast."""
        state = self._running()
        self._close()
        self._open = self._before + server_round
        sent = state.model
        choice = None if self.broadcast is None else self.broadcast.first()
        if choice and choice.sends(state.round) and state.begun(choice.average):
            sent = state.value(choice.average)
            _forget_own_model(self.strategy)
        messages: Iterable[Message] = self._hooks.configure_train(self._open, sent, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's step; its model is observed, and the average `serve` stands in its place."""
        state = self._running()
        round = self._before + server_round
        memory = remembered(self.strategy, spent=False)  # privacy is spent even if the round is left out
        names = {name for name, _ in attributes(self.strategy)}
        model, metrics = self._hooks.aggregate_train(round, replies)
        state.note("train_metrics_clientapp", round, metrics)
        if model is None:
            return None, metrics
        fault = state.take(model, round)
        if not fault:
            return state.value(self.serve), metrics
        log.warning("round %d: %s; the round is left out", round, fault)
        undo(self.strategy, memory, names)
        return None, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to evaluate the average `serve`."""
        self._running()
        round = self._before + server_round
        messages: Iterable[Message] = self._hooks.configure_evaluate(round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The clients' metrics of the average `serve`."""
        round = self._before + server_round
        metrics: MetricRecord | None = self._hooks.aggregate_evaluate(round, replies)
        self._running().note("evaluate_metrics_clientapp", round, metrics)
        return metrics

    def summary(self) -> None:
        """Log the averages and the strategy's own settings."""
        sent = "the strategy's model" if self.broadcast is None else str(self.broadcast)
        averages = [f"{name} ({type(average).__name__})" for name, average in self.averages.items()]
        log.info("\t├──> Averaged: %s", ", ".join(averages))
        log.info("\t│\t├── Evaluated and returned: %s", self.serve)
        log.info("\t│\t└── Sent to clients: %s", sent)
        (self._hooks or self.strategy).summary()

    def _begin(self, first: ArrayRecord) -> TrainingState:
        """The state at the beginning of a training, or the newest one in the folder."""
        if self.best is not None:
            self.best = KeptBest(self.best.metric, self.best.mode)  # not that of a training before
        state = TrainingState(self.averages, first, self.folder, self.latest, self.best)
        self._settings = remembered(self.strategy)
        if self.folder is not None:
            self._take_up(state, self.folder)
        self._state = state
        return state

    def _take_up(self, state: TrainingState, folder: Path) -> None:
        """Fill the state, the strategy's attributes and the records with what the folder has, if it has any."""
        self._warn_of_unknown()
        memory, configs, notes = state.load(folder, self._fingerprint(state))
        restore(self.strategy, memory)
        self._settings = unsaved(self._settings, memory)
        for name, (config, settings) in self._configs.items():
            written = configs.get(name, {})
            self._configs[name] = config, unsaved(settings, written)
            config.update(written)
        for note in notes:
            log.warning("Averaged: %s", note)
        if state.round:
            log.info("Averaged: goes on after round %d, from %s", state.round, folder)

    def _warn_of_unknown(self) -> None:
        """Name the attributes that can't be saved, each once."""
        names = [name for name in unknown(self.strategy) if name not in self._unknown]
        self._unknown.update(names)
        if names:
            log.warning("Averaged: the attributes %s of the strategy can't be saved", ", ".join(names))

    def _close(self) -> None:
        """Count the open round as finished, and save the state after it."""
        state = self._running()
        if self._open <= state.round:
            return
        state.close(self._open, self.serve)
        if self.folder is not None:
            self._warn_of_unknown()
            memory = changed(remembered(self.strategy), self._settings)
            configs = {name: changed(dict(config), settings) for name, (config, settings) in self._configs.items()}
            state.save(self.folder, self._fingerprint(state), memory, configs)

    def _fingerprint(self, state: TrainingState) -> dict[str, str]:
        """The texts that must be the same for a saved state to be taken up."""
        settings: dict[str, Any] = {"broadcast": self.broadcast, "latest": sorted(self.latest)}
        for name, average in self.averages.items():
            settings[f"averages.{name}"] = average
        classes = " of ".join(type(strategy).__name__ for _, strategy in chain(self.strategy))
        return {"strategy": classes, "serve": self.serve} | fingerprint(settings) | state.layout.fingerprint()

    def _running(self) -> TrainingState:
        if self._hooks is None or self._state is None:
            raise RunError(
                "Averaged: it must be the outermost strategy, and be started by its own start(): "
                "Averaged(Wrapper(strategy), ...), not Wrapper(Averaged(strategy, ...))"
            )
        return self._state

    def _check_name(self, place: str, name: str) -> None:
        names = [*self.averages, "model"]
        check(name in names, place, name, f"must be one of {names}")

    def _locked_folder(self) -> AbstractContextManager[None]:
        """A lock of the folder, if there is one. Raises `SettingError` if it is the folder of a run."""
        if self.folder is None:
            return nullcontext()
        check_folder(self.folder)
        requirement = "holds a run of fedsash: take another folder"
        check(not (self.folder / "metrics.jsonl").exists(), "Averaged.folder", str(self.folder), requirement)
        return locked(self.folder)

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """Let the strategy's own `start`, which may be the user's, call this object's methods in place of its own."""
        self._hooks = SimpleNamespace(**{name: getattr(self.strategy, name) for name in HOOKS})
        # Methods that a user has set on the object itself are set again afterwards.
        replaced = {name: method for name, method in vars(self.strategy).items() if name in HOOKS}
        try:
            for name in HOOKS:
                setattr(self.strategy, name, getattr(self, name))
            yield
        finally:
            for name in HOOKS:
                vars(self.strategy).pop(name, None)
            vars(self.strategy).update(replaced)
            self._hooks = None

    def _evaluating(self, evaluate: Evaluate) -> Evaluate:
        """An `evaluate_fn` for the model that is served and for all others."""
        state = self._running()

        def evaluate_all(server_round: int, arrays: ArrayRecord, /) -> MetricRecord | None:
            round = self._before + server_round
            saved = state.metrics["evaluate_metrics_serverapp"]
            if server_round == 0 and round in saved:
                return saved[round]  # the last round before the training was taken up
            other_metrics = {}
            if self.evaluate == "all":
                for name in self._others(state):
                    for key, value in _metrics(evaluate(round, state.value(name))).items():
                        other_metrics[f"{name}/{key}"] = value
            # The served model is last, so that what evaluate_fn writes for this round is of this model.
            metrics = _metrics(evaluate(round, arrays))
            if both := sorted(metrics.keys() & other_metrics.keys()):
                raise RunError(f"Averaged: evaluate_fn gives {both[0]!r}, which is the metric of another model")
            metrics |= other_metrics
            record = MetricRecord(metrics) if metrics else None
            state.note("evaluate_metrics_serverapp", round, record)
            return record

        return evaluate_all

    def _others(self, state: TrainingState) -> list[str]:
        """The names of the models that are evaluated beside the served one: averages that have begun, and "model".

        The strategy's own model is left out as long as it is the served one: until the served average has begun.
        """
        names = [name for name in self.averages if state.begun(name)]
        if self.serve in names:
            names = ["model", *names]
        return [name for name in names if name != self.serve]

    def _complete(self, result: Result, state: TrainingState) -> Result:
        """The result with all rounds, also those before the training was taken up."""
        if not isinstance(result, Result):  # a user's start may return anything
            return result
        if self._before:
            for name, metrics in state.metrics.items():
                setattr(result, name, dict(metrics))
        if not result.arrays:  # without a good round Flower gives none
            result.arrays = state.value(self.serve)
        return result

    def _check_broadcast(self) -> None:
        if self.broadcast is None:
            return
        self.broadcast.fits(self.averages, held_out=True)
        requirement = "must be 'after': the strategy makes its server step itself"
        check(self.broadcast.order == "after", "Broadcast.order", self.broadcast.order, requirement)
        requirement = "must be a round, with one average: there are no held-out samples to decide by"
        check(not self.broadcast.adaptive, "Broadcast.start", self.broadcast.start, requirement)


def _metrics(answer: object) -> dict[str, Any]:
    """The metrics that an `evaluate_fn` gives; raises `SettingError` for anything but a record or None."""
    requirement = (
        'must return a MetricRecord or None; a loss stands in it, too: MetricRecord({"loss": loss, **metrics})'
    )
    check(answer is None or isinstance(answer, Mapping), "Averaged.start: evaluate_fn", type(answer), requirement)
    return dict(answer or {})  # type: ignore[call-overload, no-any-return]


def _check_strategy(strategy: object) -> None:
    """Raise `SettingError` unless the strategy, and those inside it, can be averaged."""
    requirement = "must be a strategy of flwr.serverapp.strategy, such as FedAvg()"
    check(isinstance(strategy, Strategy), "Averaged.strategy", strategy, requirement)
    for _, each in chain(strategy):
        requirement = "its model is trees in bytes, which have no average"
        check(not isinstance(each, FedXgbBagging | FedXgbCyclic), "Averaged.strategy", type(each), requirement)
        check(not isinstance(each, Averaged), "Averaged.strategy", type(each), "must be the outermost strategy")


def _forget_own_model(strategy: Strategy) -> None:
    """Let FedAvgM take what is sent as its base, in place of its own last model."""
    for _, each in chain(strategy):
        if isinstance(each, FedAvgM):
            each.current_arrays = None
