"""Texts in a file: their classes, or their next tokens."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch

from ...settings.errors import DataError, check
from ...settings.limits import Count, Fraction, Gigabytes
from ...tasks import NextToken
from ..inputs import Inputs
from ..samples import Samples
from ..transform import PLAIN
from . import frames
from .formats.memory import UNPACKED
from .source import NamedDataset, Source, hold_out, split_off
from .tokens import IGNORED, encoded, filled, next_tokens, padding_of, tokenizer_of


@dataclass(frozen=True)
class Texts(NamedDataset, name="texts"):
    """Texts as token ids, to be classified, or to learn the next token where there is no label.

    Raises `SettingError` for a missing column, and `DataError`, naming the row, for a text or a label that is missing.
    """

    path: str = ""
    """a `.csv`, `.tsv`, `.jsonl` or `.parquet` file, a folder with `train.csv` and `test.csv` and so on, or a folder
    that `save_to_disk` of `datasets` wrote; for next tokens also a `.txt` file"""
    label: str = ""
    """the column of labels; left out: the task is `NextToken`"""
    text: str = "text"
    """the column of texts"""
    user: str = ""
    """the column of users; left out: there are none"""
    tokenizer: str = "bytes"
    """`"bytes"` (257 ids, of UTF-8), `"words"` (the `vocabulary` most frequent words of the training texts, with 0 for
    padding and 1 for other words; for next tokens of all texts, which are split later), a `tokenizer.json` of the
    library tokenizers, or your own function from a text to a list of ids, `"package.module:function"`"""
    vocabulary: Count = 10_000
    """how many words `"words"` knows"""
    length: Count = 128
    """the number of tokens in a sample. Longer texts are cut; for next tokens they become several samples"""
    mask: bool = False
    """whether the model takes `input_ids` and `attention_mask` by name, as those of transformers do. Otherwise it takes
    the ids alone, int64 `[n, length]`"""
    test: Fraction = 0.2
    """the share of the samples (of each user) that becomes the test set, if the folder has no `test`"""
    _: KW_ONLY
    unpacked: Gigabytes = UNPACKED
    """how many GB of memory a packed file may take, as of `Images`"""

    def __post_init__(self) -> None:
        if ":" in self.tokenizer:
            tokenizer_of(self.tokenizer, "Texts.tokenizer", [], 0)

    def load(self, seed: int = 0) -> Source:
        """The samples; `seed` decides which of them become the test set."""
        check(self.path != "", "Texts.path", self.path, "must be a file or a folder, such as reviews.csv")
        return self.of(*frames.read(self.path, self._columns, self.unpacked, "Texts.path"), seed=seed)

    def of(self, frame: Any, test: Any = None, seed: int = 0) -> Source:
        """The samples of a pandas frame, and of a second one for testing, with the columns of these settings."""
        rows, train = frames.joined(frame, test, self._columns)
        texts = rows[self.text].tolist()

        def place(i: int) -> str:
            return f"column {self.text!r}, {frames.row_of(rows, i)}"

        wrong = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
        if wrong is not None:
            raise DataError(f"{place(wrong)}: must be a text, not {texts[wrong]!r:.40}")
        user, user_names = frames.users(rows, self.user)
        known = texts[:train]
        if self.label and test is None:
            groups = np.zeros(len(texts)) if user is None else user.numpy()
            known = [text for text, out in zip(texts, split_off(groups, self.test, seed), strict=True) if not out]
        tokenizer, ids = tokenizer_of(self.tokenizer, "Texts.tokenizer", known, self.vocabulary)
        if self.label:
            tokens = encoded(texts, tokenizer)
            of = torch.arange(len(texts))
            found = filled(tokens, self.length, padding_of(tokenizer), place)
            y, classes, label_names = frames.labels(rows, (self.label,))
        else:
            x, y, of = next_tokens(texts, tokenizer, self.length)
            check(len(x) > 0, "Texts.path", self.path, "there is no text of two tokens in it")
            found = {"input_ids": x, "attention_mask": (y != IGNORED).long()}
            classes = max(ids, 1 + int(x.max()), 1 + int(y.max()))
            label_names = ()
        inputs = Inputs(found) if self.mask else found["input_ids"]
        samples = Samples(inputs, y, user=None if user is None else user[of])
        kept, tested = hold_out(samples, self.test, seed)
        if test is not None:
            kept = samples[of < train]
            tested = samples[of >= train]
        task = None if self.label else NextToken()
        return Source(kept, tested, classes, PLAIN, label_names, task=task, user_names=user_names)

    @property
    def _columns(self) -> frames.ColumnNames:
        named = {self.text: "text", self.label: "label", self.user: "user"}
        return {name: option for name, option in named.items() if name}
