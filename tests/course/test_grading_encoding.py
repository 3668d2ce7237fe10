"""What leaves the sandbox is plain data, whatever a learner's object does or a forger writes."""

import json
import math
import os
import random
import shutil
from array import array
from collections import deque
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from distlab.exercises.folder import Folder, pack_folder, unpack_folder
from distlab.grading.cell_verdict import read_got
from distlab.grading.encoding import MAX_BYTES, Opaque, decode, encode
from distlab.grading.frames import BadFrame, FrameReader, OutputReader, make_mark

FORGED = [
    None,
    7,
    "x",
    {},
    [],
    ["int"],
    ["int", 7],
    ["array", "<f8", [float("inf")], ""],
    ["array", "<f8", [0, 10**40], ""],
    ["list", "abc"],
    ["dict", [[1]]],
    ["dict", [[["list", []], None]]],
    ["unknown", 1],
    ["list", [["list"]]],
    ["array", "<f8", [2], "AAAA"],
    ["array", "<f8", [-1, -1], "AAAAAAAAAAA="],
    ["array", "O", [1], "AAAAAAAAAAA="],
    ["array", "S8", [1], "AAAAAAAAAAA="],
    ["array", "V8", [1], "AAAAAAAAAAA="],
    ["array", "M8[s]", [1], "AAAAAAAAAAA="],
    ["array", "f8,f8", [1], "A" * 24],
    ["array", [["a", "O"]], [1], "AAAAAAAAAAA="],
    ["array", {"names": ["a"], "formats": ["O"]}, [1], "AAAAAAAAAAA="],
    ["array", "<f8", [2**40, 2**40], ""],
    ["array", "<f8", [0, 2**62, 2**62], ""],
    ["array", "<f8", [2**40, 0], ""],
    ["array", "<f8", [2**16, 0, 2**16], ""],
    ["array", "<f8", "1", "AAAAAAAAAAA="],
    ["array", "<f8", [1.5], "AAAAAAAAAAA="],
    ["array", "<f8", [[1]], "AAAAAAAAAAA="],
    ["array", "<f8", [1] * 100, "AAAAAAAAAAA="],
    ["array", "<f8", [1], "not base64!"],
    ["array", "<f8", [1], None],
    ["array", "(2,)<f4", [1], "AAAAAAAAAAA="],
    ["array", "<f8", [True], "AAAAAAAAAAA="],
    ["array", 7, [1], "AAAAAAAAAAA="],
    ["array", "x" * 10**6, [1], "AA=="],
]


@pytest.mark.parametrize("data", FORGED, ids=lambda d: json.dumps(d, default=str)[:40])
def test_forged_data_is_refused_or_harmless(data):
    try:
        value = decode(data)
    except ValueError:
        return
    assert plain(value)


def plain(value) -> bool:
    if isinstance(value, np.ndarray):
        parts = math.prod(n or 1 for n in value.shape)
        return value.dtype.kind in "biufc" and max(value.nbytes, parts) <= MAX_BYTES
    if isinstance(value, list | tuple | set):
        return all(map(plain, value))
    if isinstance(value, dict):
        return all(plain(k) and plain(v) for k, v in value.items())
    return type(value) in (type(None), bool, int, float, str, Opaque)


def test_random_forgeries_never_do_anything_but_fail():
    rng = random.Random(5)
    parts = [
        "opaque",
        "list",
        "tuple",
        "set",
        "dict",
        "array",
        "<f8",
        "O",
        None,
        True,
        1,
        -1,
        2**70,
        1e300,
        "",
        "7",
        "AAAAAAAAAAA=",
        {},
    ]

    def make(depth):
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(parts)
        return [rng.choice(parts[:6]), *(make(depth - 1) for _ in range(rng.randrange(4)))]

    good = 0
    for _ in range(20_000):
        try:
            good += plain(decode(make(4)))
        except ValueError:
            pass
    assert good > 100


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -(2**70),
        1.5,
        float("inf"),
        "ä\0",
        (1, [2.0, {"a": (3,)}]),
        {1, 2},
        {},
        {(1, "a"): [None]},
        [],
        (),
        np.arange(6.0).reshape(2, 3),
        np.bool_(True),
        np.float32(2.5),
        np.zeros((0, 3), np.int8),
        np.array(3 + 4j),
    ],
    ids=str,
)
def test_plain_data_comes_back_as_it_was(value):
    back = decode(json.loads(json.dumps(encode(value))))
    assert (
        np.array_equal(back, value)
        if isinstance(value, np.ndarray | np.generic)
        else (back == value and type(back) is type(value))
    )


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (IntEnum("Kind", "FIRST")(1), 1),
        (range(3), [0, 1, 2]),
        (deque([1, 2.5]), [1, 2.5]),
        (array("d", [1.5]), [1.5]),
        (np.array([Fraction(1, 2), 1], object), [0.5, 1]),
        (np.array([[1], [2, 3]], object), [[1], [2, 3]]),
        (np.array([["a"], ["b"]]), [["a"], ["b"]]),
        (np.array([b"a", "b"], object), ["a", "b"]),
    ],
    ids=str,
)
def test_what_a_check_takes_for_numbers_and_words_arrives_as_such(value, plain):
    assert str(decode(encode(value))) == str(plain)


def test_not_a_number_keeps_its_sign_and_bits():
    assert np.isnan(decode(encode(float("nan"))))
    array = np.array([np.nan, -0.0, 5e-324])
    assert decode(encode(array)).tobytes() == array.tobytes()


