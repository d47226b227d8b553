"""What network threads know of a member, a producer or a topic ends with the event that revokes it.

Clients send requests without a pause while other connections end what those requests depend on: a
member leaves its group, a transactional id gets a new producer, a topic is replaced by another one
of its name. No request that is sent after the answer to the event may be answered as before it, and
nothing that an earlier request wrote may appear later. All run beside each other on one broker, so
that each is load for the others: a second, and a minute in the long form. Access rules that are
removed: tests/security/test_rules_under_load.py. Transactions back to back:
tests/transactions/test_back_to_back.py.
"""

import random
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from itertools import count

import pytest
from compat.support import Wire, create_topic
from groups.member_talk import join_body, sync_body
from long_form import pick
from transactions.dialogue import SETTINGS, Talk

from barnabas import Broker
from barnabas.wire import request

RUN_S = pick(short=1.0, long=60.0)
WORKERS = 2  # of each kind
PAUSE_S = 0.01  # the longest from the first request to the event
WAIT_S = 30
TOPIC_GONE, REBALANCE, UNKNOWN_MEMBER = 3, 27, 25
AGAIN = {14, 15, 16, 19, 51, 112}  # loading, moving, or the transaction before is being completed
FENCED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED


class Asker(threading.Thread):
    """Sends a request after the other; `answers` has (when it was sent, its answer) in order."""

    def __init__(self, ask):
        super().__init__(daemon=True)
        self._ask, self._stopped = ask, threading.Event()
        self.answers = []
        self.failure = None

    def run(self):
        try:
            while not self._stopped.is_set():
                sent_ns = time.monotonic_ns()
                self.answers.append((sent_ns, self._ask()))
        except BaseException as failure:
            self.failure = failure

    def asked_since(self, at_ns, least):
        """Waits until it has sent `least` requests after that moment. Returns their answers."""
        deadline = time.monotonic() + WAIT_S
        while True:
            found = [answer for sent_ns, answer in list(self.answers) if sent_ns > at_ns]
            if len(found) >= least or self.failure is not None:
                return found
            assert time.monotonic() < deadline, "the requests have no answers"
            time.sleep(0.001)

    def end(self):
        self._stopped.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


def a_member_leaves(address, group, chance):
    """Commits of a member beside its LeaveGroup."""
    with closing(Wire(address)) as events, closing(Wire(address)) as commits:
        wait_for_coordinator(events, group, 0)
        member, generation = joined(events, group)
        offsets = count(chance.randrange(1 << 40))

        def commit():
            offset = next(offsets)
            ask = request(8)
            row = ask.struct("topics.partitions")(partitionIndex=0, committedOffset=offset)
            topics = [ask.struct("topics")(name="shared", partitions=[row])]
            body = ask.cls(
                groupId=group,
                generationIdOrMemberEpoch=generation,
                memberId=member,
                topics=topics,
            )
            return offset, commits.call(8, 7, body).topics[0].partitions[0].errorCode

        leave = request(13)
        rows = [leave.struct("members")(memberId=member, groupInstanceId=None)]
        with asking(commit) as asker:
            pause(asker, chance)
            (left,) = events.call(13, 3, leave.cls(groupId=group, members=rows)).members
            assert left.errorCode == 0
            late = asker.asked_since(time.monotonic_ns(), 2)
        assert {code for _, code in late} == {UNKNOWN_MEMBER}, late
        accepted = [offset for _, (offset, code) in asker.answers if code == 0]
        assert accepted and committed(events, group) == accepted[-1]


def joined(wire, group):
    """A new member of an empty group, in its generation."""
    member = ""
    deadline = time.monotonic() + WAIT_S
    while True:
        told = wire.call(11, 5, join_body(member, group=group))
        member = told.memberId
        if told.errorCode == 0:
            synced = wire.call(
                14, 3, sync_body(member, told.generationId, [(member, b"a")], group=group)
            )
            if synced.errorCode == 0:
                return member, told.generationId
            assert synced.errorCode == REBALANCE, synced
        assert time.monotonic() < deadline


def committed(wire, group):
    ask = request(9)
    topics = [ask.struct("topics")(name="shared", partitionIndexes=[0])]
    return (
        wire.call(9, 5, ask.cls(groupId=group, topics=topics))
        .topics[0]
        .partitions[0]
        .committedOffset
    )


