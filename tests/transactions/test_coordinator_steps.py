"""Single steps of the transaction coordinator, and their failures."""

import pytest
from transactions.simulation import SETTINGS, Answer, World

from barnabas.coordinator.transactions.transaction import EPOCH_MAX, State
from barnabas.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
)

ROW, OTHER = ("t", 0), ("t", 1)


def ready(world, name="x", timeout_ms=30_000, expected=None):
    """Initializes a producer with the transactional id. Returns (producer id, epoch)."""
    answer = Answer()
    world.coordinator.init_producer_id(name, timeout_ms, expected, answer)
    world.settle()
    assert answer.error is None
    return answer.given[1:]


def added(world, producer, *rows, version=0, name="x", connection=0):
    answer = Answer()
    world.add(name, *producer, rows, version, answer, connection=connection)
    world.settle()
    assert answer.error is None


def ended(world, producer, commit=True, version=0, name="x", connection=0):
    answer = Answer()
    world.end(name, *producer, commit, version, answer, connection=connection)
    world.settle()
    assert answer.error is None
    return answer.given[1:]


def refused(world, request, *arguments, **more):
    """The error of a request that is answered at once."""
    answer = Answer()
    request("x", *arguments, answer, **more)
    world.go_on()
    assert answer.error is not None
    return type(answer.error)


def now(world, name="x"):
    return world.coordinator.find(name).now


def state(world, name="x"):
    return now(world, name).state


def exhaust(world):
    """Gives the producer the last epoch but one."""
    world.ids.put("x", 0, world.journal.epoch, now(world)._replace(producer_epoch=EPOCH_MAX - 1))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(level):
    world = World(version_level=level)
    orders = []
    world.on_order = orders.append
    producer = ready(world, timeout_ms=30_000)
    added(world, producer, ROW)
    world.pass_time(1)
    assert world.coordinator.abort_timed_out() == 0
    world.pass_time(30_000)
    assert world.coordinator.abort_timed_out() == 1
    world.settle()
    assert state(world) == State.COMPLETE_ABORT
    assert [(row.commit, row.producer_epoch, row.partitions) for row in orders] == [
        (False, producer[1] + 1, {ROW})
    ]
    assert refused(world, world.end, *producer, True, 0) == ProducerFenced
    assert refused(world, world.add, *producer, [ROW], 0) == ProducerFenced
    assert ready(world) == (producer[0], producer[1] + 2)


@pytest.mark.parametrize("timeout_ms", [0, -1, SETTINGS.timeout_max_ms + 1])
def test_a_timeout_beyond_the_maximum_is_refused(timeout_ms):
    with pytest.raises(InvalidTransactionTimeout):
        World().coordinator.init_producer_id("x", timeout_ms, None, Answer())


def test_an_end_that_was_decided_is_carried_out_after_the_coordinator_died():
    """The coordinator dies before any marker, between two, and before the Complete record."""
    for written in (0, 1, 2):
        world = World()
        producer = ready(world)
        added(world, producer, ROW, OTHER)
        answer = Answer()
        world.end("x", *producer, True, 0, answer)
        world.deliver()
        assert answer.error is None and state(world) == State.PREPARE_COMMIT
        if written == 2:
            world.orders[0][1]()
        world.crash()
        ((order, done),) = world.orders
        assert (order.commit, order.partitions) == (True, {ROW, OTHER})
        assert order.coordinator_epoch == world.journal.epoch
        with pytest.raises(ConcurrentTransactions):
            world.coordinator.init_producer_id("x", 1000, None, Answer())
        done()
        world.settle()
        assert state(world) == State.COMPLETE_COMMIT


def test_an_end_whose_record_did_not_arrive_is_no_end():
    world = World()
    producer = ready(world)
    added(world, producer, ROW)
    answer = Answer()
    world.end("x", *producer, True, 0, answer)
    assert world.journal.is_behind and answer.given is None
    world.crash(reached=0)
    assert state(world) == State.ONGOING and not world.orders
    ended(world, producer, commit=False)
    assert state(world) == State.COMPLETE_ABORT


def test_a_late_end_from_a_connection_that_was_left_does_not_end_the_next_transaction():
    """KAFKA-17754: the producer gave up connection 1 and continued with connection 2."""
    world = World()
    producer = ready(world)
    added(world, producer, ROW, connection=1)
    ended(world, producer, connection=2)  # sent again, while the first one is still on its way
    added(world, producer, ROW, connection=2)
    found = refused(world, world.end, *producer, True, 0, connection=1)
    assert found == ConcurrentTransactions
    assert state(world) == State.ONGOING
    ended(world, producer, commit=False, connection=2)
    assert state(world) == State.COMPLETE_ABORT


def test_a_late_request_for_partitions_does_not_keep_its_producer_from_ending():
    """It counts for the current transaction, as in Kafka; the connection that began it may end
    it."""
    world = World()
    producer = ready(world)
    added(world, producer, ROW, connection=1)
    ended(world, producer, connection=1)
    added(world, producer, ROW, connection=2)
    added(world, producer, OTHER, connection=1)  # delayed on the way
    ended(world, producer, connection=2)
    assert state(world) == State.COMPLETE_COMMIT


