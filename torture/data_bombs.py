"""What must be refused: small files that want gigabytes, pickles that call something, lists that lead elsewhere."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from .data_forms import encoded, files, idx, pixels, write

Spoil = Callable[[Path], object]

CANARY = "called"
"""The file that exists if code in the data was run. Data are read with their folder's parent as the working folder."""

SHELL = f"touch {CANARY}".encode()
MIB = 2**20


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
    content = struct.pack(">4I", 0x803, *shape) + bytes(100)
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
        return raw

    return content


def jpeg_size(raw: bytearray) -> None:
    place = raw.index(b"\xff\xc0") + 5
    raw[place : place + 4] = struct.pack(">HH", 65_500, 65_500)


def set_at(place: int, content: bytes) -> Callable[[bytearray], None]:
    def edit(raw: bytearray) -> None:
        raw[place : place + len(content)] = content

    return edit


POSTSCRIPT = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(%pipe%touch called) (w) file closefile\n"
)


# Parquet.


def repeated(column: str) -> Spoil:
    """A Parquet file that holds a value of 1 MiB once, for 100,000 rows of this column."""

    def spoil(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        n = 100_000
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


# Pickles.


def pickled(content: bytes) -> Spoil:
    """Put this pickle in the place of a batch."""
    return lambda folder: write(folder / "data_batch_2", content)


def calls() -> dict[str, bytes]:
    """Pickles that call something, by every way in which a pickle can."""
    shell = b"\x8c" + bytes([len(SHELL)]) + SHELL
    text = b"S'" + SHELL + b"'\n"
    code = f"open('{CANARY}', 'w')".encode()
    return {
        "GLOBAL and REDUCE": b"cos\nsystem\n(" + text + b"tR.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93" + shell + b"\x85R.",
        "posix.system": b"cposix\nsystem\n(" + text + b"tR.",
        "INST": b"(" + text + b"ios\nsystem\n.",
        "OBJ": b"(cos\nsystem\n" + text + b"o.",
        "NEWOBJ": b"\x80\x02csubprocess\nPopen\n(](S'touch'\nS'" + CANARY.encode() + b"'\net\x81.",
        "NEWOBJ_EX": b"\x80\x04csubprocess\nPopen\n](S'touch'\nS'" + CANARY.encode() + b"'\ne\x85}\x92.",
        "BUILD": b"cfedsash.data.formats.pickles\n_latin1\nN}S'__code__'\nNs\x86b.",
        "BUILD of an allowed name": b"c_codecs\nencode\nN}S'__defaults__'\n)s\x86b.",
        "EXT1": b"\x80\x02\x82\x01.",
        "EXT4": b"\x80\x02\x84\xff\xff\xff\x7f.",
        "PERSID": b"P" + SHELL + b"\n.",
        "BINPERSID": text + b"Q.",
        "eval": b'cbuiltins\neval\n(S"' + code + b'"\ntR.',
        "exec by the old name": b"c__builtin__\nexecfile\n(S'setup.py'\ntR.",
        "getattr of an allowed name": b"cbuiltins\ngetattr\n(cnumpy\ndtype\nS'__class__'\ntR.",
        "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x12dtype.__init__.x.y\x93.",
        "numpy.load": b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        "numpy.fromfile": b"cnumpy\nfromfile\n(S'/dev/zero'\ntR.",
        "torch's own loader": b"ctorch.storage\n_load_from_bytes\n(" + text + b"tR.",
        "torch.load": b"ctorch\nload\n(S'data/batches.meta'\ntR.",
        "a module to import": b"cantigravity\nfly\n.",
        "the reader itself": b"cfedsash.data.formats.pickles\nload\n(" + text + b"tR.",
        "a call of what is no function": b"](K\x01tR.",
        "NEXT_BUFFER": b"\x80\x05\x97.",
    }


def nested(times: int) -> bytes:
    """A list of ten lists of ten lists and so on, `times` deep, in some bytes a level."""
    return b"]q\x00" + b"".join(
        b"](" + b"h" + bytes([k]) + (b"h" + bytes([k])) * 9 + b"eq" + bytes([k + 1]) for k in range(times)
    )


def batch(labels: bytes) -> bytes:
    """A batch of CIFAR with the opcodes `labels` as its labels."""
    data = pickle.dumps(pixels(2, 3072), 2)[2:-1]
    return b"\x80\x02}(U\x04data" + data + b"U\x06labels" + labels + b"u."


def named(names: bytes) -> Spoil:
    """Put these opcodes in the place of the labels' names."""
    return lambda folder: write(folder / "batches.meta", b"\x80\x02}(U\x0blabel_names" + names + b"u.")


def words(count: int) -> bytes:
    """A text of 1 MB that is turned into bytes `count` times."""
    text = b"\x80\x02](c_codecs\nencode\nq\x00X" + struct.pack("<I", MIB) + b"x" * MIB + b"q\x01U\x06latin1q\x02\x86R"
    return text + b"h\x00h\x01h\x02\x86R" * count + b"e."


def array(shape: bytes, raw: bytes = b"U\x00") -> bytes:
    """An array with the opcodes of its shape and bytes."""
    kind = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"
    return (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00U\x01btR(K\x01"
        + shape
        + kind
        + b"\x89"
        + raw
        + b"tb"
    )


# JSON, lists and text.


def json_in(place: str, text: bytes) -> Spoil:
    """Put this text in the place of a JSON file."""
    return lambda folder: write(folder / place, text)


def leaf(x: object, y: object, user: object = "ann", count: object = 3) -> Spoil:
    """LEAF's JSON of one user."""
    content = {"users": [user], "num_samples": [count], "user_data": {str(user): {"x": x, "y": y}}}
    return json_in("train/all_data.json", json.dumps(content).encode())


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


PLACES = {
    "a named pipe": os.mkfifo,
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
    "png: pixels of 400 MB in 8 x 8": ("png", pictures(lambda: png(8, 8, body=zlib.compress(bytes(400 * MIB))))),
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
    **{f"pickle: {name}": ("cifar_2", pickled(content)) for name, content in calls().items()},
    "pickle: a memo of four thousand million": ("cifar_2", pickled(b"\x80\x02]r\xff\xff\xff\xff.")),
    "pickle: a text of an exabyte": ("cifar_2", pickled(b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b".")),
    "pickle: a frame of an exabyte": ("cifar_2", pickled(b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"N.")),
    "pickle: a number of a million digits": (
        "cifar_2",
        pickled(b"\x80\x02}\x8b\x00\x00\x08\x00" + b"\x7f" * 2**19 + b"Ns."),
    ),
    "pickle: labels ten to the power of thirty": ("cifar_2", pickled(batch(nested(30)))),
    "pickle: names ten to the power of thirty": ("cifar_2", named(nested(30))),
    "pickle: a key a million tuples deep": ("cifar_2", pickled(b"\x80\x02})" + b"\x85" * 10**6 + b"Ns.")),
    "pickle: a value a million lists deep": ("cifar_2", pickled(batch(b"]" * 10**6 + b"a" * (10**6 - 1)))),
    "pickle: a text of 1 MB five thousand times": ("cifar_2", pickled(words(5000))),
    "pickle: an array of a million million million": (
        "cifar_2",
        pickled(array(b"\x8a\x08" + b"\xff" * 7 + b"\x0fK\x00\x86") + b"."),
    ),
    "pickle: an array whose bytes are missing": ("cifar_2", pickled(array(b"(K\xffK\xffK\xfft") + b".")),
    "leaf: a hundred thousand lists deep": ("leaf", json_in("train/all_data.json", b"[" * 100_000)),
    "leaf: a number of 5,000 digits": ("leaf", leaf([[0.5]] * 3, [int("9" * 4000)] * 3)),
    "leaf: labels beyond 64 bits": ("leaf", leaf([[0.5]] * 3, [2**63] * 3)),
    "leaf: a pixel beyond all numbers": ("leaf", leaf([[1e308 * 10]] * 3, [0] * 3)),
    "leaf: a pixel that is no number": ("leaf", leaf([[float("nan")]] * 3, [0] * 3)),
    "leaf: pixels that are dictionaries": ("leaf", leaf([{}] * 3, [0] * 3)),
    "leaf: labels that are lists": ("leaf", leaf([[0.5]] * 3, [[0]] * 3)),
    "leaf: a user who is a list": ("leaf", leaf([[0.5]] * 3, [0] * 3, user=[1])),
    "leaf: a user with a name of a million signs": ("leaf", leaf([[0.5]] * 3, [0.5] * 3, user="<b>\n\x1b" * 10**5)),
    "leaf: no user": ("leaf", json_in("train/all_data.json", b'{"users": [], "num_samples": [], "user_data": {}}')),
    "leaf: users that are a number": (
        "leaf",
        json_in("train/all_data.json", b'{"users": 1, "num_samples": 1, "user_data": 1}'),
    ),
    "listed: an image in another folder": ("listed", listed("0,../../secret,1")),
    "listed: an image at another place": ("listed", listed("0,/etc/passwd,1")),
    "listed: a class of a thousand digits": ("listed", listed("0,federated_train0," + "9" * 1000)),
    "listed: a field of 200,000 signs": ("listed", listed("0,federated_train0," + "9" * 200_000)),
    "listed: a first line of 50 MB": ("listed", lambda folder: write(folder / "federated_train.csv", b"x," * 25 * MIB)),
    "listed: signs that are no text": ("listed", listed("0,\x1b\x00\udcff\r\n,1")),
    "annotated: no text": (
        "annotated",
        lambda folder: write(folder / "test/val_annotations.txt", b"\xff\xfe\x00 a\n" * 4),
    ),
    "play: a line of 50 MB": ("play", lambda folder: write(folder / "play.txt", b"x" * 50 * MIB)),
    "play: a million empty lines": ("play", lambda folder: write(folder / "play.txt", b"A:\n" + b"\n\nb" * 10**6)),
    "play: no text": ("play", lambda folder: write(folder / "play.txt", b"\xff\xfe\x00" * 100)),
    "play: zeros": ("play", lambda folder: write(folder / "play.txt", b"A:\n" + b"\0" * 10**6)),
    "speeches: a hundred thousand lists deep": ("speeches", json_in("all_data/all_data.json", b"[" * 100_000)),
    "speeches: a number of 5,000 digits": ("speeches", json_in("all_data/all_data.json", b"9" * 5000)),
    "a class with signs that a terminal obeys": ("png", renamed),
    **{f"{form}: {what}": (form, instead(make)) for form in PLACED for what, make in PLACES.items()},
}
"""What spoils which form, by name."""
