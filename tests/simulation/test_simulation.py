"""A simulated cluster loses no acknowledged record, and planted bugs are found."""

import os
import random
import time

import pytest
from long_form import LONG
from simulation import broker as simulated_broker
from simulation import clients, planted, readers
from simulation.run import does_count, faults_of, simulated

from barnabas.cext.record.records import encode_batch
from barnabas.controller import elections, reassignments
from barnabas.controller.controller import Controller
from barnabas.controller.controller_role import ClusterRole
from barnabas.coordinator import remote_markers
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.coordinator.share.share_state import ShareState
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.metadata.tree import ANY_VERSION
from barnabas.server import isr
from barnabas.server.replica_manager import ReplicaManager
from barnabas.storage.log_manager import LogManager

pytestmark = pytest.mark.takes(seconds=215)

KNOWN_COUNT, SEEDS_MAX = 10, 60
FRESH_S, FRESH_COUNT, FRESH_FAULTS = 15, 10_000, 100_000
PLANTED_SEEDS = 60


def check(seed):
    world, violation = simulated(seed)
    assert violation is None, f"seed {seed}: {violation}\n" + "\n".join(world.trace[-100:])
    return world


def test_known_seeds():
    """Runs the first seeds until enough of them had acknowledged records, elections, truncations
    and expired sessions."""
    counted = 0
    for seed in range(1, SEEDS_MAX + 1):
        counted += does_count(check(seed).counts)
        if counted == KNOWN_COUNT:
            return
    pytest.fail(f"{counted} of {SEEDS_MAX} seeds count, not {KNOWN_COUNT}")


def test_fresh_seeds():
    """Runs new seeds: for FRESH_S seconds of CPU, or, in the long form, until FRESH_COUNT of them
    count and there were FRESH_FAULTS faults."""
    end, counted, faults = time.process_time() + FRESH_S, 0, 0
    while counted < FRESH_COUNT or faults < FRESH_FAULTS if LONG else time.process_time() < end:
        world = check(int.from_bytes(os.urandom(4)))
        counted, faults = counted + does_count(world.counts), faults + faults_of(world.counts)


def test_a_seed_repeats_exactly():
    seed = random.randrange(1 << 32)
    first, second = simulated(seed)[0], simulated(seed)[0]
    assert first.trace == second.trace
    assert first.counts == second.counts
    assert first.counts["acknowledged"] > 0


def found(name: str, words: str = "", first: int = 1, shares: bool = False) -> bool:
    """Returns whether a seed finds the planted bug, by a violation with these words. `first`: the
    first seed to try, one that was known to find it. `shares`: with a share group."""
    for seed in range(first, first + PLANTED_SEEDS):
        violation = simulated(seed, shares=shares)[1]
        if violation is not None and words in str(violation):
            return True
    raise AssertionError(f"no seed has found: {name}")


def test_an_isr_that_is_written_without_its_version_is_found(monkeypatch):
    """The leader overwrites a decision that the controller has made since."""
    operation = isr.Change.operation.fget
    monkeypatch.setattr(
        isr.Change,
        "operation",
        property(lambda change: operation(change).__class__(
            operation(change).path, operation(change).data, ANY_VERSION)),
    )  # fmt: skip
    assert found("a write of the ISR that checks no version", first=38)


def test_a_restarted_member_of_the_isr_that_counts_as_steady_is_found(monkeypatch):
    """The member may have lost records that were not flushed (KIP-903)."""

    def steady(partition, brokers):
        state = partition.state
        return [] if state is None else [one for one in state.isr if one in brokers]

    monkeypatch.setattr(elections, "steady", steady)
    assert found("an election of a broker that has restarted")


def test_a_follower_with_the_epoch_of_a_former_registration_is_found(monkeypatch):
    """The simulation found this bug: such a follower never joined an ISR again."""
    epochs = {}

    def first_epoch(broker):
        own = broker.reader.state.brokers.get(broker.node_id)
        return epochs.setdefault((broker, broker.life), -1 if own is None else own.epoch)

    monkeypatch.setattr(simulated_broker.SimBroker, "_own_epoch", first_epoch)
    assert found("a fetcher with an old broker epoch")


def without_a_producer_id(values, producer_id, producer_epoch, base_sequence, **named):
    return encode_batch(values, **named)


def test_a_batch_that_is_sent_again_without_idempotence_is_found(monkeypatch):
    monkeypatch.setattr(clients, "encode_batch", without_a_producer_id)
    assert found("repeated batches are appended again", "in place of sequence number")


def test_a_deleted_topic_that_keeps_its_files_is_found(monkeypatch):
    """The next topic of that name has the records of the deleted one."""
    delete = LogManager.delete

    def kept(logs, topic, partitions=None):
        if partitions is not None:  # a move
            delete(logs, topic, partitions)

    monkeypatch.setattr(LogManager, "delete", kept)
    assert found("the log of a deleted topic stays open", "was not sent there")


