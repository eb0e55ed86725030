"""Texts in a file: their classes or their next tokens, with any tokenizer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...settings.errors import DataError, SettingError, check, check_count, library
from ...settings.limits import Count, Fraction, Gigabytes
from ...settings.resolve import resolve
from ...tasks import NextToken
from ...vector.arrays import Ints
from ..inputs import Inputs
from ..samples import Samples
from ..source import NamedDataset, Source, hold_out, split_off
from ..transform import PLAIN
from . import frames
from .formats.memory import UNPACKED, reading

Tokenizer = Any
"""What turns a text into token ids: a function, or an object of `transformers`, `tokenizers`, tiktoken and the like."""

IGNORED = -100
"""The label of positions that are neither learned nor counted, as of the task `NextToken`."""
UNKNOWN = 1
"""The number of a word that is not in the vocabulary; 0 is padding."""
_WORD = re.compile(r"\w+|[^\w\s]")


def tokenise(texts: Iterable[str], tokenizer: Tokenizer, length: int, padding: int | None = None) -> dict[str, Tensor]:
    """The token ids of each text, int64 `[n, length]`, as `input_ids`, and as `attention_mask` 1 where a token is.

    `tokenizer` is a function from a text to a list of ids, or an object with `encode(text)`. Longer texts are cut.
    Shorter ones are filled with `padding`: by default the tokenizer's `pad_token_id`, else 0. A model that takes ids
    alone is given `tokenise(...)["input_ids"]`.

    Raises `DataError`, naming the text, for something else than a text and for a text without tokens.
    """
    check_count("length", length)
    return filled(encoded(texts, tokenizer), length, padding_of(tokenizer, padding), "texts[{}]".format)


def filled(rows: Sequence[Ints], length: int, padding: int, place: Callable[[int], str]) -> dict[str, Tensor]:
    """The ids of each text, cut to `length` or filled with `padding`, and their mask, as of `tokenise`.

    Raises `DataError` for a text without tokens; `place(i)` says where text i is.
    """
    ids = np.full((len(rows), length), padding)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        count = min(len(row), length)
        if count == 0:
            raise DataError(f"{place(i)}: has no token: leave it out")
        ids[i, :count] = row[:count]
        mask[i, :count] = 1
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def next_tokens(
    texts: Iterable[str], tokenizer: Tokenizer, length: int, padding: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences for the task `NextToken`: inputs and next tokens, int64 `[n, length]` each, and their texts `[n]`.

    The tokens of a text are cut into sequences of `length`. The label of each token is the next one. The last sequence
    is filled with `padding`, as in `tokenise`, and its labels with -100, which are not counted. The third tensor has
    the number of the text from which each sequence comes. A text of fewer than two tokens gives none.

    `tokenizer` is as in `tokenise`. Raises `DataError`, naming the text, for something else than a text, and
    `SettingError` unless `length` is at least 1 and the tokenizer gives token ids.
    """
    check_count("length", length)
    fill = padding_of(tokenizer, padding)
    inputs = [np.empty((0, length), dtype=np.int64)]
    labels = [np.empty((0, length), dtype=np.int64)]
    source = []
    for i, row in enumerate(encoded(texts, tokenizer)):
        pairs = max(len(row) - 1, 0)
        count = -(-pairs // length)  # rounded up
        x = np.full(count * length, fill)
        y = np.full(count * length, IGNORED)
        x[:pairs] = row[:-1]
        y[:pairs] = row[1:]
        inputs.append(x.reshape(count, length))
        labels.append(y.reshape(count, length))
        source += [i] * count
    return (
        torch.from_numpy(np.concatenate(inputs)),
        torch.from_numpy(np.concatenate(labels)),
        torch.tensor(source, dtype=torch.int64),
    )


def encoded(texts: Iterable[str], tokenizer: Tokenizer) -> list[Ints]:
    """The token ids of each text, as the tokenizer has them, without its padding."""
    encode: Any = getattr(tokenizer, "encode", tokenizer)
    check(callable(encode), "tokenizer", tokenizer, "must be a function from a text to token ids, or have encode(text)")
    check(not isinstance(texts, str), "texts", texts, "must be a list of texts")
    return [_row(text, i, encode) for i, text in enumerate(texts)]


def _row(text: Any, i: int, encode: Callable[[str], Any]) -> Ints:
    """The token ids of text i, whatever the tokenizer returns: a list, or an object or a dict that has one."""
    if not isinstance(text, str):
        raise DataError(f"texts[{i}] is a {type(text).__name__} and must be a text")
    encoding = encode(text)
    if isinstance(encoding, Mapping):
        ids = encoding["input_ids"]
        mask = encoding.get("attention_mask")
    else:
        ids = getattr(encoding, "input_ids", encoding)
        mask = getattr(encoding, "attention_mask", None)
    row = np.asarray(getattr(ids, "ids", ids))
    if row.size == 0:
        row = row.astype(np.int64)  # NumPy gives an empty list floats
    are_ids = row.ndim == 1 and row.dtype.kind in "iu" and (row.size == 0 or row.min() >= 0)
    requirement = f"must return a list of token ids for a text, and returned {row.dtype} {list(row.shape)}"
    check(are_ids, "tokenizer", encode, f"{requirement} for texts[{i}]")
    if mask is not None:
        row = row[np.asarray(mask, dtype=bool)]
    return row.astype(np.int64)


def padding_of(tokenizer: Tokenizer, padding: int | None = None) -> int:
    """The id of `padding`: the given one, else the tokenizer's own, else 0."""
    if padding is not None:
        return padding
    pad_token = getattr(tokenizer, "pad_token_id", None)
    if isinstance(pad_token, int):
        return pad_token
    return 0


def by_bytes(text: str) -> list[int]:
    """The bytes of a text in UTF-8, each plus 1: numbers from 1 to 256. 0 is padding."""
    return [byte + 1 for byte in text.encode("utf-8", "surrogatepass")]


@dataclass(frozen=True)
class Words:
    """Numbers the words of texts: 0 is padding, 1 an unknown word, then `words` in their order."""

    words: tuple[str, ...]
    numbers: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", {word: UNKNOWN + 1 + i for i, word in enumerate(self.words)})

    @classmethod
    def of(cls, texts: Iterable[str], most: int) -> Words:
        """The `most` frequent words of the texts; of equally frequent ones the first by alphabet."""
        counts = Counter(word for text in texts for word in _split(text))
        return cls(tuple(sorted(counts, key=lambda word: (-counts[word], word))[:most]))

    def __call__(self, text: str) -> list[int]:
        return [self.numbers.get(word, UNKNOWN) for word in _split(text)]


def _split(text: str) -> list[str]:
    """Words in small letters, and signs of punctuation."""
    return _WORD.findall(text.lower())


def tokenizer_of(name: str, place: str, texts: Sequence[str], vocabulary: int) -> tuple[Tokenizer, int]:
    """The tokenizer of that name, and how many ids it has (0: unknown). See `Texts`."""
    if name == "bytes":
        return by_bytes, 257
    if name == "words":
        words = Words.of(texts, vocabulary)
        return words, UNKNOWN + 1 + len(words.words)
    if name.endswith(".json"):
        with library("tokenizers", "this tokenizer", "tokenizers"):
            import tokenizers
        file = Path(name).expanduser()
        check(file.is_file(), place, name, "there is no such file")
        with reading(file):
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
            tokenizer.no_padding()
            tokenizer.no_truncation()
            return tokenizer, tokenizer.get_vocab_size()
    if ":" not in name:
        raise SettingError("", place, name, 'must be bytes, words, a tokenizer.json, or "package.module:function"')
    owner, _, key = place.partition(".")
    return resolve(name, owner, key), 0


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
        frame, test = frames.read(self.path, self._columns, self.unpacked, "Texts.path")
        return self.of(frame, test, seed)

    def of(self, frame: Any, test: Any = None, seed: int = 0) -> Source:
        """The samples of a pandas frame, and of a second one for testing, with the columns of these settings."""
        rows, train_count = frames.joined(frame, test, self._columns)
        texts = frames.complete(rows, self.text, f"the text is missing{frames.READ_AS_MISSING}").tolist()

        def place(i: int) -> str:
            return f"column {self.text!r}, {frames.row_of(rows, i)}"

        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise DataError(f"{place(i)}: must be a text, not {text!r:.40}")
        user, user_names = frames.users(rows, self.user)
        train_texts = texts[:train_count]
        if self.label and test is None:
            train_texts = self._kept(texts, user, seed)
        tokenizer, ids = tokenizer_of(self.tokenizer, "Texts.tokenizer", train_texts, self.vocabulary)
        label_names: tuple[str, ...] = ()
        task = None
        if self.label:
            tokens = encoded(texts, tokenizer)
            inputs = filled(tokens, self.length, padding_of(tokenizer), place)
            source = torch.arange(len(texts))
            y, classes, label_names = frames.labels(rows, (self.label,))
        else:
            x, y, source = next_tokens(texts, tokenizer, self.length)
            check(len(x) > 0, "Texts.path", self.path, "there is no text of two tokens in it")
            inputs = {"input_ids": x, "attention_mask": (y != IGNORED).long()}
            classes = max(ids, 1 + int(x.max()), 1 + int(y.max()))
            task = NextToken()
        if user is not None:
            user = user[source]
        features = Inputs(inputs) if self.mask else inputs["input_ids"]
        samples = Samples(features, y, user=user)
        if test is None:
            train_samples, test_samples = hold_out(samples, self.test, seed)
        else:
            train_samples = samples[source < train_count]
            test_samples = samples[source >= train_count]
        return Source(train_samples, test_samples, classes, PLAIN, label_names, task=task, user_names=user_names)

    def _kept(self, texts: list[str], user: Tensor | None, seed: int) -> list[str]:
        """The texts that `hold_out` will keep for training: the vocabulary is theirs alone."""
        groups = np.zeros(len(texts))
        if user is not None:
            groups = user.numpy()
        is_held_out = split_off(groups, self.test, seed)
        return [text for text, held_out in zip(texts, is_held_out, strict=True) if not held_out]

    @property
    def _columns(self) -> frames.ColumnNames:
        options = {self.text: "text", self.label: "label", self.user: "user"}
        return {column: option for column, option in options.items() if column}
