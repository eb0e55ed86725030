"""Plays, read from LEAF's JSON or from plain text, as sequences of numbered characters.

Numbers: 0 is padding, 1 begins and 2 ends a speech, 3 to 88 are `CHARACTERS`, and 89 is any other character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from ...settings.errors import DataError, SettingError, check, one_line
from ...settings.limits import Fraction
from ...system.paths import plain_file
from ...tasks import PAD, NextCharacter
from ...vector.arrays import Ints
from ..samples import Samples
from ..source import NamedDataset, Source
from ..transform import PLAIN
from .formats.memory import check_room

CHARACTERS = "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
"""The 86 characters of TensorFlow Federated's tutorial on text, in its order, which FedJAX also uses."""

BOS = 1
EOS = 2
OOV = 3 + len(CHARACTERS)
TIMES = 32
"""What the numbers of a text take in memory while it is read, in sizes of the file."""
LENGTH = 80
"""The number of characters in a sequence."""

Speeches: TypeAlias = dict[str, list[str]]
"""The speeches of each user."""


def _name(character: str) -> str:
    """A character as it is shown among the names of the classes."""
    if character == " ":
        return "space"
    return repr(character)[1:-1]


NAMES = ("PAD", "BOS", "EOS", *map(_name, CHARACTERS), "OOV")
"""The names of the numbers."""
_Kind = TypeVar("_Kind")
_NUMBERS = np.full(128, OOV)
_NUMBERS[[ord(character) for character in CHARACTERS]] = np.arange(3, OOV)


@dataclass(frozen=True)
class Shakespeare(NamedDataset, name="shakespeare"):
    """Next characters in the speeches of plays, from LEAF's JSON or plain text (Shakespeare; FedJAX, WiMA).

    In LEAF's JSON the users are its `users`; overlapping windows of text are joined to the text that they come from. In
    plain text (`.txt`, UTF-8, one file for each play) every role is a user. A speech begins after an empty line with a
    line that holds the role's name and a colon. Text before the first speech is ignored.

    A user's speeches (in LEAF: texts without a gap) are joined, each between BOS and EOS. They are cut into sequences
    of 80 characters, `x` `[n, 80]`, with the next characters as labels, `y` `[n, 80]`. The last sequence is padded.
    There are 90 numbers: 0 is PAD, 1 BOS, 2 EOS, 3 to 88 the 86 known characters, 89 any other one. The 86 characters
    are those of TensorFlow Federated's tutorial on text, in its order, which FedJAX also uses
    (`fedsash.data.sources.plays.CHARACTERS`).

    The test set is in `test/`. Without this folder it is the last floor(test * n) of each user's n sequences (McMahan
    et al. 2017 hold out a fifth of each role's lines). There are no random draws.

    Raises `SettingError` or `DataError` with the file and the place in it.
    """

    path: str
    """a file, or a folder with files, or a folder with `train/` and `test/` or with `all_data/` as in LEAF"""
    test: Fraction = 0.2
    """the share of each user's sequences, the last ones, that becomes the test set, if there is no folder `test/`"""

    def __post_init__(self) -> None:
        check(self.path != "", "Shakespeare.path", self.path, "must be a file or a folder")

    def load(self, seed: int = 0) -> Source:
        """The sequences, user by user."""
        train_files, test_files = _find(self.path)
        train_speeches = _read(train_files)
        test_speeches = _read(test_files)
        users = list(train_speeches | test_speeches)
        train = _samples(train_speeches, users)
        test = _samples(test_speeches, users)
        if train is None:
            raise SettingError("Shakespeare", "path", self.path, "there is no speech in it")
        if test is None:
            train, test = _split_off_the_last(train, self.test)
        return Source(train, test, len(NAMES), PLAIN, NAMES, task=NextCharacter(), user_names=tuple(users))


def _find(path: str) -> tuple[list[Path], list[Path]]:
    """The training files and the test files (perhaps none) of a local file or folder."""
    place = Path(path).expanduser()
    if place.is_file():
        return [place], []
    requirement = "there is no such file or folder; plays are not fetched from the hub"
    check(place.is_dir(), "Shakespeare.path", path, requirement)
    folder = place
    test_files: list[Path] = []
    if (place / "train").is_dir():
        folder = place / "train"
        test_files = _files(place / "test")
    elif (place / "all_data").is_dir():
        folder = place / "all_data"
    train_files = _files(folder)
    check(len(train_files) > 0, "Shakespeare.path", str(folder), "this folder holds no .json and no .txt file")
    return train_files, test_files


def _files(folder: Path) -> list[Path]:
    """The JSON files of a folder, or its text files if it has no JSON files."""
    return sorted(folder.glob("*.json")) or sorted(folder.glob("*.txt"))


def _read(files: Iterable[Path]) -> Speeches:
    """The speeches of all users in these files, without users that have no text. Files are read in their order."""
    speeches: Speeches = {}
    for file in files:
        with _reading(file):
            check_room(TIMES * plain_file(file).stat().st_size, str(file))
            text = file.read_text(encoding="utf-8-sig")
            if not text.strip():
                raise DataError("it is empty")
            speeches_of_file = _leaf(json.loads(text)) if file.suffix == ".json" else _play(file.stem, text)
        for user, texts in speeches_of_file.items():
            speeches.setdefault(user, []).extend(texts)
    return {user: texts for user, texts in speeches.items() if any(texts)}


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Add the file's name to errors."""
    try:
        yield
    except (DataError, SettingError, OSError) as error:
        raise DataError(f"Shakespeare.path: in {file}: {one_line(error)}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"Shakespeare.path: in {file}: byte {error.start} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"Shakespeare.path: in {file}: damaged JSON ({one_line(error)})") from error


