"""Clients behind a network belong to the federation that made them: another one may not take them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedsash.engines import LocalEngine
from fedsash.evaluation import Evaluation
from fedsash.lab.studies.client_models import client_models
from fedsash.network import OnNetwork
from fedsash.server.federation import Federation
from fedsash.settings.errors import SettingError
from support.worlds import SEQUENTIAL, SIZES, data, federation

VECTORISED = replace(SEQUENTIAL, kind="vectorised")


def behind(made: Federation, **settings: Any) -> Federation:
    """The federation with these settings, and with the clients of `made` behind a network."""
    return replace(made, data=OnNetwork(made.clients), **settings)


HELD = Evaluation(held_out=0.3)
OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"evaluation": HELD}, r"clients\.evaluation\.held_out = 0\.0: must be the federation's, 0\.3"),
    ({"evaluation": HELD}, {"evaluation": Evaluation()}, r"clients\.evaluation\.held_out = 0\.3"),
    ({"evaluation": Evaluation(client_test=True)}, {"evaluation": Evaluation()}, r"clients\.evaluation\.client_test"),
    ({"evaluation": HELD}, {"seed": 4}, r"clients\.seed = 3: must be the federation's, 4"),
    ({"engine": SEQUENTIAL}, {"engine": VECTORISED}, r"clients\.engine = .*must be the federation's"),
]


@pytest.mark.parametrize("made, other, line", OTHERS)
def test_what_the_clients_have_otherwise_is_refused(made: dict[str, Any], other: dict[str, Any], line: str) -> None:
    plain = federation(**made)
    with pytest.raises(SettingError, match=line):
        behind(plain, **other)
    assert behind(federation(**made | other)).clients.held == federation(**made | other).clients.held


def test_a_seed_by_which_nothing_was_set_aside_may_change() -> None:
    plain = federation()
    found, expected = behind(plain, seed=7), replace(plain, seed=7)
    assert found.round(found.start())[0].w.equal(expected.round(expected.start())[0].w)


def test_clients_with_test_samples_of_their_own_take_any_seed() -> None:
    """Nothing is dealt out by the seed."""
    own = replace(data(), client_test=[np.arange(i, i + 1) for i in range(len(SIZES))])
    plain = federation(data=own, evaluation=Evaluation(client_test=True))
    assert behind(plain, seed=7).clients.problem.test is not None


def test_settings_that_are_measured_are_settled_for_the_clients_too() -> None:
    world = behind(federation(engine=LocalEngine("sequential", workers=1)))
    settled = world.settled(federation(engine=SEQUENTIAL).described())
    assert settled.engine == SEQUENTIAL


@dataclass(frozen=True)
class Far(LocalEngine):
    """An engine on other machines, in whose place a study takes one here."""

    @property
    def here(self) -> LocalEngine:
        return SEQUENTIAL


def test_a_study_trains_clients_behind_a_network_here() -> None:
    far = federation(engine=Far(**vars(SEQUENTIAL)))
    plain = federation(engine=SEQUENTIAL)
    found, expected = client_models(behind(far), far.start()), client_models(plain, plain.start())
    assert found.w.equal(expected.w)
