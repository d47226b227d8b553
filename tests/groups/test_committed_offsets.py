"""Committed offsets: which members may commit, when a commit counts, transactions, expiry,
deletion."""

import pytest
from oracle.commit_twin import Producer
from oracle.group_rig import GROUP, Client, Rig, settle

from barnabas.coordinator.groups.group_records import Committed
from barnabas.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    UnknownMemberId,
)

MINUTE = 60_000


def consumer(rig, *topics, name="c0"):
    """A member that subscribes to topics and has its assignment."""
    import struct

    data = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    client = Client(rig, name)
    client.protocols = [("range", data + b"\0\0\0\0")]
    settle(client)
    return client


def test_a_commit_counts_when_it_is_durable_and_not_before():
    rig = Rig(immediately=False)
    told = rig.commit(7, metadata="note")
    assert told == [] and rig.committed() is None
    rig.journal.flush()
    assert told == [[None]] and rig.committed() == 7
    lost = rig.commit(8)
    rig.crash()
    assert lost == [] and rig.committed() == 7
    ((_, ((_, row, _),)),) = rig.coordinator.fetch(GROUP, [("t", [0])], False)
    assert (row.metadata, row.leader_epoch) == ("note", -1)


def test_a_commit_that_cannot_be_written_does_not_count():
    rig = Rig(immediately=False)
    told = rig.commit(7)
    rig.journal.flush(error=CoordinatorNotAvailable())
    assert isinstance(told[0][0], CoordinatorNotAvailable) and rig.committed() is None


def test_a_group_with_members_takes_commits_from_them_alone():
    rig = Rig()
    client = consumer(rig, "t")
    with pytest.raises(UnknownMemberId):
        rig.commit(1)
    with pytest.raises(IllegalGeneration):
        rig.commit(1, client.member, client.generation + 1)
    assert rig.commit(1, client.member, client.generation) == [[None]]


def test_too_much_metadata_costs_that_partition_alone():
    rig = Rig(metadata_bytes_max=4)
    rows = [
        ("t", 0, Committed(1, -1, "12345", 0)),
        ("t", 1, Committed(2, -1, "1234", 0)),
        ("t", 2, Committed(3, -1, "äää", 0)),
    ]
    told = []
    rig.commits.commit(GROUP, "", None, -1, rows, told.append)
    assert [type(error) for error in told[0]] == [
        OffsetMetadataTooLarge,
        type(None),
        OffsetMetadataTooLarge,
    ]
    assert [rig.committed(p) for p in range(3)] == [None, 2, None]


def test_offsets_of_a_transaction_count_with_its_marker():
    rig = Rig()
    rig.commit(1)
    for producer_id, commit, wanted in ((7, False, 1), (8, True, 9)):
        assert rig.commit(9, producer=Producer(producer_id, 0)) == [[None]]
        assert rig.committed() == 1
        ((_, ((_, _, unstable),)),) = rig.coordinator.fetch(GROUP, [("t", [0])], True)
        assert unstable
        rig.journal.marker(0, producer_id, commit)
        rig.coordinator.transaction_ended(0, producer_id, commit)
        assert rig.committed() == wanted
    rig.commit(20, producer=Producer(9, 0))
    rig.crash()
    assert rig.committed() == 9
    assert rig.coordinator.offsets.is_pending(GROUP, "t", 0)
    rig.coordinator.transaction_ended(0, 9, True)
    assert rig.committed() == 20


