"""Histories in which each step is given, because seeds reach them too rarely."""

import pytest
from simulation import clients
from simulation.judge import Violation
from simulation.world import RECREATED, TOPIC, World

from barnabas.controller.controller import NOTES_KEPT_S, NOTES_LOOKED_AT_S
from barnabas.errors import FencedLeaderEpoch
from barnabas.metadata import znodes
from barnabas.metadata.tree import CreateNode, OutcomeUnknown
from barnabas.server import follower_truncation
from barnabas.wire import request, response
from barnabas.wire.headers import decode_response_header, encode_request
from barnabas.wire.internal import SHARE_GROUP_STATE

STOP_REPLICA = 5


def follower_truncates_and_leads(folder):
    """KIP-101. Broker 1 leads, and dies when brokers 2 and 3 have the committed record; 3 has one
    more, and does not know yet that the first one is committed. 2 leads, 3 truncates its log and
    is elected before it has fetched again. Returns the world at the end."""
    world = World(1, folder)
    with world.opened():
        place, first, second, third = (TOPIC, 0), *world.brokers.values()
        log = world.partitions()[place].log
        assert world.partitions()[place].replicas == (1, 2, 3) and world.leads(first, log)

        def send():
            world.producers.send_to(first, log, may_begin=True)

        send()
        world.until(lambda: world.producers.is_idle, "the first batch is not acknowledged")
        world.until(lambda: world.is_whole, "the followers do not know that it is committed")
        before = world.counts["acknowledged"]
        send()
        fetch(world, second)
        send()
        fetch(world, third)
        fetch(world, third)  # now the leader knows that it has both batches
        known = third.table.partition(*place).high_watermark
        world.loses_answer = lambda _key, target: target is first
        fetch(world, second)  # the leader knows that it has the first batch
        del world.loses_answer
        world.producers.poll()
        ends = [broker.table.partition(*place).log.end_offset for broker in (second, third)]
        committed = first.table.partition(*place).high_watermark
        assert world.counts["acknowledged"] > before
        assert known < committed == ends[0] < ends[1]

        die(world, first)
        world.run_all(lambda: leads(world, second, place, third), "fetcher", "2 does not lead")
        fetch(world, third)
        assert world.counts["truncations"] == 1
        die(world, second)
        world.run_all(lambda: leads(world, third, place), "fetcher", "3 does not lead")
        world.settle()
    return world


def fetch(world, broker):
    world.run_named(broker, "fetcher")


def die(world, broker):
    broker.kill()
    world.server.expire(broker.session.session_id)


def leads(world, broker, place, *followers):
    epoch = world.partitions()[place].state.leader_epoch
    handles = [row.table.partition(*place) for row in (broker, *followers)]
    return world.leads(broker, world.partitions()[place].log) and all(
        (row.leader_id, row.leader_epoch) == (broker.node_id, epoch) for row in handles
    )


@pytest.fixture(autouse=True)
def one_producer(monkeypatch):
    monkeypatch.setattr(clients, "PRODUCERS", 1)


def test_a_follower_that_truncates_and_leads_at_once_has_all_committed_records(tmp_path):
    assert follower_truncates_and_leads(tmp_path).counts["elections"] >= 2


def move_of_a_partition_whose_leader_has_restarted(folder):
    """The controller knows the new registration of the leader, and has not made another one leader
    yet, when a move begins. Returns the leader, and the state of the partition."""
    world = World(1, folder, brokers=4)
    with world.opened():
        place, controller, leader = (TOPIC, 1), world._controller(), world.brokers[2]
        assert controller is world.brokers[1]
        assert world.partitions()[place].replicas == (2, 3, 4)
        assert world.leads(leader, world.partitions()[place].log)
        leader.kill()
        world.start(leader)
        controller.reader.refresh_brokers()
        wanted = {place: (2, 3, 1)}
        assert controller.reassignments.begin(controller.role.fence(), wanted) == {place: None}
        return leader.node_id, world.partitions()[place].state


def test_a_move_does_not_keep_a_leader_that_has_restarted(tmp_path):
    """KIP-903: it may have lost records. The state that the move writes would make it a steady
    member of the ISR."""
    leader, state = move_of_a_partition_whose_leader_has_restarted(tmp_path)
    assert state.leader != leader and leader not in state.isr


def test_a_controller_whose_clock_is_ahead_keeps_the_notes_of_changes(tmp_path):
    """It deleted notes at once whose changes other brokers had not read yet: these had old ISRs,
    or old settings, until the next change."""
    world = World(1, tmp_path)
    with world.opened():
        controller = world._controller()
        data = znodes.encode_partitions([(TOPIC, 0)])
        operation = CreateNode(znodes.ISR_CHANGE_PREFIX, data, sequence=True)
        path = controller.session.multi([operation])[0]

        def is_kept_after(seconds):
            world._pass_time(seconds * 10**9)
            world.run_named(controller, "controller")
            return world.server.table.find(path) is not None

        world._move_clock(controller, 3_600_000)
        assert is_kept_after(NOTES_LOOKED_AT_S)
        assert is_kept_after(NOTES_KEPT_S - NOTES_LOOKED_AT_S)
        assert not is_kept_after(2 * NOTES_LOOKED_AT_S)


