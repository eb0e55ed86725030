"""What must be refused: small files that want gigabytes, pickles that call something, lists that lead elsewhere."""

from __future__ import annotations

import gzip
import json
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from .data_forms import MIB, Spoil, encoded, files, idx, pixels, write
from .data_pickles import PICKLES

# idx.


def zeros(size: int) -> bytes:
    """So many zero bytes (rounded up to 16 MiB) in gzip's form: one member again and again."""
    return gzip.compress(bytes(16 * MIB), mtime=0) * -(-size // (16 * MIB))


def idx_bomb(promised: tuple[int, ...], size: int) -> Spoil:
    """A packed file of images that promises a shape and holds `size` bytes."""

    def spoil(folder: Path) -> None:
        header = gzip.compress(struct.pack(">4I", 0x803, *promised), mtime=0)
        write(folder / "train-images-idx3-ubyte.gz", header + zeros(size))
        write(folder / "train-labels-idx1-ubyte.gz", gzip.compress(idx(pixels(promised[0] % 2**24))))

    return spoil


def idx_header(*shape: int) -> Spoil:
    """A plain file of images whose header promises a shape, with few bytes after it."""
    content = struct.pack(">4I", 0x803, *shape) + bytes(min(100, math.prod(shape)))
    return lambda folder: write(folder / "train-images-idx3-ubyte", content)


# Images.


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, *more: bytes, depth: int = 1, kind: int = 0, body: bytes = b"") -> bytes:
    """A PNG file of one bit a pixel (or another `depth`), all of it black unless `body` is given."""
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    body = body or zlib.compress(bytes((1 + -(-width * depth // 8)) * min(height, 20_000)))
    return b"\x89PNG\r\n\x1a\n" + b"".join([chunk(b"IHDR", header), *more, chunk(b"IDAT", body), chunk(b"IEND", b"")])


def pictures(content: Callable[[], bytes]) -> Spoil:
    """Put this image in the place of all images."""

    def spoil(folder: Path) -> None:
        raw = content()
        for file in files(folder):
            write(file, raw)

    return spoil


def as_kind(kind: str, edit: Callable[[bytearray], None]) -> Callable[[], bytes]:
    """An image file of a kind whose bytes are edited."""

    def content() -> bytes:
        raw = bytearray(encoded(pixels(1, 8, 8, 3)[0], kind))
        edit(raw)
        return bytes(raw)

    return content


def jpeg_size(raw: bytearray) -> None:
    place = raw.index(b"\xff\xc0") + 5
    raw[place : place + 4] = struct.pack(">HH", 65_500, 65_500)


def set_at(place: int, content: bytes) -> Callable[[bytearray], None]:
    def edit(raw: bytearray) -> None:
        raw[place : place + len(content)] = content

    return edit


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(%pipe%touch called) (w) file\n"


# Parquet.


def repeated(column: str) -> Spoil:
    """A Parquet file that holds a value of 1 MiB once, for 100,000 rows of this column."""

    def spoil(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        n = 100_000
        (folder / "test.parquet").unlink()
        images = {"image": (encoded(pixels(1, 8, 8, 3)[0]), pa.binary()), "label": ("x", pa.string())}
        images |= {column: (bytes(MIB) if column == "image" else "x" * MIB, images[column][1])}
        values = {
            name: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([value], kind))
            for name, (value, kind) in images.items()
        }
        pq.write_table(pa.table(values), folder / "train.parquet", compression="zstd", store_schema=False)

    return spoil


def columns(**values: object) -> Spoil:
    """A Parquet file with these columns; an image in each row if there is no column of images."""

    def spoil(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / "test.parquet").unlink()
        table = {"image": [encoded(pixels(1, 8, 8, 3)[0])] * 2, "label": [0, 1]} | values
        pq.write_table(pa.table(table), folder / "train.parquet", compression="zstd")

    return spoil


def metadata(text: str) -> Spoil:
    """A Parquet file with this text where `datasets` keeps the names of classes."""

    def spoil(folder: Path) -> None:
        import pyarrow.parquet as pq

        table = pq.read_table(folder / "train.parquet")
        pq.write_table(table.replace_schema_metadata({"huggingface": text}), folder / "train.parquet")

    return spoil


def long_value(folder: Path) -> None:
    """One value of 700 MB that packs to some kilobytes."""
    columns(image=[bytes(700_000_000), b""])(folder)


# JSON, lists and text.


def of(place: str, text: bytes, times: int = 1) -> Spoil:
    """Put this text, so many times, in the place of a file."""
    return lambda folder: write(folder / place, text * times)


def leaf(x: object, y: object, user: object = "ann", count: object = 3) -> Spoil:
    """LEAF's JSON of one user."""
    content = {"users": [user], "num_samples": [count], "user_data": {str(user): {"x": x, "y": y}}}
    return of("train/all_data.json", json.dumps(content).encode())


def listed(*rows: str) -> Spoil:
    """A list of images with these rows."""
    text = "\n".join(["user_id,image_id,class", *rows])
    return lambda folder: write(folder / "federated_train.csv", text.encode(errors="surrogateescape"))


# No files.


def instead(make: Callable[[Path], object]) -> Spoil:
    """Put something that is no file in the place of the last file, which is read in any case."""

    def spoil(folder: Path) -> None:
        file = next(
            file for file in files(folder) if "train" in str(file.relative_to(folder)) or len(files(folder)) == 1
        )
        file.unlink()
        make(file)

    return spoil


def sparse(file: Path) -> None:
    """A file of a terabyte that takes no room on the disk."""
    file.touch()
    os.truncate(file, 2**40)


def renamed(folder: Path) -> None:
    """A class whose name has line feeds and a terminal's escapes, with a damaged image."""
    write(folder / "train" / "a\nb\x1b[31m\x1b]0;title\x07" / "\u202eend\n.png", b"no image")


PLACES: dict[str, Callable[[Path], object]] = {
    "a named pipe": lambda file: os.mkfifo(file),
    "a link to a device without end": lambda file: file.symlink_to("/dev/zero"),
    "a link to itself": lambda file: file.symlink_to(file),
    "a link to nothing": lambda file: file.symlink_to("/nothing"),
    "a folder": lambda file: file.mkdir(),
    "a terabyte of nothing": sparse,
}
PLACED = ("idx", "idx_gz", "fedbn", "leaf", "listed", "png", "parquet", "play", "speeches")

BOMBS: dict[str, tuple[str, Spoil]] = {
    "idx: 1.6 GB as promised in 2 MB": ("idx_gz", idx_bomb((2000, 1000, 800), 1_600_000_000)),
    "idx: 1.6 GB where 48 bytes are promised": ("idx_gz", idx_bomb((3, 4, 4), 1_600_000_000)),
    "idx: beyond 64 bits": ("idx", idx_header(*[2**32 - 1] * 3)),
    "idx: 4 EB and nothing there": ("idx_gz", idx_bomb((2**31, 2**15, 2**15), 1)),
    "idx: images without pixels": ("idx", idx_header(12, 0, 0)),
    "idx: four thousand million images without pixels": ("idx", idx_header(2**32 - 1, 0, 1)),
    "png: 13,000 x 13,000": ("png", pictures(lambda: png(13_000, 13_000))),
    "png: 2,147,483,647 x 2,147,483,647": ("png", pictures(lambda: png(2**31 - 1, 2**31 - 1, body=b"x"))),
    "png: width 0": ("png", pictures(lambda: png(0, 8, body=zlib.compress(b"\0")))),
    "png: a text of 200 MB": (
        "png",
        pictures(lambda: png(8, 8, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(200 * MIB))))),
    ),
    "png: a profile of 200 MB": (
        "png",
        pictures(lambda: png(8, 8, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(200 * MIB))))),
    ),
    "png: pixels of 400 MB in 8 x 8": (
        "png",
        pictures(lambda: png(8, 8, depth=8, body=zlib.compress(bytes(400 * MIB)))),
    ),
    "jpeg: 65,500 x 65,500": ("jpeg", pictures(as_kind("JPEG", jpeg_size))),
    "gif: 65,535 x 65,535": ("gif", pictures(as_kind("GIF", set_at(6, b"\xff" * 4)))),
    "bmp: 2,147,483,647 x 2,147,483,647": ("bmp", pictures(as_kind("BMP", set_at(18, b"\xff\xff\xff\x7f" * 2)))),
    "tiff: any width": ("tiff", pictures(as_kind("TIFF", set_at(16, b"\xff" * 4)))),
    "ppm: 60,000 x 60,000": ("png", pictures(lambda: b"P6 60000 60000 255\n")),
    "postscript, which another program would read": ("png", pictures(lambda: POSTSCRIPT)),
    "parquet: a hundred thousand times one image of 1 MiB": ("parquet", repeated("image")),
    "parquet: a hundred thousand times one label of 1 MiB": ("parquet", repeated("label")),
    "parquet: an image of 700 MB": ("parquet", long_value),
    "parquet: labels that are lists": ("parquet", columns(label=[[[1]], [[2]]])),
    "parquet: labels that are fractions": ("parquet", columns(label=[0.5, float("nan")])),
    "parquet: labels below zero": ("parquet", columns(label=[-(2**63), 2**63 - 1])),
    "parquet: images that are numbers": ("parquet", columns(image=[1, 2])),
    "parquet: images that are missing": ("parquet", columns(image=[None, b"x"])),
    "parquet: no rows": ("parquet", columns(image=[], label=[])),
    "parquet: names that are nested": ("parquet", metadata("[" * 100_000)),
    "parquet: names that are no list": (
        "parquet",
        metadata(json.dumps({"info": {"features": {"label": {"names": 3}}}})),
    ),
    "parquet: metadata of another kind": ("parquet", metadata('["info"]')),
    **PICKLES,
    "leaf: a hundred thousand lists deep": ("leaf", of("train/all_data.json", b"[" * 100_000)),
    "leaf: a number of 5,000 digits": ("leaf", leaf([[0.5]] * 3, [int("9" * 4000)] * 3)),
    "leaf: labels beyond 64 bits": ("leaf", leaf([[0.5]] * 3, [2**63] * 3)),
    "leaf: a pixel beyond all numbers": ("leaf", leaf([[1e308 * 10]] * 3, [0] * 3)),
    "leaf: a pixel that is no number": ("leaf", leaf([[float("nan")]] * 3, [0] * 3)),
    "leaf: pixels that are dictionaries": ("leaf", leaf([{}] * 3, [0] * 3)),
    "leaf: labels that are lists": ("leaf", leaf([[0.5]] * 3, [[0]] * 3)),
    "leaf: a user who is a list": ("leaf", leaf([[0.5]] * 3, [0] * 3, user=[1])),
    "leaf: a user with a name of a million signs": ("leaf", leaf([[0.5]] * 3, [0.5] * 3, user="<b>\n\x1b" * 10**5)),
    "leaf: no user": ("leaf", of("train/all_data.json", b'{"users": [], "num_samples": [], "user_data": {}}')),
    "leaf: users that are a number": (
        "leaf",
        of("train/all_data.json", b'{"users": 1, "num_samples": 1, "user_data": 1}'),
    ),
    "listed: an image in another folder": ("listed", listed("0,../../secret,1")),
    "listed: an image at another place": ("listed", listed("0,/etc/passwd,1")),
    "listed: a class of a thousand digits": ("listed", listed("0,federated_train0," + "9" * 1000)),
    "listed: a field of 200,000 signs": ("listed", listed("0,federated_train0," + "9" * 200_000)),
    "listed: a first line of 50 MB": ("listed", of("federated_train.csv", b"x," * 25, MIB)),
    "listed: signs that are no text": ("listed", listed("0,\x1b\x00\udcff\r\n,1")),
    "annotated: no text": (
        "annotated",
        lambda folder: write(folder / "test/val_annotations.txt", b"\xff\xfe\x00 a\n" * 4),
    ),
    "play: a line of 50 MB": ("play", of("play.txt", b"x" * 50, MIB)),
    "play: a million empty lines": ("play", of("play.txt", b"A:\n" + b"\n\nb" * 10**6)),
    "play: no text": ("play", of("play.txt", b"\xff\xfe\x00", 100)),
    "play: zeros": ("play", of("play.txt", b"A:\n" + b"\0" * 10**6)),
    "speeches: a hundred thousand lists deep": ("speeches", of("all_data/all_data.json", b"[" * 100_000)),
    "speeches: a number of 5,000 digits": ("speeches", of("all_data/all_data.json", b"9" * 5000)),
    "a class with signs that a terminal obeys": ("png", renamed),
    **{f"{form}: {what}": (form, instead(make)) for form in PLACED for what, make in PLACES.items()},
}
"""What spoils which form, by name."""