def test_of_a_pending_offset_and_a_plain_one_the_later_in_the_log_counts():
    """Kafka's rule, in either order in memory, and also after a restart."""
    for restart in (False, True):
        rig = Rig()

        def end(producer_id, commit=True, rig=rig, restart=restart):
            rig.journal.marker(0, producer_id, commit)
            rig.coordinator.transaction_ended(0, producer_id, commit)
            if restart:
                rig.crash()
            assert not rig.coordinator.offsets.is_pending(GROUP, "t", 0)
            return rig.committed()

        rig.commit(5, producer=Producer(7, 0))
        rig.commit(9)
        assert rig.coordinator.offsets.is_pending(GROUP, "t", 0)  # until then it makes readers wait
        assert end(7) == 9
        rig.commit(15, producer=Producer(7, 0))
        assert end(7) == 15
        rig.commit(20, producer=Producer(7, 0))
        rig.commit(21)
        rig.commit(19, producer=Producer(7, 0))
        assert end(7) == 19
        rig.commit(30, producer=Producer(7, 0))
        rig.commit(31)
        assert end(7, commit=False) == 31


def test_of_two_pending_offsets_the_later_in_the_log_counts():
    rig = Rig()
    for first, second in ((7, 8), (8, 7)):
        rig.commit(10, producer=Producer(7, 0))
        rig.commit(11, producer=Producer(8, 0))
        for producer_id in (first, second):
            rig.journal.marker(0, producer_id, True)
            rig.coordinator.transaction_ended(0, producer_id, True)
        assert rig.committed() == 11
        rig.crash()
        assert rig.committed() == 11


def test_offsets_of_a_group_without_members_expire_after_their_commit():
    rig = Rig(retention_ms=10 * MINUTE)
    rig.commit(1, partition=0)
    rig.timers.advance(6 * MINUTE)
    rig.commit(2, partition=1)
    rig.timers.advance(5 * MINUTE)
    assert rig.administration.expire() == 1
    assert (rig.committed(0), rig.committed(1)) == (None, 2)
    rig.timers.advance(6 * MINUTE)
    assert rig.administration.expire() == 1
    assert GROUP not in rig.coordinator.groups
    rig.crash()
    assert GROUP not in rig.coordinator.groups


def test_offsets_of_a_group_with_members_do_not_expire_while_it_subscribes():
    rig = Rig(retention_ms=10 * MINUTE)
    client = consumer(rig, "t")
    rig.commit(1, client.member, client.generation)
    row = Committed(5, -1, "", rig.timers.wall_ms())
    rig.commits.commit(
        GROUP, client.member, None, client.generation, [("other", 0, row)], lambda _: None
    )
    for _ in range(200):
        rig.timers.advance(5000)
        client.heartbeat()
    assert rig.administration.expire() == 1
    assert rig.committed() == 1
    assert "other" not in rig.coordinator.offsets.of(GROUP)


def test_an_empty_groups_offsets_expire_after_the_last_member_left():
    rig = Rig(retention_ms=10 * MINUTE)
    client = consumer(rig, "t")
    rig.commit(1, client.member, client.generation)
    for _ in range(200):
        rig.timers.advance(5000)
        client.heartbeat()
    client.leave()
    assert rig.administration.expire() == 0
    rig.timers.advance(9 * MINUTE)
    rig.crash()  # the journal has the time at which it became empty
    assert rig.administration.expire() == 0
    rig.timers.advance(2 * MINUTE)
    assert rig.administration.expire() == 1
    assert GROUP not in rig.coordinator.groups


def test_a_commit_with_a_retention_time_of_its_own_expires_by_it():
    rig = Rig(retention_ms=10 * MINUTE)
    now = rig.timers.wall_ms()
    row = Committed(1, -1, "", now, now + 60 * MINUTE)
    rig.commits.commit(GROUP, "", None, -1, [("t", 0, row)], lambda _: None)
    rig.crash()
    rig.timers.advance(59 * MINUTE)
    assert rig.administration.expire() == 0
    rig.timers.advance(1 * MINUTE)
    assert rig.administration.expire() == 1


def test_pending_offsets_keep_a_group():
    rig = Rig(retention_ms=MINUTE)
    rig.commit(1, producer=Producer(7, 0))
    rig.timers.advance(5 * MINUTE)
    rig.administration.expire()
    assert GROUP in rig.coordinator.groups
    rig.coordinator.transaction_ended(0, 7, False)
    rig.administration.expire()
    assert GROUP not in rig.coordinator.groups