def test_a_share_coordinator_does_not_answer_from_records_that_it_may_lose(tmp_path):
    """It is elected again, and its log has the epoch of a partition's leader, which its followers
    lack. If it answered the leader and died, its successor would let the former leader write."""
    world = World(1, tmp_path, has_share_group=True)
    with world.opened():
        place = SHARE_GROUP_STATE, 0
        row = world.partitions()[place]
        first, second, third = (world.brokers[node_id] for node_id in row.replicas)
        assert world.leads(first, row.log)
        journal, answers = first.coordinators.share_log, []
        journal.append(0, [(b"key", b"value")], answers.append)
        world.run_named(first, "round")
        handle = first.table.partition(*place)
        assert handle.log.end_offset > handle.high_watermark
        die(world, third)
        world.run_all(
            lambda: handle.leader_epoch > 0 and leads(world, first, place, second),
            "fetcher",
            "1 is not elected again",
        )
        for _ in range(10):
            world.run_named(first, "loader")
        assert journal.led_partitions()[0] is False
        world.until(lambda: journal.led_partitions()[0], "it is not loaded")
        assert handle.log.end_offset == handle.high_watermark


def test_a_topic_does_not_begin_with_the_offsets_of_its_deleted_namesake(tmp_path):
    """Its leader is killed before the next write of the checkpoints. What no follower has is not
    committed, and no record lies below the log's start, to which DeleteRecords had moved it."""
    world = World(1, tmp_path)
    with world.opened():
        place, controller, leader = (RECREATED, 0), world._controller(), world.brokers[2]
        assert controller is not leader

        def create_and_send():
            world.administrator.create(controller, RECREATED, {0: (2, 3)})
            world.until(lambda: world.is_whole, "the topic is not served")
            world.producers.send_to(leader, world.partitions()[place].log, may_begin=True)

        create_and_send()
        world.until(lambda: world.producers.is_idle and world.is_whole, "nothing is acknowledged")
        handle = leader.table.partition(*place)
        handle.log.advance_log_start(handle.high_watermark)
        assert handle.log.start_offset > 0
        leader.checkpoints.write_all()
        world.administrator._delete(controller)
        world.until(lambda: world.is_whole, "the topic is not deleted")
        create_and_send()
        end = leader.table.partition(*place).log.end_offset
        leader.kill()
        world.start(leader)
        handle = leader.table.partition(*place)
        assert (handle.log.start_offset, handle.log.end_offset) == (0, end)
        assert end > 0 == handle.high_watermark


def test_no_batch_for_a_deleted_topic_is_waited_for(tmp_path):
    """A producer whose broker has not heard of the deletion sends one more."""
    world = World(1, tmp_path)
    with world.opened():
        controller = world._controller()
        world.administrator.create(controller, RECREATED, {0: (2, 3)})
        world.until(lambda: world.is_whole, "the topic is not served")
        log = world.partitions()[RECREATED, 0].log
        world.administrator._delete(controller)
        world.until(lambda: world.is_whole, "the topic is not deleted")
        world.producers.poll()
        world.producers.send_to(world.brokers[2], log, may_begin=True)
        assert world.counts["error 100"] == 1
        assert world.producers.is_idle


def test_a_broker_that_does_not_learn_of_its_election_is_the_controller(tmp_path):
    """The answer to the multi that elected it was lost with the connection. It was in its own way,
    and no other broker could take its place."""
    world = World(1, tmp_path)
    with world.opened():
        controller = world._controller()
        others = [row for row in world.brokers.values() if row is not controller]
        for broker in others:
            broker.session.multi = losing_the_election(broker.session, broker.session.multi)
        die(world, controller)
        world.run_all(lambda: world._controller() in others, "fetcher", "there is no controller")


def losing_the_election(session, multi):
    def carried_out(operations):
        results = multi(operations)
        if any(row.path == znodes.CONTROLLER_PATH for row in operations):
            session.multi = multi
            session.disconnect()  # for a moment
            raise OutcomeUnknown("the connection was lost")
        return results

    return carried_out


def test_a_truncation_to_the_high_watermark_is_found(tmp_path, monkeypatch):
    def high_watermark(own, high_watermark, _epoch, _end):
        return min(high_watermark, own.end_offset)

    monkeypatch.setattr(follower_truncation, "common_end", high_watermark)
    with pytest.raises(Violation, match="is out of order"):  # the batch behind the lost one
        follower_truncates_and_leads(tmp_path)


def test_a_late_stop_does_not_end_a_replica_with_a_newer_leader_epoch(tmp_path):
    """A move removes a replica, and the next one assigns it again. The StopReplica of the first
    came late, after the broker had read the new assignment, and no LeaderAndIsr changed that: the
    replica never fetched again."""
    world = World(1, tmp_path)
    with world.opened():
        place, first, second, third = (TOPIC, 0), *world.brokers.values()
        die(world, first)
        world.run_all(lambda: leads(world, second, place, third), "fetcher", "2 does not lead")
        epoch = world.partitions()[place].state.leader_epoch

        def stop(leader_epoch):
            message = request(STOP_REPLICA)
            row = message.struct("topicStates.partitionStates")(
                partitionIndex=place[1], leaderEpoch=leader_epoch, deletePartition=False
            )
            topic = message.struct("topicStates")(topicName=place[0], partitionStates=[row])
            view = third.reader.state
            body = message.cls(
                controllerId=view.controller_id,
                controllerEpoch=view.controller_epoch,
                brokerEpoch=view.brokers[third.node_id].epoch,
                topicStates=[topic],
            )
            frame = encode_request(STOP_REPLICA, 4, 1, "late", body, framed=False)
            answer = world.handled(third, frame)
            _, begin = decode_response_header(answer, STOP_REPLICA, 4)
            [found] = response(STOP_REPLICA).decode(answer, 4, begin).partitionErrors
            return found.errorCode, place in third.replicas.fetchers._places

        assert stop(epoch - 1) == (FencedLeaderEpoch.code, True)
        assert stop(epoch) == (0, False)
