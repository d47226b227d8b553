"""Classic members in consumer groups, and groups that change their protocol while they have
members."""

import pytest
from oracle.consumer_rig import (
    INTERVAL_MS,
    REBALANCE_MS,
    Classic,
    Consumer,
    ConsumerRig,
    settle,
    subscription,
    together,
)
from oracle.group_rig import GROUP, SESSION_MS

from barnabas.coordinator.groups.consumer_protocol import (
    MalformedSubscription,
    assignment_bytes,
    assignment_of,
    subscription_of,
)
from barnabas.coordinator.groups.rebalance import Join
from barnabas.errors import CoordinatorNotAvailable, KafkaError


def classic_group(rig, count, **more):
    made = [Classic(rig, f"k{at}", **more) for at in range(count)]
    for _ in range(12):
        for one in made:
            one.step()
    assert sorted(p for one in made for p in one.owned["t"]) == list(range(rig.topics["t"]))
    return made


def go_on(rig, *members, rounds=14, owned_by_all=True):
    """Each member takes its next steps; at the end every partition has one reader."""
    for _ in range(rounds):
        for one in members:
            one.step() if isinstance(one, Classic) else one.heartbeat()
        seen = [row for one in members for row in one.reading]
        assert len(seen) == len(set(seen)), [(m.name, sorted(m.reading)) for m in members]
        rig.timers.advance(100)
    if owned_by_all:
        assert len(seen) == sum(rig.topics.values()), [(m.name, m.reading) for m in members]


@pytest.mark.parametrize("version", [0, 1])
def test_from_classic_to_consumer_and_back_with_partitions_read_all_the_time(version):
    rig = ConsumerRig({"t": 6})
    old = classic_group(rig, 2, version=version)
    generation = rig.group.generation
    new = [Consumer(rig, "n0"), Consumer(rig, "n1")]
    go_on(rig, *old, new[0])
    assert rig.group.group_type == "consumer" and rig.group.epoch > generation
    assert all(one.reading for one in (*old, new[0]))
    go_on(rig, *old, *new)
    assert "UNKNOWN_MEMBER_ID" not in old[0].errors + old[1].errors
    old[0].leave()
    old[1].leave()
    go_on(rig, *new)
    assert rig.group.classic_count == 0 and rig.group.state == "Stable"
    # And back: classic members join, and the others leave.
    again = [Classic(rig, f"b{at}", version=version) for at in range(2)]
    go_on(rig, *new, *again)
    new[0].leave()
    go_on(rig, new[1], *again)
    assert rig.group.group_type == "consumer"
    new[1].leave()
    assert rig.group.group_type == "classic" and rig.group.state == "PreparingRebalance"
    go_on(rig, *again)
    assert rig.group.state == "Stable" and len(rig.group.members) == 2


def test_what_a_migrated_group_has_is_kept_over_a_restart():
    rig = ConsumerRig({"t": 6})
    old = classic_group(rig, 2)
    new = Consumer(rig, "n0")
    go_on(rig, *old, new)
    before = rig.kept()
    assert rig.compacted().kept() == before
    rig.crash()
    assert rig.kept() == before
    new.give_up()
    go_on(rig, *old, new)
    new.leave()
    go_on(rig, *old)
    assert rig.group.group_type == "classic"
    members = set(rig.group.members)
    rig.crash()
    assert rig.group.group_type == "classic" and set(rig.group.members) == members


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_group_consumer_migration_policy(policy, up, down):
    rig = ConsumerRig(migration=policy)
    (old,) = classic_group(rig, 1)
    new = Consumer(rig, "n")
    new.heartbeat()
    assert (new.errors == {"GROUP_ID_NOT_FOUND": 1}) != up
    assert rig.group.group_type == ("consumer" if up else "classic")
    old.step()
    rig = ConsumerRig(migration=policy)
    (new,) = together(rig, 1)
    other = Classic(rig, "k")
    go_on(rig, new, other)
    assert rig.group.group_type == "consumer" and len(rig.group.members) == 2
    new.leave()
    assert rig.group.group_type == ("classic" if down else "consumer")
    go_on(rig, other)


def test_a_group_without_members_becomes_what_its_next_member_speaks():
    rig = ConsumerRig(migration="disabled")
    (old,) = classic_group(rig, 1)
    old.leave()
    assert rig.group.state == "Empty"
    (new,) = together(rig, 1)
    assert rig.group.group_type == "consumer" and len(new.owned) == 6
    new.leave()
    classic_group(rig, 1)
    assert rig.group.group_type == "classic"
    members = set(rig.group.members)
    rig.crash()
    assert rig.group.group_type == "classic" and set(rig.group.members) == members


