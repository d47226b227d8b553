"""The key hashes of the C code against their plain-Python twins."""

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import key_hash as oracle

from barnabas.cext.record import key_hash


@given(st.binary(max_size=70))
def test_murmur2_is_its_twin(data):
    assert key_hash.murmur2(data) == oracle.murmur2(data)


@given(st.one_of(st.binary(max_size=40), st.text(max_size=40)))
def test_java_hash_is_its_twin(data):
    assert key_hash.java_hash(data) == oracle.java_hash(data)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 1000))
def test_partitions_are_those_of_each_key(keys, count):
    expected = [(oracle.murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert key_hash.murmur2_partitions(keys, count) == expected


def test_what_java_says():
    """String.hashCode and Arrays.hashCode, computed by hand from the polynomial in Java's
    documentation."""
    assert key_hash.java_hash("") == 0
    assert key_hash.java_hash("ab") == 97 * 31 + 98
    assert key_hash.java_hash(b"") == 1
    assert key_hash.java_hash(b"\xff") == 30
    assert key_hash.java_hash("polygenelubricants") == -(1 << 31)


def test_other_things_are_refused():
    with pytest.raises(TypeError):
        key_hash.java_hash(3)
    with pytest.raises(TypeError):
        key_hash.murmur2_partitions([None], 3)
    with pytest.raises(TypeError):
        key_hash.murmur2_partitions(["text"], 3)
    with pytest.raises(ValueError):
        key_hash.murmur2_partitions([b""], 0)


def test_plugins_find_the_hashes_in_their_former_place_with_a_warning(monkeypatch):
    monkeypatch.delitem(sys.modules, "barnabas.cext.key_hash", raising=False)
    with pytest.warns(DeprecationWarning, match=r"barnabas\.cext\.record\.key_hash now"):
        former = importlib.import_module("barnabas.cext.key_hash")
    for name in former.__all__:
        assert getattr(former, name) is getattr(key_hash, name)
