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
NAMES = ("PAD", "BOS", "EOS", *("space" if c == " " else repr(c)[1:-1] for c in CHARACTERS), "OOV")
TIMES = 32
"""What the numbers of a text take in memory while it is read, in sizes of the file."""
LENGTH = 80
"""The number of characters in a sequence."""

Speeches: TypeAlias = dict[str, list[str]]
"""The speeches of each user."""

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
        spoken, spoken_later = map(_read, _find(self.path))
        users = [*spoken, *(user for user in spoken_later if user not in spoken)]
        train = _samples(spoken, users)
        test = _samples(spoken_later, users)
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
    right = "there is no such file or folder; plays are not fetched from the hub"
    check(place.is_dir(), "Shakespeare.path", path, right)
    folder = next((place / name for name in ("train", "all_data") if (place / name).is_dir()), place)
    train = _files(folder)
    check(len(train) > 0, "Shakespeare.path", str(folder), "this folder holds no .json and no .txt file")
    return train, _files(place / "test") if folder.name == "train" else []


def _files(folder: Path) -> list[Path]:
    """The JSON files of a folder, or its text files if it has no JSON files."""
    return sorted(folder.glob("*.json")) or sorted(folder.glob("*.txt"))


def _read(files: Iterable[Path]) -> Speeches:
    """The speeches of all users in these files, without users that have no text. Files are read in their order."""
    speeches: Speeches = {}
    for file in files:
        with _damages(file):
            check_room(TIMES * plain_file(file).stat().st_size, str(file))
            text = file.read_text(encoding="utf-8-sig")
            if not text.strip():
                raise DataError("it is empty")
            own = _leaf(json.loads(text)) if file.suffix == ".json" else _play(file.stem, text)
        for user, said in own.items():
            speeches.setdefault(user, []).extend(said)
    return {user: said for user, said in speeches.items() if any(said)}


@contextmanager
def _damages(file: Path) -> Iterator[None]:
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
    speeches: dict[str, list[list[str]]] = {}
    own: list[list[str]] = []
    for block in re.split(r"\n\s*\n", text):
        first, _, rest = block.strip().partition("\n")
        if first.rstrip().endswith(":"):
            own = speeches.setdefault(f"{title}: {first.rstrip()[:-1]}", [])
            own.append([rest])
        elif own:
            own[-1].append(block.rstrip())
    if not speeches:
        raise DataError("no role was found: neither the first line nor one after an empty line ends with a colon")
    return {role: [_speech(*blocks) for blocks in said] for role, said in speeches.items()}


def _speech(first: str, *others: str) -> str:
    return "\n\n".join([first, *others]).strip() if others else first


def _leaf(content: Any) -> Speeches:
    """The text of each user of a LEAF file, joined from the windows x and their next characters y."""
    table = _of(dict, content, "all of it")
    data = _of(dict, table.get("user_data"), "user_data")
    speeches: Speeches = {}
    for i, user in enumerate(_of(list, table.get("users"), "users")):
        place = f"user_data[{_of(str, user, f'users[{i}]')!r}]"
        own = _of(dict, data.get(user), place)
        x = _strings(own, "x", place)
        y = _strings(own, "y", place)
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
    values = _of(list, table.get(key), f"{place}.{key}")
    for i, value in enumerate(values):
        if not isinstance(value, str):
            _of(str, value, f"{place}.{key}[{i}]")
    return values


def _of(kind: type[_Kind], value: Any, place: str) -> _Kind:
    """The value, if it is of that kind. Otherwise raises `DataError` with its place."""
    if isinstance(value, kind):
        return value
    found = "is missing" if value is None else f"is a {type(value).__name__}"
    raise DataError(f"{place} {found}, must be a {kind.__name__}")


def _samples(speeches: Speeches, users: list[str]) -> Samples | None:
    """All sequences, user by user, with the users' positions in `users`; None if there is no sequence."""
    cut = [sequences(speeches.get(user, [])) for user in users]
    user = np.repeat(np.arange(len(users)), [len(x) for x, _ in cut])
    if not len(user):
        return None
    x, y = (torch.from_numpy(np.concatenate(part)) for part in zip(*cut, strict=True))
    return Samples(x, y, user=torch.from_numpy(user))


def sequences(speeches: Iterable[str]) -> tuple[Ints, Ints]:
    """One user's inputs and next characters, `[n, LENGTH]` each.

    The speeches, each between BOS and EOS, are joined and cut into inputs of `LENGTH` characters. The target of each
    character is the next one. The last pair is padded with PAD. Empty speeches are left out.
    """
    numbers = [np.array([BOS, *_numbers(speech), EOS]) for speech in speeches if speech]
    joined = np.concatenate([*numbers, np.empty(0, dtype=np.int64)])
    length = max(len(joined) - 1, 0)
    pair = np.full((2, -(-length // LENGTH) * LENGTH), PAD)
    pair[:, :length] = joined[:-1], joined[1:]
    x, y = pair.reshape(2, -1, LENGTH)
    return x, y


def _numbers(text: str) -> Ints:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return _NUMBERS.take(points, mode="clip")


def _split_off_the_last(samples: Samples, share: float) -> tuple[Samples, Samples | None]:
    """Split off the last floor(share * n) of each user's n adjacent sequences; the second is None if it is empty."""
    assert samples.user is not None
    counts = samples.user.bincount()
    place = torch.arange(len(samples)) - (counts.cumsum(0) - counts)[samples.user]
    kept = counts - (share * counts.double() + 1e-9).long()  # 0.29 * 100 is a little less than 29
    test = place >= kept[samples.user]
    return samples[~test], samples[test] if test.any() else None
