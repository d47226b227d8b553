"""A share session ends with its connection: its acquired records go to other members long before
the locks run out. With `--broker=kafka`, Apache Kafka 4.3.1 and 4.4.0 do the same, except
that they do not wake waiting fetches: the test fetches again there."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat.java.driver import missing
from compat.java.share_driver import ShareClients
from compat.support import KAFKA, Broker, create_topic, produce_batch
from share.share_member import ShareMember, configure

ACCEPT = 1
NO_SESSION = 122
LOCK_S = 30
PATIENCE_S = 20  # less than that
NAMES = itertools.count()

Open = Callable[[str], ShareMember]


@pytest.fixture
def group(broker: Broker) -> str:
    """A group that reads a topic of the same name with four records."""
    name = f"sessions-end-{next(NAMES)}"
    create_topic(broker.address, name, 1)
    produce_batch(broker.address, name, [b"%d" % n for n in range(4)])
    assert configure(broker.address, name, share_auto_offset_reset="earliest") == 0
    return name


@pytest.fixture
def open_member(broker: Broker, group: str) -> Iterator[Open]:
    made: list[ShareMember] = []

    def make(name: str) -> ShareMember:
        made.append(ShareMember(broker.address, group, name))
        return made[-1].join(group)

    yield make
    for member in made:
        member.close()


def again(member: ShareMember, broker: Broker) -> ShareMember:
    """The same member on another connection, with the state of its session."""
    other = ShareMember(broker.address, member.group, member.member)
    other.epoch, other.session, other.assigned = member.epoch, member.session, member.assigned
    return other


Handed = list[tuple[int, int, int, int]]


def handed_out(member: ShareMember) -> Handed:
    """Returns the first records; none if no record comes before the locks run out."""
    found: Handed = []
    deadline = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < deadline:
        found = member.fetch(wait_ms=200, minBytes=1)
    return found


def test_the_records_of_a_closed_connection_go_to_another_member(open_member: Open) -> None:
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    assert two.fetch() == []
    one.close()
    assert handed_out(two) == [(0, 0, 3, 2)]
    assert two.acknowledge(0, 3, ACCEPT) == 0


def test_waiting_requests_are_woken(broker: Broker, open_member: Open) -> None:
    """Kafka answers it at the end of its wait; here that would be an empty response."""
    if not broker.is_ours:
        pytest.skip("of Barnabas alone")
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    assert two.fetch() == []
    got: list[Handed] = []
    waiting = threading.Thread(target=lambda: got.append(two.fetch(wait_ms=LOCK_S * 1000 - 5_000)))
    waiting.start()
    one.close()
    waiting.join(60)
    assert got == [[(0, 0, 3, 2)]]


def test_a_record_with_too_many_deliveries_is_not_delivered_again(
    broker: Broker, open_member: Open, group: str
) -> None:
    """A release by the end of a connection counts as a delivery."""
    assert configure(broker.address, group, **{"share.delivery.count.limit": "2"}) == 0
    one, two, three = open_member("one"), open_member("two"), open_member("three")
    assert handed_out(one) == [(0, 0, 3, 1)]
    one.close()
    assert handed_out(two) == [(0, 0, 3, 2)]
    two.close()
    produce_batch(broker.address, group, [b"later"])
    assert handed_out(three) == [(0, 4, 4, 1)]


def test_what_was_accepted_before_the_connection_closed_stays_so(open_member: Open) -> None:
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    assert one.acknowledge(1, 2, ACCEPT) == 0
    assert two.fetch() == []
    one.close()
    found = handed_out(two)
    if found == [(0, 0, 0, 2)]:  # only one of the two gaps is allowed, too
        found += handed_out(two)
    assert found == [(0, 0, 0, 2), (0, 3, 3, 2)]


def test_a_session_is_gone_with_its_connection(broker: Broker, open_member: Open) -> None:
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    assert two.fetch() == []
    one.close()
    assert handed_out(two) == [(0, 0, 3, 2)]  # the broker has noticed the close
    back = again(one, broker)
    assert back.fetch() == [] and back.answer.errorCode == NO_SESSION
    assert back.acknowledge(0, 3, ACCEPT) == NO_SESSION
    back.session = 0
    assert back.fetch() == [] and back.answer.errorCode == 0
    back.close()


def test_a_fetch_that_waits_ends_with_its_connection(
    broker: Broker, open_member: Open, group: str
) -> None:
    """Records that it acquired meanwhile, if any, are released."""
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    assert one.acknowledge(0, 3, ACCEPT) == 0
    closing = threading.Timer(0.3, lambda: one.wire._socket.shutdown(2))
    closing.start()
    with pytest.raises(ConnectionError):
        one.fetch(wait_ms=LOCK_S * 1000 - 5_000, minBytes=1)
    closing.join()
    produce_batch(broker.address, group, [b"later"])
    assert handed_out(two) in ([(0, 4, 4, 1)], [(0, 4, 4, 2)])


def test_another_connection_of_the_member_may_close(broker: Broker, open_member: Open) -> None:
    """A connection that did not begin the session."""
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    side = again(one, broker)
    assert side.acknowledge(0, 0, ACCEPT) == 0
    side.close()
    one.session = side.session
    assert two.fetch(wait_ms=1_000, minBytes=1) == []
    assert one.acknowledge(1, 3, ACCEPT) == 0


def test_a_session_that_began_anew_elsewhere_outlives_the_older_connection(
    broker: Broker, open_member: Open
) -> None:
    one, two = open_member("one"), open_member("two")
    assert handed_out(one) == [(0, 0, 3, 1)]
    anew = again(one, broker)
    anew.session = 0
    assert anew.fetch() == [] and anew.answer.errorCode == 0
    one.close()
    assert two.fetch(wait_ms=1_500, minBytes=1) == []
    assert anew.fetch() == [] and anew.answer.errorCode == 0
    assert anew.acknowledge(0, 3, ACCEPT) == 0
    anew.close()


@pytest.mark.java
def test_a_killed_consumer_gives_its_records_back(
    broker: Broker, group: str, tmp_path: Path
) -> None:
    """Kafka's own KafkaShareConsumer, whose process is killed while it has acquired records."""
    reason = missing(KAFKA)
    if reason:
        pytest.skip(reason)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    doomed, other = (ShareClients(KAFKA, broker.address, folder) for folder in folders)
    try:
        explicit = {"share_acknowledgement_mode": "explicit"}
        taken = doomed.open("doomed", group, [group], **explicit).poll_until(4)
        assert [row[3:] for row in taken] == [(str(n), 1) for n in range(4)]
        heir = other.open("heir", group, [group], **explicit)
        assert heir.poll() == []
        doomed.process.kill()
        assert [row[3:] for row in heir.poll_until(4, polls=50)] == [(str(n), 2) for n in range(4)]
    finally:
        other.close()
        doomed.close()
