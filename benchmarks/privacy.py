"""Epsilon in the settings of docs/how-to/privacy.md: what the sampling costs, and how loose Renyi's bound is.

python -m benchmarks.privacy
"""

from __future__ import annotations

import fedsash as fs
from fedsash.methods.accountant import Known, accounting, spent

SAMPLINGS: dict[str, tuple[float, Known]] = {
    "poisson, z = 1": (1.0, fs.sampling.Poisson(0.1)),
    "uniform, z = 1": (1.0, fs.Uniform(10)),
    "uniform, z = 2": (2.0, fs.Uniform(10)),
}

SWEEPS = [
    *(("digits", noise, 0.25, 200, 100) for noise in (2.0, 4.0, 8.0)),
    *(("Fashion-MNIST", noise, 0.05, 1000, 150) for noise in (1.0, 2.0, 4.0)),
]
"""Data, z, rate, clients and rounds of the sweeps."""


def tighter(noise: float, rate: float, rounds: int, delta: float) -> float:
    """Epsilon by the privacy loss distribution, which takes longer and proves less loss."""
    accounting()
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, pld

    accountant = pld.PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), rounds)
    return float(accountant.get_epsilon(delta))


def main() -> None:
    print("100 clients, 10 in a round, 100 rounds, delta = 1e-5\n\n| sampling | epsilon |\n|---|---|")
    for name, (noise, sampling) in SAMPLINGS.items():
        print(f"| {name} | {spent(noise, sampling, 100, 100, 1e-5).epsilon:.1f} |")
    print("\n| data | z | delta | epsilon (Renyi) | epsilon (loss distribution) | less |\n|---|---|---|---|---|---|")
    for data, noise, rate, clients, rounds in SWEEPS:
        delta = clients**-1.1
        bound = spent(noise, fs.sampling.Poisson(rate), clients, rounds, delta).epsilon
        exact = tighter(noise, rate, rounds, delta)
        print(f"| {data} | {noise:g} | {delta:.2g} | {bound:.2f} | {exact:.2f} | {1 - exact / bound:.0%} |")


if __name__ == "__main__":
    main()
