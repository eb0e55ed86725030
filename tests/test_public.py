"""What users import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fedsash
from fedsash.aggregation import AGGREGATIONS
from fedsash.averages import AVERAGES
from fedsash.data import DATASETS, PARTITIONS
from fedsash.executors import ENGINES
from fedsash.lab.callbacks import CALLBACKS
from fedsash.local import OPTIMISERS
from fedsash.methods import METHODS
from fedsash.sampling import SAMPLINGS
from fedsash.schedules import LOCAL_SCHEDULES, SCHEDULES
from fedsash.servers import SERVERS

REGISTRIES = (
    AGGREGATIONS,
    AVERAGES,
    CALLBACKS,
    DATASETS,
    ENGINES,
    LOCAL_SCHEDULES,
    METHODS,
    OPTIMISERS,
    PARTITIONS,
    SAMPLINGS,
    SCHEDULES,
    SERVERS,
)


def fresh(program: str) -> list[str]:
    """The words that a program prints in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_every_public_name_is_there_and_is_what_it_is_called() -> None:
    for name in fedsash.__all__:
        assert getattr(fedsash, name).__name__ == name


def test_whatever_an_experiment_file_can_name_is_public() -> None:
    for registry in REGISTRIES:
        for value in registry.values():
            assert getattr(fedsash, value.__name__) is value


def test_completion_shows_the_public_names_and_the_modules_from_the_first_moment_on() -> None:
    shown = fresh("import fedsash; print(*dir(fedsash))")
    assert {*fedsash.__all__, "models", "data", "network", "methods", "__version__"} <= set(shown)
    modules = set(shown) - {*fedsash.__all__, "__version__"}
    assert all(isinstance(getattr(fedsash, name), ModuleType) for name in modules)


def test_what_a_page_tells_one_to_call_is_there_right_after_the_import() -> None:
    names = ["models.group_norm", "data.Dirichlet", "network.Link", "methods.base.Method"]
    words = ", ".join(f"fedsash.{name}.__name__" for name in names)
    assert fresh(f"import fedsash; print({words})") == [name.split(".")[-1] for name in names]


def test_the_import_alone_brings_none_of_its_names_and_no_library() -> None:
    brought = fresh("import fedsash, sys; print(*[name for name in sys.modules if name.startswith('fedsash')])")
    assert set(brought) == {"fedsash", "fedsash.basics", "fedsash.basics.lazy"}
    assert not {"torch", "numpy"} & set(fresh("import fedsash, sys; print(*sys.modules)"))


def test_type_checkers_are_told_of_each_name_under_its_own_name() -> None:
    """A stub gives a name on only if it imports it as itself."""
    stub = Path(fedsash.__file__).with_suffix(".pyi").read_text()
    given = re.findall(r"^(?:from \S+ import|   ) (\w+) as (\w+),?$", stub, re.MULTILINE)
    assert all(name == own for name, own in given)
    assert {name for name, _ in given} | {"__version__"} == set(dir(fedsash))


@pytest.mark.parametrize(
    "name, hint", [("Windw", "; did you mean Window?"), ("modles", "; did you mean models?"), ("xyz", ""), ("_x", "")]
)
def test_a_misspelt_name_is_told_which_one_is_meant(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(fedsash, name)
    assert str(error.value) == f"module 'fedsash' has no attribute '{name}'{hint}"


def test_who_only_reads_files_of_runs_does_not_wait_for_pytorch() -> None:
    code = "import sys, fedsash.lab.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
