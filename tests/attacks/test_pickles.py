"""PyTorch files that lie or bite: nothing in them is ever run, and nothing they claim is allocated."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.errors import HeaderLies, ModelkinError, UnreadableError, UnsafePickle, UnsupportedFormat
from modelkin.formats import read_layout
from modelkin.formats.pickle_machine import run_pickle
from modelkin.formats.reading import read_rows
from modelkin.sources.memory import MemorySource

MANY = settings(max_examples=1000, deadline=None, database=None)
DATA = np.arange(12, dtype="<f4").tobytes()


def text(value):
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def whole(value):
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(*values):
    return b"(" + b"".join(map(whole, values)) + b"t"


STORAGE = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + whole(12) + b"tQ"


def tensor(storage=STORAGE, offset=b"", shape=b"", strides=b"", rest=b""):
    """The pickle of one tensor; parts may be replaced by other pickled values."""
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    parts = storage + (offset or whole(0)) + (shape or numbers(3, 4)) + (strides or numbers(4, 1)) + hooks + rest
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + parts + b"tR"


def named(*items):
    """A pickled dictionary of (name, pickled value)."""
    return b"\x80\x02}(" + b"".join(text(name) + value for name, value in items) + b"u."


def archive(pickled, entries=None):
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as file:
        file.writestr("archive/data.pkl", pickled)
        for name, data in ({"data/0": DATA} if entries is None else entries).items():
            file.writestr(f"archive/{name}", data)
    return body.getvalue()


def opened(body):
    source = MemorySource({"pytorch_model.bin": body})
    return source, read_layout(source, {})


def test_the_file_that_is_attacked_is_right():
    source, layout = opened(archive(named(("x", tensor()))))
    (read,) = read_rows(source, layout, [(layout.tensors["x"], None)])
    np.testing.assert_array_equal(read, np.arange(12, dtype=np.float32).reshape(3, 4))


# Calls that bite


class Bite:
    """Pickled by its reduce: `os.system`, which would leave a mark."""

    def __reduce__(self):
        return os.system, ("echo bitten > bitten",)


class NewObject:
    def __reduce__(self):
        return object.__new__, (NewObject,)


BITES = {
    "os.system by reduce, protocol 0": (pickle.dumps({"x": Bite()}, 0), None),
    "os.system by reduce, protocol 2": (pickle.dumps({"x": Bite()}, 2), "system"),
    "os.system by reduce, protocol 4": (pickle.dumps({"x": Bite()}, 4), "system"),
    "GLOBAL": (b"\x80\x02cos\nsystem\n" + text("echo") + b"\x85R.", r"os\.system"),
    "GLOBAL without a call": (named(("x", b"cos\nsystem\n")), r"os\.system"),
    "GLOBAL of eval": (named(("x", b"cbuiltins\neval\n")), r"builtins\.eval"),
    "GLOBAL of torch.load": (named(("x", b"ctorch\nload\n")), r"torch\.load"),
    "GLOBAL beside an allowed one": (named(("x", b"ccollections\ndefaultdict\n")), r"collections\.defaultdict"),
    "GLOBAL with a space": (named(("x", b"ctorch FloatStorage\n\n")), "torch"),
    "GLOBAL of an untyped storage": (named(("x", b"ctorch.storage\nUntypedStorage\n")), "UntypedStorage"),
    "GLOBAL of a numpy array": (named(("x", b"cnumpy.core.multiarray\n_reconstruct\n")), "_reconstruct"),
    "STACK_GLOBAL": (named(("x", text("os") + text("system") + b"\x93")), r"os\.system"),
    "STACK_GLOBAL of numbers": (named(("x", whole(1) + whole(2) + b"\x93")), "not text"),
    "STACK_GLOBAL of a dotted path": (named(("x", text("torch") + text("os.system") + b"\x93")), r"torch\.os\.system"),
    "INST": (b"(" + text("echo") + b"ios\nsystem\n.", "INST"),
    "OBJ": (b"(cos\nsystem\n" + text("echo") + b"o.", "system"),
    "OBJ of an allowed name": (b"(ccollections\nOrderedDict\no.", "OBJ"),
    "NEWOBJ": (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ"),
    "NEWOBJ_EX": (b"\x80\x04ccollections\nOrderedDict\n)}\x92.", "NEWOBJ_EX"),
    "object.__new__": (pickle.dumps({"x": NewObject()}, 2), r"copyreg|_reconstruct|__new__|getattr"),
    "EXT1": (b"\x80\x02\x82\x01.", "EXT1"),
    "EXT2": (b"\x80\x02\x83\x01\x00.", "EXT2"),
    "EXT4": (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4"),
    "BUILD of a tensor": (named(("x", tensor() + b"}b")), "no dict"),
    "BUILD of a class": (named(("x", b"ccollections\nOrderedDict\n}b")), "no dict"),
    "BUILD with a state that is no dictionary": (named(("x", b"}" + tensor() + b"b")), "no dictionary"),
    "PERSID in text": (named(("x", b"Pstorage\n")), "PERSID"),
    "calling a storage": (named(("x", STORAGE + b")R")), "not a function"),
    "calling text": (named(("x", text("os.system") + b")R")), "not a function"),
    "OrderedDict with arguments": (named(("x", b"ccollections\nOrderedDict\n]\x85R")), "1 unexpected arguments"),
    "rebuilding from no storage": (named(("x", tensor(storage=b"N"))), "6 unexpected arguments"),
    "a call without a tuple": (named(("x", b"ccollections\nOrderedDict\n]R")), "without a tuple"),
    "a tensor with marks": (named(("x", tensor(rest=b"}" + text("conj") + b"\x88s"))), "further marks"),
    "a key that is a list": (b"\x80\x02}]" + whole(1) + b"s.", "dictionary key"),
    "a key that is a tuple": (b"\x80\x02})" + whole(1) + b"s.", "dictionary key"),
    "bytes": (named(("x", b"C\x01a")), "SHORT_BINBYTES"),
    "a set": (named(("x", b"\x8f")), "EMPTY_SET"),
    "a buffer from outside": (named(("x", b"\x97")), "NEXT_BUFFER"),
    "a persistent id that is text": (named(("x", text("storage") + b"Q")), "persistent object"),
    "a persistent id that is a number": (named(("x", whole(7) + b"Q")), "persistent object"),
    "a persistent id of four": (named(("x", numbers(1, 2, 3, 4) + b"Q")), "persistent object"),
    "a persistent id of a module": (
        named(("x", STORAGE.replace(text("storage"), text("module")))),
        "persistent object",
    ),
    "a persistent id without a type": (
        named(("x", STORAGE.replace(b"ctorch\nFloatStorage\n", text("torch.FloatStorage")))),
        "persistent object",
    ),
    "a persistent id of a negative size": (named(("x", STORAGE.replace(whole(12), whole(-12)))), "persistent object"),
}


@pytest.mark.parametrize("bite", BITES)
def test_what_is_not_a_plain_tensor_is_refused_by_name_and_never_run(bite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickled, found = BITES[bite]
    with pytest.raises(UnsafePickle, match=found) as caught:
        opened(archive(pickled))
    assert "torch.load" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_no_module_is_imported_for_a_name(monkeypatch):
    asked = []
    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: (asked.append(name), real(name, *rest))[1])
    with pytest.raises(UnsafePickle, match=r"antigravity\.fly"):
        run_pickle(b"\x80\x02cantigravity\nfly\n.", "x")
    assert "antigravity" not in asked


# Lies about size and place

BIG = 1 << 40
LIES = {
    "a memo index of 2^32 - 1": named(("x", b"Nr\xff\xff\xff\xff")),
    "a memo index never written": named(("x", b"j\xff\xff\xff\xff")),
    "a text memo index": named(("x", b"Np99999999999\n")),
    "a LONG of four hundred digits": named(("x", b"L" + b"9" * 400 + b"L\n")),
    "a LONG1 of 255 bytes": named(("x", b"\x8a\xff" + b"\x7f" * 255)),
    "a LONG4 of a megabyte": named(("x", b"\x8b" + struct.pack("<i", 1 << 20) + b"\x7f" * (1 << 20))),
    "a LONG4 that is not there": named(("x", b"\x8b\xff\xff\xff\x7f")),
    "a LONG4 of negative length": named(("x", b"\x8b\xff\xff\xff\xff")),
    "text that is not there": named(("x", b"X\xff\xff\xff\x7f")),
    "text of 2^63 bytes": named(("x", b"\x8d" + struct.pack("<Q", 1 << 63))),
    "text that is no UTF-8": named(("x", b"X\x01\x00\x00\x00\xff")),
    "an unknown opcode": b"\x80\x02\xff.",
    "no end": b"\x80\x02}",
    "nothing": b"",
    "an end at once": b".",
    "two values at the end": b"\x80\x02}}.",
    "an open mark at the end": b"\x80\x02(}.",
    "a value taken from nothing": b"\x80\x02\x85.",
    "a mark closed that is not open": b"\x80\x02t.",
    "a key without a value": b"\x80\x02}(" + text("x") + b"u.",
    "marks ten thousand deep": b"\x80\x02" + b"(" * 10_000 + b".",
    "a stack of a quarter million": b"\x80\x02" + b"N" * ((1 << 18) + 1) + b".",
    "a global with a broken escape": b"\x80\x02c\\os\nsystem\n.",
    "lists ten thousand deep": b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",
    "tuples a hundred thousand deep": b"\x80\x02}" + text("x") + b")" + b"\x85" * 10**5 + b"s.",
    "a dictionary inside itself": b"\x80\x02}q\x00" + text("x") + b"h\x00s.",
    "a shape of text": named(("x", tensor(shape=text("34")))),
    "a shape of true": named(("x", tensor(shape=b"\x88\x88\x86"))),
    "a negative shape": named(("x", tensor(shape=numbers(-3, -4)))),
    "a shape beyond 2^48": named(("x", tensor(shape=numbers(0, 1 << 50)))),
    "a shape of 40 axes": named(("x", tensor(shape=numbers(*[1] * 40), strides=numbers(*[1] * 40)))),
    "a shape larger than the storage": named(("x", tensor(shape=numbers(4, 4)))),
    "strides of zero from behind the storage": named(
        ("x", tensor(offset=whole(12), shape=numbers(2, 2), strides=numbers(0, 0)))
    ),
    "strides of zero beside one too long": named(("x", tensor(shape=numbers(9, 13), strides=numbers(0, 1)))),
    "an offset behind the storage": named(("x", tensor(offset=whole(1)))),
    "a negative offset": named(("x", tensor(offset=whole(-1)))),
    "an offset that is text": named(("x", tensor(offset=text("0")))),
    "too few strides": named(("x", tensor(strides=numbers(1)))),
    "negative strides": named(("x", tensor(strides=numbers(-4, 1)))),
    "strides beyond the storage": named(("x", tensor(strides=numbers(BIG, 1)))),
    "strides that are none": named(("x", tensor(strides=b"N"))),
    "a storage of another size": named(("x", tensor(storage=STORAGE.replace(whole(12), whole(BIG))))),
    "a storage that is not there": named(("x", tensor(storage=STORAGE.replace(text("0"), text("../../0"))))),
    "a name of half a surrogate": named(("\ud800", tensor())),
    "two tensors of one dotted name": named(("a.b", tensor()), ("a", b"}" + text("b") + tensor() + b"s")),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_costs_no_memory(lie):
    body = archive(LIES[lie])
    source = MemorySource({"pytorch_model.bin": body})
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError) as caught:
            read_layout(source, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(caught.value, HeaderLies | UnsafePickle)
    assert len(str(caught.value)) < 1000
    assert peak < 100 * len(body) + (1 << 20)


def test_a_shape_repeated_by_strides_of_zero_is_passed_over_and_costs_no_memory():
    endless = tensor(shape=numbers(BIG, 4), strides=numbers(0, 0))
    source = MemorySource({"pytorch_model.bin": archive(named(("endless", endless), ("x", tensor())))})
    tracemalloc.start()
    try:
        layout = read_layout(source, {})
        (array,) = read_rows(source, layout, [(layout.tensors["x"], None)])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert list(layout.tensors) == ["x"]
    assert array.tobytes() == DATA


FORMS = {
    "a parameter": b"ctorch._utils\n_rebuild_parameter\n(" + tensor() + b"\x88NtR",
    "a bare class": b"ctorch.nn.parameter\nParameter\n",
    "a tensor of the third form": b"ctorch._utils\n_rebuild_tensor_v3\n(("
    + text("storage") + b"ctorch.storage\nUntypedStorage\n" + text("0") + text("cpu") + whole(48) + b"tQ"
    + whole(0) + numbers(3) + numbers(1) + b"\x89Nctorch\nuint16\ntR",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_harmless_form_of_tensor_hides_nothing_that_comes_with_it(form):
    with pytest.raises(UnsupportedFormat, match="a form of tensor that is not read"):
        opened(archive(named(("x", FORMS[form]), ("y", tensor()))))
    for bite in (b"cos\nsystem\n", b"ctorch\nload\n", FORMS[form] + b"}b", FORMS[form] + b")R)R\x81"):
        for items in ((("x", FORMS[form]), ("y", bite)), (("y", bite), ("x", FORMS[form]))):
            with pytest.raises(UnsafePickle) as caught:
                opened(archive(named(*items)))
            assert "torch.load" in caught.value.hint


def test_parts_of_a_harmless_form_are_refused_where_that_form_is_not():
    for part in (b"ctorch.storage\nUntypedStorage\n", b"ctorch\nuint16\n"):
        with pytest.raises(UnsafePickle):
            opened(archive(named(("x", part), ("y", FORMS["a parameter"]))))


def test_values_that_repeat_each_other_are_not_unfolded():
    lists = [text("0") + b"](" + b"N" * 10 + b"eq\x00"]
    lists += [text(str(n)) + b"](" + b"h%c" % (n - 1) * 10 + b"eq%c" % n for n in range(1, 30)]
    with pytest.raises(HeaderLies, match="without end"):
        opened(archive(b"\x80\x02}(" + b"".join(lists) + b"u."))


def test_a_long_name_above_many_values_is_not_multiplied_out():
    values = text("v") + b"](" + b"N" * 50_000 + b"eq\x00"
    named_so = b"".join(text(letter * 100_000) + b"h\x00" for letter in "ab")
    body = archive(b"\x80\x02}(" + values + named_so + b"u.")
    tracemalloc.start()
    try:
        with pytest.raises(HeaderLies, match="without end"):
            opened(body)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_long_names_of_repeated_tensors_are_bounded():
    levels = [text("0") + b"}(" + b"".join(text(str(n)) + tensor() for n in range(20)) + b"uq\x00"]
    for level in range(1, 12):
        inside = b"".join(text(letter * 20_000) + b"h%c" % (level - 1) for letter in "ab")
        levels.append(text(str(level)) + b"}(" + inside + b"uq%c" % level)
    with pytest.raises(HeaderLies, match="without end"):
        opened(archive(b"\x80\x02}(" + b"".join(levels) + b"u."))


# Lies of the zip file itself

PICKLED = named(("x", tensor()), ("y", tensor(offset=whole(2), shape=numbers(2, 3), strides=numbers(1, 2))))
GOOD = archive(PICKLED)


def expected(body):
    """The storage of x by the zip reader of Python, or None where it does not like the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as file:
            info = file.getinfo("archive/data/0")
    # NotImplementedError is what zipfile raises for a compression or a version that it does not know.
    except (zipfile.BadZipFile, NotImplementedError, KeyError, ValueError):
        return None
    name, extra = struct.unpack("<2H", body[info.header_offset + 26 : info.header_offset + 30])
    start = info.header_offset + 30 + name + extra
    return np.frombuffer(body[start : start + 48], "<f4")


