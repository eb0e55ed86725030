"""Text classification: which part of scikit-learn does a sentence of its documentation describe?

python examples/tasks/text.py
"""

import inspect
import re
from importlib import import_module

import numpy as np
import torch
from torch import Tensor, nn

import fedsash as fs

PARTS = ("cluster", "decomposition", "ensemble", "linear_model", "metrics", "preprocessing")
LENGTH = 20
PADDING = 0
UNKNOWN = 1


def sentences() -> tuple[list[str], list[int], list[str]]:
    """The sentences, the number of the part of each, and what it documents: each class or function is a client."""
    texts = []
    labels = []
    users = []
    for number, part in enumerate(PARTS):
        module = import_module(f"sklearn.{part}")
        for name in module.__all__:
            for sentence in re.split(r"[.\n]\s|\n\n", inspect.getdoc(getattr(module, name)) or ""):
                if len(found := re.findall(r"[a-z]+", sentence.lower())) > 5:
                    texts.append(" ".join(found))
                    labels.append(number)
                    users.append(f"{part}.{name}")
    return texts, labels, users


def data() -> tuple[fs.FederatedData, int]:
    """Sentences as numbers of words, padded to `LENGTH`, and how many numbers there are.

    Each client's sentences are about one part.
    """
    texts, labels, users = sentences()
    test = np.arange(len(texts)) % 5 == 0
    y = np.array(labels)
    known = sorted({word for text, held in zip(texts, test, strict=True) if not held for word in text.split()})
    number = {word: place for place, word in enumerate(known, UNKNOWN + 1)}
    x = fs.data.tokenise(texts, lambda text: [number.get(word, UNKNOWN) for word in text.split()], LENGTH)["input_ids"]
    held = fs.FederatedData.from_arrays(
        x[~test], y[~test], users=np.array(users)[~test], test=(x[test], y[test]), label_names=PARTS
    )
    return held, UNKNOWN + 1 + len(known)


class BagOfWords(nn.Module):
    """The mean of the words' vectors, then a linear layer."""

    def __init__(self, words: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 32, padding_idx=PADDING)
        self.classifier = nn.Linear(32, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        real = (tokens != PADDING).unsqueeze(-1)
        return self.classifier((self.embedding(tokens) * real).sum(1) / real.sum(1))


def federation() -> fs.Federation:
    held, words = data()
    torch.manual_seed(0)
    return fs.Federation(
        BagOfWords(words, len(PARTS)),
        held,
        local=fs.LocalTraining(lr=5.0, batch=10),
        sampling=fs.Uniform(20),
        averages={"window20": fs.Window(20)},
        metrics={"accuracy": fs.tasks.Accuracy(), "f1": fs.tasks.F1()},
    )


if __name__ == "__main__":
    print(fs.run(federation(), rounds=100))
