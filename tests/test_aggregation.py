from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from worlds import ENGINES, Point, after, federation, snapshot

from fedsash.aggregation import AGGREGATIONS, Effort, FedGMA, FedNova, Mean, Sums, largest_norms
from fedsash.averages import Window
from fedsash.data import FederatedData
from fedsash.federation import Federation
from fedsash.feed import Feed
from fedsash.local import Client
from fedsash.methods import METHODS, FedACG, FedAvg, FedDyn, FedProx, FedSWA, Method, Scaffold, Upload
from fedsash.sampling import Uniform
from fedsash.schedules import Exponential, Flat, Mild, SawTooth
from fedsash.servers import SGD, Adam

finite = st.floats(-1e3, 1e3)
BAD = (math.nan, math.inf, -math.inf)


@dataclass(frozen=True)
class TwoVectors(Method):
    """Uploads `c`, averaged uniformly, and a number `tau` beside `delta`."""

    uniform: ClassVar[tuple[str, ...]] = ("c",)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[np.ndarray, Upload]:
    """The sizes of a round's clients, and what they upload."""
    count = draw(st.integers(1, 7))
    sizes = np.array(draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count)), dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shapes = {"delta": (5,), "c": (2, 3), "tau": ()}
    upload = {name: torch.from_numpy(rng.normal(size=(count, *shape))) for name, shape in shapes.items()}
    return sizes, upload


def aggregate(
    sizes: Any,
    upload: Upload,
    blocks: tuple[int, ...] = (),
    method: Method | None = None,
    rule: Mean | None = None,
    effort: Effort | None = None,
) -> Sums:
    """The sums over a round that comes in blocks, split at the given places."""
    sums = (rule or Mean()).begin(method or TwoVectors(), np.asarray(sizes, dtype=np.int64), effort)
    bounds = [0, *sorted(blocks), len(sizes)]
    for first, last in itertools.pairwise(bounds):
        if first < last:
            block = {name: value[first:last] for name, value in upload.items()}
            sums.add(first, block, largest_norms(block))
    return sums


def updated(sums: Sums) -> Tensor:
    """The round's update."""
    return sums.update(sums.mean())


def expected(sizes: np.ndarray, upload: Upload, kept: list[int] | None = None, weighting: str = "samples") -> Upload:
    """The weighted means by NumPy, in float64, over the clients that are kept."""
    kept = list(range(len(sizes))) if kept is None else kept
    uniform = np.ones(len(kept))
    by_samples = sizes[kept].astype(float) if weighting == "samples" else uniform
    return {
        name: torch.from_numpy(
            np.asarray(np.average(value.double().numpy()[kept], axis=0, weights=uniform if name == "c" else by_samples))
        )
        for name, value in upload.items()
    }


def assert_close(one: Upload, other: Upload, rtol: float = 1e-12) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=rtol, atol=rtol, check_dtype=False)


@settings(deadline=None)
@given(round=rounds(), weighting=st.sampled_from(["samples", "uniform"]))
def test_the_mean_is_numpys_weighted_average(round: Any, weighting: Any) -> None:
    sizes, upload = round
    sums = aggregate(sizes, upload, method=TwoVectors(weighting=weighting))
    assert sums.accepted == len(sizes)
    assert_close(sums.mean(), expected(sizes, upload, weighting=weighting))


@settings(deadline=None)
@given(round=rounds())
def test_float32_uploads_have_a_float32_mean_as_exact_as_that_allows(round: Any) -> None:
    sizes, upload = round
    single = {name: value.float() for name, value in upload.items()}
    mean = aggregate(sizes, single).mean()
    assert all(value.dtype == torch.float32 for value in mean.values())
    assert_close(mean, expected(sizes, single), rtol=2e-6)


@settings(deadline=None)
@given(round=rounds(), data=st.data())
def test_the_order_of_the_clients_does_not_matter(round: Any, data: st.DataObject) -> None:
    sizes, upload = round
    order = data.draw(st.permutations(range(len(sizes))))
    permuted = {name: value[order] for name, value in upload.items()}
    assert_close(aggregate(sizes[order], permuted).mean(), aggregate(sizes, upload).mean())


@settings(deadline=None)
@given(round=rounds(), scale=st.integers(1, 10**6))
def test_only_the_ratios_of_the_sizes_matter(round: Any, scale: int) -> None:
    sizes, upload = round
    assert_close(aggregate(scale * sizes, upload).mean(), aggregate(sizes, upload).mean())


