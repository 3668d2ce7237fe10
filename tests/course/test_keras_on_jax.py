# ruff: noqa: E501
"""Lesson 24's reader of compiled programs: names, bytes and groups of the collectives."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from distlab.errors import CourseError
from distlab.lessons import keras_on_jax
from distlab.lessons.keras_on_jax import CompiledCollective, check_backend, list_collectives

PROGRAM = """
  %p = f32[784,256]{1,0} parameter(0)
  %a = f32[32,10]{1,0} all-reduce(%x), channel_id=1, replica_groups=[2,2]<=[4], to_apply=%add
  %b = (f32[], f32[8,4]{1,0}) all-reduce(%l, %g), replica_groups=mesh['a'=2,'b'=3] {'b'}, to_apply=%
  %c = f32[10]{0} all-gather(%y), replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}
  %d = bf16[64,8]{1,0} all-gather(%y), replica_groups=mesh['a'=2,'b'=2] {'a','b'}, dimensions={0}
  %e = f32[5,8]{1,0} reduce-scatter(%g), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}
  %f = f32[] get-tuple-element(%b), index=0
  %g = (f32[2]{0}, f32[2]{0}, f32[2]{0}, f32[2]{0}, f32[2]{0}, /*index=5*/f32[]) all-reduce(%g, %h), replica_groups={{0,1},{2,3}}
  %h = f32[20,48]{1,0} collective-permute(%p), channel_id=9, source_target_pairs={{0,1},{1,0}}
"""


def test_collectives_are_read_with_their_bytes_and_groups():
    assert list_collectives(PROGRAM) == [
        CompiledCollective("all-reduce", 1280, 2),
        CompiledCollective("all-reduce", 4 + 128, 3),
        CompiledCollective("all-gather", 40, 2),
        CompiledCollective("all-gather", 1024, 4),
        CompiledCollective("reduce-scatter", 160, 4),
        CompiledCollective("all-reduce", 44, 2),
        CompiledCollective("collective-permute", 3840, 2),
    ]


@pytest.mark.parametrize(
    ("name", "payload", "devices", "sent"),
    [
        ("all-reduce", 800, 4, 1200),
        ("all-gather", 800, 4, 600),
        ("reduce-scatter", 200, 4, 600),
        ("all-to-all", 800, 4, 600),
        ("collective-permute", 800, 4, 800),
    ],
)
def test_sent_bytes_are_those_of_a_ring(name, payload, devices, sent):
    assert CompiledCollective(name, payload, devices).sent_bytes == sent


def test_a_late_or_missing_backend_is_one_sentence(monkeypatch):
    late = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "tensorflow"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "keras", late)
    with pytest.raises(CourseError, match="already runs on tensorflow.*Restart the kernel"):
        check_backend()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match="needs JAX: pip install") as raised:
        check_backend()
    assert raised.value._render_traceback_() == [str(raised.value)]


def test_shards_are_read_from_the_arrays_and_drawn():
    class Shard:
        def __init__(self, device, columns):
            self.index, self.device = (slice(None), columns), SimpleNamespace(id=device)
            self.data = SimpleNamespace(shape=(4, 3))

    shards = [Shard(k, slice(3 * (k % 2), 3 * (k % 2) + 3)) for k in range(4)]
    variable = SimpleNamespace(shape=(4, 6), value=SimpleNamespace(addressable_shards=shards))
    assert keras_on_jax.find_shards(variable) == {(0, 0): [0, 2], (0, 1): [1, 3]}
    picture = keras_on_jax.draw_shards({"hidden": variable}, "Halves")
    assert "rows 0, columns 1 on 1 and 3" in picture.alt and ">0, 2<" in picture.svg
