"""Several labels at once: is a digit even, is it above 4, has it a closed loop?

python examples/tasks/multi_label.py
"""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import fedsash as fs

LABELS = ("even", "above 4", "loop")


def data() -> fs.FederatedData:
    """Handwritten digits with three labels of 0 and 1 each; most clients hold one or two digits."""
    x, digits = load_digits(return_X_y=True)
    y = np.stack([digits % 2 == 0, digits > 4, np.isin(digits, (0, 6, 8, 9))], axis=1).astype(np.int64)
    x = (x / 16).astype(np.float32)
    train = slice(0, 1400)
    test = slice(1400, None)
    clients = fs.Dirichlet(clients=50, alpha=0.1)(np.asarray(digits[train]), 0)
    return fs.FederatedData.from_arrays(
        x[train], y[train], clients, test=(x[test], y[test]), task=fs.tasks.MultiLabel(), label_names=LABELS
    )


def federation() -> fs.Federation:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    return fs.Federation(
        model,
        data(),
        local=fs.LocalTraining(lr=0.1, batch=5, epochs=3),
        averages={"window20": fs.Window(20)},
        metrics={"f1": fs.tasks.F1()},
    )


if __name__ == "__main__":
    print(fs.run(federation(), rounds=100))
