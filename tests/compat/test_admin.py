"""Topics, their configurations and groups, administered with each library's own admin client."""

import uuid
from collections.abc import Callable, Iterator

import pytest
from compat.administrators import ADMINISTRATORS, Administrator, Aio
from compat.matrix import cannot_run_client
from compat.support import Broker, Wire, produce_batch
from waiting import soon

from barnabas.wire import request
from barnabas.wire.headers import encode_request


@pytest.fixture(params=ADMINISTRATORS)
def admin(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Administrator]:
    reason = cannot_run_client(request.param)
    if reason:
        pytest.skip(reason)
    made = ADMINISTRATORS[request.param](broker.address)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"administered-{uuid.uuid4().hex[:8]}"


def test_topics_come_grow_are_configured_and_go(
    admin: Administrator, broker: Broker, name: str
) -> None:
    admin.create(name, 2, {"retention.ms": "5000"})
    soon(lambda: name in admin.topics())
    with pytest.raises(Exception, match=r"(?i)exist"):
        admin.create(name, 2, {})
    if admin.configures:
        assert admin.partitions(name) == 2
        assert admin.config(name, "retention.ms") == "5000"
        assert admin.config(name, "cleanup.policy") == "delete"
        admin.alter(name, "retention.ms", "7000")
        soon(lambda: admin.config(name, "retention.ms") == "7000")
        admin.grow(name, 3)
        soon(lambda: admin.partitions(name) == 3)
        produce_batch(broker.address, name, [b"v"], partition=2)
    admin.delete_topic(name)
    soon(lambda: name not in admin.topics())


def test_groups_are_listed_and_deleted(
    admin: Administrator, broker: Broker, topic: Callable[..., str], name: str
) -> None:
    at, ask = topic(), request(8)
    row = ask.struct("topics.partitions")(partitionIndex=0, committedOffset=1)
    topics = [ask.struct("topics")(name=at, partitions=[row])]
    with Wire(broker.address) as wire:
        committed = ask.cls(groupId=name, generationIdOrMemberEpoch=-1, topics=topics)

        def commit() -> bool:
            wire.call(10, 4, request(10).cls(coordinatorKeys=[name], keyType=0))  # makes its topic
            told = wire.call(8, 7, committed).topics[0].partitions[0].errorCode
            return bool(told == 0)

        soon(commit)  # until the coordinator is available
    soon(lambda: name in admin.groups())
    if not isinstance(admin, Aio):
        admin.delete_group(name)
        soon(lambda: name not in admin.groups())


def test_bytes_behind_a_request_are_passed_over(broker: Broker) -> None:
    """librdkafka 2.16 writes the null array of "all topics" in four bytes instead of one."""
    ask = request(3)
    body = ask.cls(topics=None)
    with Wire(broker.address) as wire:
        frame = encode_request(3, 13, 7, "compat", body)
        longer = (len(frame) - 4 + 3).to_bytes(4, "big") + frame[4:] + b"\1\0\0"
        assert wire.call_raw(longer) == wire.call_raw(frame)
