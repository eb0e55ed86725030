"""The page of all commands, from the parsers of the command line themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from textwrap import fill

from fedsash.lab.cli import parser as command_line

from .markdown import block, code, table

ABOUT = """\
# Commands

Each command prints this with `--help`. An option's value is written as in TOML where it is one of an experiment.
"""


def page() -> str:
    """The page: a section for each command."""
    whole = command_line()
    parts = [ABOUT, whole.description or "", block(whole.epilog or "")]
    for name, command, line in commands(whole):
        parts += _section(name, command, line)
    return "\n\n".join(part for part in parts if part) + "\n"


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Every command's name, its parser with all options, and its line in the list of commands."""
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in group._choices_actions}
            for name, command in group.choices.items():
                command.fill()
                yield command.prog, command, lines.get(name, "")
                yield from commands(command)


def arguments(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """Each argument and option of a command as it is written, and its line of help."""
    formatter = parser._get_formatter()
    rows = []
    for action in parser._actions:
        if action.help and not isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            rows.append((formatter._format_action_invocation(action), formatter._expand_help(action)))
    return rows


def _section(name: str, parser: argparse.ArgumentParser, line: str) -> list[str]:
    """A command: what it does, how it is written, its arguments, and examples."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    usage = fill(usage, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    parts = [f"## {name}", f"{line[:1].upper()}{line[1:]}.", block(usage)]
    rows = [(code(form), meaning) for form, meaning in arguments(parser)]
    if rows:
        parts.append(table(["argument", "meaning"], rows))
    if parser.epilog:
        parts.append(block(parser.epilog))
    return parts
