"""The main job: what averaging the global models of successive rounds does for a federated model.

One run of FedAvg on scikit-learn's digits (digits.toml) observes two windows, an EMA and SWA; a second run
(digits_ima.toml) starts from the state that the first one saved after round 225 and sends its window of five models to
the clients, which is IMA. Takes well under a minute on two cores.
"""

from dataclasses import replace
from pathlib import Path

import rich

from fedsash import Fork, run
from fedsash.evaluation import History
from fedsash.lab.config import load
from fedsash.runs.pictures.curves import curves
from fedsash.runs.pictures.paper import draw
from fedsash.runs.summaries import summarise
from fedsash.runs.table import table

here = Path(__file__).parent
out = Path("runs/digits")
START = 225

experiment = load(here / "digits.toml")
print(f"FedAvg, {experiment.rounds} rounds, observed by four averages:")
observed = run(
    experiment.federation(),
    experiment.rounds,
    out=out / "observed",
    checkpoint=experiment.checkpoint,
    config=experiment.table(),
)

experiment = load(here / "digits_ima.toml")
print(f"\nIMA, from round {START} on:")
ima = run(
    experiment.federation(),
    experiment.rounds,
    out=out / "ima",
    config=experiment.table(),
    fork=Fork(out / "observed", START),
)

began = [score for score in observed.history.scores() if score.model == "model" and score.round <= START]
went_on = [score for score in ima.history.scores() if score.model == "window5" and score.round > START]
history = History([*observed.history, *(replace(score, model="ima") for score in began + went_on)])
criterion = observed.federation.goal.criterion
summary = observed.summary | summarise(history, experiment.evaluation, criterion)
print()
rich.print(table(summary))
draw(curves(history.curves(criterion), broadcast_start=START), out / "curves.png")
print(f"\nThe picture of the curves: {out / 'curves.png'}\nMetrics, models and states:  {out}/observed, {out}/ima")
