"""A table and a figure of a paper of one's own, which `fedsash reproduce` trains and sets beside what is printed.

    fedsash reproduce examples/own/table.py --scale tiny

Row, column and cell say which runs a number is of; over the axes that none of them names, such as the seed, it is the
mean. The papers' own tables, in src/fedsash/lab/papers/, show the rest: settings that depend on several axes
(`changes`), runs that a paper lacks (`without`), grids (`best_over`), networks, figures of studies.
"""

from collections.abc import Iterator
from typing import Any

from fedsash.lab.papers.figures import CurvesFigure
from fedsash.lab.papers.pick import Labels, pick
from fedsash.lab.papers.reproduction import Reproduction, Scale
from fedsash.lab.papers.tables import Table


def digits(run: Labels) -> Iterator[dict[str, Any]]:
    """The settings of each run at the scale `tiny`; they may depend on its labels, such as `run["alpha"]`."""
    yield {"rounds": 12, "data": {"name": "digits"}, "model": {"name": "mlp"}, "partition": {"clients": 10}}


MINE = Reproduction(
    name="mine",
    title="Mine, Table 1",
    paper="Mine",
    shows="What it shows.",
    note="Stated: ... Our reading: ...",
    base={"rounds": 400, "data": {"name": "fashion_mnist"}, "averages": {"ima": {"name": "window", "size": 5}}},
    axes={
        "seed": [0, 1, 2],
        "method": {"FedAvg": {}, "FedNova": {"aggregation": {"name": "fednova"}}},
        "IMA": {"off": {}, "on": {"broadcast": {"average": "ima", "start": 301}}},
        "alpha": {"a=0.1": {"partition": {"alpha": 0.1}}, "a=1": {"partition": {"alpha": 1.0}}},
    },
    tables=[
        Table(
            rows="alpha",
            columns="method",
            cells={"base": pick(IMA="off"), "+IMA": pick("sent", IMA="on")},  # in the order of `form`
            form="{} ({})",
            printed={"a=0.1": ["57.47 (58.01)", "60.88 ? (N/A)"]},
        )
    ],
    figures=[CurvesFigure("mine-figure-1", "accuracy by round", pick(alpha="a=1"), lines=["method", "IMA"])],
    scales={"tiny": Scale(only={"method": ["FedAvg"]}, values={"seed": [0]}, changes=digits)},
)