def refused_or_right(body):
    source = MemorySource({"pytorch_model.bin": body})
    try:
        layout = read_layout(source, {})
        refs = list(layout.tensors.values())
        arrays = read_rows(source, layout, [(ref, None) for ref in refs])
    except ModelkinError:
        return
    for ref, array in zip(refs, arrays, strict=True):
        assert array.shape == ref.shape
        assert 0 <= ref.start <= ref.stop <= len(body)
        as_stored = expected(body)
        if as_stored is not None and (ref.name, ref.dtype, ref.shape, ref.strides) == ("x", "F32", (3, 4), None):
            np.testing.assert_array_equal(array.ravel(), as_stored)


def test_the_archive_that_is_mutated_is_right():
    refused_or_right(GOOD)
    assert list(opened(GOOD)[1].tensors) == ["x", "y"]


def patched(pattern, position, value, which=0):
    """The archive with bytes replaced at a place after the n-th occurrence of a zip signature."""
    at = -1
    for _ in range(which + 1):
        at = GOOD.index(pattern, at + 1)
    return GOOD[: at + position] + value + GOOD[at + position + len(value) :]


CENTRAL, LOCAL, END = b"PK\1\2", b"PK\3\4", b"PK\5\6"
TWICE = archive(PICKLED, {"data/0": DATA, "data/1": DATA})
ZIP_LIES = {
    "an entry that is compressed": patched(CENTRAL, 10, b"\x08"),
    "an entry that is encrypted": patched(CENTRAL, 8, b"\x01"),
    "a local header that says compressed": patched(LOCAL, 8, b"\x08", 1),
    "a local header of another name": patched(LOCAL, 30, b"b", 1),
    "a local header of another name length": patched(LOCAL, 26, b"\x01", 1),
    "a local header whose padding runs over the end": patched(LOCAL, 28, b"\xff\xff", 1),
    "a local header somewhere else": patched(CENTRAL, 42, b"\x01", 1),
    "an entry behind the end": patched(CENTRAL, 42, b"\xff\xff\xff\x7f", 1),
    "an entry larger than the file": patched(CENTRAL, 20, b"\xff\xff\xff\x7f\xff\xff\xff\x7f", 1),
    "sizes that differ": patched(CENTRAL, 20, b"\x01", 1),
    "64-bit sizes that are missing": patched(CENTRAL, 20, b"\xff\xff\xff\xff\xff\xff\xff\xff", 1),
    "a name longer than the directory": patched(CENTRAL, 28, b"\xff\xff", 1),
    "a name that is no UTF-8": patched(CENTRAL, 46, b"\xff", 1),
    "an entry twice": TWICE.replace(b"archive/data/1", b"archive/data/0"),
    "more entries than there are": patched(END, 8, b"\x03\x00\x03\x00"),
    "fewer entries than there are": patched(END, 8, b"\x01\x00\x01\x00"),
    "65535 entries": patched(END, 8, b"\xff\xff\xff\xff"),
    "a directory of 4 GB": patched(END, 12, b"\xff\xff\xff\xff"),
    "a directory behind the end": patched(END, 16, b"\xff\xff\xff\xff"),
    "a second volume": patched(END, 4, b"\x01"),
    "a comment that is not there": patched(END, 20, b"\x05"),
    "a byte too many at the end": GOOD + b"\0",
    "a byte too few at the end": GOOD[:-1],
    "a zip64 locator to nowhere": GOOD[:-22] + struct.pack("<4sIQI", b"PK\6\7", 0, 1 << 62, 1) + GOOD[-22:],
    "a zip64 locator to something else": GOOD[:-22] + struct.pack("<4sIQI", b"PK\6\7", 0, 0, 1) + GOOD[-22:],
}


