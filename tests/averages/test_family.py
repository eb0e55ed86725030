"""The lines of docs/concepts/family.md: what equals what, each against a loop that is written here."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedsash.averages import BEMA, EMA, SWA, Average, PowerEMA, Window
from fedsash.methods.server_optimisers import ServerSGD
from fedsash.server.broadcast import Broadcast
from fedsash.testing import after, quadratic_federation
from support.trajectories import Alone, final, same_bits, trajectory

STEPS = 25
START = torch.tensor([3.0, -2.0, 1.0], dtype=torch.float64)
CURVATURE = torch.tensor([1.0, 0.3, 0.1], dtype=torch.float64)


def gradient(w: Tensor) -> Tensor:
    """The gradient of a loss that is not quadratic, so that nothing agrees because it is linear."""
    return CURVATURE * w + 0.1 * torch.sin(w)


def trained(w: Tensor) -> Tensor:
    """What clients, or three steps of an inner optimiser, make of a model."""
    for _ in range(3):
        w = w - 0.2 * gradient(w)
    return w


def base(lr: float) -> Tensor:
    """SGD: the models w_0 ... w_STEPS `[STEPS + 1, 3]`."""
    models = [START]
    for _ in range(STEPS):
        models.append(models[-1] - lr * gradient(models[-1]))
    return torch.stack(models)


def heavy_ball(lr: float, momentum: float) -> Tensor:
    """SGD with momentum: v <- momentum v + g, w <- w - lr v."""
    models = [START]
    v = torch.zeros_like(START)
    for _ in range(STEPS):
        v = momentum * v + gradient(models[-1])
        models.append(models[-1] - lr * v)
    return torch.stack(models)


def nesterov(step: Callable[[Tensor], Tensor], momentum: float) -> tuple[Tensor, Tensor]:
    """Nesterov's method: p after a step, and w, the extrapolation of p where the next step is taken."""
    p = [START]
    w = [START]
    for _ in range(STEPS):
        p.append(w[-1] + step(w[-1]))
        w.append(p[-1] + momentum * (p[-1] - p[-2]))
    return torch.stack(p), torch.stack(w)


def outer_nesterov(lr: float, momentum: float) -> Tensor:
    """The outer step of DiLoCo, as PyTorch's SGD has it: v <- momentum v + delta, w <- w + lr (delta + momentum v)."""
    models = [START]
    v = torch.zeros_like(START)
    for _ in range(STEPS):
        delta = trained(models[-1]) - models[-1]
        v = momentum * v + delta
        models.append(models[-1] + lr * (delta + momentum * v))
    return torch.stack(models)


def lookahead(alpha: float) -> Tensor:
    """Lookahead: the slow weights after each three fast steps."""
    slow = [START]
    for _ in range(STEPS):
        fast = trained(slow[-1])
        slow.append(slow[-1] + alpha * (fast - slow[-1]))
    return torch.stack(slow)


def gpa(lr: float, mu_x: float, mu_y: float) -> tuple[Tensor, Tensor, Tensor]:
    """Generalised primal averaging over SGD: the sequences x (evaluated), y (gradients) and z (steps)."""
    x = [START]
    y = []
    z = [START]
    for _ in range(STEPS):
        y.append(mu_y * x[-1] + (1 - mu_y) * z[-1])
        z.append(z[-1] - lr * gradient(y[-1]))
        x.append(mu_x * x[-1] + (1 - mu_x) * z[-1])
    y.append(mu_y * x[-1] + (1 - mu_y) * z[-1])
    return torch.stack(x), torch.stack(y), torch.stack(z)


def schedule_free(lr: float, beta: float) -> tuple[Tensor, Tensor]:
    """Schedule-Free SGD (Defazio et al. 2024): the sequences x and z."""
    x = [START]
    z = [START]
    for t in range(STEPS):
        y = (1 - beta) * z[-1] + beta * x[-1]
        z.append(z[-1] - lr * gradient(y))
        x.append((1 - 1 / (t + 1)) * x[-1] + 1 / (t + 1) * z[-1])
    return torch.stack(x), torch.stack(z)


