"""What parts of one's own give back is checked where they give it, and they can't change what they are given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedsash import Federation, LocalTraining
from fedsash.client.optimisers import Adam
from fedsash.engines.base import Engine
from fedsash.engines.like import upload_like
from fedsash.evaluation import Evaluation, FineTuning
from fedsash.methods import Aggregation, FedAvg, LocalRun, Upload, WeightedMean
from fedsash.methods.base import Effort
from fedsash.methods.sampling import Function, Uniform
from fedsash.methods.schedules import Exponential, Flat, LocalSchedule, Schedule
from fedsash.methods.server_optimisers import Server
from fedsash.settings.errors import SettingError
from fedsash.vector.arrays import Floats, Ints, Vectors
from fedsash.vector.spaces import CommonPart, ServerState
from support.by_default import rotated
from support.executors import Cluster
from support.worlds import ENGINES, SEQUENTIAL, SIZES, VECTORISED, WORKERS, after, data, federation


@dataclass(frozen=True)
class Moves(Server):
    """Adds the update, and gives it another form."""

    form: Any = field(default=Tensor.mean)

    def init(self, w: Tensor) -> Vectors:
        return {}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return self.form(sent + delta), state


@dataclass(frozen=True)
class Counts(Server):
    """Adds the update, and counts in another type than it began with, so that no saved state could be loaded."""

    def init(self, w: Tensor) -> Vectors:
        return {"n": torch.tensor(0)}

    def step(self, sent: Tensor, delta: Tensor, state: Vectors) -> tuple[Tensor, Vectors]:
        return sent + delta, {"n": state["n"] + 0.5}


@dataclass(frozen=True)
class Sums(Aggregation):
    """The mean of the uploads in another form."""

    form: Any = field(default=Tensor.mean)

    def update(self, mean: Vectors, updates: list[Tensor]) -> Tensor:
        given: Tensor = self.form(mean["delta"])
        return given


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ({"server": Moves()}, r"Moves\.step: the model: shape = \[\]: must be \[67\]"),
        ({"server": Moves(Tensor.float)}, r"Moves\.step: the model: type = 'torch\.float32': must be torch\.float64"),
        ({"server": Moves(Tensor.tolist)}, r"Moves\.step: the model = 'list': must be a tensor"),
        ({"server": Counts()}, r"Counts\.step: n: type = 'torch\.float32': must be torch\.int64"),
        ({"aggregation": Sums()}, r"Sums\.update: shape = \[\]: must be \[67\]"),
        ({"aggregation": Sums(lambda delta: None)}, r"Sums\.update = 'NoneType': must be a tensor"),
    ],
)
def test_another_form_than_the_models_is_refused_in_the_round_that_made_it(part: dict[str, Any], line: str) -> None:
    world = federation(**part)
    assert world.layout.size == 67
    with pytest.raises(SettingError, match=f"^{line}$"):
        after(world, 1)


@dataclass(frozen=True)
class Uploads(FedAvg):
    """Uploads what `of` makes of an update, too."""

    of: Callable[[Tensor], Any] = field(kw_only=True)

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, "other": self.of(local.delta)}, {}


@dataclass(frozen=True)
class Derives(WeightedMean):
    """Sums the signs of the updates, too, as bytes."""

    def derive(self, upload: Vectors, effort: Effort, memory: Vectors) -> Vectors:
        return upload | {"sign": upload["delta"].sign().to(torch.int8)}


class SendsNumber(FedAvg):
    def send(self, w: CommonPart, server_state: ServerState, round: int) -> tuple[Tensor, Vectors]:
        numbers: Any = {"mu": 0.5}
        return w, numbers


KINDS_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"method": Uploads(of=lambda delta: 3.0)}, r"Uploads\.upload: other = 'float': must be a tensor"),
    ({"method": Uploads(of=lambda delta: delta[0])}, r"Uploads\.upload: other: shape = \[67\]: must be \[C, "),
    (
        {"method": Uploads(of=lambda delta: delta > 0)},
        r"Uploads\.upload: other: type = 'torch.bool': must be float",
    ),
    ({"method": Uploads(of=torch.Tensor.long)}, r"Uploads\.upload: other: type = 'torch.int64': must be float"),
    ({"aggregation": Derives()}, r"Derives\.derive: sign: type = 'torch.int8': must be floating-point"),
    ({"method": SendsNumber()}, r"SendsNumber\.send: mu = 'float': must be a tensor"),
]


@pytest.mark.parametrize("case, engine", rotated(KINDS_REFUSED, ["workers", "vectorised", "sequential"]))
def test_vectors_of_another_kind_are_refused_with_their_name(case: tuple[dict[str, Any], str], engine: str) -> None:
    settings, line = case
    with pytest.raises(SettingError, match=line):
        after(federation(engine=ENGINES[engine], **settings), 1)


class OfLargeClients(FedAvg):
    """Only clients with more than ten samples upload a second vector."""

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        uploads = {"delta": local.delta}
        if local.size.min() > 10:
            uploads["large"] = local.delta
        return uploads, {}


class DerivesOfLargeClients(WeightedMean):
    """Only of clients that pass over more than 20 samples it sums a second vector, too."""

    def derive(self, upload: Upload, effort: Effort, memory: Vectors) -> Upload:
        if effort.samples.min() > 20:
            upload["large"] = upload["delta"]
        return upload


@pytest.mark.parametrize("engine", [SEQUENTIAL, WORKERS, Cluster(pieces=len(SIZES))], ids=["alone", "workers", "sums"])
@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"method": OfLargeClients()}, "OfLargeClients.upload"),
        ({"aggregation": DerivesOfLargeClients()}, "DerivesOfLargeClients.derive"),
    ],
)
def test_a_vector_of_some_clients_of_a_round_is_refused_since_its_mean_is_over_all(
    engine: Engine, part: dict[str, Any], place: str
) -> None:
    line = f"{re.escape(place)} = .*: must have the same names for all clients of a round"
    with pytest.raises(SettingError, match=line):
        after(federation(engine=engine, sampling=Uniform(len(SIZES)), **part), 1)


class UploadsItsState(FedAvg):
    """Clients upload all that the method lets them remember."""

    def client_state(self, w: Tensor) -> Vectors:
        return {"c": torch.zeros_like(w)}

    def upload(self, local: LocalRun) -> tuple[Upload, Vectors]:
        return {"delta": local.delta, **local.client_state}, dict(local.client_state)


def test_what_the_optimiser_remembers_is_not_in_the_form_of_an_upload() -> None:
    local = LocalTraining(lr=0.1, batch=4, optimiser=Adam(), keep_moments=True)
    with federation(method=UploadsItsState(), local=local) as world:
        assert upload_like(world.training(), world.ask(world.start())).keys() == {"delta", "c"}


@dataclass(frozen=True)
class Rates(LocalSchedule):
    """Factors of any value and form."""

    form: Any = field(default=np.ones)

    def factors(self, k: Ints, steps: Ints) -> Floats:
        found: Floats = self.form(np.broadcast_shapes(k.shape, steps.shape))
        return found


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (lambda shape: -np.ones(shape), "Rates.factors = -1.0: must be finite and at least 0"),
        (lambda shape: np.full(shape, np.nan), "Rates.factors = nan: must be finite and at least 0"),
        (lambda shape: None, "Rates.factors: shape = [] must be numbers"),
        (lambda shape: np.ones(99), "Rates.factors: shape = [99]: must be numbers of a shape that fits"),
    ],
)
def test_factors_that_no_rate_can_have_are_refused(form: Any, line: str) -> None:
    with pytest.raises(SettingError) as error:
        after(federation(local=LocalTraining(lr=0.1, batch=4, local_schedule=Rates(form))), 1)
    assert str(error.value).startswith(line.replace("[] must", "[]: must"))


@dataclass(frozen=True)
class UntilTheLast(LocalSchedule):
    """1 in a client's own steps; what comes after its last one has no meaning."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        return np.where(k < steps, 1.0, np.nan)


