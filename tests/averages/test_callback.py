"""The callbacks of Lightning and Hugging Face, where their library is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_without_the_library_one_line_says_what_to_install(name: str) -> None:
    program = (
        f"import sys; sys.modules['{name}'] = None\ntry:\n import fedsash.{name}\nexcept ImportError as e: print(e)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"pip install 'fedsash[{name}]'" in answer.stdout and answer.stdout.count("\n") == 1
