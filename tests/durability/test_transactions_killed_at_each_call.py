"""The coordinator is killed before each write and each fsync of an EndTxn: in the log of
transactions before and after its decision, in the partitions between its markers, in the offsets of
the group. After the restart the transaction is complete or not there at all, and readers
continue."""

import pytest
from durability.armed_broker import ArmedBroker
from durability.test_transactions_kill9 import committed_values
from long_form import pick
from transactions.dialogue import Talk
from waiting import soon

pytestmark = pytest.mark.takes(seconds=20)

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TIMEOUT_S = 300  # the transaction's timeout, by the broker's clock, if it was not decided
CALLS_MAX = 10
# The logs that an EndTxn writes to: its coordinator's, the partitions', the group's offsets.
PLACES = ["__transaction_state", "torn-topic", "__consumer_offsets"]


def begun(address: str) -> tuple[Talk, tuple[int, int]]:
    """A transaction over two partitions and the offsets of a group, with all of its data."""
    talk = Talk(address, "torn")
    talk.coordinator(talk.group, 0)
    error, producer_id, epoch = talk.init(timeout_ms=1000 * TIMEOUT_S)
    assert error == 0
    producer = producer_id, epoch
    assert talk.add(producer, 0, 1) == [0, 0]
    for index in (0, 1):
        assert talk.produce(producer, 0, 2, partition=index)[0] == 0
    assert talk.add_offsets(producer) == 0 and talk.commit_offsets(producer, 7) == [0]
    return talk, producer


def end_until_it_dies(broker: ArmedBroker, talk: Talk, producer, commit: bool) -> bool:
    """Returns whether EndTxn was answered. The kill may come later, with the markers."""
    answered, wait_s = False, 0.5
    try:
        answered = talk.end(producer, commit) == 0
        talk.state()  # as soon as it is complete
    except OSError:
        wait_s = 20.0  # it is about to end
    broker.killed(wait_s)
    talk.wire.close()
    return answered


def outcome_after(data, answered: bool, commit: bool) -> bool:
    """Returns whether the transaction is committed after a restart, in all its partitions."""
    broker = ArmedBroker(data, SETTINGS)
    try:
        talk = Talk(broker.address, "torn", again=True)
        talk.coordinator(talk.group, 0)
        broker.advance(seconds=TIMEOUT_S + 1)

        def stable():
            seen = [committed_values(talk, index) for index in (0, 1)]
            return seen if all(end == high for _, end, high in seen) else None

        seen = soon(stable, "readers do not go on")
        _, [(error, offset)] = talk.settled()
        there = {len(found) == 2 for found, _, _ in seen} | {offset == 7}
        assert error == 0 and len(there) == 1, f"a torn transaction: {seen}, offset {offset}"
        assert all(len(found) in (0, 2) for found, _, _ in seen)
        [is_there] = there
        assert commit or not is_there
        assert is_there or not (commit and answered)
        talk.wire.close()
        return is_there
    finally:
        broker.end()


CASES = {
    "commit, before a write": ("pwritev", True, PLACES),
    "commit, before an fsync": ("fdatasync", True, PLACES[:1]),
    "abort, before a write": ("pwritev", False, PLACES[:1]),
}


@pytest.mark.parametrize("call, commit, places", CASES.values(), ids=CASES.keys())
def test_a_coordinator_that_dies_before_any_call_of_an_end_leaves_all_or_nothing(
    tmp_path, call, commit, places
):
    outcomes: list[tuple[str, bool]] = []
    for place in places:
        for nth in range(1, CALLS_MAX, pick(short=2, long=1)):
            data = tmp_path / f"{place}-{nth}"
            broker = ArmedBroker(data, SETTINGS)
            try:
                talk, producer = begun(broker.address)
                broker.kill_before(call, nth, place)
                answered = end_until_it_dies(broker, talk, producer, commit)
                killed = broker.killed()
            finally:
                broker.end()
            if not killed:
                assert answered
                break
            outcomes.append((place, outcome_after(data, answered, commit)))
        assert nth > 1, f"no {call} of {place} was struck"
    print(outcomes)
    if commit and call == "pwritev":
        # Before the decision is written, the transaction is aborted; after it, it is committed.
        assert ("__transaction_state", False) in outcomes
        assert ("torn-topic", True) in outcomes
        assert ("__consumer_offsets", True) in outcomes