def test_offsets_outlive_every_change():
    rig = ConsumerRig()
    (old,) = classic_group(rig, 1)
    assert rig.commit(7, old.member, old.generation) == [[None]]
    new = Consumer(rig, "n")
    go_on(rig, old, new)
    old.leave()
    settle(new)
    assert rig.committed() == 7
    new.leave()
    rig.crash()
    assert rig.committed() == 7


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0\0\7"])
def test_a_group_whose_members_are_no_consumers_stays_classic(metadata):
    rig = ConsumerRig()
    told = []
    asked = Join(
        "",
        None,
        "k",
        "/h",
        SESSION_MS,
        REBALANCE_MS,
        "consumer",
        [("range", metadata)],
        False,
        True,
    )
    rig.coordinator.join(GROUP, asked, told.append)
    assert told[0].error is None
    new = Consumer(rig, "n")
    new.heartbeat()
    assert new.errors == {"GROUP_ID_NOT_FOUND": 1} and rig.group.group_type == "classic"
    assert list(rig.group.members) == [told[0].member_id]


def test_a_classic_member_of_a_consumer_group_needs_a_common_protocol():
    rig = ConsumerRig()
    together(rig, 1)
    told = []
    for kind, names in (("connect", ["range"]), ("consumer", []), ("consumer", ["sticky"])):
        protocols = [(name, subscription()) for name in names]
        asked = Join("", None, "k", "/h", SESSION_MS, REBALANCE_MS, kind, protocols, False, True)
        rig.coordinator.join(GROUP, asked, told.append)
    assert [None if r.error is None else r.error.name for r in told] == [
        "INCONSISTENT_GROUP_PROTOCOL",
        "INCONSISTENT_GROUP_PROTOCOL",
        None,  # the first classic member chooses the protocol
    ]
    asked = Join(
        "", None, "k", "/h", SESSION_MS, REBALANCE_MS, "consumer", [("range", b"")], False, True
    )
    rig.coordinator.join(GROUP, asked, told.append)
    assert told[-1].error.name == "INCONSISTENT_GROUP_PROTOCOL"


