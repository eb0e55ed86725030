"""FedAvg, SCAFFOLD, a window that observes (WiMA) and IMA's feedback in one short file of plain PyTorch.

It imports nothing of fedsash. A test shows that `fedsash.Federation` trains the same models, to 1e-13: this is what it
computes, and all its other code is there for speed, memory, checks and choices. To run it:
`python examples/loops/whole.py`.

A model is one vector `w` `[D]`. There are N clients, and client i has n_i samples. `w_t` is the global model after t
rounds, `x` the vector that the clients of a round receive, `y` where a client is. The draws come from outside: `drawn`
maps the clients of a round to the batches of their local steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Batch = tuple[Tensor, Tensor]
Drawn = dict[int, list[Batch]]
Update = Callable[[nn.Module, Tensor, Drawn, float], Tensor]


def gradient(f: nn.Module, w: Tensor, batch: Batch) -> Tensor:
    """The gradient of the mean loss of a batch.

        g(w) = (1/b) * sum over the batch of grad_w loss(f(u; w), v)

    The network is f, its parameters are w, and the batch has b samples u with labels v.
    """
    u, v = batch
    vector_to_parameters(w, f.parameters())
    loss = cross_entropy(f(u), v)
    gradients = torch.autograd.grad(loss, list(f.parameters()))
    return torch.cat([g.reshape(-1) for g in gradients])


def local_training(f: nn.Module, x: Tensor, batches: list[Batch], eta: float, shift: Tensor | float = 0.0) -> Tensor:
    """Where a client ends: it begins at what it received, and takes one step for each of its batches.

        y = x,    then for each batch    y <- y - eta * (g(y) + shift)

    The rate is eta. FedAvg has no shift, and SCAFFOLD shifts all steps of a client by the same vector.
    """
    y = x
    for batch in batches:
        y = y - eta * (gradient(f, y, batch) + shift)
    return y


class FedAvg:
    """FedAvg (McMahan et al. 2017): the update of a round is the mean of its clients' updates.

        Delta = sum_i p_i * (y_i - x),    p_i = n_i / (sum of n_j over the round's clients)

    Client i sends y_i - x. The server weights by the numbers of samples.
    """

    def __init__(self, n: Sequence[int]) -> None:
        self.n = n

    def __call__(self, f: nn.Module, x: Tensor, drawn: Drawn, eta: float) -> Tensor:
        total = sum(self.n[i] for i in drawn)
        Delta = torch.zeros_like(x)
        for i, batches in drawn.items():
            y = local_training(f, x, batches, eta)
            Delta += self.n[i] / total * (y - x)
        return Delta


class Scaffold:
    """SCAFFOLD (Karimireddy et al. 2020), option II: control variates c and c_i take the drift out of the steps.

        step      y <- y - eta * (g(y) - c_i + c)
        client    c_i+ = c_i - c + (x - y) / (K * eta)
        server    Delta = (1/s) * sum_i (y_i - x)
                  c <- c + (1/N) * sum_i (c_i+ - c_i)

    A client takes K steps, and sends y_i - x and c_i+ - c_i. A round has s clients of all N. The server remembers c,
    and each client its c_i; at first they are 0.
    """

    def __init__(self, N: int, w: Tensor) -> None:
        self.c = torch.zeros_like(w)
        self.c_i = w.new_zeros(N, len(w))

    def __call__(self, f: nn.Module, x: Tensor, drawn: Drawn, eta: float) -> Tensor:
        N = len(self.c_i)
        s = len(drawn)
        Delta = torch.zeros_like(x)
        change = torch.zeros_like(x)
        for i, batches in drawn.items():
            K = len(batches)
            y = local_training(f, x, batches, eta, shift=self.c - self.c_i[i])
            c_plus = self.c_i[i] - self.c + (x - y) / (K * eta)
            change += (c_plus - self.c_i[i]) / N
            self.c_i[i] = c_plus
            Delta += (y - x) / s
        self.c += change
        return Delta


def window(models: list[Tensor], W: int) -> Tensor:
    """WiMA (Caldarola et al. 2023): the mean of the last W models.

        wima_t = (1/W) * sum of w_tau over tau = t-W+1, ..., t

    `models` are w_1 to w_t. While there are fewer than W, it is the mean of these.
    """
    return torch.stack(models[-W:]).mean(0)


def mild(eta: float, t: int, t_s: int, decay: float, late: float) -> float:
    """IMA's mild exploration (Zhou et al.): the rate of the clients' steps falls faster late in the training.

        eta_t = eta * decay^t                            for t < t_s
        eta_t = eta * decay^t_s * late^(t - t_s)         for t >= t_s

    Rounds count from 0: in round t there are t models after w_0.
    """
    return eta * decay ** min(t, t_s) * late ** max(t - t_s, 0)


def sent(w: Tensor, windows: list[Tensor], t: int, t_s: int | None) -> Tensor:
    """IMA's feedback: late in the training clients receive the window in place of the model.

        x_t = w_t       for t <= t_s
        x_t = wima_t    for t > t_s

    Without t_s they always receive the model, and the window only observes.
    """
    if t_s is None or t <= t_s:
        return w
    return windows[-1]


def train(
    f: nn.Module,
    w: Tensor,
    rounds: Iterable[Drawn],
    update: Update,
    rate: Callable[[int], float],
    W: int = 5,
    t_s: int | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """All rounds: the models w_1, w_2, ... and the windows wima_1, wima_2, ...

        w_{t+1} = x_t + Delta_t

    Each of `rounds` has the draws of a round, `update` is a method, and rate(t) is eta_t.
    """
    models: list[Tensor] = []
    windows: list[Tensor] = []
    for t, drawn in enumerate(rounds):
        x = sent(w, windows, t, t_s)
        w = x + update(f, x, drawn, rate(t))
        models.append(w)
        windows.append(window(models, W))
    return models, windows


def draw(u: Tensor, v: Tensor, clients: list[Tensor], s: int, b: int, passes: int) -> Drawn:
    """A round's clients, s of all, and their batches. `clients[i]` [n_i] are the numbers of client i's samples.

    In each pass a client shuffles its samples and cuts them into batches of b; the last one may be smaller.
    """
    drawn: Drawn = {}
    for i in torch.randperm(len(clients))[:s].tolist():
        drawn[i] = []
        for _ in range(passes):
            order = clients[i][torch.randperm(len(clients[i]))]
            drawn[i] += [(u[z], v[z]) for z in order.split(b)]
    return drawn


def main(T: int = 40) -> dict[str, float]:
    """Points of ten classes, each client with one class: which share of a test set each model has right in the end."""
    torch.manual_seed(0)
    v = torch.arange(1000) % 10
    u = 0.8 * torch.randn(10, 20)[v] + torch.randn(1000, 20)
    clients = [torch.arange(i, 500, 20) for i in range(20)]
    f = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))
    w = parameters_to_vector(f.parameters()).detach()
    rounds = [draw(u, v, clients, s=4, b=5, passes=2) for _ in range(T)]
    t_s = 3 * T // 4
    fedavg = FedAvg([len(client) for client in clients])
    trained = {
        "FedAvg": train(f, w, rounds, fedavg, lambda t: 0.1),
        "SCAFFOLD": train(f, w, rounds, Scaffold(len(clients), w), lambda t: 0.1),
        "IMA": train(f, w, rounds, fedavg, lambda t: mild(0.1, t, t_s, decay=1.0, late=0.9), t_s=t_s),
    }
    shares: dict[str, float] = {}
    for name, (models, windows) in trained.items():
        for which, model in {name: models[-1], f"{name}, window": windows[-1]}.items():
            vector_to_parameters(model, f.parameters())
            shares[which] = float((f(u[500:]).argmax(1) == v[500:]).float().mean())
    return shares


if __name__ == "__main__":
    for name, share in main().items():
        print(f"{name:<20}{share:.1%}")
