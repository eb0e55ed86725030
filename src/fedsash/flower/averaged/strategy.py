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
from .memory import Memory, chain, changed, remembered, restore, undo, unknown, unsaved
from .progress import Progress

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
    alone, as a function that keeps the best model so far needs it. `value(name)` gives each of them, also after the
    training.

    The training does not change: clients receive the strategy's own model, bitwise what they would receive without
    averages. With a `broadcast` they receive an average in its place (IMA): its name, or a `Broadcast` with a start. It
    must be of the order "after", with one average and a round as its start.

    Averages have the names, shapes and types of the first model. Whole numbers are averaged and rounded. By an
    average's `buffers` arrays with PyTorch's names of statistics are averaged or the latest; its `part` names arrays.
    Arrays and modules that `latest` names are those of the latest model, for what is no weight: codebooks, counts. So
    are spectral norm's vectors by PyTorch's names of them, whose means have not the length 1.

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
        folder: str | Path | None = None,
    ) -> None:
        _check_strategy(strategy)
        self.strategy = strategy
        self.averages = by_name(averages, "Averaged")
        self.serve = next(iter(self.averages)) if serve is None else serve
        known = [*self.averages, "model"]
        check(self.serve in known, "Averaged.serve", self.serve, f"must be one of {known}")
        self.broadcast = Broadcast.of(broadcast) if isinstance(broadcast, str) else broadcast
        right = "must be None, the name of an average or a Broadcast"
        check(isinstance(self.broadcast, Broadcast | None), "Averaged.broadcast", broadcast, right)
        self._check_broadcast()
        check_choice("Averaged.evaluate", evaluate, "all", "served")
        check(not isinstance(latest, str), "Averaged.latest", latest, "must be a list of names")
        self.evaluate = evaluate
        self.latest = tuple(latest)
        self.folder = None if folder is None else Path(folder)
        self._progress: Progress | None = None
        self._settings: Memory = {}
        self._configs: dict[str, tuple[ConfigRecord, Memory]] = {}
        self._own: Any = None
        self._before = self._open = 0

    def value(self, name: str) -> ArrayRecord:
        """An average, or the strategy's own model for the name "model", in the types of the first model."""
        known = [*self.averages, "model"]
        check(name in known, "Averaged.value: name", name, f"must be one of {known}")
        if self._progress is None:
            raise RunError("Averaged.value: there is none before the training has begun")
        return self._progress.value(name)

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
        right = "must be an ArrayRecord, such as ArrayRecord(model.state_dict())"
        check(isinstance(initial_arrays, ArrayRecord), "Averaged.start: initial_arrays", type(initial_arrays), right)
        configs = [ConfigRecord() if given is None else given for given in (train_config, evaluate_config)]
        self._configs = {name: (each, dict(each)) for name, each in zip(("train", "evaluate"), configs, strict=True)}
        with self._alone(), self._hooked():
            progress = self._begin(initial_arrays)
            self._before = self._open = progress.round
            result = self.strategy.start(
                grid=grid,
                initial_arrays=self.value(self.serve) if progress.round else initial_arrays,
                num_rounds=max(num_rounds - progress.round, 0),
                timeout=timeout,
                train_config=configs[0],
                evaluate_config=configs[1],
                evaluate_fn=None if evaluate_fn is None else self._evaluating(evaluate_fn),
            )
            self._close()
        return self._complete(result, progress)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to train from the strategy's own model, or from the average that is broadcast."""
        progress = self._running()
        self._close()
        self._open = self._before + server_round
        sent = progress.model
        choice = self.broadcast and self.broadcast.first()
        if choice and choice.sends(progress.round) and progress.begun(choice.average):
            sent = progress.value(choice.average)
            _start_anew(self.strategy)
        messages: Iterable[Message] = self._own.configure_train(self._open, sent, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's step; its model is observed, and the average `serve` stands in its place."""
        progress = self._running()
        round = self._before + server_round
        memory = remembered(self.strategy, spent=False)  # a release counts, whatever became of the round
        model, metrics = self._own.aggregate_train(round, replies)
        progress.note("train_metrics_clientapp", round, metrics)
        if model is None:
            return None, metrics
        wrong = progress.take(model, round)
        if not wrong:
            return progress.value(self.serve), metrics
        log.warning("round %d: %s; the round is left out", round, wrong)
        undo(self.strategy, memory)
        return None, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to evaluate the average `serve`."""
        self._running()
        messages: Iterable[Message] = self._own.configure_evaluate(self._before + server_round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The clients' metrics of the average `serve`."""
        round = self._before + server_round
        metrics: MetricRecord | None = self._own.aggregate_evaluate(round, replies)
        self._running().note("evaluate_metrics_clientapp", round, metrics)
        return metrics

    def summary(self) -> None:
        """Log the averages and the strategy's own settings."""
        sent = "the strategy's model" if self.broadcast is None else str(self.broadcast)
        log.info("\t├──> Averaged: %s", ", ".join(f"{n} ({type(each).__name__})" for n, each in self.averages.items()))
        log.info("\t│\t├── Evaluated and returned: %s", self.serve)
        log.info("\t│\t└── Sent to clients: %s", sent)
        (self._own or self.strategy).summary()

    def _begin(self, first: ArrayRecord) -> Progress:
        """The beginning of a training, or what the folder has of it."""
        progress = Progress(self.averages, first, self.folder, self.latest)
        self._settings = remembered(self.strategy)
        if self.folder is not None:
            if others := unknown(self.strategy):
                log.warning("Averaged: the attributes %s of the strategy can't be saved", ", ".join(others))
            memory, configs, notes = progress.load(self.folder, self._about(progress))
            restore(self.strategy, memory)
            self._settings = unsaved(self._settings, memory)
            for name, (config, given) in self._configs.items():
                before = configs.get(name, {})
                self._configs[name] = config, unsaved(given, before)
                config.update(before)
            for note in notes:
                log.warning("Averaged: %s", note)
            if progress.round:
                log.info("Averaged: goes on after round %d, from %s", progress.round, self.folder)
        self._progress = progress
        return progress

    def _close(self) -> None:
        """The open round is finished: save it."""
        progress = self._running()
        if self._open > progress.round:
            progress.round = self._open
            if self.folder is not None:
                memory = changed(remembered(self.strategy), self._settings)
                configs = {name: changed(dict(config), given) for name, (config, given) in self._configs.items()}
                progress.save(self.folder, self._about(progress), memory, configs)

    def _about(self, progress: Progress) -> dict[str, str]:
        """What must be the same for a saved state to be taken up."""
        averages = {f"averages.{name}": average for name, average in self.averages.items()}
        settings = fingerprint({"broadcast": self.broadcast, "latest": sorted(self.latest), **averages})
        strategies = " of ".join(type(each).__name__ for _, each in chain(self.strategy))
        return {"strategy": strategies, "serve": self.serve} | settings | progress.form.about()

    def _running(self) -> Progress:
        if self._own is None or self._progress is None:
            right = "it must be the outermost strategy, and be started by its own start()"
            raise RunError(f"Averaged: {right}: Averaged(Wrapper(strategy), ...), not Wrapper(Averaged(strategy, ...))")
        return self._progress

    def _alone(self) -> AbstractContextManager[None]:
        """Hold the folder, if there is one."""
        if self.folder is None:
            return nullcontext()
        check_folder(self.folder)
        right = "holds a run of fedsash: take another folder"
        check(not (self.folder / "metrics.jsonl").exists(), "Averaged.folder", str(self.folder), right)
        return locked(self.folder)

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """Let the strategy's own `start`, which may be the user's, call this object's methods in place of its own."""
        self._own = SimpleNamespace(**{name: getattr(self.strategy, name) for name in HOOKS})
        users = {name: method for name, method in vars(self.strategy).items() if name in HOOKS}
        try:
            for name in HOOKS:
                setattr(self.strategy, name, getattr(self, name))
            yield
        finally:
            for name in HOOKS:
                vars(self.strategy).pop(name, None)
            vars(self.strategy).update(users)
            self._own = None

    def _evaluating(self, evaluate: Evaluate) -> Evaluate:
        """An `evaluate_fn` for the model that is served and for all others."""
        progress = self._running()

        def evaluate_all(server_round: int, arrays: ArrayRecord, /) -> MetricRecord | None:
            round = self._before + server_round
            if server_round == 0 and round in (known := progress.metrics["evaluate_metrics_serverapp"]):
                return known[round]  # the last round before the training was taken up
            judged = self._others(progress) if self.evaluate == "all" else []
            others = {name: _metrics(evaluate(round, progress.value(name))) for name in judged}
            more = {f"{name}/{key}": value for name, metrics in others.items() for key, value in metrics.items()}
            found = _metrics(evaluate(round, arrays))  # last: what it writes for this round is of the served model
            if both := sorted(found.keys() & more.keys()):
                raise RunError(f"Averaged: evaluate_fn gives {both[0]!r}, which is the metric of another model")
            record = MetricRecord(found | more) if found or more else None
            progress.note("evaluate_metrics_serverapp", round, record)
            return record

        return evaluate_all

    def _others(self, progress: Progress) -> list[str]:
        """The averages that are not served and have a model, and the model if it is not what is served."""
        begun = [name for name in self.averages if progress.begun(name)]
        return [name for name in (["model"] if self.serve in begun else []) + begun if name != self.serve]

    def _complete(self, result: Result, progress: Progress) -> Result:
        """The result with all rounds, also those before the training was taken up."""
        if self._before and isinstance(result, Result):
            for name, metrics in progress.metrics.items():
                setattr(result, name, dict(metrics))
        if isinstance(result, Result):
            result.arrays = result.arrays or progress.value(self.serve)  # without a good round Flower gives none
        return result

    def _check_broadcast(self) -> None:
        if self.broadcast is not None:
            self.broadcast.fits(self.averages, held_out=True)
            right = "must be 'after': the strategy makes its server step itself"
            check(self.broadcast.order == "after", "Broadcast.order", self.broadcast.order, right)
            right = "must be a round, with one average: there are no held-out samples to decide by"
            check(not self.broadcast.adaptive, "Broadcast.start", self.broadcast.start, right)


def _metrics(answer: object) -> dict[str, Any]:
    """The metrics that an `evaluate_fn` gives; raises `SettingError` for anything but a record or None."""
    right = 'must return a MetricRecord or None; a loss stands in it, too: MetricRecord({"loss": loss, **metrics})'
    check(answer is None or isinstance(answer, Mapping), "Averaged.start: evaluate_fn", type(answer), right)
    return dict(answer or {})  # type: ignore[call-overload, no-any-return]


def _check_strategy(strategy: object) -> None:
    """Raise `SettingError` unless the strategy, and those inside it, can be averaged."""
    right = "must be a strategy of flwr.serverapp.strategy, such as FedAvg()"
    check(isinstance(strategy, Strategy), "Averaged.strategy", strategy, right)
    for _, each in chain(strategy):
        right = "its model is trees in bytes, which have no average"
        check(not isinstance(each, FedXgbBagging | FedXgbCyclic), "Averaged.strategy", type(each), right)
        check(not isinstance(each, Averaged), "Averaged.strategy", type(each), "must be the outermost strategy")


def _start_anew(strategy: Strategy) -> None:
    """Let FedAvgM take what is sent as its base, in place of its own last model."""
    for _, each in chain(strategy):
        if isinstance(each, FedAvgM):
            each.current_arrays = None
