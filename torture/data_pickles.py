"""Crafted pickles: they ask for a call by every way that a pickle has, or want more memory than there is."""

from __future__ import annotations

import pickle
import struct

from .data_forms import CANARY, MIB, Spoil, pixels, write

SHELL = f"touch {CANARY}".encode()


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
    """A list of ten times the same list of ten times the same list and so on, in 25 bytes a level."""
    inner = nested(times - 1) + b"h" + bytes([times - 1]) if times > 1 else b"K\x01K\x01"
    return b"](" + inner + inner[-2:] * 8 + b"eq" + bytes([times])


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


PICKLES: dict[str, tuple[str, Spoil]] = {
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
}
"""What spoils a batch of CIFAR-10, by name."""
