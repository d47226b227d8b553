"""barnabas.cext.codec.wire compared with the plain-Python codec of tests/oracle/messages.py, both
ways."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import messages as oracle

from barnabas.wire import by_name

ALL = [(name, version) for name in oracle.tree() for version in oracle.version_range(name)]


def to_object(message, path, value):
    """Converts a dict of the oracle to an object."""
    fields = {"unknown": value[""]}
    for name, inner in value.items():
        below = f"{path}.{name}" if path else name
        if name == "":
            continue
        if isinstance(inner, dict):
            inner = to_object(message, below, inner)
        elif isinstance(inner, list) and inner and isinstance(inner[0], dict):
            inner = [to_object(message, below, element) for element in inner]
        fields[name] = inner
    return message.struct(path)(**fields)


def compare(name, version, seed):
    message = by_name(name)
    value = oracle.random_value(name, version, random.Random(seed))
    data = oracle.encode(name, version, value)
    made = to_object(message, "", value)
    assert message.encode(made, version) == data, (name, version, seed)
    decoded = message.decode(data, version)
    expected = to_object(message, "", oracle.decode(name, version, data))
    assert decoded == expected, (name, version, seed)
    assert message.encode(decoded, version) == data, (name, version, seed)


def test_every_message_in_every_version():
    assert len(ALL) > 800
    for index, (name, version) in enumerate(ALL):
        compare(name, version, index)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(ALL), st.integers(0, 2**32))
def test_random_messages(which, seed):
    compare(*which, seed)
