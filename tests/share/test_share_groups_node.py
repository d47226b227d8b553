"""Share groups in a whole broker whose clock is moved: members, settings, persisted state."""

import time
from contextlib import contextmanager

import pytest
from compat.support import Wire, create_topic, produce_batch
from share.share_member import TOPIC_RESOURCE, ShareMember, configure

from barnabas import Broker
from barnabas.coordinator.groups.group_writes import RETRY_MS
from barnabas.coordinator.share.share_partition import ARCHIVED
from barnabas.errors import CoordinatorNotAvailable, UnknownMemberId
from barnabas.wire import request

pytestmark = pytest.mark.takes(seconds=23)

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
INVALID_REQUEST, INVALID_RECORD_STATE, FULL, LIMIT = 42, 121, 81, 133
INVALID_CONFIG = 40
PATIENCE_S = 20


@contextmanager
def broker_with(path, **settings):
    base = {
        "log.dirs": str(path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "2",
        "share.coordinator.state.topic.num.partitions": "2",
    }
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with Broker(base | named) as broker:
        broker.address = broker.bootstrap_servers
        yield broker


def filled(broker, topic="t", records=4, partitions=1):
    create_topic(broker.address, topic, partitions)
    if records:
        produce_batch(broker.address, topic, [b"%d" % n for n in range(records)])


def member_of(broker, group="g", name="m1", topic="t"):
    return ShareMember(broker.address, group, name).join(topic)


def until(check):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := check()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def last_state(broker):
    """The state of the last offsets in the only share partition."""
    state = broker.node.serving.coordinators.share().state
    (key,) = state.keys()
    found = []
    state.summary(key, lambda _error, kept: found.append(kept))
    return found[0].batches[-1].state


def from_earliest(broker, group="g", **settings):
    assert configure(broker.address, group, share_auto_offset_reset="earliest", **settings) == 0


def test_where_a_group_begins_that_never_read(tmp_path):
    with broker_with(tmp_path) as broker:
        filled(broker)
        late = member_of(broker, "late")  # share.auto.offset.reset: latest
        assert late.fetch() == []
        assert configure(broker.address, "early", **{"share.auto.offset.reset": "earliest"}) == 0
        assert member_of(broker, "early").fetch() == [(0, 0, 3, 1)]
        for age, offsets in (("PT1H", [(0, 0, 3, 1)]), ("PT0S", [])):
            by_age = {"share.auto.offset.reset": f"by_duration:{age}"}
            broker.clock.set_wall(ms=60_000)
            assert configure(broker.address, age, **by_age) == 0
            assert member_of(broker, age).fetch() == offsets
        produce_batch(broker.address, "t", [b"x"])
        assert late.fetch(wait_ms=5000) == [(0, 4, 4, 1)]


def test_a_lock_lasts_as_long_as_the_group_says(tmp_path):
    with broker_with(tmp_path, **{"group.share.record.lock.duration.ms": "20000"}) as broker:
        filled(broker)
        from_earliest(broker)
        one, two = member_of(broker), member_of(broker, name="m2")
        assert one.fetch() == [(0, 0, 3, 1)]
        assert one.answer.acquisitionLockTimeoutMs == 20_000
        broker.clock.advance(seconds=19)
        assert two.fetch() == []
        broker.clock.advance(seconds=2)
        assert until(two.fetch) == [(0, 0, 3, 2)]
        assert one.acknowledge(0, 3, ACCEPT) == INVALID_RECORD_STATE
        # The group's own duration overrides the broker's.
        assert configure(broker.address, "g", **{"share.record.lock.duration.ms": "40000"}) == 0
        assert two.acknowledge(0, 3, RELEASE) == 0
        assert until(one.fetch) == [(0, 0, 3, 3)]
        assert (one.beat(), two.beat()) == (0, 0)
        broker.clock.advance(seconds=39)
        assert (one.beat(), two.beat()) == (0, 0)
        assert two.fetch() == []
        broker.clock.advance(seconds=2)
        assert until(two.fetch) != []


def test_a_renewed_lock_lasts_longer_unless_the_group_forbids_it(tmp_path):
    with broker_with(tmp_path) as broker:
        filled(broker)
        from_earliest(broker)
        one, two = member_of(broker), member_of(broker, name="m2")
        assert one.fetch() == [(0, 0, 3, 1)]
        broker.clock.advance(seconds=25)
        assert one.acknowledge(0, 3, RENEW, renews=True) == 0
        assert one.lock_ms == 30_000
        assert (one.beat(), two.beat()) == (0, 0)
        broker.clock.advance(seconds=25)
        assert two.fetch() == []
        assert configure(broker.address, "g", **{"share.renew.acknowledge.enable": "false"}) == 0
        assert one.acknowledge(0, 3, RENEW, renews=True) == INVALID_RECORD_STATE
        broker.clock.advance(seconds=6)
        assert until(two.fetch) == [(0, 0, 3, 2)]


def test_a_record_is_given_up_after_so_many_deliveries(tmp_path):
    with broker_with(tmp_path, **{"group.share.delivery.count.limit": "3"}) as broker:
        from_earliest(broker)
        from_earliest(broker, "own", **{"share.delivery.count.limit": "2"})
        for group, deliveries in (("g", 3), ("own", 2)):
            filled(broker, group, records=1)
            member = member_of(broker, group, topic=group)
            for count in range(1, deliveries + 1):
                assert member.fetch() == [(0, 0, 0, count)]
                assert member.acknowledge(0, 0, RELEASE) == 0
            assert member.fetch() == []
            (topic_id,) = member.assigned
            produce_batch(broker.address, group, [b"next"])
            got = member.fetch(wait_ms=5000)
            assert got[0][3] == 1 and got[0][1] >= 1
            assert member.acknowledge(got[0][1], got[0][2], ACCEPT) == 0
            assert sum(member.state(topic_id)) >= 2


def test_no_more_records_of_a_partition_are_out_than_allowed(tmp_path):
    settings = {"group.share.partition.max.record.locks": "100"}
    with broker_with(tmp_path, **settings) as broker:
        create_topic(broker.address, "t", 1)
        for _ in range(30):
            produce_batch(broker.address, "t", [b"x"] * 10)
        from_earliest(broker)
        from_earliest(broker, "own", **{"share.partition.max.record.locks": "200"})
        for group, most in (("g", 100), ("own", 200)):
            one, two = member_of(broker, group), member_of(broker, group, "m2")
            out = [row for _ in range(4) for row in one.fetch() + two.fetch()]
            assert sum(last - first + 1 for _, first, last, _ in out) == most
            assert one.fetch() == []


def test_heartbeats_and_sessions_of_members(tmp_path):
    settings = {
        "group.share.heartbeat.interval.ms": "7000",
        "group.share.session.timeout.ms": "50000",
        "group.share.max.size": "2",
    }
    with broker_with(tmp_path, **settings) as broker:
        filled(broker)
        from_earliest(broker)
        one, two = member_of(broker), member_of(broker, name="m2")
        assert one.heartbeat_ms == 7_000
        assert ShareMember(broker.address, "g", "m3").beat(["t"]) == FULL
        own = {"share.heartbeat.interval.ms": "9000", "share.session.timeout.ms": "60000"}
        assert configure(broker.address, "g", **own) == 0
        assert (one.beat(), two.beat()) == (0, 0) and one.heartbeat_ms == 9_000
        assert one.fetch() == [(0, 0, 3, 1)]
        broker.clock.advance(seconds=55)
        assert two.beat() == 0
        broker.clock.advance(seconds=10)  # m1 is removed, and its records are released
        assert until(two.fetch)[0][:3] == (0, 0, 3)
        assert one.beat() == 25  # UNKNOWN_MEMBER_ID


def test_sessions_have_a_limit(tmp_path):
    with broker_with(tmp_path, **{"group.share.max.share.sessions": "1"}) as broker:
        filled(broker)
        one, two = member_of(broker), member_of(broker, name="m2")
        one.fetch()
        two.fetch()
        assert two.answer.errorCode == LIMIT
        assert one.acknowledge(0, 0, ACCEPT, last_request=True) in (0, INVALID_REQUEST)
        two.fetch()
        assert two.answer.errorCode == 0


def test_the_assignor_gives_each_partition_a_reader(tmp_path):
    settings = {"group.share.assignors": "simple", "group.share.assignment.interval.ms": "0"}
    with broker_with(tmp_path, **settings) as broker:
        filled(broker, partitions=3)
        members = [member_of(broker, name=f"m{n}") for n in range(2)]
        members[0].beat()
        found = [index for member in members for rows in member.assigned.values() for index in rows]
        assert sorted(found) == [0, 1, 2]
        more = [member_of(broker, name=f"n{n}") for n in range(4)]
        for member in members:
            member.beat()
        counts = [sum(map(len, member.assigned.values())) for member in [*members, *more]]
        assert min(counts) >= 1 and max(counts) - min(counts) <= 1
        # A new partition is assigned to a member.
        grow = request(37)
        row = grow.struct("topics")(name="t", count=5, assignments=None)
        with Wire(broker.address) as wire:
            assert (
                wire.call(37, 3, grow.cls(topics=[row], timeoutMs=9000)).results[0].errorCode == 0
            )
        for member in [*members, *more]:
            assert member.beat() == 0
        for member in [*members, *more]:
            assert member.beat() == 0
        found = {i for m in [*members, *more] for rows in m.assigned.values() for i in rows}
        assert found == {0, 1, 2, 3, 4}


def test_members_that_join_one_after_the_other_are_assigned_together(tmp_path):
    settings = {"group.share.assignment.interval.ms": "15000"}
    with broker_with(tmp_path, **settings) as broker:
        filled(broker)
        assert configure(broker.address, "own", **{"share.assignment.interval.ms": "0"}) == 0
        for group in ("g", "own"):
            first = member_of(broker, group).epoch
            two = ShareMember(broker.address, group, "m2")
            assert two.beat(["t"]) == 0
            if group == "own":
                assert two.epoch == first + 1 and two.assigned
                continue
            assert two.epoch == first and not two.assigned
            broker.clock.advance(seconds=16)
            assert until(lambda two=two: two.beat() == 0 and two.assigned)
            assert two.epoch == first + 1


def test_bounds_of_what_a_group_may_ask_for(tmp_path):
    bounds = {
        "group.share.min.session.timeout.ms": "45500",
        "group.share.max.session.timeout.ms": "59000",
        "group.share.min.heartbeat.interval.ms": "5500",
        "group.share.max.heartbeat.interval.ms": "14000",
        "group.share.min.assignment.interval.ms": "900",
        "group.share.max.assignment.interval.ms": "14000",
        "group.share.min.record.lock.duration.ms": "16000",
        "group.share.max.record.lock.duration.ms": "59000",
        "group.share.min.delivery.count.limit": "3",
        "group.share.max.delivery.count.limit": "9",
        "group.share.min.partition.max.record.locks": "200",
        "group.share.max.partition.max.record.locks": "3000",
    }
    within = {
        "group.share.session.timeout.ms": "46000",
        "group.share.heartbeat.interval.ms": "6000",
    }
    with broker_with(tmp_path, **bounds, **within) as broker:
        for bound, limit in bounds.items():
            name = "share." + bound.split(".", 3)[3]
            beyond = int(limit) + (1 if ".max." in bound[:16] else -1)
            assert configure(broker.address, "g", **{name: str(beyond)}) == INVALID_CONFIG, bound
            assert configure(broker.address, "g", **{name: limit}) == 0, bound


def test_a_fetch_waits_without_a_thread_and_sees_what_comes(tmp_path):
    with broker_with(tmp_path, **{"num.io.threads": "1"}) as broker:
        filled(broker, records=0)
        from_earliest(broker)
        one = member_of(broker)
        assert one.fetch() == []
        ask = request(78)
        asked = {"groupId": "g", "memberId": "m1", "shareSessionEpoch": 1, "maxWaitMs": 60_000}
        body = ask.cls(maxBytes=1 << 20, maxRecords=10, batchSize=10, **asked)
        from barnabas.wire.headers import encode_request

        one.wire._socket.sendall(encode_request(78, 2, 1000, "c", body))
        time.sleep(0.1)  # it waits without blocking the only request handler
        produce_batch(broker.address, "t", [b"a"])
        began = time.monotonic()
        frame = one.wire._frame()
        assert time.monotonic() - began < 30 and b"a" in frame
        assert until(lambda: len(broker.node.serving.coordinators.share().waiting) == 0)


def test_readers_of_committed_records(tmp_path):
    """share.isolation.level: aborted records are not delivered, and records of open transactions
    wait."""
    from confluent_kafka import Producer

    with broker_with(tmp_path) as broker:
        filled(broker, records=0)
        from_earliest(broker, "all")
        from_earliest(broker, "committed", **{"share.isolation.level": "read_committed"})
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "p"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", b"aborted")
        producer.flush()
        everything, committed = member_of(broker, "all"), member_of(broker, "committed")
        assert everything.fetch(wait_ms=2000)[0][1:3] == (0, 0)
        assert committed.fetch() == []
        producer.abort_transaction()
        producer.begin_transaction()
        producer.produce("t", b"kept")
        producer.commit_transaction()
        got = committed.fetch(wait_ms=5000)
        offsets = {offset for _, first, last, _ in got for offset in range(first, last + 1)}
        assert offsets == {2}  # 1 and 3 are markers


def letters(broker, topic):
    return [(record.value, dict(record.headers)) for record in broker.records(topic)]


def test_dead_letters(tmp_path):
    """errors.deadletterqueue.topic.name and the other settings that decide whether dead letters are
    written."""
    with broker_with(tmp_path) as broker:
        filled(broker, records=4)
        name = {"errors.deadletterqueue.topic.name": "dlq.t"}
        from_earliest(broker, **name)
        member = member_of(broker)
        (topic_id,) = member.assigned

        def reject(offset):
            member.fetch()
            assert member.acknowledge(offset, offset, REJECT) == 0
            service = broker.node.serving.coordinators.share()
            assert until(lambda: not service.letters._waiting)

        member.fetch()
        reject(0)  # the topic does not exist and is not created automatically
        assert "dlq.t" not in broker.topics
        create_topic(broker.address, "dlq.t", 1)
        reject(1)  # errors.deadletterqueue.group.enable of the topic is false
        assert letters(broker, "dlq.t") == []
        enable = {"errors.deadletterqueue.group.enable": "true"}
        assert configure(broker.address, "dlq.t", TOPIC_RESOURCE, **enable) == 0
        reject(2)
        ((value, headers),) = until(lambda: letters(broker, "dlq.t"))
        assert value is None and headers["__dlq.errors.offset"] == b"2"
        copy = {"errors.deadletterqueue.copy.record.enable": "true"}
        assert configure(broker.address, "g", **copy) == 0
        reject(3)
        assert until(lambda: len(letters(broker, "dlq.t")) == 2)
        assert letters(broker, "dlq.t")[1][0] == b"3"
        assert until(lambda: last_state(broker) == ARCHIVED)


@pytest.mark.parametrize("prefix, made", [("dlq.", False), ("letters-", True)])
def test_the_topic_of_dead_letters_is_made_when_its_name_may_be(tmp_path, prefix, made):
    settings = {
        "errors.deadletterqueue.auto.create.topics.enable": "true",
        "errors.deadletterqueue.topic.name.prefix": prefix,
    }
    with broker_with(tmp_path, **settings) as broker:
        filled(broker, records=1)
        from_earliest(broker, **{"errors.deadletterqueue.topic.name": "letters-t"})
        member = member_of(broker)
        assert member.fetch() == [(0, 0, 0, 1)]
        assert member.acknowledge(0, 0, REJECT) == 0
        assert until(lambda: last_state(broker) == ARCHIVED)
        assert ("letters-t" in broker.topics) is made


def test_settings_of_the_state_topic(tmp_path):
    settings = {
        "share.coordinator.state.topic.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": "3",  # as many as there are brokers
        "share.coordinator.state.topic.min.isr": "2",
        "share.coordinator.state.topic.segment.bytes": "2097152",
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
    }
    with broker_with(tmp_path, **settings) as broker:
        filled(broker, records=20)
        from_earliest(broker)
        member = member_of(broker)
        state = broker.node.cluster()
        assert len(state.topic("__share_group_state").partitions) == 5
        assert len(state.topic("__share_group_state").partitions[0].replicas) == 1
        configs = state.config("topics", "__share_group_state")
        assert configs["min.insync.replicas"] == "1" and configs["segment.bytes"] == "2097152"
        assert configs["cleanup.policy"] == "delete" and configs["retention.ms"] == "-1"
        member.fetch()
        for offset in range(5):
            assert member.acknowledge(offset, offset, ACCEPT) == 0
        kinds = [record.key[:2] for record in broker.records("__share_group_state")]
        # The partition's first snapshot, then two updates between one snapshot and the next.
        assert kinds.count(b"\x00\x00") >= 2 and kinds.count(b"\x00\x01") >= 3


def test_what_was_kept_comes_back_after_a_restart(tmp_path):
    with broker_with(tmp_path / "data") as broker:
        filled(broker, records=6)
        from_earliest(broker)
        member = member_of(broker)
        (topic_id,) = member.assigned
        member.fetch()
        assert member.acknowledge(0, 5, ACCEPT, RELEASE, ACCEPT, REJECT, RELEASE, ACCEPT) == 0
        assert member.state(topic_id) == (0, 4)
    with broker_with(tmp_path / "data") as broker:
        again = ShareMember(broker.address, "g")
        again.epoch, again.assigned = member.epoch, member.assigned
        assert again.beat() == 0  # the group knows its member
        assert again.state(topic_id) == (0, 4)
        assert until(again.fetch) == [(0, 1, 1, 2), (0, 4, 4, 2)]
        assert again.acknowledge(1, 1, ACCEPT) == 0
        assert again.acknowledge(4, 4, ACCEPT) == 0
        assert again.fetch() == []


def test_the_state_of_a_deleted_topic_goes_and_a_group_can_be_deleted(tmp_path):
    with broker_with(tmp_path) as broker:
        filled(broker)
        filled(broker, "other")
        member = ShareMember(broker.address, "g").join("t", "other")
        assert member.fetch() is not None
        state = broker.node.serving.coordinators.share().state
        assert len(state.keys()) == 2
        broker.delete_topic("other")
        assert until(lambda: len(state.keys()) == 1)
        listed = member.call(16, 5, typesFilter=["Share"]).groups
        assert [(row.groupId, row.groupType, row.groupState) for row in listed] == [
            ("g", "share", "Stable")
        ]
        assert member.call(42, 2, groupsNames=["g"]).results[0].errorCode == 68  # NON_EMPTY_GROUP
        assert member.leave() == 0
        assert member.call(42, 2, groupsNames=["g"]).results[0].errorCode == 0
        assert state.keys() == [] and member.call(16, 5).groups == []


def test_a_last_member_whose_leaving_was_not_written_stays_away_after_a_restart(
    tmp_path, monkeypatch
):
    failed = []
    with broker_with(tmp_path / "data") as broker:
        filled(broker)
        member = member_of(broker)
        groups = broker.node.serving.coordinators.groups
        append = groups.append

        def fails_twice(partition, entries, done, **options):
            if len(failed) == 2:
                append(partition, entries, done, **options)
                return
            failed.append(len(entries))
            done(CoordinatorNotAvailable())

        writes = broker.node.serving.coordinators.share().groups._writes
        monkeypatch.setattr(writes, "_append", fails_twice)
        # The first response is COORDINATOR_NOT_AVAILABLE; when it retries, the member is already
        # removed.
        assert member.leave() == UnknownMemberId.code
        # The write of the whole group followed at once and failed, too; it succeeds after RETRY_MS.
        assert len(failed) == 2
        group = broker.node.serving.coordinators.share().groups.groups["g"]
        assert group.writes.behind and not group.members
        broker.clock.advance(seconds=RETRY_MS / 1000)
        assert until(lambda: not group.writes.behind)
    with broker_with(tmp_path / "data") as broker:
        group = until(lambda: broker.node.serving.coordinators.share().groups.groups.get("g"))
        assert group.state == "Empty"
