"""Pickles of CIFAR and FedBN give what was written, and no pickle makes its reader do more."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsash.data.sources.formats import pickles
from support.by_default import rotated
from support.forms import pixels, python2, python3, rows, table, write, write_cifar10, write_cifar100, write_fedbn


@pytest.mark.parametrize("dump", [python2, python3])
def test_cifar10s_pickles_give_what_was_written(tmp_path: Path, dump: Callable[[Any], bytes]) -> None:
    x, y = write_cifar10(tmp_path / "cifar-10-batches-py", dump)
    splits = table(tmp_path)
    assert np.array_equal(splits.parts["train"].images, x[:10])
    assert np.array_equal(splits.parts["test"].images, x[10:])
    assert splits.parts["train"].columns["y"].tolist() + splits.parts["test"].columns["y"].tolist() == y
    assert splits.names == {"y": [f"class {i}" for i in range(10)]}


def test_cifar100s_pickles_have_both_labels(tmp_path: Path) -> None:
    x = write_cifar100(tmp_path)
    splits = table(tmp_path)
    assert np.array_equal(splits.parts["test"].images, x)
    assert splits.parts["train"].columns["y"].tolist() == list(range(100))
    assert splits.parts["train"].columns["coarse"].tolist() == [i // 5 for i in range(100)]
    assert (splits.names["y"][99], splits.names["coarse"][19]) == ("fine 99", "coarse 19")


def test_fedbns_ten_parts_are_read_in_order(tmp_path: Path) -> None:
    x = write_fedbn(tmp_path)
    splits = table(tmp_path)
    assert np.array_equal(splits.parts["train"].images, x[:50, :, :, None])
    assert np.array_equal(splits.parts["test"].images, x[50:, :, :, None])
    assert splits.parts["train"].columns["y"].tolist() == [i % 10 for i in range(50)]


class Shell:
    """What unpickles as the result of a call."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call = call
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


CALLS: dict[str, tuple[Callable[..., object], tuple[Any, ...]]] = {
    "posix.system": (os.system, ("touch {}",)),
    "builtins.eval": (eval, ("open('{}', 'w')",)),
    "builtins.getattr": (getattr, (os, "system")),
    "numpy.fromfile": (np.fromfile, ("{}",)),
    "numpy.load": (np.load, ("{}",)),
}


@pytest.mark.parametrize("name, protocol", rotated(CALLS, range(5)))
def test_a_pickle_that_asks_for_more_than_arrays_is_refused_before_it_is_called(
    tmp_path: Path, name: str, protocol: int
) -> None:
    call, arguments = CALLS[name]
    write_cifar10(tmp_path)
    sign = tmp_path / "called"
    texts = [a.format(sign) if isinstance(a, str) else a.__name__ for a in arguments]
    shell = pickle.dumps({"data": Shell(call, *texts)}, protocol=protocol)
    file = write(tmp_path / "data_batch_3", shell)
    with pytest.raises(ValueError) as caught:
        table(tmp_path)
    assert str(caught.value).startswith(f"{file}: asks for ")
    assert name.split(".")[1] in str(caught.value) and "\n" not in str(caught.value)
    assert not sign.exists()


@pytest.mark.parametrize("kind, protocol", rotated(["u1", ">i4", "<i8", "f8", "?"], range(5)))
def test_arrays_are_unpickled_as_numpy_does_it(tmp_path: Path, kind: str, protocol: int) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    for one in (array, np.asfortranarray(array), array[:, :1]):
        content = pickles.load(write(tmp_path / "a.pkl", pickle.dumps((one, [1, "a", b"b"]), protocol=protocol)))
        assert content[0].dtype == one.dtype and np.array_equal(content[0], one)


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([None]), np.zeros(1, [("a", "O"), ("b", "i4")])])
def test_arrays_of_other_things_than_numbers_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match=r"a\.pkl can't be read: type of numbers = '\w+': must be one of b1, u1"):
        pickles.load(write(tmp_path / "a.pkl", pickle.dumps((value, value), protocol=4)))


def test_no_byte_of_a_pickle_makes_its_reader_do_more(tmp_path: Path) -> None:
    """Any one byte changed: what was written, other numbers, or one line; never another error."""
    whole = python2({"data": rows(pixels(1, 32, 32, 3)), "labels": [3]})
    head = len(whole) - 3072 - 30
    for place in [*range(head), *range(len(whole) - 30, len(whole))]:
        changed = bytearray(whole)
        changed[place] ^= 0x15
        try:
            pickles._batch(write(tmp_path / "data_batch_1", bytes(changed)))
        except ValueError as error:
            assert "\n" not in str(error) and "data_batch_1" in str(error)
