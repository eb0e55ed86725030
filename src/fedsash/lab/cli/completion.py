"""`fedsash completion`: a script that completes commands, options, names and files in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from ...runs import terminal
from .arguments import Parser, nonempty_path
from .common import OK

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = COMPLETION
    parser.set_defaults(command=_completion)
    parser.add_argument("shell", choices=SHELLS, help="the shell that the script is for")


def _completion(args: argparse.Namespace) -> int:
    import shtab

    from ...data import DATASETS
    from ..papers import names
    from . import parser

    choices = {"data": DATASETS, "reproduction": names()}
    whole = parser({"list": ("what an experiment file can say", "completion:add_words")})
    for command in _filled(whole):
        for action in command._actions:
            if action.type in (Path, nonempty_path):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest in choices:
                action.choices = choices[action.dest]
    terminal.say(shtab.complete(whole, args.shell))
    return OK


def _filled(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of all its commands, with their arguments."""
    if isinstance(parser, Parser):
        parser.fill()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _filled(command)


def add_words(parser: Parser) -> None:
    """Give `fedsash list` a command for each word, which takes one of the names that belong to it."""
    from ..config.catalogue import names

    words = parser.add_subparsers()
    for word, choices in names().items():
        command = words.add_parser(word, help=word)
        if choices:
            command.add_argument("name", choices=choices)


COMPLETION = """\
The script holds all names, so nothing is started while you type. Write it once, and again after an update:
  mkdir -p ~/.local/share/bash-completion/completions
  fedsash completion bash > ~/.local/share/bash-completion/completions/fedsash
  fedsash completion zsh > DIR/_fedsash                        DIR: a folder of your $fpath
  fedsash completion fish > ~/.config/fish/completions/fedsash.fish

Without the package bash-completion: source the file in ~/.bashrc. A new shell completes fedsash.
"""
