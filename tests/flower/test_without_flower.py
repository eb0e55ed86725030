"""What somebody meets who has not installed Flower, and that nobody waits for it who does not use it."""

from __future__ import annotations

import subprocess
import sys


def told(program: str) -> str:
    """What a program prints in a fresh interpreter that has no Flower."""
    lines = f"import sys; sys.modules['flwr'] = None\n{program}"
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout


def test_the_room_can_be_imported_and_names_what_it_has() -> None:
    assert "Averaged" in told("import fedsash; print(dir(fedsash.flower))")


def test_the_first_name_asks_for_flower_in_one_line() -> None:
    program = (
        "import fedsash as fs\ntry:\n    fs.flower.Averaged\nexcept fs.errors.LibraryError as error:\n    print(error)"
    )
    (line,) = told(program).splitlines()
    assert line.startswith('flwr is needed for fedsash.flower: pip install "fedsash[flower]" (')
