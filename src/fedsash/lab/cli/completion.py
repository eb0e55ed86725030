"""`fedsash completion`: a script that completes commands, options, names and files in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ...runs import terminal
from .common import OK, Commands

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def add(commands: Commands) -> None:
    """Add the command."""
    line = "print a script that completes commands in your shell"
    completion = commands.add_parser("completion", help=line, epilog=COMPLETION)
    completion.add_argument("shell", choices=SHELLS, help="the shell that the script is for")
    completion.set_defaults(command=_completion)


def _completion(given: argparse.Namespace) -> int:
    import shtab

    from ...data import DATASETS
    from ..papers import names
    from . import COMMANDS, Parser, listing, parser

    words = {"data": DATASETS, "reproduction": names()}
    every = parser(_list if add is listing.add else add for add in COMMANDS)
    for one in _parsers(every):
        if isinstance(one, Parser):
            one.fill()
        for action in one._actions:
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest in words:
                action.choices = words[action.dest]
    terminal.say(shtab.complete(every, given.shell))
    return OK


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _parsers(one)


def _list(commands: Commands) -> None:
    """`fedsash list` with a command for each word, which takes one of the names that belong to it."""
    from ..config.catalogue import names

    every = commands.add_parser("list", help="what an experiment file can say").add_subparsers()
    for word, inside in names().items():
        one = every.add_parser(word, help=word)
        if inside:
            one.add_argument("name", choices=inside)


COMPLETION = """\
The script holds all names, so nothing is started while you type. Write it once, and again after an update:
  mkdir -p ~/.local/share/bash-completion/completions
  fedsash completion bash > ~/.local/share/bash-completion/completions/fedsash
  fedsash completion zsh > DIR/_fedsash                        DIR: a folder of your $fpath
  fedsash completion fish > ~/.config/fish/completions/fedsash.fish

Without the package bash-completion: source the file in ~/.bashrc. A new shell completes fedsash.
"""