def outer(server: ServerSGD) -> Tensor:
    """Rounds of a server optimiser: the models w_0 ... w_STEPS."""
    models = [START]
    state = server.init(START)
    for _ in range(STEPS):
        delta = trained(models[-1]) - models[-1]
        w, state = server.step(models[-1], delta, state)
        models.append(w)
    return torch.stack(models)


def values(average: Average, models: Tensor) -> Tensor:
    """The average after each model of a trajectory, and first the initial model."""
    alone = Alone(average, models[0])
    found = [models[0]]
    for round, w in enumerate(models[1:], start=1):
        found.append(alone.observe(w, round).value(w))
    return torch.stack(found)


def weights(average: Average, n: int) -> Tensor:
    """The weights `[n + 1]` of the models w_0 ... w_n in an average: its value on unit vectors."""
    return final(average, torch.eye(n + 1, dtype=torch.float64))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


# --- averages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [EMA(0.0), BEMA(kappa=0.0, eta=1000.0), PowerEMA(gamma=1e6)], ids=str)
def test_a_window_of_one_model_is_the_model_and_so_is(average: Average) -> None:
    models = trajectory(STEPS)
    assert same_bits(values(Window(1), models), models)
    assert same_bits(values(average, models), models)


def test_swa_is_a_window_that_is_not_full_yet() -> None:
    models = trajectory(STEPS)
    assert same_bits(values(SWA(1), models), values(Window(STEPS), models))


def test_swa_is_the_power_ema_with_gamma_0() -> None:
    models = trajectory(STEPS)
    close(values(PowerEMA(gamma=0.0), models), values(SWA(1), models))


def test_the_ema_is_the_limit_of_power_emas() -> None:
    """With gamma + 1 = -n log(decay), the largest difference of weights falls as 1 / n."""
    decay = 0.8
    errors = []
    for n in (100, 200, 400):
        near = weights(PowerEMA(gamma=-n * math.log(decay) - 1), n)
        errors.append(float((near - weights(EMA(decay), n)).abs().max()))
    assert errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.1)


def test_the_ema_from_the_initial_model_is_bema_without_a_correction_and_with_a_constant_share() -> None:
    models = trajectory(STEPS)
    bema = BEMA(kappa=1000.0, eta=1000.0, least=1 - 0.75)
    assert same_bits(values(bema, models), values(EMA(0.75, start="initial"), models))


@pytest.mark.parametrize(
    "average",
    [Window(4), EMA(0.8), EMA(0.8, start="initial"), EMA(0.8, start="zero"), SWA(5), PowerEMA(0.2), BEMA()],
    ids=str,
)
def test_for_fixed_gradients_an_average_is_decayed_steps(average: Average) -> None:
    """WSM (arXiv 2507.17634): the i-th step counts as the sum of the weights of the models from the i-th on."""
    gradients = trajectory(STEPS)[1:]
    models = torch.cat([START[:1].expand(1, 7), START[0] - 0.3 * gradients.cumsum(0)])
    of_models = weights(average, STEPS)
    w = models[0]
    for i, g in enumerate(gradients, start=1):
        w = w - 0.3 * of_models[i:].sum() * g
    close(final(average, models), w)


def test_a_window_is_steps_that_decay_linearly_and_an_ema_steps_that_decay_exponentially() -> None:
    size = 6
    places = torch.arange(1, STEPS + 1, dtype=torch.float64)
    of_window = weights(Window(size), STEPS)
    of_ema = weights(EMA(0.8, start="initial"), STEPS)
    decayed = torch.stack([of_window[i:].sum() for i in range(1, STEPS + 1)])
    close(decayed, ((STEPS + 1 - places) / size).clamp(max=1))
    decayed = torch.stack([of_ema[i:].sum() for i in range(1, STEPS + 1)])
    close(decayed, 1 - 0.8 ** (STEPS + 1 - places))


# --- steps of a server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0])
def test_lookahead_is_the_outer_step_with_the_rate_alpha(alpha: float) -> None:
    close(outer(ServerSGD(lr=alpha)), lookahead(alpha))