class Lie:
    def __init__(self, kind):
        self.kind = kind

    @property
    def __class__(self):
        return self.kind

    def __getattr__(self, name):
        return self

    def __call__(self, *a, **k):
        return self

    def __iter__(self):
        return iter([self] * 3)

    def __eq__(self, other):
        return True

    __hash__ = None


@pytest.mark.parametrize(
    "kind", [int, float, str, bool, dict, list, tuple, set, np.ndarray, np.generic, type(None)]
)
def test_an_object_that_lies_about_its_type_arrives_as_opaque(kind):
    assert isinstance(decode(encode(Lie(kind))), Opaque)


def test_subclasses_that_lie_arrive_as_what_they_hold():
    class Text(str):
        def __str__(self):
            return "right"

        def __eq__(self, other):
            return True

    class Many(list):
        def __iter__(self):
            return iter([1, 2, 3])

        def __len__(self):
            return 3

    class Pairs(dict):
        def items(self):
            return [("right", 1)]

    class Number(int):
        def __eq__(self, other):
            return True

    class Values(np.ndarray):
        def __array__(self, *a, **k):
            return np.ones(3)

        def __array_finalize__(self, other):
            pass

        def tobytes(self, *a):
            return b"\0" * 24

    assert decode(encode(Text("wrong"))) == "wrong"
    assert decode(encode(Many([9]))) == [9]
    assert decode(encode(Pairs(a=9))) == {"a": 9}
    assert isinstance(decode(encode(Number(3))), Opaque | int)
    lie = np.arange(3.0).view(Values)
    assert decode(encode(lie)).tolist() in ([0.0, 1.0, 2.0], [1.0, 1.0, 1.0])


def test_what_is_too_deep_too_large_or_in_itself_is_cut():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    endless = []
    endless.append(endless)
    large, words = np.broadcast_to(1.0, (10**6, 10**6)), np.broadcast_to("x", (10**6, 10**6))
    for value in (
        deep,
        endless,
        np.zeros(2**22),
        "x" * 2**25,
        10**100_000,
        large,
        words,
        ["z"] * 10**7,
        np.array([object()], dtype=object),
    ):
        text = json.dumps(encode(value))
        assert len(text) < 3 * MAX_BYTES
        decode(json.loads(text))
    for value in (large, np.zeros((2**40, 0))):
        assert isinstance(decode(encode(value)), Opaque)


def test_a_folder_travels_with_its_files_and_their_times(tmp_path):
    (tmp_path / "part-1.npy").write_bytes(bytes(range(256)))
    os.utime(tmp_path / "part-1.npy", ns=(7, 10**18))
    there = Path(unpack_folder(json.loads(json.dumps(pack_folder(Folder(tmp_path))))))
    (path,) = there.iterdir()
    assert path.name == "part-1.npy" and path.read_bytes() == bytes(range(256))
    assert path.stat().st_mtime_ns == 10**18
    shutil.rmtree(there)


def test_objects_equal_nothing():
    opaque = decode(encode(object()))
    assert opaque != decode(encode(object())) and opaque != 1 and opaque != opaque.what
    assert decode(encode(print)) != print


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "7",
        "{",
        "[" * 10**5,
        '{"got_x": ["int", 1]}',
        '{"got_x": ["list", ' + "[" * 50 + "]" * 50 + "]}",
    ],
)
def test_answers_that_are_none_are_refused(text):
    with pytest.raises(ValueError):
        read_got(text, ("got_x",))


def test_only_the_names_that_are_asked_for_are_read():
    text = json.dumps({"got_x": encode(1), "np": encode(2), "__builtins__": encode({})})
    assert read_got(text, ("got_x", "got_y")) == {"got_x": 1}


@pytest.mark.parametrize(
    "line",
    [
        b"\x80\x04",
        b"[]",
        b"7",
        b'{"id": 1, "status": "ok"}',
        b'{"id": true, "status": "ok"}',
        b'{"id": "a", "status": "ok", "failed": "b"}',
        b'{"id": "a", "status": "ok", "failed": [1]}',
        b'{"id": "a", "status": "right"}',
        b'{"id": "a", "status": "ok", "mark": 10}',
        b'{"id": "a", "status": "ok", "traffic_bytes": 1.5}',
        b"{}",
        b"[" * 60_000,
        b"x" * 70_000,
    ],
)
def test_frames_that_the_runner_does_not_write_are_refused(line):
    with pytest.raises(BadFrame):
        FrameReader().feed(line + b"\n")


def test_frames_come_out_however_the_bytes_are_cut():
    frames = [{"id": k, "status": "ok", "got": '{"a":'} for k in "ab"]
    data = b"\n" + b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)
    for step in (1, 2, 7, 1000):
        reader, found = FrameReader(), []
        for k in range(0, len(data), step):
            found += reader.feed(data[k : k + step])
        assert [cell.id for cell in found] == ["a", "b"] and found[0].got == '{"a":'
    hello = FrameReader()
    assert hello.feed(b"\n") == [] and hello.began


def test_output_is_told_apart_by_cell_however_it_is_cut():
    data = b"before" + make_mark("t", 0) + b"one\n" + make_mark("t", 12) + b"two\0s:x"
    data += b"z" * 50_000
    for step in (1, 3, 10, 10**6):
        reader = OutputReader("t")
        for k in range(0, len(data), step):
            reader.feed(data[k : k + step])
        said = reader.finish()
        assert said[-1] == "before" and said[0] == "one" and said[12].startswith("two\\x00s:xzz")
        assert len(said[12]) < 20_100
        assert reader.written == len(data.rpartition(b":000012")[2])  # since the last mark
