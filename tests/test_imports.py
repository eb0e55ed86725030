"""What an import costs and brings, step by step in one fresh interpreter: the lightest first."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

import fedsash

HEAVY = {
    *("datasets", "flwr", "flwr_datasets", "dp_accounting", "pyarrow", "PIL", "sklearn", "scipy", "pandas"),
    *("matplotlib", "plotly", "rich", "tomli_w", "tensorboard", "torch.utils.tensorboard"),
    *("wandb", "mlflow", "trackio", "transformers", "lightning", "ray", "torchvision", "torchmetrics"),
    *("triton", "torch._inductor", "torch._dynamo", "sympy"),
}
NAMES = ["models.group_norm", "data.Dirichlet", "network.Link", "methods.base.Method"]
STEPS = {
    "alone": "import fedsash; said = dir(fedsash)",
    "files": "import fedsash.system.files",
    "command line": "import fedsash.lab.cli",
    "called": f"import fedsash; said = [{', '.join(f'fedsash.{name}.__name__' for name in NAMES)}]",
    "averages": "from fedsash.averages.window import Window; from fedsash.averages import AVERAGES; said = [*AVERAGES]",
    "federation": "from fedsash import Federation, FederatedData, models, network, run",
    "all": "from fedsash import *",
    "dropout": "import torch; from fedsash.engines.dropout import draws_dropout; "
    "said = draws_dropout(lambda: torch.nn.Linear(1, 1)(torch.ones(1)))",
}
PROGRAM = f"""
import json, sys
for step in {list(STEPS.values())}:
    names = {{}}
    exec(step, names)
    print(json.dumps([names.get("said"), list(sys.modules)]))
"""


@dataclass(frozen=True)
class Step:
    """What a step said, and all modules that are there after it."""

    said: object
    modules: set[str]


@pytest.fixture(scope="module")
def steps() -> dict[str, Step]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: Step(said, set(modules)) for name, (said, modules) in zip(STEPS, lines, strict=True)}


@pytest.mark.parametrize(
    "step, banned",
    [
        ("command line", {"torch", "numpy", *HEAVY}),
        ("federation", HEAVY),
        ("all", HEAVY),
        ("dropout", {"torch._dynamo", "sympy"}),  # PyTorch's compiler, which takes as long to import as PyTorch
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(step: str, banned: set[str], steps: dict[str, Step]) -> None:
    brought = sorted(banned & steps[step].modules)
    assert brought == []


def test_averages_have_the_order_of_their_list_and_bring_no_reader_of_checkpoints(steps: dict[str, Step]) -> None:
    """Also if the last one is imported first."""
    assert steps["averages"].said == ["ema", "swa", "bema", "power_ema", "window"]
    readers = {"fedsash.averages.average_map", "fedsash.averages.checkpoints"}
    assert not readers & steps["federation"].modules


def test_completion_shows_the_public_names_and_the_modules_from_the_first_moment_on(steps: dict[str, Step]) -> None:
    shown = steps["alone"].said
    assert isinstance(shown, list)
    assert {*fedsash.__all__, "models", "data", "network", "methods", "__version__"} <= set(shown)
    modules = set(shown) - {*fedsash.__all__, "__version__"}
    assert all(isinstance(getattr(fedsash, name), ModuleType) for name in modules)


def test_what_a_page_tells_one_to_call_is_there_right_after_the_import(steps: dict[str, Step]) -> None:
    assert steps["called"].said == [name.split(".")[-1] for name in NAMES]
    assert not {f"fedsash.{name.split('.')[0]}" for name in NAMES} & steps["command line"].modules


def test_the_import_alone_brings_none_of_its_names_and_no_library(steps: dict[str, Step]) -> None:
    brought = {name for name in steps["alone"].modules if name.startswith("fedsash")}
    assert brought == {"fedsash", "fedsash.system", "fedsash.system.lazy"}
    assert not {"torch", "numpy"} & steps["alone"].modules


def test_who_only_reads_files_of_runs_does_not_wait_for_pytorch(steps: dict[str, Step]) -> None:
    assert "fedsash.system.files" in steps["files"].modules and "torch" not in steps["files"].modules
