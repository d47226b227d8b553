"""What a client may not do leaves no trace: no offset, no part of a transaction, no session of a
replica; nor does a request that waited while its right was taken."""

import contextlib
import threading
import time
import uuid

import pytest
from compat.support import CALL_TIMEOUT_S
from oracle.produce import batch, compressed, record
from security.guarded import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE, guarded
from security.test_native_rights import (
    NO_ID_RIGHT,
    NO_RIGHT,
    TRANSACTIONAL,
    UNKNOWN_ID,
    fetch,
    fetch_body,
    fetched,
    produce,
)

from barnabas.server import decode_pool
from barnabas.wire import request

NO_GROUP_RIGHT = 30
GZIP = 1
answer_job = decode_pool.answer_job
LOADS = (14, 15, 16, 51)  # the coordinator is not there yet, or still busy


class Decoding:
    """Holds the threads that decompress batches, while a test wants that."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    @contextlib.contextmanager
    def held(self):
        self.begun.clear()
        self.may_end.clear()
        yield
        self.may_end.set()

    def answer_job(self, *arguments):
        self.begun.set()
        self.may_end.wait(10)
        answer_job(*arguments)


@pytest.fixture(scope="module")
def decoding():
    return Decoding()


@pytest.fixture(scope="module")
def broker(tmp_path_factory, decoding):
    """One fetch session at a time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decode_pool, "answer_job", decoding.answer_job)
        settings = {"max.incremental.fetch.session.cache.slots": "1"}
        with guarded(tmp_path_factory.mktemp("guarded"), **settings) as made:
            yield made


@pytest.fixture
def topics(broker):
    """Ids of a topic that the client has rights to, and of one that it has not."""
    names = [f"{kind}-{uuid.uuid4().hex}" for kind in ("ours", "theirs")]
    made = {name: broker.topic(name) for name in names}
    broker.give((WRITE, TOPIC, names[0]), (READ, TOPIC, names[0]))
    return made


def until_loaded(ask, codes_of):
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        codes = codes_of(ask())
        if not set(LOADS) & set(codes.values()):
            return codes
        assert time.monotonic() < deadline, codes


def codes_of_commit(answer):
    return {
        row.name or row.topicId: part.errorCode for row in answer.topics for part in row.partitions
    }


def find(wire, kind, name):
    """Makes the internal topic of a coordinator."""
    wire.call(10, 3, request(10).cls(key=name, keyType=kind))


def commit(wire, group, names, version, key=8, **fields):
    message = request(key)
    topic_of, part_of = message.struct("topics"), message.struct("topics.partitions")
    by_id = version >= (10 if key == 8 else 6)
    rows = [
        topic_of(
            partitions=[part_of(partitionIndex=0, committedOffset=7, committedMetadata="")],
            **({"topicId": name} if by_id else {"name": name}),
        )
        for name in names
    ]
    body = message.cls(groupId=group, topics=rows, **fields)
    return until_loaded(lambda: wire.call(key, version, body), codes_of_commit)


def committed(wire, group, names):
    message = request(9)
    rows = [message.struct("topics")(name=name, partitionIndexes=[0]) for name in names]
    answer = wire.call(9, 5, message.cls(groupId=group, topics=rows))
    assert not answer.errorCode
    return {row.name: row.partitions[0].committedOffset for row in answer.topics}


@pytest.mark.parametrize("version", range(1, 11))
def test_a_commit_needs_the_right_to_read_the_group_and_each_topic(broker, topics, version):
    group, nobody = f"group-{uuid.uuid4().hex}", uuid.uuid4()
    asked = [*topics, f"no-{nobody.hex}"] if version < 10 else [*topics.values(), nobody.bytes]
    unknown = UNKNOWN_ID if version >= 10 else NO_RIGHT
    with broker.connect() as wire:
        find(wire, 0, group)
        assert set(commit(wire, group, asked, version).values()) == {NO_GROUP_RIGHT}
        broker.give((READ, GROUP, group))
        codes = commit(wire, group, asked, version)
        assert list(codes.values()) == [0, NO_RIGHT, unknown]
        assert list(committed(wire, group, topics).values()) == [7, -1]
        broker.take((READ, GROUP, group))
        assert set(commit(wire, group, asked, version).values()) == {NO_GROUP_RIGHT}


def begun(wire, name):
    """Producer id and epoch of a transactional id."""
    find(wire, 1, name)
    body = request(22).cls(transactionalId=name, transactionTimeoutMs=60_000)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while True:
        answer = wire.call(22, 4, body)
        if answer.errorCode not in LOADS:
            assert not answer.errorCode
            return answer.producerId, answer.producerEpoch
        assert time.monotonic() < deadline


def described(wire, name):
    """The state of a transactional id, and the topics of its transaction."""
    (row,) = wire.call(65, 0, request(65).cls(transactionalIds=[name])).transactionStates
    return row.transactionState, [topic.topic for topic in row.topics]


