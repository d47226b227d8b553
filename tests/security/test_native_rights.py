"""Native Produce and Fetch: who may write and read, in every version, with Kafka 4.3.1's codes.

A broker without an authorizer asks nothing; the other tests of the suite show that.
"""

import socket
import struct
import threading
import uuid

import pytest
from oracle.produce import batch, produce_frame
from security.guarded import (
    CLUSTER,
    CLUSTER_ACTION,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    guarded,
)
from waiting import soon

from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header

NO_RIGHT, NO_CLUSTER_RIGHT, NO_ID_RIGHT, UNKNOWN, UNKNOWN_ID = 29, 31, 53, 3, 100
TRANSACTIONAL = 0x10


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


@pytest.fixture
def topics(broker):
    """Ids of a topic that the client has rights to, and of one that it has not."""
    names = [f"{kind}-{uuid.uuid4().hex}" for kind in ("ours", "theirs")]
    made = {name: broker.topic(name) for name in names}
    broker.give((WRITE, TOPIC, names[0]), (READ, TOPIC, names[0]))
    broker.asked.clear()
    return made


def produce(wire, parts, version=9, **options):
    """(topic, index) -> error code."""
    frame = wire.call_raw(produce_frame(parts, version, framed=True, **options))
    _header, at = decode_response_header(frame, 0, version)
    answer = response(0).decode(frame, version, at)
    return {
        (row.topicId if version >= 13 else row.name, part.index): part.errorCode
        for row in answer.responses
        for part in row.partitionResponses
    }


def fetch_body(version, parts, replica_id=-1, max_wait_ms=0, session=(0, -1), forgotten=()):
    message = request(1)
    topic_of, partition_of = message.struct("topics"), message.struct("topics.partitions")

    def named(topic):
        return {"topicId": topic} if version >= 13 else {"topic": topic}

    rows = [
        topic_of(
            partitions=[partition_of(partition=0, fetchOffset=offset, partitionMaxBytes=1 << 20)],
            **named(topic),
        )
        for topic, offset in parts
    ]
    body = message.cls(
        maxWaitMs=max_wait_ms, minBytes=1, maxBytes=1 << 20, topics=rows,
        sessionId=session[0], sessionEpoch=session[1],
    )  # fmt: skip
    if version < 15:
        body.replicaId = replica_id
    elif replica_id >= 0:
        body.replicaState = message.struct("replicaState")(replicaId=replica_id, replicaEpoch=1)
    return body


def fetched(answer, version):
    """topic -> (error code, bytes of records)."""
    return {
        (row.topicId if version >= 13 else row.topic): (part.errorCode, len(part.records or b""))
        for row in answer.responses
        for part in row.partitions
    }


def fetch(wire, version, parts, **options):
    return fetched(wire.call(1, version, fetch_body(version, parts, **options)), version)


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_needs_the_right_to_write_each_topic(broker, topics, version):
    ours, theirs = topics if version < 13 else topics.values()
    nobody = f"no-{uuid.uuid4().hex}" if version < 13 else uuid.uuid4().bytes
    with broker.connect() as wire:
        parts = [(ours, 0, batch(3)), (theirs, 0, batch(3)), (nobody, 0, batch(3))]
        codes = produce(wire, parts, version)
        # A topic that does not exist is refused like one that does; an unknown id names no topic.
        unknown = UNKNOWN_ID if version >= 13 else NO_RIGHT
        assert codes == {(ours, 0): 0, (theirs, 0): NO_RIGHT, (nobody, 0): unknown}
        if version < 13:
            broker.give((WRITE, TOPIC, nobody))
            assert produce(wire, [(nobody, 0, batch(1))], version) == {(nobody, 0): UNKNOWN}
        broker.give((READ, TOPIC, list(topics)[1]))
        found = fetch(wire, 13, [(id_, 0) for id_ in topics.values()])
        assert [size > 0 for _code, size in found.values()] == [True, False]


def test_an_error_of_the_request_shows_nothing_of_a_topic_without_rights(broker, topics):
    ours, theirs = topics
    with broker.connect() as wire:
        assert produce(wire, [(theirs, 0, b"damaged"), (ours, 0, batch(1))], acks=5) == {
            (theirs, 0): NO_RIGHT,
            (ours, 0): 21,
        }
        assert produce(wire, [(theirs, 7, None)]) == {(theirs, 7): NO_RIGHT}


