"""The coordinator compared with a model over thousands of steps: transactions are all or nothing.

Producers, old and new, begin transactions, write, and end them, while appends to the journal are
late, fail, or fail after reaching the log, markers are late, time passes, and coordinators die. The
model is the contents of the partitions: records of a transaction, open until a marker comes.
"""

from dataclasses import dataclass, field

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from long_form import pick
from transactions.simulation import Answer, World

from barnabas.coordinator.transactions.transaction import IDLE
from barnabas.errors import ConcurrentTransactions, CoordinatorNotAvailable, KafkaError

NAMES = ("a", "b")
PARTITIONS = (("t", 0), ("t", 1), ("__consumer_offsets", 3))
STEPS, EXAMPLES = 60, pick(short=40, long=1000)


@dataclass
class Producer:
    """A client that got the transactional id at some time, and may have been fenced without
    knowing."""

    name: str
    producer_id: int
    epoch: int
    bumps: bool
    written: list["Written"] = field(default_factory=list)  # in the transaction it believes open
    ending: Answer | None = None
    ends_with: bool = False
    is_unsure: bool = False  # the result of its EndTxn, which it repeats, as clients do


@dataclass
class Written:
    """A record in a partition."""

    partition: tuple[str, int]
    producer_id: int
    epoch: int
    outcome: bool | None = None  # None until a marker comes