def test_a_late_end_of_the_second_version_is_fenced_by_its_epoch():
    world = World()
    first = ready(world)
    added(world, first, ROW, version=2)
    second = ended(world, first, version=2)
    assert second == (first[0], first[1] + 1)
    assert ended(world, first, version=2) == second  # the same request again
    added(world, second, ROW, version=2)
    assert refused(world, world.end, *first, True, 2) == ProducerFenced
    assert refused(world, world.add, *first, [OTHER], 2) == ProducerFenced
    assert state(world) == State.ONGOING


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_with_a_later_epoch_is_fenced(version):
    world = World()
    producer_id, epoch = ready(world)
    added(world, (producer_id, epoch), ROW, version=version)
    later = producer_id, epoch + 1
    assert refused(world, world.add, *later, [OTHER], version) == ProducerFenced
    assert refused(world, world.end, *later, True, version) == ProducerFenced
    assert (state(world), now(world).partitions) == (State.ONGOING, {ROW})


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_whose_epochs_are_used_up_gets_another_id(version):
    world = World()
    first, _ = ready(world)
    exhaust(world)
    producer = first, EPOCH_MAX - 1
    added(world, producer, ROW, version=version)
    after = ended(world, producer, version=version)
    if version == 2:
        assert after == (first + 1, 0)
        assert now(world).previous_producer_id == first
        assert ended(world, producer, version=2) == after  # the response with its new id was lost
        world.crash()
        assert ended(world, producer, version=2) == after
    else:
        assert after == producer
        found = ready(world, expected=producer)
        assert found[0] != first and found[1] == 0
        assert ready(world, expected=producer) == found  # the response was lost
        with pytest.raises(ProducerFenced):
            world.coordinator.init_producer_id("x", 1000, (first, 3), Answer())


def test_a_new_producer_that_ends_epochs_by_fencing_gets_another_id():
    world = World()
    first, _ = ready(world)
    exhaust(world)
    added(world, (first, EPOCH_MAX - 1), ROW)
    answer = Answer()
    world.coordinator.init_producer_id("x", 1000, None, answer)
    world.settle()
    assert isinstance(answer.error, ConcurrentTransactions)
    assert now(world).producer_epoch == EPOCH_MAX
    producer_id, epoch = ready(world)
    assert producer_id != first and epoch == 0


def test_an_epoch_that_a_power_cut_may_have_taken_is_not_given_again():
    """A log that still has a batch with it took the first batch of the next producer for a
    repetition: acknowledged, and not stored. Found by tests/simulation/test_one_node.py, seed
    1046028780."""
    world = World()
    loaded, returning = ready(world), ready(world, "y")
    world.may_have_lost = True
    world.crash()
    world.pass_time(1)
    new = ready(world)
    assert new == (new[0], 0) and new[0] != loaded[0]
    assert refused(world, world.add, *loaded, [ROW], 2) == InvalidProducerIdMapping
    again = ready(world, "y", expected=returning)
    assert again[0] != returning[0] and again[1] == 0
    assert ready(world, "y", expected=returning) == (again[0], 1)  # the response was lost
    assert ready(world) == (new[0], 1)
    assert ready(world, "z")[1] == 0
    world.may_have_lost = False
    world.crash()
    assert ready(world) == (new[0], 2)


def test_a_request_waits_for_the_markers_of_the_transaction_before():
    world = World()
    producer = ready(world)
    added(world, producer, ROW)
    answer, next_one = Answer(), Answer()
    world.end("x", *producer, True, 0, answer)
    world.deliver()
    world.add("x", *producer, [OTHER], 0, next_one)
    assert next_one.given is None
    world.orders.pop()[1]()  # markers are durable
    world.deliver()  # Complete
    assert next_one.given is None
    world.deliver()  # the new transaction
    assert next_one.error is None and state(world) == State.ONGOING


def test_a_request_does_not_wait_for_ever():
    world = World()
    producer = ready(world)
    added(world, producer, ROW)
    world.end("x", *producer, True, 0, Answer())
    world.deliver()
    answer = Answer()
    world.add("x", *producer, [OTHER], 0, answer)
    world.pass_time(SETTINGS.retry_max_ms)
    assert isinstance(answer.error, ConcurrentTransactions)


def test_unused_ids_are_forgotten_but_not_open_transactions():
    world = World()
    ready(world, "idle")
    producer = ready(world, "busy")
    added(world, producer, ROW, name="busy")
    world.pass_time(SETTINGS.id_expiration_ms)
    assert world.coordinator.expire_ids() == 1
    world.settle()
    assert set(world.ids.names()) == {"busy"}
    world.crash()
    assert set(world.ids.names()) == {"busy"}
    answer = Answer()
    world.end("idle", 1, 0, True, 0, answer)
    assert isinstance(answer.error, InvalidProducerIdMapping)


def test_nothing_is_decided_twice():
    world = World()
    producer = ready(world)
    added(world, producer, ROW)
    world.end("x", *producer, True, 0, Answer())
    assert refused(world, world.end, *producer, False, 0) == ConcurrentTransactions
    world.settle()
    ended(world, producer, commit=True)
    assert refused(world, world.end, *producer, False, 0) == InvalidTxnState
