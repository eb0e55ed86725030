"""A budget of processor time for each test, as a plugin of pytest.

A test that is not marked `full`, `slow` or `dist` may take what a machine of the calibration's kind does in one second:
above it there is a warning, and above twice as much the test fails. Counted is the processor time of the test with its
own fixtures and of all processes that it starts and waits for; not counted are imports in this process, which the first
test of a module pays for all, and fixtures that several tests share. The clock on the wall does not count: a busy
machine fails no test.
"""

from __future__ import annotations

import builtins
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEAR = ("full", "slow", "dist")
"""The marks of tests without a budget."""
WARNED, FAILED = 1.0, 2.0
"""In seconds of the calibration's machine."""
ROUNDS = 200_000
"""The length of the calibration's loop."""
NOMINAL = 0.004
"""The seconds that the calibration's machine takes for it."""


class BudgetWarning(UserWarning):
    """A test has become dear."""


def used() -> float:
    """The processor time of this process and of the children that it has waited for, in seconds."""
    times = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in times)


def calibrated() -> float:
    """How many seconds this machine takes for what the calibration's machine does in one."""
    shortest = float("inf")
    for _ in range(5):
        begin = time.process_time()
        total = 0
        for number in range(ROUNDS):
            total += number & 7
        shortest = min(shortest, time.process_time() - begin)
    return shortest / NOMINAL


class Budget:
    """Counts the processor time of each test."""

    def __init__(self) -> None:
        self.second = calibrated()
        self._uncounted = 0.0
        self._nested = False
        self._end_began = 0.0

    def uncounted(self, call: Callable[[], Any]) -> Any:
        """Call something whose processor time counts for no test."""
        if self._nested:
            return call()
        self._nested = True
        begin = used()
        try:
            return call()
        finally:
            self._uncounted += used() - begin
            self._nested = False

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function" or self._nested:
            return (yield)
        fixturedef.addfinalizer(self._ended)  # the last one is called first: around the fixture's own end
        self._nested = True
        begin = used()
        try:
            return (yield)
        finally:
            self._uncounted += used() - begin
            self._nested = False
            fixturedef.addfinalizer(self._ends)

    def _ends(self) -> None:
        """Begin to count the end of a shared fixture, such as that of a browser, which is no work of the last test."""
        self._end_began = used()

    def _ended(self) -> None:
        self._uncounted += used() - self._end_began

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[BEGIN] = used(), self._uncounted
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: Any = yield
        if call.when != "teardown":
            return report
        begin, uncounted = item.stash[BEGIN]
        seconds = (used() - begin - (self._uncounted - uncounted)) / self.second
        if file := item.config.getoption("--costs"):
            with Path(file).open("a") as costs:
                costs.write(f"{seconds:.3f} {item.nodeid}\n")
        if item.config.getoption("--no-budget") or any(item.get_closest_marker(mark) for mark in DEAR):
            return report
        line = f"{item.nodeid} takes {seconds:.1f} s of processor time; the budget is {WARNED:.0f} s"
        if seconds > FAILED and report.passed:
            report.outcome = "failed"
            report.longrepr = f"{line}: let it do less, or mark it `full`"
        elif seconds > WARNED:
            warnings.warn_explicit(line, BudgetWarning, str(item.path), 0)
        return report


BEGIN = pytest.StashKey[tuple[float, float]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-budget", action="store_true", help="let every test take as long as it needs")
    parser.addoption("--costs", metavar="FILE", help="append each test's processor time to FILE, a line each")


def pytest_configure(config: pytest.Config) -> None:
    """Count from here on."""
    budget = Budget()
    config.pluginmanager.register(budget, "budget")
    original = builtins.__import__

    def counted(name: str, *more: Any, **named: Any) -> Any:
        if name in sys.modules:
            return original(name, *more, **named)
        return budget.uncounted(lambda: original(name, *more, **named))

    builtins.__import__ = counted