def test_a_reassignment_that_ends_before_the_copy_is_found(monkeypatch):
    reassigned = reassignments.reassigned

    def too_early(partition, target, brokers, epoch):
        state = partition.state
        if state is not None:
            partition = partition.__class__(
                partition.replicas, state.__class__(
                    state.leader, state.leader_epoch, tuple(target), state.controller_epoch),
                partition.state_version, partition.state_zxid)  # fmt: skip
        return reassigned(partition, target, brokers, epoch)

    monkeypatch.setattr(reassignments, "reassigned", too_early)
    assert found("a reassignment without a copy")


def test_a_replica_that_stays_after_a_reassignment_is_found(monkeypatch):
    monkeypatch.setattr(ReplicaManager, "_drop_one", lambda *_: None)
    assert found("a former replica keeps its log")


def test_a_zombie_coordinator_is_found(monkeypatch):
    """A broker that led a partition of __consumer_offsets keeps its groups when another broker
    leads it, so it has old offsets when it leads again."""
    led_in = CoordinatorLog._led_in

    def kept(journal, topic, state):
        before = {index: (led.topic_id, led.leader_epoch) for index, led in journal._led.items()}
        return {**led_in(journal, topic, state), **before}

    monkeypatch.setattr(CoordinatorLog, "_led_in", kept)
    assert found("a coordinator that keeps its groups", "was acknowledged", first=16)


def test_a_coordinator_that_answers_while_it_loads_is_found(monkeypatch):
    monkeypatch.setattr(CoordinatorLog, "_load_if_empty", lambda journal, index: (
        journal._set_ready(index, journal._led.get(index)) is None))  # fmt: skip
    assert found("a coordinator without the offsets of its log", "was acknowledged")


def test_a_controller_that_does_not_check_its_epoch_is_found(monkeypatch):
    """A broker that was the controller writes states, from an outdated view of the brokers, which
    it does not read again."""

    def fence(role):
        return () if role._reader.state.controller_id == role._node_id else None

    monkeypatch.setattr(ClusterRole, "fence", fence)
    monkeypatch.setattr(
        Controller, "_has_no_controller", lambda _controller, state: state.controller_id is None
    )
    assert found("a controller without fencing", "a controller with epoch", first=12)


def test_records_that_count_before_they_are_flushed_are_found(monkeypatch):
    """With log.durability=fsync, leaders and followers count what they have appended only."""
    table = simulated_broker.PartitionTable

    def in_memory(*given, **named):
        return table(*given, **named | {"durability": "os"})

    monkeypatch.setattr(simulated_broker, "PartitionTable", in_memory)
    assert found("appended records that count as durable")


def test_a_producer_that_is_not_fenced_is_found(monkeypatch):
    """The next producer of a transactional id gets the epoch that the one before has."""
    init_producer_id = TransactionCoordinator.init_producer_id

    def same_epoch(coordinator, name, timeout_ms, expected, done):
        coordinator.check(name)
        found = coordinator.find(name)
        if found is None or found.now.producer_epoch < 0:
            init_producer_id(coordinator, name, timeout_ms, expected, done)
        else:
            done(None, found.now.producer_id, found.now.producer_epoch)

    monkeypatch.setattr(TransactionCoordinator, "init_producer_id", same_epoch)
    assert found("two producers with one epoch", "was acknowledged for")


def test_a_transaction_that_ends_without_its_markers_is_found(monkeypatch):
    monkeypatch.setattr(TransactionCoordinator, "_carry_out", planted.without_markers)
    assert found("a commit that is visible nowhere")


def test_a_marker_with_the_wrong_end_is_found(monkeypatch):
    """The leaders on other brokers commit what the coordinator aborts, and the other way round."""
    body = remote_markers._body

    def inverted(rows):
        made = body(rows)
        for marker in made.markers:
            marker.transactionResult = not marker.transactionResult
        return made

    monkeypatch.setattr(remote_markers, "_body", inverted)
    assert found("a transaction with two ends", "is committed and aborted")


def test_a_reader_that_gets_aborted_records_is_found(monkeypatch):
    """As from a leader that names no aborted transactions."""
    monkeypatch.setattr(readers, "aborted_in", lambda _answer: {})
    assert found("an answer without its aborted transactions", "that is not committed")


def test_an_acknowledgement_that_is_confirmed_before_it_is_durable_is_found(monkeypatch):
    """The share coordinator answers when it has appended a change, and another one loads less."""
    append = ShareState._append

    def at_once(state, partition, entries, done, *key, **more):
        append(state, partition, entries, lambda error: None, *key, **more)
        done(None)

    monkeypatch.setattr(ShareState, "_append", at_once)
    what = "acknowledgements that may be lost"
    assert found(what, "whose acknowledgement was confirmed", first=3, shares=True)


def test_a_topic_that_is_deleted_when_it_is_made_is_an_error_of_the_client():
    """Its name was marked for deletion once more. The broker failed an assertion."""
    check(900)
