"""Plays as sequences of characters: from plain text and from LEAF's JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsash.data import DATASETS, Samples, Shakespeare, Users
from fedsash.data.sources.plays import BOS, CHARACTERS, EOS, LENGTH, NAMES, OOV, _joined, sequences
from fedsash.lab.config import load
from fedsash.tasks import PAD, NextCharacter
from support.places import ROOT, real
from support.worlds import after

PLAY = """
THE TRAGEDY
of nobody: by no one

Anne:
Who's there?

Bob:
Nay, answer me:
stand.

Anne:
  Long live the king!

He leaves:
not.

Bob:

(aside) He?
"""
SPOKEN = {
    "Anne": ["Who's there?", "  Long live the king!"],
    "Bob": ["Nay, answer me:\nstand.", "(aside) He?"],
    "He leaves": ["not."],
}


def text_of(samples: Samples, user: int) -> str:
    """A user's characters, BOS as `<`, EOS as `>`, from the inputs and the last target."""
    assert samples.user is not None
    x = samples.x[samples.user == user].flatten()
    y = samples.y[samples.user == user].flatten()
    real = int((y != PAD).sum())
    assert torch.equal(x[1:real], y[: real - 1]) and not x[real:].any() and not y[real:].any()
    letters = {BOS: "<", EOS: ">", OOV: "?"} | {3 + i: c for i, c in enumerate(CHARACTERS)}
    return "".join(letters[number] for number in [*x[:real].tolist(), int(y[real - 1])])


def as_text(speeches: list[str]) -> str:
    return "".join(f"<{speech}>" for speech in speeches)


def leaf(users: dict[str, str], window: int = 5) -> dict[str, Any]:
    """LEAF's form of one text a user: all windows and the character after each."""
    data = {
        user: {
            "x": [text[i : i + window] for i in range(len(text) - window)],
            "y": [text[i + window] for i in range(len(text) - window)],
        }
        for user, text in users.items()
    }
    return {"users": list(users), "num_samples": [len(own["x"]) for own in data.values()], "user_data": data}


def written(place: Path, content: str | bytes | dict[str, Any]) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        place.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(place)


def test_there_are_86_characters_between_the_special_numbers() -> None:
    assert len(set(CHARACTERS)) == len(CHARACTERS) == 86
    assert (PAD, BOS, EOS, OOV, len(NAMES)) == (0, 1, 2, 89, 90)
    assert (NAMES[3], NAMES[87], NAMES[88]) == ("d", "9", "\\r"), "the dossier's 87 and 88"
    assert set(map(chr, [*range(48, 58), *range(65, 91), *range(97, 123)])) < set(CHARACTERS)


def test_the_example_of_fedjax_at_length_80() -> None:
    """Speeches of 78 and 1 characters: BOS and EOS make 80 and 3, of which all but the last are inputs."""
    x, y = sequences(["a" * 78, "b"])
    a = 3 + CHARACTERS.index("a")
    b = 3 + CHARACTERS.index("b")
    assert x.tolist() == [[BOS, *[a] * 78, EOS], [BOS, b] + [PAD] * 78]
    assert y.tolist() == [[*[a] * 78, EOS, BOS], [b, EOS] + [PAD] * 78]


