"""Every form, written as its makers write it, byte for byte: what is read is what was written; damage is one line."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsash.data import Images
from fedsash.data.formats import FORMS, find, pickles
from fedsash.data.formats.pixels import AS_IT_IS, Look, decode
from fedsash.data.formats.table import Part, Table

Image = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")

Pixels = NDArray[np.uint8]
Damage = dict[str, Callable[[], object]]
"""What spoils good data, under the line that says so."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSASH_CACHE", str(tmp_path / "cache"))


def pixels(n: int, *shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def table(folder: Path, test: str = "test") -> Table:
    return find(str(folder), ["train", test]).read({})


def write(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


# idx, as the page of MNIST describes it.


def idx(magic: int, array: Pixels) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def write_idx(folder: Path, n: int = 6, gz: bool = False, dot: str = "-") -> tuple[Pixels, Pixels]:
    x, y = pixels(n, 28, 28), np.arange(n, dtype=np.uint8) % 10
    for prefix in ("train", "t10k"):
        for kind, magic, array in (("images", 0x803, x), ("labels", 0x801, y)):
            name = f"{prefix}-{kind}{dot}idx{array.ndim}-ubyte" + (".gz" if gz else "")
            content = idx(magic, array)
            write(folder / name, gzip.compress(content) if gz else content)
    return x, y


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("place", [".", "MNIST/raw"])
@pytest.mark.parametrize("dot", ["-", "."])
def test_idx_files_give_what_was_written(tmp_path: Path, gz: bool, place: str, dot: str) -> None:
    x, y = write_idx(tmp_path / place, gz=gz, dot=dot)
    found = table(tmp_path)
    assert list(found.parts) == ["train", "test"]
    for part in found.parts.values():
        assert np.array_equal(part.images, x[..., None])
        assert np.array_equal(part.columns["y"], y)


TRAIN_X, TRAIN_Y = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def damaged_idx(folder: Path) -> Damage:
    x, y = pixels(6, 28, 28), np.arange(6, dtype=np.uint8)
    whole = idx(0x803, x)
    return {
        "size = 4715: must be 4720 bytes, for 6 x 28 x 28": lambda: write(folder / TRAIN_X, whole[:-5]),
        "size = 4721: must be 4720 bytes": lambda: write(folder / TRAIN_X, whole + b"x"),
        "size = 10: must be at least the 16 bytes of a header": lambda: write(folder / TRAIN_X, whole[:10]),
        "magic number = '0x00000801': must be 0x00000803": lambda: write(folder / TRAIN_X, idx(0x801, x)),
        "magic number = '0x00000000': must be 0x00000803": lambda: write(folder / TRAIN_X, b""),
        "number of labels = 5: must be 6, as many as there are": lambda: write(folder / TRAIN_Y, idx(0x801, y[:5])),
        "must hold train-labels-idx1-ubyte, plain or .gz": lambda: (folder / TRAIN_Y).unlink(),
        "is in several folders, choose one": lambda: write_idx(folder / "again"),
        "can't be read: ": lambda: (
            write(folder / f"{TRAIN_X}.gz", gzip.compress(whole)[:-20]) and (folder / TRAIN_X).unlink()
        ),
    }


# CIFAR, as Python 2 pickled it.


def old(value: Any) -> bytes:
    """The opcodes of a value by Python 2's cPickle with protocol 2, without its memo."""
    if isinstance(value, dict):
        return b"}(" + b"".join(old(key) + old(inner) for key, inner in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(old, value)) + b"e"
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode()
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    assert isinstance(value, np.ndarray)
    raw = value.tobytes()
    shape = b"(" + b"".join(map(old, value.shape)) + b"t"
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    begun = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    return begun + b"(K\x01" + shape + kind + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"


def python2(value: Any) -> bytes:
    return b"\x80\x02" + old(value) + b"."


def python3(value: Any) -> bytes:
    """The same with bytes as keys, as whoever has unpickled the files pickles them again."""
    return pickle.dumps({key.encode(): inner for key, inner in value.items()}, protocol=4)


def rows(x: Pixels) -> Pixels:
    """Images as CIFAR has them: all red values, then all green, then all blue."""
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(len(x), -1)


def write_cifar10(folder: Path, dump: Callable[[Any], bytes] = python2) -> tuple[Pixels, list[int]]:
    x, y = pixels(12, 32, 32, 3), [i % 10 for i in range(12)]
    names = [f"data_batch_{i}" for i in range(1, 6)]
    for k, name in enumerate(names):
        part = slice(2 * k, 2 * k + 2)
        batch = {"batch_label": name, "labels": y[part], "data": rows(x[part]), "filenames": ["a.png", "b.png"]}
        write(folder / name, dump(batch))
    write(folder / "test_batch", dump({"batch_label": "test", "labels": y[10:], "data": rows(x[10:])}))
    write(folder / "batches.meta", dump({"num_cases_per_batch": 2, "label_names": [f"class {i}" for i in range(10)]}))
    return x, y


@pytest.mark.parametrize("dump", [python2, python3])
def test_cifar10s_pickles_give_what_was_written(tmp_path: Path, dump: Callable[[Any], bytes]) -> None:
    x, y = write_cifar10(tmp_path / "cifar-10-batches-py", dump)
    found = table(tmp_path)
    assert np.array_equal(found.parts["train"].images, x[:10])
    assert np.array_equal(found.parts["test"].images, x[10:])
    assert found.parts["train"].columns["y"].tolist() + found.parts["test"].columns["y"].tolist() == y
    assert found.names == {"y": [f"class {i}" for i in range(10)]}


def write_cifar100(folder: Path) -> Pixels:
    x = pixels(100, 32, 32, 3)
    fine, coarse = list(range(100)), [i // 5 for i in range(100)]
    for name in ("train", "test"):
        write(folder / name, python2({"data": rows(x), "fine_labels": fine, "coarse_labels": coarse}))
    names = {"fine_label_names": [f"fine {i}" for i in fine], "coarse_label_names": [f"coarse {i}" for i in range(20)]}
    write(folder / "meta", python2(names))
    return x


def test_cifar100s_pickles_have_both_labels(tmp_path: Path) -> None:
    x = write_cifar100(tmp_path)
    found = table(tmp_path)
    assert np.array_equal(found.parts["test"].images, x)
    assert found.parts["train"].columns["y"].tolist() == list(range(100))
    assert found.parts["train"].columns["coarse"].tolist() == [i // 5 for i in range(100)]
    assert (found.names["y"][99], found.names["coarse"][19]) == ("fine 99", "coarse 19")


def write_fedbn(folder: Path, n: int = 5, shape: tuple[int, ...] = (28, 28)) -> Pixels:
    """FedBN's files of one domain: ten parts and a test file, each a pair of arrays."""
    x = pixels(11 * n, *shape)
    y = np.arange(11 * n)[:, None] % 10
    for k in range(11):
        part = slice(k * n, (k + 1) * n)
        name = f"partitions/train_part{k}.pkl" if k < 10 else "test.pkl"
        write(folder / name, pickle.dumps((x[part], y[part])))
    return x


def test_fedbns_ten_parts_are_read_in_order(tmp_path: Path) -> None:
    x = write_fedbn(tmp_path)
    found = table(tmp_path)
    assert np.array_equal(found.parts["train"].images, x[:50, :, :, None])
    assert np.array_equal(found.parts["test"].images, x[50:, :, :, None])
    assert found.parts["train"].columns["y"].tolist() == [i % 10 for i in range(50)]


class Shell:
    """What unpickles as the result of a call."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize(
    ("call", "arguments", "name"),
    [
        (os.system, ("touch {}",), "posix.system"),
        (eval, ("open('{}', 'w')",), "builtins.eval"),
        (getattr, (os, "system"), "builtins.getattr"),
        (np.fromfile, ("{}",), "numpy.fromfile"),
        (np.load, ("{}",), "numpy.load"),
    ],
)
@pytest.mark.parametrize("protocol", range(5))
def test_a_pickle_that_asks_for_more_than_arrays_is_refused_before_it_is_called(
    tmp_path: Path, call: Callable[..., object], arguments: tuple[Any, ...], name: str, protocol: int
) -> None:
    write_cifar10(tmp_path)
    sign = tmp_path / "called"
    given = [a.format(sign) if isinstance(a, str) else a.__name__ for a in arguments]
    shell = pickle.dumps({"data": Shell(call, *given)}, protocol=protocol)
    file = write(tmp_path / "data_batch_3", shell)
    with pytest.raises(ValueError) as caught:
        table(tmp_path)
    assert str(caught.value).startswith(f"{file}: asks for ")
    assert name.split(".")[1] in str(caught.value) and "\n" not in str(caught.value)
    assert not sign.exists()


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("kind", ["u1", ">i4", "<i8", "f8", "?"])
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


def damaged_cifar(folder: Path) -> Damage:
    x, y = pixels(12, 32, 32, 3), list(range(12))
    file, good = folder / "data_batch_2", {"labels": y[2:4], "data": rows(x[2:4])}
    return {
        "data_batch_2 can't be read: ": lambda: write(file, python2(good)[:-500]),
        "data_batch_2 is missing": file.unlink,
        "number of labels = 1: must be 2, as many as": lambda: write(file, python2(good | {"labels": [1]})),
        "data = (2, 784): must be an array of 3072 numbers": lambda: write(
            file, python2(good | {"data": pixels(2, 784)})
        ),
        "keys = ['data']: must have the keys data and labels": lambda: write(file, python2({"data": rows(x[:1])})),
        "data_batch_2 = 'list': must be a dictionary": lambda: write(file, python2([1, 2])),
        "y = 'float64 [2]': must be whole numbers": lambda: write(file, python3(good | {"labels": [0.5, 1.0]})),
        "labels of train, row 2 = 10: must be 0 to 9": lambda: write(file, python2(good | {"labels": [10, 1]})),
    }


# LEAF.


def user_data(n: int, side: int = 28, seed: int = 0) -> dict[str, Any]:
    x = pixels(n, side, side, seed=seed) / 255
    return {"x": x.reshape(n, -1).tolist(), "y": [(seed + i) % 62 for i in range(n)]}


def leaf(data: dict[str, dict[str, Any]], **changes: Any) -> bytes:
    counts = [len(samples["y"]) for samples in data.values()]
    return json.dumps({"users": list(data), "num_samples": counts, "user_data": data} | changes).encode()


def write_leaf(folder: Path, split: bool = True) -> None:
    for k, part in enumerate(("train", "test") if split else ("", "")):
        for j in range(2):
            users = {f"f{2 * j + i:04d}_00": user_data(3 + i, seed=10 * j + i) for i in range(2)}
            write(folder / part / f"all_data_{j}_niid_0_{k}.json", leaf(users))


def test_leafs_json_gives_pixels_labels_and_users(tmp_path: Path) -> None:
    write_leaf(tmp_path / "data")
    found = table(tmp_path)
    for part in found.parts.values():
        seeds = [(0, 3), (1, 4), (10, 3), (11, 4)]
        assert np.array_equal(part.images, np.concatenate([pixels(n, 28, 28, 1, seed=s) for s, n in seeds]))
        assert part.columns["y"].tolist() == [s + i for s, n in seeds for i in range(n)]
        assert part.columns["user"].tolist() == [f"f{k:04d}_00" for k, n in enumerate([3, 4, 3, 4]) for _ in range(n)]


def test_leafs_json_before_its_split_is_training_data(tmp_path: Path) -> None:
    write_leaf(tmp_path, split=False)
    assert list(table(tmp_path).parts) == ["train"]


def damaged_leaf(folder: Path) -> Damage:
    file = folder / "train" / "all_data_0_niid_0_0.json"
    good = {"a": user_data(2), "b": user_data(3)}

    def user(**changes: Any) -> Callable[[], object]:
        return lambda: write(file, leaf({"a": good["a"] | changes}, num_samples=[2]))

    return {
        "can't be read: Expecting": lambda: write(file, leaf(good)[:2000] + b","),
        "can't be read: Unterminated string": lambda: write(file, leaf(good)[:4]),
        "'list': must have the keys users, num_samples and user_data": lambda: write(file, b"[]"),
        "num_samples = 1: must be one for each of 2 users": lambda: write(file, leaf(good, num_samples=[2])),
        "user c = []: must have x and y": lambda: write(file, leaf(good, users=["a", "c"])),
        "user a: number of y = 1: must be 2": user(y=[1]),
        "user a: x = [2, 3]: must be the pixels of square images": user(x=[[0.1] * 3] * 2),
        "user a: x: must be as many numbers for each image": user(x=[[0.1] * 4, [0.1] * 9]),
        "user a: x = 'a pixel out of range': must be numbers from 0 to 1": user(x=[[2.0] * 4] * 2),
        "user a: y = dtype('float64'): must be whole numbers": user(y=[0.5, 1]),
        "train = 'train': images differ in size": user(x=[[0.5] * 4] * 2),
    }


# Folders of images.


def png(file: Path, image: Pixels) -> Path:
    buffer = io.BytesIO()
    Image.fromarray(image.squeeze()).save(buffer, "PNG")
    return write(file, buffer.getvalue())


def classes(folder: Path, n: int = 2, names: tuple[str, ...] = ("cat", "dog"), seed: int = 0) -> list[Pixels]:
    images = list(pixels(n * len(names), 8, 8, 3, seed=seed))
    for i, image in enumerate(images):
        png(folder / names[i // n] / f"{i}.png", image)
    return images


def test_a_folder_a_class_below_each_split(tmp_path: Path) -> None:
    train, test = classes(tmp_path / "train"), classes(tmp_path / "test", seed=1)
    found = table(tmp_path)
    assert found.parts["train"].columns["y"].tolist() == ["cat", "cat", "dog", "dog"]
    x = decode(found.parts, AS_IT_IS)
    assert np.array_equal(x["train"], np.stack(train))
    assert np.array_equal(x["test"], np.stack(test))


def test_a_folder_a_domain_and_in_it_one_a_class(tmp_path: Path) -> None:
    for domain in ("photo", "sketch"):
        classes(tmp_path / domain)
    found = table(tmp_path)
    assert list(found.parts) == ["train"]
    assert found.parts["train"].columns["domain"].tolist() == ["photo"] * 4 + ["sketch"] * 4
    assert found.parts["train"].columns["y"].tolist() == ["cat", "cat", "dog", "dog"] * 2


def write_tiny(folder: Path) -> dict[str, str]:
    """Tiny-ImageNet: a folder `images` a class, and a list for the validation images."""
    for i, wnid in enumerate(("n01443537", "n01629819")):
        for k in range(2):
            png(folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", pixels(1, 64, 64, 3, seed=i)[0])
        write(folder / "train" / wnid / f"{wnid}_boxes.txt", b"n01443537_0.JPEG\t0\t10\t63\t58\n")
    labels = {f"val_{i}.JPEG": wnid for i, wnid in enumerate(["n01629819", "n01443537", "n01629819"])}
    for name in labels:
        png(folder / "val" / "images" / name, pixels(1, 64, 64, 1)[0])
    lines = "".join(f"{name}\t{wnid}\t0\t32\t44\t62\n" for name, wnid in labels.items())
    write(folder / "val" / "val_annotations.txt", lines.encode())
    png(folder / "test" / "images" / "test_0.JPEG", pixels(1, 64, 64, 3)[0])
    return labels


def test_tiny_imagenets_validation_images_have_their_labels_in_a_list(tmp_path: Path) -> None:
    labels = write_tiny(tmp_path)
    found = table(tmp_path, "valid")
    assert found.parts["train"].columns["y"].tolist() == ["n01443537"] * 2 + ["n01629819"] * 2
    assert found.parts["valid"].columns["y"].tolist() == list(labels.values())
    assert [file.name for file in found.parts["valid"].images] == list(labels)  # type: ignore[union-attr]


def damaged_folders(folder: Path) -> Damage:
    listed = folder / "test" / "test_annotations.txt"
    return {
        "deep.png': must lie in": lambda: png(folder / "train/a/b/c/deep.png", pixels(1, 8, 8, 3)[0]),
        "9.png: size = (9, 9): must be (8, 8), as in row 0": lambda: png(
            folder / "train/dog/9.png", pixels(1, 9, 9, 3)[0]
        ),
        "3.png: the image can't be decoded": lambda: write(
            folder / "train/dog/3.png", (folder / "train/dog/3.png").read_bytes()[:-30]
        ),
        "0.png: the image can't be decoded": lambda: write(folder / "train/cat/0.png", b""),
        "'9.png': must have a line for every image": lambda: [
            png(folder / "test/images/9.png", pixels(1, 8, 8, 3)[0]),
            write(listed, b""),
        ],
        "'8.png': there are no such images": lambda: [
            png(folder / "test/images/9.png", pixels(1, 8, 8, 3)[0]),
            write(listed, b"9.png cat\n8.png dog\n"),
        ],
        "line = [2]: must be the name of an image and its class": lambda: [
            png(folder / "test/images/9.png", pixels(1, 8, 8, 3)[0]),
            write(listed, b"9.png cat\n8.png\n"),
        ],
    }


# Landmarks.


def write_landmarks(folder: Path, layout: str = "images/{0}.jpg") -> list[str]:
    names = [f"{i:x}" * 8 for i in range(10, 16)]
    for i, name in enumerate(names):
        png(folder / layout.format(name, *name[:3]), pixels(1, 8 + i, 12, 3, seed=i)[0])
    train = "".join(f"{i // 2},{name},{i}\n" for i, name in enumerate(names[:4]))
    write(folder / "federated_train.csv", b"user_id,image_id,class\n" + train.encode())
    write(folder / "test.csv", b"image_id,class\n" + f"{names[4]},0\n{names[5]},3\n".encode())
    return names


@pytest.mark.parametrize("layout", ["images/{0}.jpg", "train/{1}/{2}/{3}/{0}.jpg", "{0}.jpg"])
def test_lists_of_landmarks_give_users_and_the_places_of_their_images(tmp_path: Path, layout: str) -> None:
    names = write_landmarks(tmp_path, layout)
    found = table(tmp_path)
    train, test = found.parts["train"], found.parts["test"]
    assert train.columns["user"].tolist() == ["0", "0", "1", "1"]
    assert (train.columns["y"].tolist(), test.columns["y"].tolist()) == ([0, 1, 2, 3], [0, 3])
    assert [file.stem for file in [*train.images, *test.images]] == names  # type: ignore[union-attr]


def damaged_landmarks(folder: Path) -> Damage:
    file = folder / "federated_train.csv"
    return {
        "row 1 = ['0', 'aaaaaaaa']: must have 3 values": lambda: write(file, b"user_id,image_id,class\n0,aaaaaaaa"),
        "class = 'x': must be a whole number": lambda: write(file, b"user_id,image_id,class\n0,aaaaaaaa,x"),
        "must list at least one image": lambda: write(file, b"user_id,image_id,class\n"),
        "image_id = 'nothing': there is none of images/nothing.jpg": lambda: write(
            file, b"user_id,image_id,class\n0,nothing,3"
        ),
        "image_id = 'bbbbbbbb': there is no ": (folder / "images" / "bbbbbbbb.jpg").unlink,
        "must hold one list for train, not": lambda: write(folder / "mini_train.csv", b"user_id,image_id,class\n"),
    }


# Whatever the form.


WRITERS: dict[str, Callable[[Path], object]] = {
    "idx": write_idx,
    "pickles": write_cifar10,
    "leaf": write_leaf,
    "listed": write_landmarks,
    "folders": lambda folder: classes(folder / "train"),
}
DAMAGE = {
    "idx": damaged_idx,
    "pickles": damaged_cifar,
    "leaf": damaged_leaf,
    "listed": damaged_landmarks,
    "folders": damaged_folders,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_form_is_known_by_its_files(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    first = next(form for form in FORMS.values() if form.matches(tmp_path))
    assert first is FORMS[name]


@pytest.mark.parametrize(("name", "line"), [(name, line) for name in DAMAGE for line in DAMAGE[name](Path())])
def test_damage_is_one_line_that_says_what_is_wrong(tmp_path: Path, name: str, line: str) -> None:
    WRITERS[name](tmp_path)
    size = 8 if name == "listed" else None
    Images(str(tmp_path), size=size).load()
    DAMAGE[name](tmp_path)[line]()
    with pytest.raises(ValueError) as caught:
        Images(str(tmp_path), size=size).load()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


# Decoding.


def test_places_and_pixels_of_the_same_images_decode_to_the_same(tmp_path: Path) -> None:
    """So a loader may keep places and decode what a batch needs."""
    images = classes(tmp_path / "train")
    part = table(tmp_path).parts["train"]
    for look in (Look(), Look(1), Look(3, 6), Look(1, 4, 1.5), Look(3, 16, negative=True)):
        encoded = decode({"a": part}, look)["a"]
        with_pixels = Part(np.stack(images), part.columns, "memory")
        with_bytes = Part([Path(place).read_bytes() for place in part.images], part.columns, "bytes")  # type: ignore[arg-type]
        assert np.array_equal(encoded, decode({"a": with_pixels}, look)["a"])
        assert np.array_equal(encoded, decode({"a": with_bytes}, look)["a"])


def test_a_negative_of_a_negative_is_the_image() -> None:
    x = pixels(3, 5, 5, 1)
    once = decode({"a": Part(x, {}, "x")}, Look(negative=True))["a"]
    assert np.array_equal(once, 255 - x)
    assert np.array_equal(decode({"a": Part(once, {}, "x")}, Look(negative=True))["a"], x)


def test_the_middle_is_kept_when_images_are_resized() -> None:
    """A symmetric image stays so; with zoom 2 the middle half of a ramp is left, whatever its longer side."""
    ramp = np.tile(np.arange(64, dtype=np.uint8) * 4, (32, 1))
    x = decode({"a": Part([ramp[..., None]], {}, "x")}, Look(1, 16, 2.0))["a"]
    assert x.shape == (1, 16, 16, 1)
    assert np.array_equal(x[0, 0, :, 0], ramp[0, 24:40])


def test_images_that_would_not_fit_into_memory_are_refused() -> None:
    class Endless(list[Any]):
        def __len__(self) -> int:
            return 10**9

    part = Part(Endless([pixels(1, 8, 8, 3)[0]]), {}, "train")
    with pytest.raises(ValueError, match=r"train: shape = .*: decoded they take 150528.0 GB, and this machine has"):
        decode({"a": part}, Look(3, 224))
