"""`fedsash explain`."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ...runs import terminal
from .arguments import Parser, add_options
from .common import OK, load_experiment


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = EXPLAIN
    parser.set_defaults(command=_explain)
    parser.add_argument("experiment", type=Path, nargs="?", help="experiment file (TOML)")
    parser.add_argument("--round", type=int, default=1, metavar="NUMBER", help="which round, from 1 (default: 1)")
    add_options(parser, "--set", "--own-code", "--federation", "--json")


def _explain(args: Namespace) -> int:
    from ..config.errors import prefixed
    from ..explain import explain

    experiment = load_experiment(args)
    with prefixed(args.experiment or args.federation):
        explanation = explain(experiment, args.round)
    args.answer = explanation.record()
    terminal.say(explanation.text())
    return OK


EXPLAIN = """\
examples:
  fedsash explain experiment.toml                               who acts, what is sent and kept, which keys decide it
  fedsash explain experiment.toml --round 227                   a later round, in which IMA sends a window
  fedsash explain experiment.toml --set method.name=scaffold    what another method would send
  fedsash explain experiment.toml --json > round.json           the same for a script

Loads the data and builds the model, and trains nothing.
"""
