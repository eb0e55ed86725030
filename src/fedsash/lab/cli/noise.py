"""`fedsash noise`: the noise of a private experiment that comes to an epsilon."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ...runs import terminal
from .arguments import Parser, add_options
from .common import OK, load_experiment


def add(parser: Parser) -> None:
    """Add the arguments."""
    parser.epilog = NOISE
    parser.set_defaults(command=_noise)
    parser.add_argument("experiment", type=Path, nargs="?", help="experiment file (TOML) with a private aggregation")
    parser.add_argument("--epsilon", type=float, required=True, metavar="E", help="what all rounds may spend in all")
    add_options(parser, "--set", "--own-code", "--federation", "--json")


def _noise(args: Namespace) -> int:
    from ...methods import Private
    from ..config import ConfigError
    from ..config.errors import prefixed

    experiment = load_experiment(args)
    with prefixed(args.experiment or args.federation):
        federation = experiment.driver().federation
        rule = federation.aggregation
        if not isinstance(rule, Private):
            raise ConfigError("aggregation: must be private, as only that adds noise", "aggregation")
        clients = len(federation.sizes)
        rule = rule.for_epsilon(args.epsilon, federation.sampling, clients, experiment.rounds)
        privacy = rule.privacy(federation.sampling, clients, experiment.rounds)
    args.answer = {
        "noise": rule.noise,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "rounds": experiment.rounds,
        "neighbours": privacy.neighbours,
    }
    terminal.say(f"aggregation.noise = {rule.noise:g}")
    spent = f"epsilon = {privacy.epsilon:.4g} at delta = {privacy.delta:.2g}"
    terminal.say(f"after {experiment.rounds:,} rounds of {clients:,} clients: {spent}, for {privacy.neighbours}")
    return OK


NOISE = """\
examples:
  fedsash noise experiment.toml --epsilon 3                          the least noise that keeps to it
  fedsash noise experiment.toml --epsilon 3 --set rounds=400         for more rounds
  fedsash run experiment.toml --set aggregation.noise=2.786          trains with it

The aggregation's noise in the file counts for nothing here. Loads the data and builds the model, and trains nothing.
"""
