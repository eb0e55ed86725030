"""Containerfile: what it names is there, and the page says that it was never built."""

from __future__ import annotations

import re

from support.places import HOW_TO, ROOT
from support.release import PROJECT

FILE = (ROOT / "Containerfile").read_text()


def test_the_extras_and_the_command_that_it_names_exist() -> None:
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", FILE)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    (command,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', FILE, re.MULTILINE)
    assert command in PROJECT["scripts"]


def test_its_python_is_one_that_fedsash_knows() -> None:
    (version,) = re.findall(r"^FROM python:([\d.]+)-slim$", FILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_what_runs_in_it_is_not_root() -> None:
    (user,) = re.findall(r"^USER (.*)$", FILE, re.MULTILINE)
    assert f"--uid 10001 {user}\n" in FILE
    assert FILE.index("USER") < FILE.index("ENTRYPOINT")


def test_nothing_but_the_wheel_is_sent_to_the_build() -> None:
    (source,) = re.findall(r"^COPY (\S+) ", FILE, re.MULTILINE)
    for name in (".containerignore", ".dockerignore"):
        assert (ROOT / name).read_text().splitlines() == ["*", f"!{source}"]


def test_the_file_and_its_page_say_that_it_was_never_built() -> None:
    assert "never built" in FILE
    assert "never built" in (HOW_TO / "container.md").read_text()