@pytest.mark.parametrize("committed_first", [True, False])
def test_a_commit_that_is_being_written_while_offsets_expire_is_kept(committed_first):
    """Older offsets of its partition expire at the same time; an acknowledged commit is kept."""
    rig = Rig(retention_ms=10 * MINUTE, immediately=False)
    old = rig.commit(1)
    rig.journal.flush()
    rig.timers.advance(11 * MINUTE)
    if committed_first:
        new = rig.commit(2)
        assert rig.administration.expire() == 0
    else:
        assert rig.administration.expire() == 1
        new = rig.commit(2)
    while rig.journal.waiting:
        rig.journal.flush()
    assert old == new == [[None]] and rig.committed() == 2
    assert rig.administration.expire() == 0
    rig.crash()
    assert rig.committed() == 2


def test_a_commit_that_is_being_written_while_its_group_is_deleted_is_in_the_log_as_it_is_here():
    """A commit for a new partition comes after the deletion in the log; for a known one, before
    it."""
    rig = Rig(immediately=False)
    rig.commit(1)
    rig.journal.flush()
    told = [rig.commit(2), rig.commit(3, partition=1)]
    deleted = []
    rig.administration.delete_group(GROUP, deleted.append)
    while rig.journal.waiting:
        rig.journal.flush()
    assert told == [[[None]], [[None]]] and deleted == [None]
    assert (rig.committed(), rig.committed(1)) == (None, 3)
    rig.crash()
    assert (rig.committed(), rig.committed(1)) == (None, 3)


def test_offsets_expire_though_a_commit_could_not_be_written():
    rig = Rig(retention_ms=10 * MINUTE, immediately=False)
    rig.commit(1)
    rig.journal.flush()
    rig.timers.advance(11 * MINUTE)
    rig.commit(2)
    rig.journal.flush(error=CoordinatorNotAvailable())
    assert rig.administration.expire() == 1
    rig.journal.flush()
    assert rig.committed() is None


def test_offsets_of_a_deleted_topic_are_forgotten():
    rig = Rig()
    rig.commit(1)
    row = Committed(5, -1, "", 0)
    rig.commits.commit(GROUP, "", None, -1, [("other", 0, row)], lambda _: None)
    rig.administration.topics_deleted({"t", "never"})
    assert list(rig.coordinator.offsets.of(GROUP)) == ["other"]
    rig.crash()
    assert list(rig.coordinator.offsets.of(GROUP)) == ["other"]


def test_offsets_are_deleted_unless_members_subscribe_to_their_topic():
    rig = Rig()
    client = consumer(rig, "t")
    rig.commit(1, client.member, client.generation)
    told = []
    rig.administration.delete_offsets(GROUP, [("t", 0), ("other", 0)], told.append)
    assert [error and error.name for error in told[0]] == ["GROUP_SUBSCRIBED_TO_TOPIC", None]
    client.leave()
    rig.administration.delete_offsets(GROUP, [("t", 0), ("t", 1)], told.append)
    assert told[1] == [None, None] and rig.committed() is None


def test_records_of_the_future_are_passed_over():
    from barnabas.cext.record.records import Record
    from barnabas.wire.batches import encode_batch

    rig = Rig()
    rig.commit(1)
    odd = [
        Record(b"\0\0", b"\0\x63new", timestamp=1),
        Record(b"\0\x63what", b"\0\1\0\1g\0\1t\0\0\0\0", timestamp=1),
        Record(b"", b"\0\2\0\1x", timestamp=1),
        Record(b"\0\0", b"\0\2\0\1", timestamp=1),
    ]
    rig.journal.durable.append((0, encode_batch(odd)))
    rig.crash()
    assert rig.committed() == 1 and list(rig.coordinator.groups) == [GROUP]