@settings(deadline=None)
@given(round=rounds())
def test_equal_uploads_are_their_own_mean(round: Any) -> None:
    sizes, upload = round
    same = {name: value[:1].expand_as(value) for name, value in upload.items()}
    assert_close(aggregate(sizes, same).mean(), {name: value[0] for name, value in upload.items()})


@settings(deadline=None)
@given(round=rounds(), data=st.data())
def test_any_split_into_blocks_gives_the_same_mean_and_leaves_the_uploads_alone(round: Any, data: Any) -> None:
    sizes, upload = round
    given = {name: value.clone() for name, value in upload.items()}
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    mean = aggregate(sizes, upload, blocks).mean()
    assert_close(mean, aggregate(sizes, upload).mean())
    assert all(torch.equal(mean[name], value) for name, value in aggregate(sizes, upload, blocks).mean().items())
    assert all(torch.equal(given[name], value) for name, value in upload.items())


def test_sums_do_not_alias_the_uploads() -> None:
    """Worker processes hand out the same buffer for every block."""
    buffer = torch.ones(1, 3, dtype=torch.float64)
    sums = Mean().begin(FedAvg(), np.array([1, 1]))
    for place in range(2):
        sums.add(place, {"delta": buffer}, largest_norms({"delta": buffer}))
        buffer.fill_(5)
    assert sums.mean()["delta"].tolist() == [3, 3, 3]


@settings(deadline=None)
@given(round=rounds(), data=st.data())
def test_bad_clients_are_left_out_named_and_the_others_weights_scaled_up(round: Any, data: st.DataObject) -> None:
    sizes, upload = round
    clients = range(len(sizes))
    bad = data.draw(st.sets(st.sampled_from(clients)))
    for client in bad:
        value = upload[data.draw(st.sampled_from(sorted(upload)))].view(len(sizes), -1)
        value[client, data.draw(st.integers(0, value.shape[1] - 1))] = data.draw(st.sampled_from((*BAD, 1e7, -1e7)))
    good = [client for client in clients if client not in bad]
    cut = data.draw(st.integers(0, len(sizes)))
    sums = Mean().begin(TwoVectors(), sizes)
    named: list[int] = []
    for block in (range(cut), range(cut, len(sizes))):
        if block:
            part = {name: value[block.start : block.stop] for name, value in upload.items()}
            named += [block.start + i for i in sums.add(block.start, part, largest_norms(part))]
    assert named == good and sums.accepted == len(good)
    assert_close(sums.mean(), expected(sizes, upload, good) if good else {})


def test_the_limit_is_on_the_norm_of_a_vector_and_inclusive() -> None:
    upload = {"delta": torch.tensor([[3.0, 4.0], [3.0, 4.1], [0.0, 0.0]])}
    sums = Mean(limit=5).begin(FedAvg(), np.array([1, 1, 1]))
    assert sums.add(0, upload, largest_norms(upload)) == [0, 2]
    assert sums.mean()["delta"].tolist() == [1.5, 2.0]


def test_an_infinite_limit_still_refuses_what_is_not_finite() -> None:
    upload = {"delta": torch.tensor([[1e30], *([bad] for bad in BAD), [2.0]], dtype=torch.float64)}
    sums = Mean(limit=math.inf).begin(FedAvg(), np.ones(5, dtype=np.int64))
    assert sums.add(0, upload, largest_norms(upload)) == [0, 4]


@pytest.mark.parametrize("bad", [*BAD, 1e9])
def test_when_all_are_bad_nothing_is_accepted_and_there_is_no_mean(bad: float) -> None:
    sums = aggregate([1, 2], {"delta": torch.full((2, 3), bad)})
    assert sums.accepted == 0 and sums.mean() == {}


