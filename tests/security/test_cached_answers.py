"""The response cache shows no client what another may see, nor what it may see no more."""

import struct

import pytest
from compat.support import Wire
from security.login_broker import PLAIN_MODULE, frame, header
from security.ruled_broker import ruled_broker

from barnabas.controller.topics import NewTopic
from barnabas.security.acl_codes import DESCRIBE, TOPIC
from barnabas.wire import request

NAME = "orders"
USERS = ("alice", "bob")


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    given = " ".join(f'user_{user}="{user}"' for user in USERS)
    settings = {
        "listeners": "SAFE://127.0.0.1:0",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {given};",
    }
    with ruled_broker(tmp_path_factory.mktemp("cached"), **settings) as made:
        made.broker.node.serving.administration.topics.create(NewTopic(NAME, 1, 1), False)
        yield made


def logged_in(ruled, user):
    wire = Wire(ruled.address)
    token = f"\0{user}\0{user}".encode()
    wire.call_raw(frame(header(17, 1, struct.pack(">h", 5) + b"PLAIN")))
    answer = wire.call_raw(frame(header(36, 1, struct.pack(">i", len(token)) + token)))
    assert struct.unpack_from(">h", answer, 4) == (0,)
    return wire


def seen(wire):
    """The topics in the answer to a question that is the same for each client."""
    message = request(3)
    answer = wire.call(3, 9, message.cls(topics=None, allowAutoTopicCreation=False))
    return [row.name for row in answer.topics]


def test_each_client_gets_answers_of_its_own(ruled):
    cache = ruled.broker.node.bound.native.response_cache
    with logged_in(ruled, "alice") as alice, logged_in(ruled, "bob") as bob:
        with ruled.rights([(DESCRIBE, TOPIC, NAME)], who="User:alice"):
            served = cache.served
            for _ in range(2):
                assert seen(alice) == [NAME]
                assert seen(bob) == []
            assert cache.served - served == 2  # the second answer to each


def test_a_right_that_was_taken_takes_the_answers_with_it(ruled):
    cache = ruled.broker.node.bound.native.response_cache
    with logged_in(ruled, "alice") as alice:
        with ruled.rights([(DESCRIBE, TOPIC, NAME)], who="User:alice"):
            served = cache.served
            assert [seen(alice), seen(alice)] == [[NAME], [NAME]]
            assert cache.served - served == 1
        assert seen(alice) == []
