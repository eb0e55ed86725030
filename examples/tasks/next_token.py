"""A small transformer that predicts the next byte of a text. Each client holds the description of one data set.

python examples/tasks/next_token.py
"""

from importlib import import_module

import torch
from torch import Tensor, nn

import fedsash as fs

NAMES = ("iris", "wine", "breast_cancer", "diabetes", "digits", "linnerud")
LENGTH = 32
TOKENS = 128


def data() -> fs.FederatedData:
    """Pieces of `LENGTH` bytes of the descriptions in scikit-learn, and the byte after each one."""
    texts = [getattr(import_module("sklearn.datasets"), f"load_{name}")().DESCR for name in NAMES]
    x, y, user = fs.data.next_tokens(texts, lambda text: list(text.encode("ascii", "replace")), LENGTH)
    test = torch.arange(len(x)) % 5 == 0
    return fs.FederatedData.from_arrays(
        x[~test], y[~test], users=user[~test], test=(x[test], y[test]), task=fs.tasks.NextToken(), classes=TOKENS
    )


class Transformer(nn.Module):
    """One layer of attention over the bytes so far."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, width)
        self.place = nn.Embedding(LENGTH, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.classifier = nn.Linear(width, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        ahead = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        x = self.token(tokens) + self.place(torch.arange(length, device=tokens.device))
        return self.classifier(self.layer(x, src_mask=ahead, is_causal=True))


def federation() -> fs.Federation:
    torch.manual_seed(0)
    return fs.Federation(
        Transformer(),
        data(),
        local=fs.LocalTraining(lr=0.1, batch=8, epochs=2),
        sampling=fs.Uniform(3),
        averages={"window10": fs.Window(10)},
        evaluation=fs.Evaluation(metric="perplexity"),
    )


if __name__ == "__main__":
    print(fs.run(federation(), rounds=60))