@settings(deadline=None)
@given(values=st.lists(st.lists(finite | st.sampled_from(BAD), min_size=3, max_size=3), min_size=1, max_size=4))
def test_the_largest_norm_is_over_a_clients_vectors_and_not_a_number_if_one_is_not(values: list[list[float]]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    norms = largest_norms({"a": x, "b": x[:, :2].unsqueeze(2), "number": 2 * x[:, 0]})
    array = x.numpy()
    a, b, number = np.linalg.norm(array, axis=1), np.linalg.norm(array[:, :2], axis=1), np.abs(2 * array[:, 0])
    assert norms.shape == (len(values),)
    np.testing.assert_allclose(norms.numpy(), np.max([a, b, number], axis=0), rtol=1e-12)


def test_a_mean_can_be_asked_for_again() -> None:
    sums = aggregate([1, 3], {"delta": torch.tensor([[0.0], [4.0]])})
    assert sums.mean().pop("delta").tolist() == sums.mean()["delta"].tolist() == [3.0]


@pytest.mark.parametrize("limit", [0, -1.0, math.nan])
def test_a_limit_that_is_not_positive_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match=r"Mean\.limit = .*: must be positive"):
        Mean(limit=limit)


# What holds for every rule.

RULES: dict[str, Mean] = {
    "nova": FedNova(),
    "nova, steps": FedNova(tau="steps"),
    "gma": FedGMA(threshold=0.4),
    "gma, hard": FedGMA(threshold=0.4, mask="hard"),
    "gma, code": FedGMA(threshold=0.4, mask="code"),
}
COMPOSED: dict[str, dict[str, Any]] = {
    "momentum": {"server": SGD(lr=0.7, momentum=0.9)},
    "Adam, fed after": {"server": Adam(lr=0.02), "feed": Feed("wima", 1)},
    "Adam, fed before": {"server": Adam(lr=0.02), "feed": Feed("wima", 1, "before")},
    "momentum, fed as the code": {"server": SGD(momentum=0.5), "feed": Feed("wima", 1, "code")},
    "tether and local momentum": {"method": FedProx(0.3), "client": Client(lr=0.1, batch=5, epochs=2, momentum=0.5)},
    "variates": {"method": Scaffold(), "client": Client(lr=0.1, batch=5, epochs=2, local_schedule=SawTooth(0.2))},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("composed", COMPOSED)
def test_engines_agree_on_every_rule_with_servers_feeds_and_methods(rule: str, composed: str) -> None:
    settings = {"averages": {"wima": Window(2)}} | COMPOSED[composed]
    states = {e: after(federation(**settings, aggregation=RULES[rule], engine=ENGINES[e]), 4) for e in ENGINES}
    one = states["sequential"]
    assert torch.isfinite(one.w).all() and not torch.equal(one.w, after(federation(**settings), 4).w)
    assert snapshot(states["workers"]) == snapshot(one)
    for (name, a), (_, b) in zip(one.tensors(), states["vectorised"].tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", [Scaffold(), FedDyn(0.3), FedDyn(0.3, weighting="samples")])
def test_the_servers_variate_stays_the_mean_of_the_clients_under_every_rule(method: Method, rule: str) -> None:
    """It says what clients remember, and those don't know how the server weighs their updates."""
    server, client = ("c", "c") if isinstance(method, Scaffold) else ("h", "g")
    state = after(federation(method=method, aggregation=RULES[rule]), 4)
    torch.testing.assert_close(state.shared[server], state.mine[client].mean(0), rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_rules_leave_every_upload_its_mean(rule: str) -> None:
    rng = np.random.default_rng(0)
    upload = {name: torch.from_numpy(rng.normal(size=(4, 5))) for name in ("delta", "c")}
    effort = Effort(torch.tensor([1, 2, 3, 4]), torch.tensor([1.0, 1.9, 2.7, 3.4], dtype=torch.float64))
    sums, plain = (aggregate([1, 2, 3, 4], upload, (2,), None, r, effort) for r in (RULES[rule], Mean()))
    assert all(torch.equal(sums.mean()[name], value) for name, value in plain.mean().items())
    assert torch.equal(updated(plain), plain.mean()["delta"]) and not torch.equal(updated(sums), updated(plain))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: FedNova(tau="epochs"), "FedNova.tau = 'epochs': must be 'coefficients' or 'steps'"),
        (lambda: FedNova(limit=0), "FedNova.limit = 0: must be positive"),
        (lambda: FedGMA(threshold=1.1), "FedGMA.threshold = 1.1: must be between 0 and 1"),
        (lambda: FedGMA(threshold=math.nan), "FedGMA.threshold = nan: must be between 0 and 1"),
        (lambda: FedGMA(mask="firm"), "FedGMA.mask = 'firm': must be 'soft' or 'hard' or 'code'"),
        (lambda: FedGMA(limit=-1.0), "FedGMA.limit = -1.0: must be positive"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_one_line(make: Any, line: str) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == line


def test_every_rule_has_a_name() -> None:
    assert set(AGGREGATIONS.values()) == {Mean, FedNova, FedGMA}


# FedNova: the coefficients.

tau = st.integers(1, 60)


def coefficient(client: Client, steps: int, method: Method | None = None) -> float:
    return float(client.coefficients(client.lr, np.array([steps]), method or FedAvg())[0])


@given(steps=tau, lr=st.floats(0, 10))
def test_the_coefficient_of_plain_sgd_is_its_number_of_steps(steps: int, lr: float) -> None:
    assert coefficient(Client(lr=lr), steps) == steps


@given(steps=tau, m=st.floats(0, 0.99), lr=st.floats(0, 10))
def test_the_coefficient_of_momentum_is_its_closed_form(steps: int, m: float, lr: float) -> None:
    expected = (steps - m * (1 - m**steps) / (1 - m)) / (1 - m)
    assert coefficient(Client(lr=lr, momentum=m), steps) == pytest.approx(expected, rel=1e-11)


@given(steps=tau, lr=st.floats(0.01, 1), mu=st.floats(0.01, 1))
def test_the_coefficient_of_a_tether_is_its_closed_form(steps: int, lr: float, mu: float) -> None:
    expected = (1 - (1 - lr * mu) ** steps) / (lr * mu)
    for method in (FedProx(mu), FedACG(beta=mu), FedDyn(mu)):
        assert coefficient(Client(lr=lr), steps, method) == pytest.approx(expected, rel=1e-11)


@given(steps=tau, rho=st.floats(0, 2))
def test_the_coefficient_of_a_saw_tooth_is_the_sum_of_its_rates(steps: int, rho: float) -> None:
    expected = (steps * (1 + rho) + 1 - rho) / 2
    assert coefficient(Client(local_schedule=SawTooth(rho)), steps) == pytest.approx(expected, rel=1e-13)
    assert coefficient(Client(), steps, FedSWA(rho)) == pytest.approx(expected, rel=1e-13)


@given(steps=st.lists(tau, min_size=1, max_size=5), m=st.floats(0, 0.9), mu=st.floats(0, 2))
def test_a_clients_coefficient_does_not_depend_on_the_others(steps: list[int], m: float, mu: float) -> None:
    client = Client(lr=0.3, momentum=m, local_schedule=SawTooth(0.1))
    together = client.coefficients(client.lr, np.array(steps), FedProx(mu))
    assert together.tolist() == [coefficient(client, k, FedProx(mu)) for k in steps]


@dataclass(frozen=True)
class Watched(Mean):
    """The mean, which keeps every update that it sees."""

    seen: list[Tensor] = field(default_factory=list)
    keeps: ClassVar[bool] = True

    def update(self, mean: Upload, kept: list[Tensor]) -> Tensor:
        self.seen.extend(kept)
        return super().update(mean, kept)


def slope(**settings: Any) -> Federation:
    """Clients of unequal sizes whose loss is w everywhere, so that every gradient is 1."""
    sizes = (1, 4, 9, 2)
    clients = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    x, y = np.zeros((sum(sizes), 1)), np.zeros(sum(sizes), dtype=int)
    defaults: dict[str, Any] = {
        "model": Point([0.7]),
        "data": FederatedData.from_arrays(x, y, clients, classes=1, dtype=torch.float64),
        "loss": lambda output, y: -output.sum(-1),
        "client": Client(lr=0.3, batch=2, epochs=2),
        "sampling": Uniform(len(sizes)),
    }
    return federation(**defaults | settings)


@pytest.mark.parametrize("method", [FedAvg(), FedProx(1.5), FedACG(beta=1.5), FedDyn(0.5), FedSWA(0.3)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("local", [Flat(), SawTooth(0.2)])
def test_the_coefficient_is_how_far_unit_gradients_take_a_client(method: Any, momentum: float, local: Any) -> None:
    client = Client(lr=0.3, batch=2, epochs=2, momentum=momentum, local_schedule=local)
    watched = Watched()
    f = slope(method=method, client=client, aggregation=watched)
    after(f, 1)
    ids = f.sampling.clients(0, f.data.sizes, f.seed)
    steps = 2 * -(-f.data.sizes[ids] // 2)
    moved = -client.lr * client.coefficients(client.lr, steps, method)
    assert len(set(steps.tolist())) > 2
    np.testing.assert_allclose(torch.cat(watched.seen).numpy(), moved, rtol=1e-14)


# FedNova: the update.


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_with_equal_steps_fednova_is_the_mean(name: str, momentum: float) -> None:
    settings = {"method": METHODS[name](), "client": Client(lr=0.1, batch=5, steps=4, momentum=momentum)}
    nova, mean = (after(federation(**settings, aggregation=rule), 3) for rule in (FedNova(), Mean()))
    torch.testing.assert_close(nova.w, mean.w, rtol=0, atol=1e-14)


def test_with_unequal_steps_fednova_is_not_the_mean() -> None:
    nova, mean = (after(federation(aggregation=rule), 1).w for rule in (FedNova(), Mean()))
    assert float((nova - mean).norm()) > 1e-3 * float(mean.norm())


UNEQUAL = {
    "momentum": {"client": Client(lr=0.3, batch=2, epochs=2, momentum=0.9)},
    "tether": {"method": FedProx(1.5)},
    "both, and a saw-tooth": {
        "method": FedProx(1.5, weighting="uniform"),
        "client": Client(lr=0.3, batch=2, momentum=0.5, local_schedule=SawTooth(0.1)),
    },
    "rates by round": {
        "method": FedProx(1.5),
        "client": Client(lr=0.3, batch=2, momentum=0.5, schedule=Exponential(0.6)),
    },
    "epochs by round": {
        "method": FedProx(1.5),
        "client": Client(lr=0.3, batch=2, epochs=3, schedule=Mild(0, "epochs", period=2)),
    },
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("world", UNEQUAL)
def test_where_all_gradients_are_1_fednova_is_the_mean_whatever_the_steps(world: str, engine: str) -> None:
    """All normalised updates are -eta then, so that only exact coefficients give the mean back, in every round."""
    settings = {"sampling": Uniform(3), "engine": ENGINES[engine]} | UNEQUAL[world]
    nova, mean = (after(slope(**settings, aggregation=rule), 5) for rule in (FedNova(), Mean()))
    torch.testing.assert_close(nova.w, mean.w, rtol=1e-13, atol=0)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_where_all_gradients_are_1_counting_steps_moves_by_their_mean_number(weighting: Any) -> None:
    f = slope(aggregation=FedNova(tau="steps"), method=FedProx(1.5, weighting=weighting))
    sizes = f.data.sizes
    mean = np.average(2 * -(-sizes // 2), weights=sizes if weighting == "samples" else None)
    assert float(after(f, 1).w - f.start().w) == pytest.approx(-0.3 * mean, rel=1e-13)


@settings(deadline=None)
@given(round=rounds(), data=st.data(), kind=st.sampled_from(["coefficients", "steps"]))
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_fednova_is_its_formula_in_numpy_over_the_clients_that_are_accepted(
    weighting: Any, round: Any, data: st.DataObject, kind: Any
) -> None:
    sizes, upload = round
    clients = list(range(len(sizes)))
    a = np.array([data.draw(st.floats(0.1, 50)) for _ in clients])
    steps = np.array([data.draw(st.integers(1, 50)) for _ in clients])
    bad = data.draw(st.sets(st.sampled_from(clients), max_size=len(clients) - 1))
    for client in bad:
        upload["delta"][client, 0] = data.draw(st.sampled_from((*BAD, 1e7)))
    good = [client for client in clients if client not in bad]
    p = sizes[good] / sizes[good].sum() if weighting == "samples" else np.full(len(good), 1 / len(good))
    d = upload["delta"].numpy()[good] / a[good][:, None]
    expected = (p @ (a if kind == "coefficients" else steps)[good]) * (p @ d)
    effort = Effort(torch.from_numpy(steps), torch.from_numpy(a))
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    method = FedAvg(weighting=weighting)
    sums = aggregate(sizes, {"delta": upload["delta"]}, blocks, method, FedNova(tau=kind), effort)
    np.testing.assert_allclose(updated(sums).numpy(), expected, rtol=1e-11, atol=1e-11)


# FedGMA.


@st.composite
def updates(draw: st.DrawFn) -> tuple[np.ndarray, Tensor]:
    """The sizes of a round's clients, and updates that agree now more, now less; some values are zero."""
    count = draw(st.integers(1, 12))
    sizes = np.array(draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count)), dtype=np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    delta = rng.normal(loc=draw(st.sampled_from([0.0, 1.0, 3.0])), size=(count, 40)) * rng.choice([-1, 1], 40)
    return sizes, torch.from_numpy(delta * (rng.random((count, 40)) < 0.95))


thresholds = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])
masks = st.sampled_from(["soft", "hard", "code"])


def masked(sizes: Any, delta: Tensor, rule: FedGMA, blocks: tuple[int, ...] = ()) -> Tensor:
    return updated(aggregate(sizes, {"delta": delta}, blocks, FedAvg(), rule))


@given(round=updates(), mask=st.sampled_from(["soft", "hard"]))
def test_a_threshold_of_zero_is_the_mean_bitwise(round: Any, mask: Any) -> None:
    sizes, delta = round
    mean = aggregate(sizes, {"delta": delta}, method=FedAvg()).mean()["delta"]
    assert torch.equal(masked(sizes, delta, FedGMA(threshold=0.0, mask=mask)), mean)


@given(round=updates(), threshold=thresholds, mask=st.sampled_from(["soft", "hard"]))
def test_equal_updates_are_their_own_masked_mean_whatever_the_threshold(
    round: Any, threshold: float, mask: Any
) -> None:
    sizes, delta = round
    same = torch.where(delta[:1] == 0, 0.5, delta[:1]).expand_as(delta)
    torch.testing.assert_close(masked(sizes, same, FedGMA(threshold=threshold, mask=mask)), same[0], rtol=1e-14, atol=0)


@pytest.mark.parametrize("mask", ["soft", "hard"])
@pytest.mark.parametrize("threshold", [0.01, 0.5, 1.0])
def test_two_clients_that_contradict_each_other_do_not_move_the_model(threshold: float, mask: Any) -> None:
    delta = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -0.1]], dtype=torch.float64)
    assert masked([1, 9], delta, FedGMA(threshold=threshold, mask=mask)).tolist() == [0, 0, 0]
    assert float(masked([1, 9], delta, FedGMA(threshold=0.0, mask=mask)).norm()) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("blocks", [(), (3,), tuple(range(10))])
def test_nine_of_ten_that_agree_pass_a_threshold_of_four_fifths(blocks: tuple[int, ...], dtype: torch.dtype) -> None:
    """(9 - 1) / 10 is 0.8, and a sum of tenths is not."""
    rng = np.random.default_rng(0)
    delta = torch.from_numpy(np.abs(rng.normal(size=(10, 50)))).to(dtype)
    delta[rng.integers(0, 10, 50), np.arange(50)] *= -1
    delta *= torch.from_numpy(rng.choice([-1, 1], 50))
    mean = aggregate([1] * 10, {"delta": delta}, blocks, FedAvg()).mean()["delta"]
    assert torch.equal(masked([1] * 10, delta, FedGMA(threshold=0.8, mask="hard"), blocks), mean)
    assert torch.equal(masked([1] * 10, delta, FedGMA(threshold=0.8, mask="soft"), blocks), mean)
    assert not masked([1] * 10, delta, FedGMA(threshold=0.81, mask="hard"), blocks).any()
    assert torch.equal(masked([1] * 10, delta, FedGMA(threshold=0.8, mask="code"), blocks), mean), (
        "the code asks for more than 0.8"
    )


@given(count=st.integers(1, 100), data=st.data())
def test_an_agreement_that_is_the_threshold_passes_it_in_float32(count: int, data: st.DataObject) -> None:
    against = data.draw(st.integers(0, (count - 1) // 2))
    delta = torch.ones(count, 1)
    delta[:against] = -1
    blocks = tuple(data.draw(st.lists(st.integers(0, count), max_size=5)))
    threshold = (count - 2 * against) / count
    assert masked([1] * count, delta, FedGMA(threshold=threshold, mask="hard"), blocks).all()


@settings(deadline=None)
@given(round=updates(), threshold=thresholds, data=st.data())
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_soft_and_hard_masks_are_their_formula_in_numpy_over_the_clients_that_are_accepted(
    weighting: Any, round: Any, threshold: float, data: st.DataObject
) -> None:
    sizes, delta = round
    clients = list(range(len(sizes)))
    good = sorted(data.draw(st.sets(st.sampled_from(clients), min_size=1)))
    own = delta.numpy()[good].copy()
    delta[[client for client in clients if client not in good], 0] = math.nan
    mean = np.average(own, axis=0, weights=sizes[good] if weighting == "samples" else None)
    votes = np.abs(np.sign(own).sum(axis=0))
    agreed = votes >= threshold * len(good) - 1e-9
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    for mask, otherwise in (("soft", votes / len(good)), ("hard", 0.0)):
        rule, method = FedGMA(threshold=threshold, mask=mask), FedAvg(weighting=weighting)
        got = updated(aggregate(sizes, {"delta": delta}, blocks, method, rule))
        np.testing.assert_allclose(got.numpy(), np.where(agreed, 1.0, otherwise) * mean, rtol=1e-11, atol=1e-12)


def published(updates: np.ndarray, weights: np.ndarray, threshold: float) -> list[float]:
    """FedIMA's masking as FedGMA's docstring has it, one parameter and one client at a time."""
    s, result = len(updates), []
    for parameter in updates.T.tolist():
        model = sum(p * own for p, own in zip(weights.tolist(), parameter, strict=True))
        votes = sum((own > 0) - (own < 0) for own in parameter)
        so_far = 0.0
        for own in parameter:
            distance = own - so_far
            if abs(votes) > threshold * s + 1e-9 and distance * votes > 0:
                model -= 1e-4 / s * distance
            so_far = model
        result.append(model)
    return result


@settings(deadline=None)
@given(round=updates(), threshold=thresholds, data=st.data())
def test_the_codes_mask_is_a_plain_loop_over_parameters_and_clients(
    round: Any, threshold: float, data: st.DataObject
) -> None:
    sizes, delta = round
    clients = list(range(len(sizes)))
    good = sorted(data.draw(st.sets(st.sampled_from(clients), min_size=1)))
    expected = published(delta.numpy()[good], sizes[good] / sizes[good].sum(), threshold)
    delta[[client for client in clients if client not in good], 0] = math.inf
    blocks = tuple(data.draw(st.lists(st.integers(0, len(sizes)))))
    got = masked(sizes, delta, FedGMA(threshold=threshold, mask="code"), blocks)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-11, atol=1e-14)


@given(round=updates())
def test_the_codes_mask_takes_no_more_than_a_ten_thousandth_of_the_mean(round: Any) -> None:
    """With fewer than ten equal clients only the unanimous pass 0.8, whose distances sum to at most s times the mean
    (and what has been taken comes on top, a ten-thousandth of it)."""
    sizes, delta = round
    sizes, delta = np.ones_like(sizes[:9]), delta[:9]
    mean = aggregate(sizes, {"delta": delta}, method=FedAvg()).mean()["delta"]
    got = masked(sizes, delta, FedGMA(threshold=0.8, mask="code"))
    assert bool(((got - mean).abs() <= 1e-4 * (1 + 1e-4) * mean.abs() + 1e-16).all())
    assert bool((got.abs() <= mean.abs() + 1e-16).all()), "what it changes, it changes the wrong way"


def test_kept_updates_do_not_alias_the_uploads() -> None:
    """Worker processes hand out the same buffer for every block."""
    rule = FedGMA(threshold=0.5, mask="code")
    buffers = torch.ones(1, 3, dtype=torch.float64), torch.full((1, 3), 2.0, dtype=torch.float64)
    sums = rule.begin(FedAvg(), np.array([1, 1]))
    for place, buffer in enumerate(buffers):
        sums.add(place, {"delta": buffer}, largest_norms({"delta": buffer}))
        buffer.fill_(7)
    got = updated(sums).numpy()
    np.testing.assert_allclose(got, published(np.array([[1.0] * 3, [2.0] * 3]), np.array([0.5, 0.5]), 0.5), rtol=1e-15)


@settings(deadline=None)
@given(round=updates(), threshold=thresholds, mask=masks)
def test_a_masked_update_can_be_asked_for_again(round: Any, threshold: float, mask: Any) -> None:
    sizes, delta = round
    sums = aggregate(sizes, {"delta": delta}, method=FedAvg(), rule=FedGMA(threshold=threshold, mask=mask))
    assert torch.equal(updated(sums), updated(sums))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_with_a_threshold_of_zero_is_the_run_with_the_mean_bitwise(engine: str) -> None:
    gma, mean = (
        after(federation(engine=ENGINES[engine], aggregation=rule), 3) for rule in (FedGMA(threshold=0.0), Mean())
    )
    assert snapshot(gma) == snapshot(mean)
