"""What Private does not go with is refused in one sentence."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import pytest

from fedsash.averages import Window
from fedsash.evaluation import Evaluation
from fedsash.methods import METHODS, Adaptive, FedAvg, Private
from fedsash.methods.sampling import FixedClients, Uniform, Weighted
from fedsash.server.broadcast import Broadcast
from fedsash.settings.errors import LibraryError
from fedsash.testing.examples import examples
from support.by_default import some
from support.norms import batch_norm_model
from support.private import UNIFORM
from support.worlds import data, federation

CLIPPED = Private(1.0, 0.0)
LEAST_NOISE = "must be 0, or at least 1e-6: the accountant knows no smaller noise"
ALONE = {"fedavg", "fedprox", "fedacg", "fedsam", "fedasam", "fedswa"}
"""The methods whose clients send up their update alone."""


@pytest.mark.parametrize(
    "make, line",
    [
        (lambda: Private(1.0, 1e-200), f"Private.noise = 1e-200: {LEAST_NOISE}"),
        (lambda: Private(math.inf, 1.0), "Private.clip = inf: must be finite, since the noise is a multiple of it"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_one_line(make: Any, line: str) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == line


@pytest.mark.parametrize("settings, line", [
    (
        {"method": FedAvg()},
        "method.weighting = 'samples': must be 'uniform': the update of every client counts the same in a private "
        "aggregation",
    ),
    ({"sampling": Weighted(3)}, "sampling = 'Weighted': must be Poisson or Uniform"),
    ({"sampling": FixedClients(((0, 1),))}, "sampling = 'FixedClients': must be Poisson or Uniform"),
    (
        {"data": data((9,)), "sampling": Uniform(1)},
        "Private.delta = None: must be given for a federation of one client: the default, N^-1.1, is 1",
    ),
    (
        {"model": batch_norm_model(), "buffers": "average", "data": data((20, 20)), "sampling": Uniform(2)},
        "Federation.buffers = 'average': must not be 'average': Private does not clip statistics",
    ),
    (
        {"aggregation": Private(1.0, 0.8, Adaptive())},
        "Adaptive.noise = 0.2: must be above 0.4, half of Private.noise; None is a twentieth of a round's clients",
    ),
    (
        {
            "broadcast": Broadcast("w", "auto"),
            "averages": {"w": Window(2)},
            "evaluation": Evaluation(held_out=0.2),
        },
        "Broadcast.start, average = ('auto', 'w'): decides by clients' scores",
    ),
])  # fmt: skip
def test_what_it_does_not_go_with_is_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as error:
        federation(**{"aggregation": CLIPPED, "method": UNIFORM} | settings)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize("settings", [{"buffers": "local"}, {"personal": "1"}], ids=["local", "personal"])
def test_an_average_with_new_statistics_of_the_clients_samples_is_refused(settings: dict[str, Any]) -> None:
    own = {"model": batch_norm_model(), "data": data((4, 4, 4, 4)), "averages": {"w": Window(2, buffers="re-estimate")}}
    federation(**own | settings)
    with pytest.raises(ValueError, match=r"averages\.w\.buffers = 're-estimate': must be 'average' or 'latest': the"):
        federation(**{"aggregation": CLIPPED, "method": UNIFORM} | own | settings)


@pytest.mark.parametrize("name", some(METHODS, "ewc", "feddyn", "scaffold", "mime"))
def test_methods_with_uploads_of_their_own_are_refused(name: str) -> None:
    method = replace(examples(METHODS)[name], weighting="uniform")
    if name in ALONE:
        federation(aggregation=CLIPPED, method=method)
        return
    with pytest.raises(ValueError, match="has uploads of its own, which Private does not clip: use a method"):
        federation(aggregation=CLIPPED, method=method)


def test_without_the_accountants_library_noise_is_refused_before_the_first_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(LibraryError, match=r'pip install "fedsash\[privacy\]"'):
        federation(aggregation=Private(1.0, 1.0), method=UNIFORM)
    federation(aggregation=CLIPPED, method=UNIFORM)