@pytest.mark.parametrize("version", [12, 13])
def test_a_denied_topic_does_not_become_part_of_a_transaction(broker, topics, version):
    """From version 12 on the broker adds partitions to the transaction itself (KIP-890)."""
    ours, theirs = topics if version < 13 else topics.values()
    name = f"txn-{uuid.uuid4().hex}"
    broker.give((WRITE, TRANSACTIONAL_ID, name))
    with broker.connect() as wire:
        producer_id, epoch = begun(wire, name)
        records = batch(
            1, producer_id=producer_id, producer_epoch=epoch, base_sequence=0,
            attributes=TRANSACTIONAL,
        )  # fmt: skip
        sent = [(theirs, 0, records)]
        assert produce(wire, sent, version, transactional_id=name) == {(theirs, 0): NO_RIGHT}
        assert described(wire, name) == ("Empty", [])
        sent.append((ours, 0, records))
        codes = produce(wire, sent, version, transactional_id=name)
        assert codes == {(theirs, 0): NO_RIGHT, (ours, 0): 0}
        assert described(wire, name) == ("Ongoing", [next(iter(topics))])


@pytest.mark.parametrize("version", range(7))
def test_offsets_of_a_transaction_need_three_rights(broker, topics, version):
    name, group = f"txn-{uuid.uuid4().hex}", f"group-{uuid.uuid4().hex}"
    asked = list(topics if version < 6 else topics.values())
    with broker.connect() as wire:
        find(wire, 0, group)
        producer_id, epoch = begun(wire, name)
        fields = {"transactionalId": name, "producerId": producer_id, "producerEpoch": epoch}

        def codes():
            return list(commit(wire, group, asked, version, key=28, **fields).values())

        assert codes() == [NO_ID_RIGHT, NO_ID_RIGHT]
        broker.give((WRITE, TRANSACTIONAL_ID, name))
        assert codes() == [NO_GROUP_RIGHT, NO_GROUP_RIGHT]
        broker.give((READ, GROUP, group))
        if version < 5:  # later ones add the group's partition themselves
            added = request(25).cls(groupId=group, **fields)
            until_loaded(lambda: wire.call(25, 3, added), lambda row: {0: row.errorCode})
        assert codes() == [0, NO_RIGHT]
        ended = wire.call(26, 3, request(26).cls(committed=True, **fields))
        assert not ended.errorCode
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while (found := committed(wire, group, topics))[next(iter(topics))] != 7:
            assert time.monotonic() < deadline
        assert list(found.values()) == [7, -1]


def test_a_produce_that_waited_is_refused_when_its_right_is_gone(broker, topics, decoding):
    """It waits for Python to decompress its batch, and has appended nothing."""
    ours = next(iter(topics))
    with broker.connect() as wire, broker.connect() as reader:
        codes = []
        sent = [(ours, 0, compressed(GZIP, [record()]))]
        thread = threading.Thread(target=lambda: codes.append(produce(wire, sent)))
        with decoding.held():
            thread.start()
            assert decoding.begun.wait(10)
            broker.take((WRITE, TOPIC, ours))
        thread.join(10)
        assert codes == [{(ours, 0): NO_RIGHT}]
        assert fetch(reader, 12, [(ours, 0)]) == {ours: (0, 0)}


def test_a_topic_id_that_was_unknown_stays_so_while_the_request_waits(broker, topics, decoding):
    """No right to that topic was asked for."""
    ours, late = topics[next(iter(topics))], uuid.uuid4().bytes
    node = broker.broker.node
    with broker.connect() as wire:
        codes = []
        sent = [(ours, 0, compressed(GZIP, [record()])), (late, 0, batch(1))]
        thread = threading.Thread(target=lambda: codes.append(produce(wire, sent, 13)))
        with decoding.held():
            thread.start()
            assert decoding.begun.wait(10)
            node.loaded.table.add_topic(f"late-{late.hex()}", late)
        thread.join(10)
        assert codes == [{(ours, 0): 0, (late, 0): UNKNOWN_ID}]
        assert produce(wire, sent[1:], 13) == {(late, 0): NO_RIGHT}
        node.loaded.table.remove_topic(f"late-{late.hex()}")


def test_a_client_with_a_replica_id_takes_no_session_from_a_consumer(broker, topics):
    """A replica may, when the cache is full (KIP-227)."""
    ours = next(iter(topics))
    with broker.connect() as consumer, broker.connect() as other:
        first = consumer.call(1, 12, fetch_body(12, [(ours, 0)], session=(0, 0)))
        assert first.sessionId > 0
        asked = [(topic, 0) for topic in topics]
        answer = other.call(1, 12, fetch_body(12, asked, replica_id=7, session=(0, 0)))
        assert (answer.sessionId, set(fetched(answer, 12).values())) == (0, {(NO_RIGHT, 0)})
        again = consumer.call(1, 12, fetch_body(12, [], session=(first.sessionId, 1)))
        assert again.errorCode == 0
        consumer.call(1, 12, fetch_body(12, [], session=(first.sessionId, -1)))
