"""Texts with any tokenizer: padded with a mask, or cut into sequences of next tokens."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedsash.client import LocalTraining
from fedsash.data import IID, FederatedData, Inputs, Texts, Users, next_tokens, tokenise
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.settings.errors import FedsashError
from fedsash.tasks import NextToken
from support.worlds import SEQUENTIAL

pd = pytest.importorskip("pandas", reason="fedsash[data] is not installed")

FRAME = pd.DataFrame(
    {
        "text": ["A good film.", "A bad film!", "good, good", "bad"] * 5,
        "label": ["good", "bad"] * 10,
        "who": [f"u{i % 4}" for i in range(20)],
    }
)


def letters(text: str) -> list[int]:
    return [ord(c) for c in text]


class Encoder:
    """A tokenizer as an object: `encode` gives an object with `ids`, and padding has a number of its own."""

    pad_token_id = 7

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=letters(text))


@given(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=6), st.integers(1, 12))
def test_a_row_holds_the_tokens_and_the_mask_says_where(texts: list[str], length: int) -> None:
    tokens = tokenise(texts, letters, length)
    ids = tokens["input_ids"]
    mask = tokens["attention_mask"]
    assert ids.shape == mask.shape == (len(texts), length) and ids.dtype == mask.dtype == torch.int64
    for text, row, is_token in zip(texts, ids, mask.bool(), strict=True):
        assert row[is_token].tolist() == letters(text)[:length]
        assert row[~is_token].sum() == 0


@given(st.lists(st.text(max_size=30), max_size=6), st.integers(1, 8))
def test_the_labels_of_a_sequence_are_its_tokens_one_later(texts: list[str], length: int) -> None:
    x, y, source = next_tokens(texts, letters, length)
    assert x.shape == y.shape == (len(source), length)
    for i, text in enumerate(texts):
        ids = x[source == i].reshape(-1)
        real = (y[source == i] != -100).reshape(-1)
        assert ids[real].tolist() == letters(text)[:-1]
        assert y[source == i].reshape(-1)[real].tolist() == letters(text)[1:]
    assert ((y != -100).sum(1) > 0).all()


def test_tokenizers_are_functions_or_objects_with_encode_and_may_return_dicts() -> None:
    expected = tokenise(["ab", "c"], letters, 3, padding=7)
    assert all(
        torch.equal(a, b) for a, b in zip(tokenise(["ab", "c"], Encoder(), 3).values(), expected.values(), strict=True)
    )
    dicts = tokenise(["ab", "c"], lambda text: {"input_ids": letters(text)}, 3, padding=7)
    assert torch.equal(dicts["input_ids"], expected["input_ids"])


def test_the_padding_of_a_tokenizer_is_no_text() -> None:
    def padded(text: str) -> dict[str, list[int]]:
        ids = letters(text)
        return {"input_ids": [0, *ids, 0, 0], "attention_mask": [0, *[1] * len(ids), 0, 0]}

    expected = tokenise(["ab", "c"], letters, 3)
    tokens = tokenise(["ab", "c"], padded, 3)
    assert all(torch.equal(tokens[name], expected[name]) for name in expected)
    for one, other in zip(next_tokens(["abc"], padded, 2), next_tokens(["abc"], letters, 2), strict=True):
        assert torch.equal(one, other)


WRONG: dict[str, tuple[Any, Any]] = {
    r"texts\[1\]: has no token: leave it out": (["a", ""], letters),
    r"texts\[1\] is a float and must be a text": (["a", float("nan")], letters),
    r"texts = 'a text': must be a list of texts": ("a text", letters),
    r"must return a list of token ids for a text, and returned <U1 \[1\] for texts\[0\]": (["a"], list),
    r"must return a list of token ids": (["a"], lambda text: [[1]]),
    r"tokenizer = 3: must be a function from a text to token ids": (["a"], 3),
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_no_text_or_no_tokenizer_is_refused_in_one_line(line: str) -> None:
    texts, tokenizer = WRONG[line]
    with pytest.raises(FedsashError, match=line) as caught:
        tokenise(texts, tokenizer, 4)
    assert "\n" not in str(caught.value)


class Bag(nn.Module):
    """The mean of the embeddings of the real tokens."""

    def __init__(self, tokens: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, 8)
        self.out = nn.Linear(8, outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        total = (self.embedding(input_ids) * attention_mask.unsqueeze(-1)).sum(-2)
        return self.out(total / attention_mask.sum(-1, keepdim=True))


class Next(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, 8)
        self.out = nn.Linear(8, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.embedding(ids))


def better(model: nn.Module, data: FederatedData, metric: str) -> tuple[float, float]:
    local = LocalTraining(lr=0.5)
    with Federation(model, data, local=local, sampling=Uniform(4), engine=SEQUENTIAL) as f:
        state = f.start()
        before = f.evaluate(state)[0][metric]
        for _ in range(20):
            state, _ = f.round(state)
        after = f.evaluate(state)[0][metric]
    assert before is not None and after is not None
    return before, after


def test_the_classes_of_texts_are_learned_from_a_csv(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    texts = Texts(str(tmp_path / "t.csv"), label="label", user="who", tokenizer="words", length=6, mask=True)
    source = texts.load()
    assert isinstance(source.train.x, Inputs) and list(source.train.x.tensors) == ["input_ids", "attention_mask"]
    assert (source.classes, source.label_names) == (2, ("bad", "good"))
    data = source.partition(Users())
    assert len(data.clients) == 4
    torch.manual_seed(0)
    assert better(Bag(20, 2), data, "accuracy")[1] == 1.0


def test_words_are_numbered_by_how_often_they_occur_in_the_training_texts() -> None:
    source = Texts("none", label="label", tokenizer="words", length=4, test=0, vocabulary=3).of(FRAME)
    # good occurs 15 times; a, bad and film 10 times each, so the first two by alphabet are known
    assert source.train.x[:4].tolist() == [[3, 2, 1, 1], [3, 4, 1, 1], [2, 1, 2, 0], [4, 0, 0, 0]]  # type: ignore[index]
    plain = Texts("none", label="label", length=4, test=0).of(FRAME)
    assert plain.train.x[3].tolist() == [ord("b") + 1, ord("a") + 1, ord("d") + 1, 0]  # type: ignore[index]


def test_the_next_tokens_of_a_text_file_are_learned(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("to be or not to be, " * 40)
    source = Texts(str(tmp_path / "t.txt"), length=10).load()
    assert source.task == NextToken() and source.classes == 257 and source.train.x.shape[1] == 10  # type: ignore[union-attr]
    before, after = better(Next(257), source.partition(IID(4)), "perplexity")
    assert after < 0.9 * before


def test_with_a_test_file_the_texts_of_each_stay_there_with_their_users(tmp_path: Path) -> None:
    FRAME[:16].to_json(tmp_path / "train.jsonl", orient="records", lines=True)
    FRAME[16:].to_json(tmp_path / "test.jsonl", orient="records", lines=True)
    source = Texts(str(tmp_path), user="who", length=5).load()
    assert source.test is not None and source.train.user is not None
    rows = [-(-(len(text) - 1) // 5) for text in FRAME["text"]]
    assert (len(source.train), len(source.test)) == (sum(rows[:16]), sum(rows[16:]))
    assert source.train.user.bincount().tolist() == [sum(rows[i:16:4]) for i in range(4)]


def test_a_tokenizer_of_ones_own_is_named_by_its_place() -> None:
    place = f"{__name__}:letters"
    source = Texts("none", label="label", tokenizer=place, length=3, test=0).of(FRAME)
    assert source.train.x[0].tolist() == letters("A g")  # type: ignore[index]
    with pytest.raises(FedsashError, match=r"Texts.tokenizer = 'none:at_all': can't be imported"):
        Texts("none", tokenizer="none:at_all")


def test_a_file_of_the_library_tokenizers_is_read(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    model = tokenizers.models.WordLevel({"[UNK]": 0, "good": 1, "bad": 2}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer.enable_padding(length=2, pad_id=2)
    tokenizer.enable_truncation(2)
    tokenizer.save(str(tmp_path / "padded.json"))
    for name in ("tokenizer.json", "padded.json"):
        source = Texts("none", label="label", tokenizer=str(tmp_path / name), length=4, test=0, mask=True).of(FRAME)
        assert isinstance(source.train.x, Inputs)
        assert source.train.x.tensors["input_ids"][2].tolist() == [1, 0, 1, 0]
        assert source.train.x.tensors["attention_mask"][2].tolist() == [1, 1, 1, 0]
    assert tokenise(["good good good"], tokenizer, 2)["input_ids"].tolist() == [[1, 1]]
    assert tokenise(["good"], tokenizer, 2)["attention_mask"].tolist() == [[1, 0]]


REFUSED: dict[str, dict[str, Any]] = {
    "Texts.tokenizer = 'gpt': must be bytes, words, a tokenizer.json, or": {"tokenizer": "gpt"},
    "text = 'body': there is no such column in the table, only text, label, who": {"text": "body"},
    "column 'number', row 0 of the table: must be a text, not 3": {"text": "number"},
    "column 'blank', row 0 of the table: has no token: leave it out": {"text": "blank", "label": "label"},
    "there is no text of two tokens in it": {"text": "letter"},
}


@pytest.mark.parametrize("line", REFUSED)
def test_texts_that_are_none_are_refused_in_one_line(line: str) -> None:
    frame = FRAME if "only text" in line else FRAME.assign(number=3, letter="a", blank="")
    with pytest.raises(FedsashError, match=line):
        Texts(**{"path": "none"} | REFUSED[line]).of(frame)


@pytest.mark.parametrize("cell", ["", "NA", "null"])
def test_a_text_that_a_csv_lacks_is_named_as_missing(tmp_path: Path, cell: str) -> None:
    (tmp_path / "t.csv").write_text(f"text,label\ngood,0\n{cell},1\n")
    line = (
        r"column 'text', row 1 of .*t.csv: the text is missing \(of a CSV, NA, None and null are read as missing, too\)"
    )
    with pytest.raises(FedsashError, match=line):
        Texts(str(tmp_path / "t.csv"), label="label").load()


def test_a_line_of_json_may_hold_any_sign_that_other_programs_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "a\u2028b\u0085c", "label": 0}\r\n\n{"text": "d", "label": 1}\n')
    source = Texts(str(tmp_path / "t.jsonl"), label="label", test=0, length=8).load()
    assert source.train.x[0, :2].tolist() == [98, 227] and len(source.train) == 2  # type: ignore[index]


def test_without_a_path_there_is_nothing_to_load() -> None:
    with pytest.raises(FedsashError, match=r"Texts.path = '': must be a file or a folder"):
        Texts().load()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "a"}) + "\n{")
    with pytest.raises(FedsashError, match=r"t.jsonl can't be read"):
        Texts(str(tmp_path / "t.jsonl")).load()