def an_id_gets_another_producer(address, name, chance):
    """Produce or TxnOffsetCommit of a producer beside the InitProducerId that fences it."""
    with talking(address, name) as events, talking(address, name) as talk:
        talk.coordinator(talk.group, 0)
        is_second = chance.random() < 0.5  # the second version of the protocol: nothing is added
        producer = events.begun(version=5 if is_second else 4)
        numbers = count()

        def write():
            at, version = next(numbers), 12 if is_second else 9
            return first_error(
                lambda: [] if is_second else talk.add(producer, 0, settle=False),
                lambda: [talk.produce(producer, at, version=version, settle=False)[0]],
            )

        def note():
            at, version = next(numbers), 5 if is_second else 3
            return first_error(
                lambda: [] if is_second else [talk.add_offsets(producer)],
                lambda: talk.commit_offsets(producer, at, version),
            )

        with asking(chance.choice([write, note])) as asker:
            pause(asker, chance)
            error, *fresh = events.init(5 if is_second else 4)
            fenced_ns = time.monotonic_ns()
            assert error == 0 and tuple(fresh) != producer
            end = events.list_offsets(0)
            late = asker.asked_since(fenced_ns, 2)
        assert set(late) <= FENCED, late
        codes = [code for _, code in asker.answers]
        assert codes[0] == 0 and set(codes) <= {0} | FENCED, codes
        assert end == events.list_offsets(0) == events.list_offsets(1), "it wrote when fenced"
        assert events.settled() == (0, [(0, -1)]), "its offsets count"


@contextmanager
def talking(address, name):
    talk = Talk(address, name, again=True)
    try:
        yield talk
    finally:
        talk.wire.close()


def first_error(*steps):
    """Carries out the steps. Returns the first final error, or 0."""
    for step in steps:
        deadline = time.monotonic() + WAIT_S
        while (codes := set(step()) - {0}) & AGAIN:
            assert time.monotonic() < deadline, codes
        if codes:
            return codes.pop()
    return 0


def a_topic_is_replaced(address, name, chance):
    """Cached answers to Metadata beside DeleteTopics and CreateTopics. Each version is an answer of
    its own, and a wide topic beside the other makes the answer take long."""
    with closing(Wire(address)) as events, ExitStack() as askers:
        deletion = request(20).cls(topicNames=[name], timeoutMs=1000 * WAIT_S)
        create_topic(address, name)
        first = describe(events, name, 12)
        asked = [askers.enter_context(describing(address, name, v)) for v in (10, 11, 12)]
        pause(chance.choice(asked), chance)
        assert events.call(20, 5, deletion).responses[0].errorCode == 0
        seen = asked_since(time.monotonic_ns(), asked)
        assert seen == {None}, "a deleted topic was answered"
        create_topic(address, name)
        seen = asked_since(time.monotonic_ns(), asked)
        assert len(seen) == 1 and not seen & {None, first}, "the answer is of the topic before"
        assert events.call(20, 5, deletion).responses[0].errorCode == 0


def describe(wire, name, version):
    """The id of the topic, or None."""
    ask = request(3)
    topics = [ask.struct("topics")(name=name), ask.struct("topics")(name="wide")]
    told = wire.call(3, version, ask.cls(topics=topics, allowAutoTopicCreation=False))
    (row,) = [topic for topic in told.topics if topic.name == name]
    return bytes(row.topicId) if row.errorCode != TOPIC_GONE else None


@contextmanager
def describing(address, name, version):
    with closing(Wire(address)) as wire, asking(lambda: describe(wire, name, version)) as asker:
        yield asker


def asked_since(at_ns, askers):
    return {answer for asker in askers for answer in asker.asked_since(at_ns, 2)}


@contextmanager
def asking(ask):
    asker = Asker(ask)
    asker.start()
    try:
        yield asker
    finally:
        asker.end()


def pause(asker, chance):
    """Until the event: some requests are answered, and some are on their way."""
    asker.asked_since(0, chance.randrange(1, 4))
    time.sleep(chance.random() * PAUSE_S)


def wait_for_coordinator(wire, name, kind):
    deadline = time.monotonic() + WAIT_S
    body = request(10).cls(coordinatorKeys=[name], keyType=kind)
    while wire.call(10, 4, body).coordinators[0].errorCode in AGAIN:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_no_request_after_an_event_is_answered_as_before_it(tmp_path, durability):
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS}
    settings |= {"log.durability": durability, "file.delete.delay.ms": "100"}
    turns, failures = {}, []
    events = (a_member_leaves, an_id_gets_another_producer, a_topic_is_replaced)
    with Broker(settings) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "shared")
        create_topic(address, "wide", 100)
        for number in range(WORKERS):
            create_topic(address, f"{an_id_gets_another_producer.__name__}-{number}-topic")
        until = time.monotonic() + RUN_S

        def repeat(event, number):
            chance, name = random.Random(number), f"{event.__name__}-{number}"
            try:
                for turn in count(1):
                    event(address, name, chance)
                    turns[name] = turn
                    if time.monotonic() >= until or failures:
                        break
            except BaseException as failure:
                failures.append(failure)

        threads = [
            threading.Thread(target=repeat, args=(event, number))
            for event in events
            for number in range(WORKERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(turns)
    if failures:
        raise failures[0]
    assert len(turns) == len(threads)