def test_the_broadcast_of_an_ema_is_the_outer_step_with_the_rate_1_minus_decay() -> None:
    alone = Alone(EMA(0.7, start="initial"), START)
    sent = [START]
    for round in range(1, STEPS + 1):
        w = trained(sent[-1])
        sent.append(alone.observe(w, round).value(w))
    close(outer(ServerSGD(lr=1 - 0.7)), torch.stack(sent))


def test_in_a_federation_the_broadcast_of_an_ema_is_the_outer_step_with_the_rate_1_minus_decay() -> None:
    curvatures = [1.0, 0.5, 2.0]
    goals = [3.0, -1.0, 0.4]
    ema = EMA(0.7, start="initial")
    sending = quadratic_federation(curvatures, goals, averages={"it": ema}, broadcast=Broadcast("it", 1))
    stepping = quadratic_federation(curvatures, goals, server=ServerSGD(lr=1 - 0.7))
    sent = sending.models(after(sending, 5))["it"]
    close(sent, after(stepping, 5).w)


def test_the_steps_of_server_momentum_are_an_ema_of_the_updates_from_zero() -> None:
    lr = 0.5
    momentum = 0.8
    models = outer(ServerSGD(lr, momentum))
    updates = torch.stack([trained(w) - w for w in models[:-1]])
    observed = torch.cat([torch.zeros(1, 3, dtype=torch.float64), updates])  # an EMA that begins at 0
    means = values(EMA(momentum, start="initial"), observed)[1:]
    close(models.diff(dim=0), lr / (1 - momentum) * means)


@pytest.mark.parametrize("momentum", [0.3, 0.6, 0.9])
def test_nesterovs_outer_step_is_nesterovs_method(momentum: float) -> None:
    _, w = nesterov(lambda w: 0.7 * (trained(w) - w), momentum)
    close(outer_nesterov(0.7, momentum), w)


def test_nesterovs_outer_step_without_momentum_is_lookahead() -> None:
    close(outer_nesterov(0.4, 0.0), lookahead(0.4))


# --- averages that are in the loop ------------------------------------------------------------------------------------


def test_gpa_with_mu_x_0_is_the_base_optimiser() -> None:
    x, y, z = gpa(0.3, 0.0, 0.6)
    expected = base(0.3)
    for sequence in (x, y, z):
        close(sequence, expected)


def test_gpa_with_mu_y_0_is_the_base_optimiser_and_its_ema() -> None:
    x, _, z = gpa(0.3, 0.8, 0.0)
    close(z, base(0.3))
    close(x, values(EMA(0.8, start="initial"), base(0.3)))


def test_gpa_with_mu_y_1_is_heavy_ball_momentum() -> None:
    x, _, _ = gpa(0.3, 0.8, 1.0)
    close(x, heavy_ball((1 - 0.8) * 0.3, 0.8))


def test_gpa_with_equal_mus_is_nesterovs_method() -> None:
    x, y, _ = gpa(0.3, 0.8, 0.8)
    p, w = nesterov(lambda w: -(1 - 0.8) * 0.3 * gradient(w), 0.8)
    close(x, p)
    close(y, w)


@pytest.mark.parametrize("mu_y", [0.0, 0.5, 0.9, 1.0])
def test_the_x_of_gpa_is_the_ema_of_its_z(mu_y: float) -> None:
    x, _, z = gpa(0.3, 0.8, mu_y)
    close(x, values(EMA(0.8, start="initial"), z))


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 1.0])
def test_the_x_of_schedule_free_is_swa_of_its_z(beta: float) -> None:
    x, z = schedule_free(0.3, beta)
    close(x, values(SWA(1), z))


def test_schedule_free_with_beta_0_is_the_base_optimiser_and_its_mean() -> None:
    x, z = schedule_free(0.3, 0.0)
    close(z, base(0.3))
    close(x, values(SWA(1), base(0.3)))


def test_schedule_free_is_gpa_whose_mu_x_grows_as_t_over_t_plus_1() -> None:
    beta = 0.9
    x = z = START
    expected = [START]
    for t in range(STEPS):
        mu_x = t / (t + 1)
        y = beta * x + (1 - beta) * z
        z = z - 0.3 * gradient(y)
        x = mu_x * x + (1 - mu_x) * z
        expected.append(x)
    close(schedule_free(0.3, beta)[0], torch.stack(expected))