class Coordinators(RuleBasedStateMachine):
    @initialize(level=st.sampled_from([0, 2]))
    def begin(self, level):
        self.world = World(version_level=level)
        self.level = level
        self.producers = []
        self.inits = []
        self.partitions = {row: [] for row in PARTITIONS}
        self.promised = []  # (records, outcome) of acknowledged ends
        self.newest = {}  # name -> the last (id, epoch) in a response

    # -- steps of clients ------------------------------------------------------------------------

    def asked(self, call, *arguments, **more):
        answer = Answer()
        try:
            call(*arguments, answer, **more)
        except KafkaError as error:
            answer(error, -1, -1)
        return answer

    @rule(name=st.sampled_from(NAMES), bumps=st.booleans())
    def init(self, name, bumps):
        ask = self.world.coordinator.init_producer_id
        answer = self.asked(ask, name, 30_000, None)
        self.inits.append((name, bumps and self.level == 2, answer))

    @invariant()
    def inits_are_answered(self):
        for row in [row for row in getattr(self, "inits", ()) if row[2].given is not None]:
            self.inits.remove(row)
            name, bumps, answer = row
            error, producer_id, epoch = answer.given
            if error is None:
                before = self.newest.get(name, (-1, -1))
                assert producer_id != before[0] or epoch > before[1], "an epoch was given twice"
                self.newest[name] = producer_id, epoch
                self.producers.append(Producer(name, producer_id, epoch, bumps))
                del self.producers[:-6]

    def one_of(self, data):
        return data.draw(st.sampled_from(self.producers))

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def write(self, data, partition):
        """With the first version the client adds a partition, and writes when that is durable."""
        producer = self.one_of(data)
        if producer.ending is not None or producer.is_unsure:
            return
        who = producer.name, producer.producer_id, producer.epoch
        answer = self.asked(self.world.add, *who, [partition], 2 if producer.bumps else 0)
        for _ in range(10):  # a request for a busy id is repeated until its timeout
            if answer.given is None:
                self.settle()
                self.world.pass_time(30)
        if answer.error is not None:
            return
        if not producer.bumps and self.world.steps.has(*who, [partition]) != [0]:
            return
        record = Written(partition, producer.producer_id, producer.epoch)
        self.partitions[partition].append(record)
        producer.written.append(record)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def a_late_batch_arrives(self, data, partition):
        """From a producer that believes its transaction to be open, and may be wrong."""
        producer = self.one_of(data)
        if producer.ending is not None or producer.is_unsure:
            return
        who = producer.name, producer.producer_id, producer.epoch
        if self.world.steps.has(*who, [partition]) != [0]:
            return
        record = Written(partition, producer.producer_id, producer.epoch)
        self.partitions[partition].append(record)
        producer.written.append(record)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data, commit):
        producer = self.one_of(data)
        if producer.ending is not None and producer.ending.given is None:
            return
        who = producer.name, producer.producer_id, producer.epoch
        producer.ends_with = producer.ends_with if producer.is_unsure else commit
        version = 2 if producer.bumps else 0
        producer.ending = self.asked(self.world.end, *who, producer.ends_with, version)

    @invariant()
    def ends_are_answered(self):
        for producer in getattr(self, "producers", ()):
            if producer.ending is None or producer.ending.given is None:
                continue
            error, producer_id, epoch = producer.ending.given
            producer.ending = None
            producer.is_unsure = isinstance(error, CoordinatorNotAvailable) or (
                producer.is_unsure and isinstance(error, ConcurrentTransactions)
            )
            if error is None:
                self.promised.append((producer.written, producer.ends_with))
                producer.written = []
                if producer.bumps:
                    producer.producer_id, producer.epoch = producer_id, epoch
                    self.newest[producer.name] = max(
                        self.newest[producer.name], (producer_id, epoch)
                    )

    # -- events of the coordinator ---------------------------------------------------------------

    @precondition(lambda self: self.world.journal.is_behind)
    @rule()
    def an_append_is_durable(self):
        self.world.deliver()

    @precondition(lambda self: self.world.journal.waiting)
    @rule(reached=st.booleans())
    def an_append_fails(self, reached):
        self.world.journal.fail(reached)

    @precondition(lambda self: self.world.orders)
    @rule(data=st.data(), whole=st.booleans())
    def markers_are_written(self, data, whole):
        order, done = self.world.orders[0]
        rows = sorted(order.partitions)
        for row in rows if whole else rows[: data.draw(st.integers(0, len(rows)))]:
            self.marker(row, order)
        if whole:
            self.world.orders.pop(0)
            done()
            self.world.go_on()

    def marker(self, partition, order):
        for record in self.partitions[partition]:
            if record.producer_id == order.producer_id and record.outcome is None:
                assert record.epoch <= order.producer_epoch
                record.outcome = order.commit

    @rule(reached=st.integers(0, 3))
    def the_coordinator_dies(self, reached):
        for producer in self.producers:  # their responses are lost
            if producer.ending is not None:
                producer.ending, producer.written = None, []
        self.inits.clear()
        self.world.crash(reached)

    @rule(ms=st.sampled_from([50, 40_000]))
    def time_passes(self, ms):
        self.world.pass_time(ms)
        self.world.coordinator.abort_timed_out()

    # -- invariants ------------------------------------------------------------------------------

    def settle(self):
        for _ in range(50):
            while self.world.orders:
                order, done = self.world.orders.pop(0)
                for row in order.partitions:
                    self.marker(row, order)
                done()
            self.world.go_on()
            if not self.world.journal.is_behind and not self.world.orders:
                return
            self.world.deliver()

    def teardown(self):
        if not hasattr(self, "world"):
            return
        for _ in range(3):
            self.settle()
            self.ends_are_answered()
            self.world.pass_time(100_000)
            self.world.coordinator.abort_timed_out()
        self.settle()
        for found in self.world.coordinator.find_all():
            assert found.now.state in IDLE and not found.is_pending
        for rows in self.partitions.values():
            assert all(row.outcome is not None for row in rows), "a transaction hangs"
        for records, outcome in self.promised:
            assert {row.outcome for row in records} <= {outcome}, "a promise was not kept"
        World.close_all()


def test_transactions_are_all_or_nothing():
    # A failing run prints the code that replays it; shrinking would take minutes.
    Coordinators.TestCase.settings = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        print_blob=True,
    )
    Coordinators.TestCase().runTest()