@pytest.mark.parametrize("lie", ZIP_LIES)
def test_a_zip_file_that_lies_is_refused(lie):
    assert ZIP_LIES[lie] != GOOD
    with pytest.raises(UnreadableError):
        opened(ZIP_LIES[lie])


@MANY
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=3))
def test_flipped_bytes_are_refused_or_read_right(changes):
    body = bytearray(GOOD)
    for position, value in changes:
        body[position] = value
    refused_or_right(bytes(body))


@MANY
@given(st.integers(0, len(GOOD)), st.integers(0, 40), st.binary(max_size=20))
def test_spliced_files_are_refused_or_read_right(start, cut, inserted):
    refused_or_right(GOOD[:start] + inserted + GOOD[start + cut :])


@MANY
@given(st.integers(0, len(PICKLED)), st.integers(0, 12), st.binary(max_size=12))
def test_spliced_pickles_are_refused_or_read_right(start, cut, inserted):
    refused_or_right(archive(PICKLED[:start] + inserted + PICKLED[start + cut :]))


OPCODES = st.sampled_from([
    b"(", b")", b"]", b"}", b"N", b"\x88", b"K\x01", b"t", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u", b"q\x00",
    b"h\x00", b"q\x01", b"h\x01", b"\x94", b"Q", b"R", b"b", b"0", b"2", b"1", text("x"), text("storage"), whole(3),
    b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n", STORAGE,
    tensor(), numbers(3, 4), b"\x93", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
])  # fmt: skip


@MANY
@given(st.lists(OPCODES, max_size=40))
def test_random_programs_end_in_a_value_or_a_refusal(program):
    refused_or_right(archive(b"\x80\x02" + b"".join(program) + b"."))