def test_a_produce_without_answer_and_without_the_right_closes_the_connection(broker, topics):
    ours, theirs = topics
    with broker.connect() as wire:
        wire._socket.sendall(produce_frame([(theirs, 0, batch(1))], acks=0, framed=True))
        assert wire.hangs_up(10)
    with broker.connect() as wire:
        wire._socket.sendall(produce_frame([(ours, 0, batch(1))], acks=0, framed=True))
        assert produce(wire, [(ours, 0, batch(1))]) == {(ours, 0): 0}


def test_a_produce_without_answer_is_carried_out_though_its_client_has_gone(broker, topics):
    """The first question takes the way through Python: the client may have closed by then."""
    ours = next(iter(topics))
    broker.pause.clear()
    wire = broker.connect()
    wire._socket.sendall(produce_frame([(ours, 0, batch(3))], acks=0, framed=True))
    wire._socket.shutdown(socket.SHUT_WR)
    counters = broker.broker.node.bound.reactor.counters
    until_asked(broker)
    broker.pause.set()
    assert wire._socket.recv(1) == b""  # the broker closes when it has carried the request out
    wire.close()
    soon(lambda: counters()["parked"] == 0)
    with broker.connect() as reader:
        assert fetch(reader, 12, [(ours, 0)])[ours][1] > 0


def until_asked(broker):
    while not broker.asked:
        threading.Event().wait(0.005)


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_transactional_records_need_the_right_to_the_id(broker, topics, version):
    ours = next(iter(topics if version < 13 else topics.values()))
    name = f"txn-{uuid.uuid4().hex}"
    records = batch(1, producer_id=5, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL)
    with broker.connect() as wire:
        part = [(ours, 0, records)]
        assert produce(wire, part, version, transactional_id=name) == {(ours, 0): NO_ID_RIGHT}
        assert produce(wire, part, version) == {(ours, 0): NO_ID_RIGHT}
        broker.give((WRITE, TRANSACTIONAL_ID, name))
        code = produce(wire, part, version, transactional_id=name)[ours, 0]
        assert code not in (0, NO_RIGHT, NO_ID_RIGHT)  # there is no such transaction


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_needs_the_right_to_read_each_topic(broker, topics, version):
    (ours, our_id), (theirs, their_id) = topics.items()
    nobody = f"no-{uuid.uuid4().hex}" if version < 13 else uuid.uuid4().bytes
    broker.give((WRITE, TOPIC, theirs))
    with broker.connect() as wire:
        produce(wire, [(ours, 0, batch(3)), (theirs, 0, batch(3))])
        asked = [ours, theirs, nobody] if version < 13 else [our_id, their_id, nobody]
        found = fetch(wire, version, [(topic, 0) for topic in asked], max_wait_ms=100)
        assert found[asked[0]][0] == 0 and found[asked[0]][1] > 0
        assert found[asked[1]] == (NO_RIGHT, 0)
        assert found[nobody] == (UNKNOWN_ID if version >= 13 else NO_RIGHT, 0)


