"""Settings of a connector: the names of 0.7 and of 0.8, defaults, and what is refused."""

import logging
from collections.abc import Sequence

import pytest

from barnabas import hookimpl
from barnabas.clients import ConsumerConnector, InvalidConfig
from barnabas.clients.consumer.config import consumer_config
from barnabas.clients.consumer.decoders import Decoders
from barnabas.clients.consumer.messages import Undecoded

HERE = {"group.id": "g", "bootstrap.servers": "127.0.0.1:9092"}


def test_the_names_of_0_7_and_of_0_8_mean_the_same():
    old = {
        "groupid": "g",
        "zk.connect": "h:1/root",
        "broker.list": "0:a:9,1:b:8",
        "fetch.size": "300",
        "autocommit.enable": "false",
        "autocommit.interval.ms": "7",
        "autooffset.reset": "smallest",
        "queuedchunks.max": "9",
        "rebalance.retries.max": "3",
        "zk.sessiontimeout.ms": "400",
        "zk.connectiontimeout.ms": "500",
        "zk.synctime.ms": "600",
        "socket.buffersize": "700",
        "backoff.increment.ms": "800",
    }
    new = {
        "group.id": "g",
        "zookeeper.connect": "h:1/root",
        "metadata.broker.list": "a:9,b:8",
        "fetch.message.max.bytes": 300,
        "auto.commit.enable": False,
        "auto.commit.interval.ms": 7,
        "auto.offset.reset": "earliest",
        "queued.max.message.chunks": 9,
        "rebalance.max.retries": 3,
        "zookeeper.session.timeout.ms": 400,
        "zookeeper.connection.timeout.ms": 500,
        "zookeeper.sync.time.ms": 600,
        "socket.receive.buffer.bytes": 700,
        "refresh.leader.backoff.ms": 800,
    }
    made = consumer_config(old)
    assert made == consumer_config(new)
    assert (made.rebalance_backoff_ms, made.bootstrap_servers) == (600, "a:9,b:8")


def test_where_offsets_are_kept_follows_from_where_the_group_meets():
    at_coordinator = consumer_config(HERE)
    assert (at_coordinator.offsets_storage, at_coordinator.dual_commit_enabled) == ("kafka", False)
    registry = HERE | {"zookeeper.connect": "127.0.0.1:2181"}
    assert consumer_config(registry).offsets_storage == "zookeeper"
    assert not consumer_config(registry).dual_commit_enabled
    moving = consumer_config(registry | {"offsets.storage": "kafka"})
    assert moving.dual_commit_enabled
    moved = consumer_config(registry | {"offsets.storage": "kafka", "dual.commit.enabled": "false"})
    assert not moved.dual_commit_enabled


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"group.id": None}, "group.id must be set"),
        ({"group.id": "a/b"}, "must not contain a /"),
        ({"bootstrap.servers": None}, "set zookeeper.connect or"),
        ({"bootstrap.servers": "a:b:c"}, "not an address"),
        ({"offsets.storage": "zookeeper"}, "needs zookeeper.connect"),
        ({"dual.commit.enabled": True}, "needs zookeeper.connect"),
        ({"offsets.storage": "attic"}, "must be one of zookeeper, kafka"),
        ({"auto.offset.reset": "middle"}, "must be one of smallest, largest"),
        ({"partition.assignment.strategy": "roundrobin"}, "must be one of range"),
        ({"fetch.size": "0"}, "fetch.size=0 must be from 1"),
        ({"fetch.size": "x"}, "must be a whole number"),
        ({"consumer.timeout.ms": "-2"}, "must be from -1"),
        ({"auto.commit.enable": "yes"}, "must be true or false"),
        ({"groupid": "h"}, "one setting and have different values"),
        ({"heartbeat.interval.ms": 99999}, "less than session.timeout.ms"),
        ({"serializer.class": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(given: dict[str, object], why: str):
    with pytest.raises(InvalidConfig, match=why) as refused:
        ConsumerConnector(HERE | given)
    assert "\n" not in str(refused.value)


def test_an_unknown_name_is_reported_and_left_out(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert consumer_config(HERE | {"grup.id": "h"}) == consumer_config(HERE)
    assert [r.getMessage() for r in caplog.records] == ["unknown setting grup.id: it has no effect"]


class Upper:
    """The old design's decoder."""

    def from_bytes(self, data: bytes) -> bytes:
        return data.upper()


class Lengths:
    """A plugin of the program's own."""

    @hookimpl
    def decode(self, data: Sequence[bytes], is_key: bool) -> Sequence[object]:
        return [(len(item), is_key) for item in data]


class TooFew:
    @hookimpl
    def decode(self, data: Sequence[bytes]) -> Sequence[object]:
        return list(data)[1:]


def decoded(what: object, data: list[bytes | None], **settings: str) -> list[object]:
    column = Decoders(consumer_config(HERE | settings)).column("here", what, is_key=False)
    assert column is not None
    found = column("t", data)
    return [item.decoded() if isinstance(item, Undecoded) else item for item in found]


def test_decoders_are_plugins_functions_or_objects_of_the_old_design():
    assert decoded("string", ["ä".encode(), None]) == ["ä", None]
    assert decoded("string", [b"\xe4"], **{"plugin.string.encoding": "latin-1"}) == ["ä"]
    assert decoded("kafka.serializer.StringDecoder", [None]) == [None]
    assert decoded("json", [b'{"a": [1]}']) == [{"a": [1]}]
    assert decoded(Upper(), [b"x"]) == [b"X"]
    assert decoded(len, [b"xyz"]) == [3]
    assert decoded(Lengths(), [b"xyz", None, b""]) == [(3, False), None, (0, False)]
    assert Decoders(consumer_config(HERE)).pair(None, "bytes") == (None, None)
    with pytest.raises(InvalidConfig, match="does not implement decode"):
        decoded("murmur2", [b"x"])


def test_a_wrong_decoder_raises_where_the_record_is_read():
    column = Decoders(consumer_config(HERE)).column("here", TooFew(), is_key=False)
    assert column is not None
    (first, _) = column("t", [b"a", b"b"])
    with pytest.raises(ValueError, match="0 objects for 1 records"):
        first.decoded()