def test_classic_members_must_join_again_and_are_fenced_when_they_do_not():
    rig = ConsumerRig()
    (new,) = together(rig, 1)
    old = Classic(rig, "k")
    go_on(rig, new, old)
    third = Consumer(rig, "n2")
    third.heartbeat()
    assert old.wants == "heartbeat"
    for _ in range(REBALANCE_MS // INTERVAL_MS + 2):
        if old.member in rig.group.members:
            with pytest.raises(KafkaError) as caught:
                rig.coordinator.heartbeat(GROUP, old.member, None, old.generation)
            assert caught.value.name == "REBALANCE_IN_PROGRESS"
        new.heartbeat()
        third.heartbeat()
        rig.timers.advance(INTERVAL_MS)
    assert old.member not in rig.group.members
    settle(new, third)
    assert sorted(new.owned + third.owned) == [0, 1, 2, 3, 4, 5]


def test_a_classic_member_that_joined_and_does_not_sync_is_fenced():
    rig = ConsumerRig()
    (new,) = together(rig, 1)
    old = Classic(rig, "k")
    old.step()
    old.step()
    assert old.wants == "sync" and old.member in rig.group.members
    for _ in range(REBALANCE_MS // INTERVAL_MS + 1):
        new.heartbeat()
        rig.timers.advance(INTERVAL_MS)
    assert old.member not in rig.group.members


def test_errors_of_classic_requests_on_a_consumer_group():
    rig = ConsumerRig()
    (new,) = together(rig, 1)
    old = Classic(rig, "k")
    go_on(rig, new, old)
    coordinator = rig.coordinator

    def heartbeat(member, instance, generation):
        try:
            coordinator.heartbeat(GROUP, member, instance, generation)
        except KafkaError as error:
            return error.name
        return None

    assert heartbeat(old.member, None, old.generation) is None
    assert heartbeat(old.member, None, old.generation + 1) == "ILLEGAL_GENERATION"
    assert heartbeat("nobody", None, 1) == "UNKNOWN_MEMBER_ID"
    assert heartbeat(new.member, None, new.epoch) == "UNKNOWN_MEMBER_ID"
    assert heartbeat(old.member, "nobody", old.generation) == "UNKNOWN_MEMBER_ID"
    told = []
    sync = coordinator.sync
    sync(GROUP, old.member, None, old.generation, ("consumer", "sticky"), (), told.append)
    sync(GROUP, old.member, None, old.generation, ("connect", None), (), told.append)
    sync(GROUP, old.member, None, old.generation + 1, (None, None), (), told.append)
    names = [result.error.name for result in told]
    assert names == ["INCONSISTENT_GROUP_PROTOCOL"] * 2 + ["ILLEGAL_GENERATION"]
    outcomes = coordinator.leave(GROUP, [(new.member, None), ("nobody", None), (old.member, None)])
    assert [None if e is None else e.name for _, _, e in outcomes] == [
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        None,
    ]
    assert list(rig.group.members) == [new.member]
    assert rig.commit(1, new.member, new.epoch) == [[None]]


def test_commits_of_classic_members_go_by_their_generation():
    rig = ConsumerRig()
    (new,) = together(rig, 1)
    old = Classic(rig, "k")
    go_on(rig, new, old)
    assert rig.commit(5, old.member, old.generation, version=8) == [[None]]
    with pytest.raises(KafkaError) as caught:
        rig.commit(5, old.member, old.generation - 1)
    assert caught.value.name == "ILLEGAL_GENERATION"


def test_a_static_member_changes_its_protocol_in_its_place():
    rig = ConsumerRig()
    old = classic_group(rig, 2)
    old[0].leave()
    static = Classic(rig, "s", instance="i")
    go_on(rig, old[1], static)
    mine = static.reading
    new = Consumer(rig, "n", instance="i")
    new.heartbeat()  # the upgrade, by the same instance
    assert rig.group.group_type == "consumer" and rig.group.instances == {"i": "n"}
    go_on(rig, old[1], new)
    assert new.reading == mine
    back = Classic(rig, "s2", instance="i")
    back.step()
    assert rig.group.group_type == "classic" and "i" in rig.group.instances
    go_on(rig, old[1], back)
    assert rig.group.state == "Stable"


def test_a_static_member_joins_a_consumer_group_again_by_its_own_id_and_by_no_other():
    rig = ConsumerRig()
    (new,) = together(rig, 1)
    static = Classic(rig, "s", instance="i")
    go_on(rig, new, static)
    member = static.member
    joins = Consumer(rig, "n2")
    go_on(rig, new, static, joins)  # the static member joins again to revoke partitions
    assert rig.group.instances == {"i": member} and static.generation == rig.group.epoch
    assert "FENCED_INSTANCE_ID" not in static.errors
    impostor = Classic(rig, "s2", instance="i")
    impostor.member = "another"
    impostor.step()
    assert impostor.errors == ["FENCED_INSTANCE_ID"]
    assert rig.group.instances == {"i": member}


def test_a_change_that_is_not_written_is_tried_again():
    rig = ConsumerRig()
    (old,) = classic_group(rig, 1)
    rig.journal.immediately = False
    new = Consumer(rig, "n")
    new.heartbeat()
    rig.journal.flush(error=CoordinatorNotAvailable())
    assert new.errors == {"COORDINATOR_NOT_AVAILABLE": 1}
    rig.journal.flush()
    rig.journal.immediately = True
    go_on(rig, old, new)
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_subscriptions_of_all_versions(version):
    written = subscription(("b", "a"), {"t": {1, 0}}, min(version, 3), rack="r")
    found = subscription_of(version.to_bytes(2, "big") + written[2:])
    assert found.topics == ("a", "b")
    assert found.owned == ({"t": frozenset({0, 1})} if version else {})
    assert found.rack_id == ("r" if version >= 3 else None)
    assert assignment_of(assignment_bytes({"t": {2, 1}}, version)) == {"t": frozenset({1, 2})}


def test_subscriptions_chopped_anywhere_are_refused_with_one_error():
    whole = subscription(("topic", "other"), {"topic": {0}}, 3)
    for size in range(len(whole)):
        with pytest.raises(MalformedSubscription):
            subscription_of(whole[:size])
    with pytest.raises(MalformedSubscription):
        assignment_of(b"\xff\xff\0\0\0\0")
    assert assignment_of(b"") == {}


def test_members_of_an_earlier_group_whose_end_was_not_written_stay_gone():
    """The group was consumer, classic, and consumer again: the tombstones of the first were
    lost."""
    rig = ConsumerRig()
    (first,) = together(rig, 1)
    rig.timers.advance(60_000)
    assert rig.group.state == "Empty"
    rig.crash()
    (first,) = together(rig, 1)
    rig.journal.immediately = False
    first.leave()
    old = Classic(rig, "k")
    old.step()
    old.step()
    rig.journal.flush(error=CoordinatorNotAvailable())
    rig.journal.waiting.clear()
    rig.journal.immediately = True
    if rig.group.group_type == "classic":
        rig.coordinator.leave(GROUP, [(old.member, None)])
    second = Consumer(rig, "again")
    settle(second)
    assert list(rig.group.members) == ["again"]
    before = rig.kept()
    rig.crash()
    assert rig.kept() == before