def test_factors_after_a_clients_last_step_have_no_meaning() -> None:
    plain, until = (LocalTraining(lr=0.1, batch=4, local_schedule=own) for own in (Flat(), UntilTheLast()))
    assert torch.equal(after(federation(local=plain), 2).w, after(federation(local=until), 2).w)


@dataclass(frozen=True)
class Falling(LocalSchedule):
    """A fall to 0, counted in place, or not."""

    in_place: bool

    def factors(self, k: Ints, steps: Ints) -> Floats:
        if self.in_place:
            k += 1
            steps += 1
            return 1 - k / steps
        return 1 - (k + 1) / (steps + 1)


def test_a_schedule_may_change_the_steps_that_it_is_given() -> None:
    kept, changed = (LocalTraining(lr=0.1, batch=4, local_schedule=Falling(in_place)) for in_place in (False, True))
    assert torch.equal(after(federation(local=kept), 2).w, after(federation(local=changed), 2).w)


@dataclass(frozen=True)
class Undefined(Schedule):
    def lr(self, t: int, lr: float) -> float:
        return float("nan")


def test_a_rate_that_is_not_a_number_is_refused_as_such() -> None:
    with pytest.raises(SettingError, match=r"^LocalTraining\.lr = nan: must be"):
        federation(local=LocalTraining(lr=0.1, batch=4, schedule=Undefined()))