@pytest.mark.parametrize("version", range(4, 19))
def test_a_client_with_a_replica_id_needs_the_right_of_a_broker(broker, topics, version):
    """CVE-2018-1288: a client that says that it is a replica must not be taken for one."""
    asked = [(topic, 0) for topic in (topics if version < 13 else topics.values())]
    right = (CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    broker.take(right)
    with broker.connect() as wire:
        found = fetch(wire, version, asked, replica_id=7)
        assert set(found.values()) == {(NO_RIGHT, 0)}
        assert {row[2:] for row in broker.asked} == {right}
        broker.give(right)
        found = fetch(wire, version, asked, replica_id=7)
        assert {code for code, _size in found.values()} == {6}  # not an assigned replica


@pytest.mark.parametrize("version", [7, 11, 13, 18])
def test_a_session_checks_the_rights_of_each_fetch(broker, topics, version):
    (ours, our_id), (theirs, their_id) = topics.items()
    broker.give((WRITE, TOPIC, theirs))
    asked = [ours, theirs] if version < 13 else [our_id, their_id]
    with broker.connect() as wire:
        first = wire.call(1, version, fetch_body(version, [(t, 0) for t in asked], session=(0, 0)))
        assert first.sessionId > 0
        assert fetched(first, version) == {asked[0]: (0, 0), asked[1]: (NO_RIGHT, 0)}
        produce(wire, [(ours, 0, batch(1)), (theirs, 0, batch(1))])
        epoch = 1
        for right, expected in ((True, 0), (False, NO_RIGHT), (True, 0)):
            change = broker.give if right else broker.take
            change((READ, TOPIC, theirs))
            answer = wire.call(
                1, version, fetch_body(version, [], session=(first.sessionId, epoch))
            )
            epoch += 1
            assert answer.errorCode == 0
            code, size = fetched(answer, version)[asked[1]]
            assert (code, size > 0) == (expected, right)


def test_a_waiting_fetch_gives_nothing_after_its_right_is_gone(broker, topics):
    ours = next(iter(topics))
    with broker.connect() as reader, broker.connect() as writer:
        body = fetch_body(12, [(ours, 0)], max_wait_ms=30_000)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(reader.call(1, 12, body)))
        thread.start()
        node = broker.broker.node
        while node.bound.reactor.counters()["parked"] == 0:
            threading.Event().wait(0.005)
        broker.take((READ, TOPIC, ours))
        assert produce(writer, [(ours, 0, batch(3))]) == {(ours, 0): 0}
        thread.join(20)
        assert fetched(answers[0], 12) == {ours: (NO_RIGHT, 0)}


def test_python_decides_once_and_again_after_each_change_of_a_rule(broker, topics):
    ours = next(iter(topics))
    with broker.connect() as wire, broker.connect() as other:
        for connection in (wire, other, wire):
            assert produce(connection, [(ours, 0, batch(1))]) == {(ours, 0): 0}
        assert broker.asked == [("User:ANONYMOUS", "127.0.0.1", WRITE, TOPIC, ours)]
        broker.take((WRITE, TOPIC, ours))
        for connection in (wire, other):
            assert produce(connection, [(ours, 0, batch(1))]) == {(ours, 0): NO_RIGHT}
        assert len(broker.asked) == 2


def test_a_denial_is_asked_for_again_after_a_second(broker, topics):
    theirs = list(topics)[1]
    with broker.connect() as wire:
        for count in (1, 2):
            for _ in range(3):
                assert produce(wire, [(theirs, 0, batch(1))]) == {(theirs, 0): NO_RIGHT}
            assert len(broker.asked) == count
            broker.broker.node.system.move_monotonic(1001)


def test_an_authorizer_that_fails_denies(broker, topics, caplog):
    ours = next(iter(topics))
    with broker.connect() as wire:
        broker.fails = True
        broker.decisions.rules_changed()
        assert produce(wire, [(ours, 0, batch(1))]) == {(ours, 0): NO_RIGHT}
        broker.fails = False
        assert "The authorizer failed" in caplog.text
        broker.decisions.rules_changed()
        assert produce(wire, [(ours, 0, batch(1))]) == {(ours, 0): 0}


def test_rules_that_never_stand_still_deny(broker, topics, monkeypatch):
    """Each decision is overtaken by a change: Python decides a bounded number of times."""
    ours = next(iter(topics))
    authorize = broker.authorize

    def changing(*right):
        broker.decisions.rules_changed()
        return authorize(*right)

    monkeypatch.setattr(broker.decisions, "_authorize", changing)
    with broker.connect() as wire:
        assert produce(wire, [(ours, 0, batch(1))]) == {(ours, 0): NO_RIGHT}
    assert len(broker.asked) == 8


def test_a_name_that_is_no_text_has_no_rights(broker):
    name = b"\xff\xfe"
    frame = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhii", -1, 1, 1000, 1)
    frame += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, -1)
    with broker.connect() as wire:
        answer = wire.call_raw(struct.pack(">i", len(frame)) + frame)
        assert struct.unpack_from(">h", answer, 4 + 4 + 2 + 2 + 4 + 4) == (NO_RIGHT,)
