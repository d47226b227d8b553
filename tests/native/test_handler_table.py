"""The reactor's table of native handlers, and the versions that ApiVersions announces."""

import pytest

import barnabas
from barnabas.api.table import api_table
from barnabas.cext.memory.sys import SystemCalls
from barnabas.cext.network.reactor import Reactor
from barnabas.cext.network.response_cache import ResponseCache


def test_native_handlers_answer_only_versions_that_are_announced(tmp_path):
    table, native = api_table(), {}
    with barnabas.Broker({"log.dirs": str(tmp_path)}) as broker:
        for handler in broker.node.bound.native.all:
            for key, first, last in handler.apis:
                assert key not in native
                native[key] = (first, last)
    assert {0, 1, 3, 8, 18, 24, 25, 26, 28} == set(native)
    for key, (first, last) in native.items():
        row = table[key]
        assert row.version_min <= first <= last <= row.version_max, row.name
    for row in table.values():
        if row.handle is None:  # no Python handler answers the other versions
            assert native[row.key] == (row.version_min, row.version_max), row.name


def reactor_with(*apis):
    handlers = [ResponseCache((api,)) for api in apis]
    return Reactor(SystemCalls(), handlers, network_threads=1, flexible_from=[-1] * 4)


def test_two_handlers_of_one_key_and_keys_outside_the_table_are_refused():
    with pytest.raises(ValueError, match="two native handlers answer API key 3"):
        reactor_with((3, 0, 1), (3, 2, 3))
    for key in (-1, 128):
        with pytest.raises(ValueError, match="not within 0-127"):
            reactor_with((key, 0, 1))