@given(st.lists(st.text(alphabet=CHARACTERS, max_size=200), max_size=6))
def test_no_character_is_lost_or_doubled(speeches: list[str]) -> None:
    x, y = sequences(speeches)
    said = as_text([speech for speech in speeches if speech])
    assert x.shape == y.shape == (-(-max(len(said) - 1, 0) // LENGTH), LENGTH)
    if len(x):
        samples = Samples(torch.from_numpy(x), torch.from_numpy(y), user=torch.zeros(len(x), dtype=torch.int64))
        assert text_of(samples, 0) == said


def test_any_other_character_is_one_number() -> None:
    x, _ = sequences(["é|\x7f\U0001f600\ud800"])
    assert x[0, :6].tolist() == [BOS, *[OOV] * 5]


def test_a_role_is_a_user_and_a_speech_begins_after_an_empty_line(tmp_path: Path) -> None:
    source = Shakespeare(written(tmp_path / "play.txt", PLAY), test=0).load()
    assert source.test is None
    assert [text_of(source.train, i) for i in range(3)] == [as_text(speeches) for speeches in SPOKEN.values()]
    assert source.partition(Users()).sizes.tolist() == [1, 1, 1]


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    one = Shakespeare(written(tmp_path / "one.txt", PLAY)).load()
    content = b"\xef\xbb\xbf" + PLAY.replace("\n", "\r\n").encode()
    assert torch.equal(Shakespeare(written(tmp_path / "other.txt", content)).load().train.x, one.train.x)


def test_a_role_of_each_play_is_a_user_of_its_own(tmp_path: Path) -> None:
    written(tmp_path / "a.txt", "King:\nOne.\n")
    written(tmp_path / "b.txt", "King:\nTwo.\n\nFool:\nThree.\n")
    source = Shakespeare(str(tmp_path)).load()
    assert [text_of(source.train, i) for i in range(3)] == ["<One.>", "<Two.>", "<Three.>"]


def test_leafs_overlapping_windows_are_put_together_to_the_text(tmp_path: Path) -> None:
    users = {"A": "to be, or not to be", "B": "aaaaaaaaaaaa", "short": "abc"}
    for folder in ("all_data", "."):
        written(tmp_path / folder / "all_data.json", leaf(users))
        source = Shakespeare(str(tmp_path)).load()
        assert [text_of(source.train, i) for i in range(2)] == [as_text([users["A"]]), as_text([users["B"]])]
        assert len(source.partition(Users()).clients) == 2, "who has said too little for a window says nothing"


def test_windows_that_do_not_follow_one_another_are_speeches_of_their_own() -> None:
    """LEAF's iid sampling leaves gaps, and a split by samples leaves one."""
    assert _joined(["abcde", "bcdef", "defgh"], ["f", "g", "i"]) == ["abcdefg", "defghi"]
    assert _joined([], []) == []


def test_a_folder_with_train_and_test_is_split_like_that(tmp_path: Path) -> None:
    written(tmp_path / "train" / "a.json", leaf({"A": "to be, or not"}))
    written(tmp_path / "train" / "b.json", leaf({"B": "who is there"}))
    written(tmp_path / "test" / "a.json", leaf({"New": "never heard", "A": "that is the question"}))
    written(tmp_path / "all_data" / "all.json", "not read")
    source = Shakespeare(str(tmp_path)).load()
    assert source.test is not None
    assert [text_of(source.train, i) for i in (0, 1)] == ["<to be, or not>", "<who is there>"]
    assert (text_of(source.test, 0), text_of(source.test, 2)) == ("<that is the question>", "<never heard>")


def test_the_last_sequences_of_each_user_are_the_test_set(tmp_path: Path) -> None:
    sizes = {"A": 10, "B": 4, "C": 1}
    play = "\n\n".join(f"{role}:\n{'x' * (LENGTH * n - 1)}" for role, n in sizes.items())
    whole = Shakespeare(written(tmp_path / "play.txt", play), test=0).load().train
    split = Shakespeare(str(tmp_path), test=0.3).load()
    assert whole.user is not None and split.train.user is not None
    assert split.test is not None and split.test.user is not None
    assert whole.user.bincount().tolist() == [10, 4, 1]
    assert split.train.user.bincount().tolist() == [7, 3, 1] and split.test.user.bincount().tolist() == [3, 1]
    for user in (0, 1):
        both = [part.y[part.user == user] for part in (split.train, split.test)]
        assert torch.equal(torch.cat(both), whole.y[whole.user == user])


def test_the_source_says_what_is_learned(tmp_path: Path) -> None:
    source = DATASETS["shakespeare"](written(tmp_path / "play.txt", PLAY)).load()
    assert isinstance(source.task, NextCharacter)
    assert (source.classes, source.label_names, source.train.x.dtype) == (90, NAMES, torch.int64)


GOOD = leaf({"A": "to be, or not"})
DAMAGED: dict[str, tuple[str, str | bytes | dict[str, Any], str]] = {
    "truncated": ("a.json", json.dumps(GOOD)[:-9], r"a\.json: damaged JSON \(.* line 1 column \d+"),
    "too deep": ("a.json", "[" * 100_000, r"a\.json: damaged JSON \(.*recursion"),
    "a list": ("a.json", "[1]", r"a\.json: all of it is a list, must be a dict"),
    "no users": ("a.json", {"user_data": {}}, r"a\.json: users is missing, must be a list"),
    "no data": ("a.json", {"users": ["A"]}, r"a\.json: user_data is missing, must be a dict"),
    "no such user": ("a.json", {"users": ["A"], "user_data": {}}, r"user_data\['A'\] is missing, must be a dict"),
    "users are numbers": ("a.json", {"users": [3], "user_data": {}}, r"users\[0\] is a int, must be a str"),
    "no y": ("a.json", {"users": ["A"], "user_data": {"A": {"x": []}}}, r"user_data\['A'\]\.y is missing, must be a"),
    "x is a text": ("a.json", {"users": ["A"], "user_data": {"A": {"x": "ab", "y": []}}}, r"\.x is a str, must be a l"),
    "x of numbers": (
        "a.json",
        {"users": ["A"], "user_data": {"A": {"x": ["ab", 5], "y": ["c", "d"]}}},
        r"a\.json: user_data\['A'\]\.x\[1\] is a int, must be a str",
    ),
    "y too short": (
        "a.json",
        {"users": ["A"], "user_data": {"A": {"x": ["ab", "bc"], "y": ["c"]}}},
        r"a\.json: user_data\['A'\]: length of y = 1: must be 2, as of x",
    ),
    "empty JSON": ("a.json", "", r"a\.json: it is empty"),
    "empty text": ("a.txt", " \n", r"a\.txt: it is empty"),
    "no roles": ("a.txt", "A text.\n\nWithout: any role\n", r"a\.txt: no role was found: "),
    "not UTF-8": (
        "Hamlet.txt",
        b"Anne:\nd\xe9j\xe0 vu\n",
        r"^Shakespeare\.path: in .*/Hamlet\.txt: byte 7 is not UTF-8",
    ),
    "silence": ("a.txt", "Anne:\n\nBob:\n", r"Shakespeare\.path = '.*': there is no speech in it"),
    "nobody": ("a.json", {"users": [], "user_data": {}}, r"there is no speech in it"),
    "another form": ("a.csv.gz", b"12", r"this folder holds no \.json and no \.txt file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_one_line_with_the_file_and_the_place(name: str, tmp_path: Path) -> None:
    file, content, line = DAMAGED[name]
    written(tmp_path / file, content)
    with pytest.raises(ValueError, match=line) as refused:
        Shakespeare(str(tmp_path)).load()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("path", ["karpathy/tiny_shakespeare", "./nowhere"])
def test_a_path_that_is_not_here_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(ValueError, match=rf"Shakespeare\.path = '{path}': there is no such file or folder; plays"):
        Shakespeare(path).load()


# The real text.


def test_the_real_text_has_its_roles_and_every_word() -> None:
    source = Shakespeare(real("shakespeare"), test=0).load()
    text = (Path(real("shakespeare")) / "input.txt").read_text()
    spoken: dict[str, list[str]] = {}
    for block in text.strip().split("\n\n"):
        role, _, speech = f"{block.strip()}\n".partition(":\n")
        if speech:
            spoken.setdefault(role, []).append(speech.strip("\n"))
    assert not (source.train.x == OOV).any() and len(source.partition(Users()).clients) == len(spoken) == 299
    assert sorted(text_of(source.train, i) for i in range(299)) == sorted(map(as_text, spoken.values()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twelve_rounds_on_the_real_text_beat_the_characters_frequencies() -> None:
    """WiMA's setting, with 10 of 299 roles a round; evaluated on every tenth test sequence."""
    engine = ["engine.kind=sequential", "engine.workers=1", "engine.threads=1", "engine.compile=false"]
    federation = load(
        ROOT / "examples" / "papers" / "wima_shakespeare.toml", [f"data.path={real('shakespeare')}", *engine]
    ).federation()
    train = federation.data.train.y
    test = federation.data.test
    assert test is not None
    test = test[torch.arange(0, len(test), 10)]
    unigram = torch.where(torch.arange(90) == PAD, 0, train.flatten().bincount(minlength=90) + 1).double().log()
    output = unigram.expand(*test.y.shape, 90)
    task = NextCharacter()
    counted = task.counted(test.y)
    federation = replace(federation, data=replace(federation.data, test=test, client_test=()))
    learned = federation.evaluate(after(federation, 12))[0]
    assert learned["accuracy"] > (task.predicted(output) == test.y)[counted].double().mean() + 0.01
    assert learned.loss < task.loss(output, test.y).mean() - 0.1
