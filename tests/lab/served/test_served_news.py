"""What a served run tells the command that follows it."""

from __future__ import annotations

import logging
from pathlib import Path

from fedsash.averages import Window
from fedsash.evaluation import Evaluation
from fedsash.lab.served.news import FILE, ProgressReader, ProgressWriter
from fedsash.runs import resume, run
from support.worlds import federation

EVERY = Evaluation(every=1, last=1)


def test_each_round_is_told_once_with_the_values_of_the_last_evaluation(tmp_path: Path) -> None:
    world = federation(averages={"w": Window(2)}, evaluation=Evaluation(every=2, last=1))
    listener, teller = ProgressReader(tmp_path), ProgressWriter(tmp_path)
    run(world, 3, out=tmp_path / "run", progress=False, callbacks=[teller])
    rounds = listener.news()
    assert [news["round"] for news in rounds] == [0, 1, 2, 3]
    assert [set(news["values"]) for news in rounds] == [set(), set(), {"model", "w"}, {"model", "w"}]
    assert listener.news() == []
    teller.ended(0, "")
    assert listener.news() == [{"code": 0, "line": ""}]


def test_a_run_that_goes_on_without_an_average_is_told_of_the_others(tmp_path: Path) -> None:
    world, out = federation(averages={"w": Window(2)}, evaluation=EVERY), tmp_path / "run"
    run(world, 2, out=out, progress=False)
    listener = ProgressReader(tmp_path)
    resume(federation(evaluation=EVERY), 3, out, progress=False, callbacks=[ProgressWriter(tmp_path)])
    assert [set(news["values"]) for news in listener.news()] == [set(), {"model"}]


def test_warnings_are_told_and_a_line_that_is_half_written_waits(tmp_path: Path) -> None:
    listener = ProgressReader(tmp_path)
    assert listener.news() == []
    ProgressWriter(tmp_path)
    logging.getLogger("fedsash").warning("node %d is strange", 7)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"round": 1')
        file.flush()
        assert listener.news() == [{"note": "node 7 is strange"}]
        file.write(', "values": {}}\n')
    assert listener.news() == [{"round": 1, "values": {}}]


def test_nothing_is_told_if_nobody_follows(tmp_path: Path) -> None:
    ProgressWriter(tmp_path / "gone").ended(0, "")
    assert not (tmp_path / "gone").exists()