@dataclass(frozen=True)
class OneByOne(Schedule):
    """The rate of each round."""

    rates: tuple[float, ...]

    def lr(self, t: int, lr: float) -> float:
        return self.rates[t]


@pytest.mark.parametrize("engine", rotated(["workers", "sequential"], turns=1))
def test_an_evaluation_after_the_last_round_needs_no_rate_of_a_round_that_there_is_not(engine: str) -> None:
    local = LocalTraining(batch=4, schedule=OneByOne((0.2, 0.1)))
    evaluation = Evaluation(clients=True, held_out=0.25, fine_tuning=FineTuning(epochs=1))
    with federation(engine=ENGINES[engine], local=local, evaluation=evaluation, data=data((8,) * 4)) as world:
        state = world.start()
        for _ in range(2):
            state, _ = world.round(state)
        assert world.evaluate(state)


def test_a_range_of_epochs_goes_with_a_schedule() -> None:
    local = LocalTraining(lr=0.2, batch=4, epochs=(1, 3))
    halved = after(federation(local=replace(local, schedule=Exponential(0.5))), 2)
    first = after(federation(local=local), 1)
    second, _ = federation(local=replace(local, lr=0.1)).round(first)
    assert torch.equal(halved.w, second.w)


@dataclass
class Thawed(LocalSchedule):
    """Can't be compared."""

    def factors(self, k: Ints, steps: Ints) -> Floats:
        return np.ones(np.broadcast_shapes(k.shape, steps.shape))


def test_a_schedule_that_is_not_frozen_is_refused_where_it_is_given() -> None:
    with pytest.raises(SettingError, match=r"^LocalTraining\.local_schedule = Thawed\(\): must be a frozen dataclass"):
        LocalTraining(local_schedule=Thawed())


def test_a_sampling_function_may_change_the_sizes_that_it_is_given() -> None:
    def large(round: int, sizes: Ints, seed: int) -> Ints:
        sizes[sizes < 10] = 0
        return np.flatnonzero(sizes)

    world = federation(sampling=Function(large))
    before = federation().sizes
    _, report = world.round(world.start())
    assert np.array_equal(world.sizes, before) and set(report.clients) == set(np.flatnonzero(before >= 10))


def test_a_ragged_answer_of_a_sampling_function_is_one_line() -> None:
    with pytest.raises(SettingError, match=r"\[\[1\], \[2, 3\]\]: must hold distinct client ids"):
        federation(sampling=Function(lambda round, sizes, seed: [[1], [2, 3]]))


@pytest.mark.parametrize("engine", rotated([VECTORISED, SEQUENTIAL, WORKERS], turns=1))
def test_a_loss_of_another_type_than_the_weights_is_taken(engine: Any) -> None:
    def weighted(kind: torch.dtype) -> Federation:
        costs = torch.tensor([0.25, 0.5, 1.0], dtype=kind)
        return federation(loss=lambda o, y: F.cross_entropy(o, y, reduction="none").to(kind) * costs[y], engine=engine)

    low, full = after(weighted(torch.float32), 2).w, after(weighted(torch.float64), 2).w
    torch.testing.assert_close(low, full, rtol=1e-5, atol=1e-6)
