"""Settings of a connector: the names of 0.7 and of 0.8, defaults, and what is refused."""

import logging

import pytest

from barnabas.clients import ConsumerConnector
from barnabas.clients.consumer.config import InvalidConfig, consumer_config
from barnabas.clients.consumer.decoders import decoder_of

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
        ({"group.id": None}, "group.id is missing"),
        ({"group.id": "a/b"}, "has a / in it"),
        ({"bootstrap.servers": None}, "says where to go"),
        ({"bootstrap.servers": "a:b:c"}, "not an address"),
        ({"offsets.storage": "zookeeper"}, "needs zookeeper.connect"),
        ({"dual.commit.enabled": True}, "needs zookeeper.connect"),
        ({"offsets.storage": "attic"}, "none of zookeeper, kafka"),
        ({"auto.offset.reset": "middle"}, "none of smallest, largest"),
        ({"partition.assignment.strategy": "roundrobin"}, "none of range"),
        ({"fetch.size": "0"}, "fetch.size=0 is not from 1"),
        ({"fetch.size": "x"}, "no whole number"),
        ({"consumer.timeout.ms": "-2"}, "not from -1"),
        ({"auto.commit.enable": "yes"}, "neither true nor false"),
        ({"groupid": "h"}, "one setting and have two values"),
        ({"heartbeat.interval.ms": 99999}, "below session.timeout.ms"),
        ({"serializer.class": "nonsense"}, "no decoder 'nonsense'"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(given: dict[str, object], why: str):
    with pytest.raises(InvalidConfig, match=why) as refused:
        ConsumerConnector(HERE | given)
    assert "\n" not in str(refused.value)


def test_an_unknown_name_is_told_and_left_out(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        assert consumer_config(HERE | {"grup.id": "h"}) == consumer_config(HERE)
    assert [r.getMessage() for r in caplog.records] == [
        "there is no setting grup.id: it is left out"
    ]


def test_decoders_by_name_by_function_and_by_object():
    class Upper:
        def from_bytes(self, data: bytes) -> bytes:
            return data.upper()

    assert decoder_of("string")("ä".encode()) == "ä"
    assert decoder_of("kafka.serializer.StringDecoder")(None) is None
    assert decoder_of("json")(b'{"a": [1]}') == {"a": [1]}
    assert decoder_of("bytes")(b"x") == b"x"
    assert decoder_of(Upper())(b"x") == b"X"
    assert decoder_of(len)(b"xyz") == 3
    with pytest.raises(InvalidConfig, match="cannot be called"):
        decoder_of(object())
