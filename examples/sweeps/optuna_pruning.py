"""A search for a learning rate and a window with Optuna, which ends bad trials early (pip install optuna).

python examples/sweeps/optuna_pruning.py 10    (trials)

Each trial is judged on held-out samples of the clients, never on the test set.
"""

import sys

import optuna

import fedsash as fs


class Pruning(fs.Callback):
    """Reports the window's value after every evaluation, and stops the run where Optuna says that the trial is bad."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def evaluation(self, run: fs.extend.LiveRun, scores: list[fs.Score]) -> None:
        (value,) = (score["accuracy"] for score in scores if (score.model, score.split) == ("window", "held_out"))
        self.trial.report(value, run.round)
        if self.trial.should_prune():
            run.stop("pruned")


def objective(trial: optuna.Trial) -> float:
    experiment = fs.parse(
        {
            "rounds": 60,
            "local": {"lr": trial.suggest_float("lr", 1e-3, 0.3, log=True)},
            "averages": {"window": {"name": "window", "size": trial.suggest_int("size", 2, 20)}},
            "evaluation": {"every": 5, "last": 1, "held_out": 0.2},
            "engine": {"workers": 1, "threads": 1, "compile": False},
        }
    )
    result = fs.run(experiment.federation(), experiment.rounds, progress=False, callbacks=[Pruning(trial)])
    if result.summary["ended_early"]:
        raise optuna.TrialPruned
    return max(score["accuracy"] for score in result.history.scores("held_out") if score.model == "window")


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=int(sys.argv[1]))
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
    print(f"{len(study.trials)} trials, {pruned} pruned; best: {study.best_value:.3f} with {study.best_params}")
