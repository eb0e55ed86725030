"""What papers say of their figures, decided by numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fedsash.lab.config import ConfigError
from fedsash.lab.reproductions.statements import Series, Statement, Verdict

HILL = Series({float(x): 10.0 - abs(x - 40) / 10 for x in range(0, 100, 10)}, last=2)
FLAT = Series({float(x): 8.0 for x in range(0, 100, 10)})
LABELLED = Series({"0.05": 8.0, "0.2": 4.0})
SPARSE = Series({0.0: 1.0, 50.0: 3.0, 90.0: 4.0})
LOST = Series({0.0: 80.0, 10.0: math.nan, 20.0: math.nan}, last=2)
LOSSES = Series({"0.05": -2.0, "0.2": -1.0})
GAP = Series({"1": 80.0, "5": math.nan, "10": 81.0})
SHORT = Series({"1": 78.0, "5": 81.0, "10": math.nan})
BROKEN = Series({0.0: 1.0, 50.0: math.nan, 100.0: 3.0})
LINES = {"broken": BROKEN, "gap": GAP, "short": SHORT, "losses": LOSSES, "lost": LOST, "hill": HILL}
LINES |= {"flat": FLAT, "labelled": LABELLED, "sparse": SPARSE}


def judged(**given: Any) -> Verdict:
    statement = Statement.of({"says": "it is so", "place": "the text", "lines": ["hill"]} | given, "here")
    return statement.judged(LINES)


@pytest.mark.parametrize(
    "given, right",
    [
        ({"number": "peak", "between": [30, 50]}, True),
        ({"number": "peak", "between": [50, 60]}, False),
        ({"number": "peak", "at": [60, 90], "between": [60, 60]}, True),
        ({"number": "change", "at": [0, 40], "between": [0, math.inf]}, True),
        ({"number": "change", "at": [40, 90], "between": [0, math.inf]}, False),
        ({"number": "change", "at": [40, 45], "between": [-0.5, -0.5]}, True),
        ({"number": "end", "between": [5.5, 5.5]}, True),
        ({"number": "lowest", "between": [5, 5]}, True),
        ({"number": "spread", "at": [0, 40], "between": [4, 4]}, True),
        ({"number": "value", "at": ["0.2"], "lines": ["labelled"], "between": [4, 4]}, True),
        ({"number": "value", "at": [0.2], "lines": ["labelled"], "between": [4, 4]}, True),
        ({"number": "ratio", "at": ["0.05", "0.2"], "lines": ["labelled"], "between": [2, 2]}, True),
        ({"less": "flat", "number": "value", "at": [40], "between": [2, 2]}, True),
        ({"less": "hill", "number": "spread", "between": [0, 0]}, True),
        ({"less": "sparse", "between": [1.5, 1.5]}, True),  # the ends of both, though only one has a value at 80
        ({"less": "sparse", "number": "change", "at": [25, 75], "between": [-3.625, -3.625]}, True),
        ({"lines": ["broken"], "number": "change", "at": [0, 100], "between": [2, 2]}, True),
        ({"lines": ["flat", "hill"]}, True),
        ({"lines": ["hill", "flat"]}, False),
        ({"lines": ["flat", ["hill", "labelled"]]}, True),
    ],
)
def test_a_statement_holds_where_its_numbers_say_so(given: dict[str, Any], right: bool) -> None:
    """`hill` rises by 1 a step from 6 at 0 to 10 at 40 and falls to 5 at 90; its end is the mean of 6 and 5."""
    assert judged(**given).holds is right


@pytest.mark.parametrize(
    "given, why",
    [
        ({"number": "value", "at": [91], "between": [0, 10]}, "at 91: hill unknown"),
        ({"number": "value", "at": ["0.8"], "lines": ["labelled"], "between": [0, 10]}, "at 0.8: labelled unknown"),
        ({"number": "peak", "at": [91, 99], "between": [0, 100]}, "hill unknown"),
        ({"lines": ["flat", "valley"]}, "there is no valley"),
        ({"lines": ["lost", "flat"]}, "lost unknown"),
        ({"lines": ["gap", "short"]}, "at the end: gap 81, short unknown"),
        ({"lines": ["gap"], "number": "spread", "between": [0, 5]}, "gap unknown"),
        ({"lines": ["broken"], "number": "value", "at": [25], "between": [0, 5]}, "at 25: broken unknown"),
        ({"lines": ["broken"], "number": "change", "at": [0, 75], "between": [0, 5]}, "broken unknown"),
        ({"lines": ["broken"], "number": "peak", "between": [0, 100]}, "broken unknown"),
        ({"lines": ["broken"], "number": "lowest", "between": [0, 5]}, "broken unknown"),
        ({"lines": ["lost"], "number": "spread", "between": [0, 5]}, "lost unknown"),
        ({"less": "valley", "between": [0, 1]}, "there is no valley"),
        ({"less": "labelled", "number": "spread", "between": [0, 1]}, "hill less labelled unknown"),
        ({"number": "spread", "at": [40, 40], "between": [0, 1]}, "hill unknown"),
        ({"number": "ratio", "at": ["0.05", "0.2"], "lines": ["losses"], "between": [2, 2]}, "losses unknown"),
    ],
)
def test_what_is_not_known_is_not_decided(given: dict[str, Any], why: str) -> None:
    verdict = judged(**given)
    assert verdict.holds is None and verdict.word == "not decided" and why in verdict.here


def test_a_verdict_says_what_the_paper_says_and_what_came_out() -> None:
    said = str(judged(number="peak", between=[30, 50]))
    assert said == "The paper (the text): it is so. Here: yes; highest at: hill 40."


@pytest.mark.parametrize(
    "wrong, line",
    [
        ({"number": "mean"}, "there is no number mean"),
        ({"number": "value", "between": [0, 1]}, "here.at = []: value needs 1 places"),
        ({"between": [1]}, "here.between = [1]: must be the lowest and the highest number"),
        ({"lines": []}, "needs what it says, and lines"),
        ({"lines": ["hill"]}, "needs what it says, and lines"),
        ({"line": "hill"}, "unknown key line; did you mean lines?"),
        ({"at": 3}, "here.at = 3: must be a list"),
    ],
)
def test_a_wrong_statement_is_refused(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        judged(**wrong)
    assert line in str(error.value)