def _play(title: str, text: str) -> Speeches:
    """The speeches of each role of a play. A speech begins after an empty line with a line that ends in a colon."""
    # The blocks of each speech; empty lines divide a text into blocks.
    blocks_of_roles: dict[str, list[list[str]]] = {}
    speeches: list[list[str]] = []
    for block in re.split(r"\n\s*\n", text):
        first_line, _, rest = block.strip().partition("\n")
        if first_line.rstrip().endswith(":"):
            role = f"{title}: {first_line.rstrip()[:-1]}"
            speeches = blocks_of_roles.setdefault(role, [])
            speeches.append([rest])
        elif speeches:
            speeches[-1].append(block.rstrip())
    if not blocks_of_roles:
        raise DataError("no role was found: neither the first line nor one after an empty line ends with a colon")
    return {role: [_speech(blocks) for blocks in speeches] for role, speeches in blocks_of_roles.items()}


def _speech(blocks: list[str]) -> str:
    """The text of a speech. A single block is as it is, and several are stripped at their ends."""
    if len(blocks) == 1:
        return blocks[0]
    return "\n\n".join(blocks).strip()


def _leaf(content: Any) -> Speeches:
    """The text of each user of a LEAF file, joined from the windows x and their next characters y."""
    table = _of(dict, content, "all of it")
    data = _of(dict, table.get("user_data"), "user_data")
    speeches: Speeches = {}
    for i, user in enumerate(_of(list, table.get("users"), "users")):
        _of(str, user, f"users[{i}]")
        place = f"user_data[{user!r}]"
        windows = _of(dict, data.get(user), place)
        x = _strings(windows, "x", place)
        y = _strings(windows, "y", place)
        check(len(x) == len(y), f"{place}: length of y", len(y), f"must be {len(x)}, as of x")
        speeches[user] = _joined(x, y)
    return speeches


def _joined(x: list[str], y: list[str]) -> list[str]:
    """Texts from windows x. A window joins a text if it is the window before, moved by its next characters y."""
    texts: list[list[str]] = []
    expected = None
    for window, following in zip(x, y, strict=True):
        if window == expected:
            texts[-1].append(following)
        else:
            texts.append([window, following])
        expected = (window + following)[len(following) :]
    return ["".join(text) for text in texts]


def _strings(table: Mapping[str, Any], key: str, place: str) -> list[str]:
    """The list of strings at a key of a table. Raises `DataError` with the place of anything else."""
    values = _of(list, table.get(key), f"{place}.{key}")
    for i, value in enumerate(values):
        if not isinstance(value, str):
            _of(str, value, f"{place}.{key}[{i}]")
    return values


def _of(kind: type[_Kind], value: Any, place: str) -> _Kind:
    """The value, if it is of that kind. Otherwise raises `DataError` with its place."""
    if isinstance(value, kind):
        return value
    if value is None:
        raise DataError(f"{place} is missing, must be a {kind.__name__}")
    raise DataError(f"{place} is a {type(value).__name__}, must be a {kind.__name__}")


def _samples(speeches: Speeches, users: list[str]) -> Samples | None:
    """All sequences, user by user, with the users' positions in `users`; None if there is no sequence."""
    inputs = []
    next_characters = []
    positions = []
    for position, user in enumerate(users):
        x, y = sequences(speeches.get(user, []))
        inputs.append(x)
        next_characters.append(y)
        positions += [position] * len(x)
    if not positions:
        return None
    return Samples(
        torch.from_numpy(np.concatenate(inputs)),
        torch.from_numpy(np.concatenate(next_characters)),
        user=torch.tensor(positions),
    )


def sequences(speeches: Iterable[str]) -> tuple[Ints, Ints]:
    """One user's inputs and next characters, `[n, LENGTH]` each.

    The speeches, each between BOS and EOS, are joined and cut into inputs of `LENGTH` characters. The target of each
    character is the next one. The last pair is padded with PAD. Empty speeches are left out.
    """
    parts = [np.empty(0, dtype=np.int64)]
    for speech in speeches:
        if speech:
            parts.append(np.array([BOS, *_numbers(speech), EOS]))
    text = np.concatenate(parts)
    length = max(len(text) - 1, 0)
    count = -(-length // LENGTH)  # rounded up
    x = np.full(count * LENGTH, PAD)
    y = np.full(count * LENGTH, PAD)
    x[:length] = text[:-1]
    y[:length] = text[1:]
    return x.reshape(count, LENGTH), y.reshape(count, LENGTH)


def _numbers(text: str) -> Ints:
    """The number of each character; any character beyond ASCII has the number of the last one there, OOV."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return _NUMBERS.take(points, mode="clip")


def _split_off_the_last(samples: Samples, share: float) -> tuple[Samples, Samples | None]:
    """Split off the last floor(share * n) of each user's n adjacent sequences; the second is None if it is empty."""
    assert samples.user is not None
    counts = samples.user.bincount()
    starts = counts.cumsum(0) - counts
    position = torch.arange(len(samples)) - starts[samples.user]
    train_counts = counts - (share * counts.double() + 1e-9).long()  # 0.29 * 100 is a little less than 29
    is_test = position >= train_counts[samples.user]
    if not is_test.any():
        return samples[~is_test], None
    return samples[~is_test], samples[is_test]
