"""A group coordinator with a clock, a journal and clients that the test controls.

The journal keeps appended records and reports them at `flush`; `crash` loses those that were not
flushed. Clients follow the protocol like consumers, one step at a time.
"""

import base64
import heapq
import itertools
from collections import Counter
from functools import partial

from oracle.commit_twin import CommitTwin, TableTwin

from barnabas.cext.record.records import Record
from barnabas.coordinator.groups.administration import GroupAdministration
from barnabas.coordinator.groups.coordinator import GroupCoordinator, GroupSettings
from barnabas.coordinator.groups.group_records import Committed
from barnabas.coordinator.groups.rebalance import Join
from barnabas.coordinator.groups.topic_views import TopicViews
from barnabas.coordinator.journal import id_hash
from barnabas.errors import NotCoordinator
from barnabas.metadata.cluster_state import ClusterState, Partition, Topic
from barnabas.metadata.znodes import TopicAssignment
from barnabas.wire.batches import decode_batches, encode_batch

GROUP = "g"
WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 20_000


class HandTimers:
    """Timers that run when the clock is advanced, in order."""

    def __init__(self):
        self.time_ms = 0
        self._heap = []
        self._order = itertools.count()

    def now_ms(self):
        return self.time_ms

    def wall_ms(self):
        return WALL_MS + self.time_ms

    def after(self, delay_ms, call):
        timer = _HandTimer(self.time_ms + max(delay_ms, 0), call)
        heapq.heappush(self._heap, (self.time_ms + delay_ms, next(self._order), timer))
        return timer

    def advance(self, ms):
        until = self.time_ms + ms
        while self._heap and self._heap[0][0] <= until:
            at, _, timer = heapq.heappop(self._heap)
            self.time_ms = max(self.time_ms, at)
            if timer.call is not None:
                timer.call()
        self.time_ms = until

    def clear(self):
        self._heap.clear()


class _HandTimer:
    def __init__(self, at_ms, call):
        self.at_ms = at_ms
        self.call = call

    def cancel(self):
        self.call = None


class HandJournal:
    """Durable batches, and those that wait for `flush`. One partition by default."""

    def __init__(self, partition_count=1, immediately=False):
        self.partition_count = partition_count
        self.immediately = immediately
        self.durable = []  # (partition, encoded batch)
        self.waiting = []  # (partition, encoded batch, done)
        self._flushing = False
        self.led = dict.fromkeys(range(partition_count), True)

    def partition_of(self, name):
        return id_hash(name) % self.partition_count

    def check(self, partition):
        if partition not in self.led:
            raise NotCoordinator()

    def led_partitions(self):
        return dict(self.led)

    def append(self, partition, entries, done, *, producer=None):
        self.check(partition)
        records = [Record(value, key, timestamp=WALL_MS) for key, value in entries]
        more = {}
        if producer is not None:
            more = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "transactional": True,
            }
        self.waiting.append((partition, encode_batch(records, **more), done))
        if self.immediately:
            self.flush()

    def marker(self, partition, producer_id, commit):
        """Appends a marker as WriteTxnMarkers does."""
        key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
        records = [Record(b"\0\0\0\0\0\0", key, timestamp=WALL_MS)]
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
        )
        self.durable.append((partition, batch))

    def flush(self, error=None):
        """Makes all waiting batches durable. Appends during the flush wait, unless writes are
        immediate."""
        if self._flushing:
            return
        self._flushing = True
        while self.waiting:
            waiting, self.waiting = self.waiting, []
            for partition, batch, done in waiting:
                if error is None:
                    self.durable.append((partition, batch))
                done(error)
            if not self.immediately:
                break
        self._flushing = False


def topic_id(name):
    """The topic id of a name, always the same."""
    return name.encode().rjust(16, b"\1")


def id_text(name):
    return base64.urlsafe_b64encode(topic_id(name)).decode().rstrip("=")


def state_of(topics):
    """A cluster with these topics: name, number of partitions."""
    made = {
        name: Topic(
            name,
            TopicAssignment({at: (1,) for at in range(count)}, id_text(name)),
            0,
            {at: Partition((1,)) for at in range(count)},
        )
        for name, count in topics.items()
    }
    by_id = {topic.topic_id: topic for topic in made.values()}
    return ClusterState(topics=made, topics_by_id=by_id)


class Rig:
    """A coordinator that can crash and restart, and the topics of its cluster."""

    def __init__(self, topics=None, *, immediately=True, **settings):
        self.topics = {}
        self.set_topics(**(topics or {}))
        self.timers = HandTimers()
        self.journal = HandJournal(immediately=immediately)
        self.settings = GroupSettings(
            **{
                "session_timeout_min_ms": 1,
                "session_timeout_max_ms": 1_800_000,
                "initial_delay_ms": 0,
                "members_max": 1000,
                "metadata_bytes_max": 4096,
                "retention_ms": 600_000,
                **settings,
            }
        )
        self._ids = itertools.count(1)
        self.crashes = 0
        self._open()

    def _open(self):
        table = TableTwin(self.timers.now_ms)
        self.commits = CommitTwin(self, table)
        self.coordinator = GroupCoordinator(
            journal=self.journal,
            timers=self.timers,
            wall_ms=self.timers.wall_ms,
            new_id=lambda: f"{next(self._ids):04}",
            settings=self.settings,
            table=table,
            native=self.commits,
            dependencies=self.dependencies,
            streams=self.streams,
        )
        self.administration = GroupAdministration(self.coordinator)

    def set_topics(self, **topics):
        """Sets numbers of partitions. None deletes the topic."""
        self.topics |= topics
        self.topics = {name: count for name, count in self.topics.items() if count is not None}
        self.views = TopicViews(state_of(self.topics))

    def topic_id(self, topic):
        """The id of a topic, or zeros."""
        view = self.views.named(topic)
        return bytes(16) if view is None else view.topic_id

    def dependencies(self):
        """Dependencies of consumer groups; consumer_rig.py defines them."""
        raise AssertionError("this rig has no consumer groups")

    def streams(self):
        """The code of streams groups; streams_rig.py makes it."""
        raise AssertionError("this rig has no streams groups")

    def crash(self):
        """Only the durable part of the journal survives."""
        self.timers.clear()
        self.journal.waiting.clear()
        self.crashes += 1
        self._open()
        for partition, encoded in self.journal.durable:
            for batch in decode_batches(encoded, size_max=1 << 20):
                self.coordinator.replay(partition, batch)
        for partition in self.journal.led:
            self.coordinator.loaded(partition)

    @property
    def group(self):
        return self.coordinator.groups[GROUP]

    def commit(self, offset, member="", generation=-1, instance=None, partition=0, **more):
        """Commits for one partition of topic t. Returns the list that gets the outcome."""
        told = []
        row = Committed(offset, -1, more.pop("metadata", ""), self.timers.wall_ms())
        self.commits.commit(
            more.pop("group", GROUP),
            member,
            instance,
            generation,
            [("t", partition, row)],
            told.append,
            **more,
        )
        return told

    def committed(self, partition=0, group=GROUP):
        ((_, ((_, row, _),)),) = self.coordinator.fetch(group, [("t", [partition])], False)
        return None if row is None else row.offset


class Asker:
    """A client. Each of its requests has one response; that to an abandoned request is dropped."""

    def __init__(self, rig, name):
        self.rig = rig
        self.name = name
        self.waits = None  # what it waits for
        self._asked = 0

    def ask(self, what, send, handle):
        """Sends a request: `send` takes the callable for its response, which is passed on to
        `handle`. Returns the response if it comes at once."""
        self.waits = what
        self._asked += 1
        number, told = self._asked, []

        def answer(result):
            assert not told, f"{self.name} was answered twice"
            told.append(result)
            if number == self._asked:
                self.waits = None
                handle(result)

        send(answer)
        return told[0] if told else None

    def give_up(self):
        """Drops the connection, with requests and responses on their way."""
        self._asked += 1
        self.waits = None


class Client(Asker):
    """A consumer: joins, syncs, sends heartbeats, one step at a time. Counts its responses."""

    def __init__(
        self,
        rig,
        name,
        instance=None,
        protocols=("range",),
        group=GROUP,
        session_ms=SESSION_MS,
        protocol_type="consumer",
    ):
        super().__init__(rig, name)
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.instance = instance
        self.group = group
        self.protocols = [(protocol, b"") for protocol in protocols]
        self.member = ""
        self.generation = -1
        self.assignment = None  # of the generation; None: not known yet
        self.view = None  # members, when leading
        self.wants_join = True
        self.errors = Counter()
        self.generations = []
        self.heard_ms = 0

    def step(self):
        """Takes the next step of a consumer, unless it must wait."""
        if self.waits is not None:
            return
        if self.wants_join:
            self.join()
        elif self.assignment is None:
            self.sync()
        else:
            self.heartbeat()

    def settle(self):
        """Takes steps until it waits or has its assignment."""
        for _ in range(4):
            if self.waits is not None or self.assignment is not None:
                break
            self.step()

    def join(self):
        self.assignment = self.view = None
        asked = Join(
            member_id=self.member,
            instance_id=self.instance,
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            id_required=True,
            can_skip_assignment=True,
        )
        self.ask("join", partial(self.rig.coordinator.join, self.group, asked), self._joined)

    def _heard(self):
        self.heard_ms = self.rig.timers.now_ms()

    def _joined(self, result):
        self._heard()
        if result.error is None:
            self.member, self.generation = result.member_id, result.generation
            self.generations.append(result.generation)
            self.wants_join = False
            self.view = result.members if result.leader == self.member else None
        else:
            self._failed(result.error.name, result.member_id)

    def _failed(self, name, member_id=""):
        self.errors[name] += 1
        if name == "MEMBER_ID_REQUIRED":
            self.member = member_id
        elif name in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self.member = ""
        self.wants_join = True
        self.assignment = None

    def sync(self):
        assignments = [(row.member_id, row.member_id.encode()) for row in self.view or ()]
        who = self.group, self.member, self.instance, self.generation
        send = partial(self.rig.coordinator.sync, *who, (None, None), assignments)
        self.ask("sync", send, self._synced)

    def _synced(self, result):
        self._heard()
        if result.error is None:
            self.assignment = result.assignment
        else:
            self._failed(result.error.name)

    def heartbeat(self):
        from barnabas.errors import KafkaError

        try:
            self.rig.coordinator.heartbeat(self.group, self.member, self.instance, self.generation)
            self._heard()
        except KafkaError as error:
            if error.name == "REBALANCE_IN_PROGRESS":
                self._heard()
            self._failed(error.name)

    def leave(self):
        (outcome,) = self.rig.coordinator.leave(self.group, [(self.member, self.instance)])
        self.give_up()
        self.member, self.generation, self.wants_join = "", -1, True
        self.assignment = None
        return outcome[2]


def settle(*clients, rounds=20):
    """All clients take steps until each has its assignment of one generation."""
    for _ in range(rounds):
        for client in clients:
            client.step()
        if is_settled(clients):
            return
    raise AssertionError([(c.name, c.waits, c.generation, dict(c.errors)) for c in clients])


def is_settled(clients):
    same = len({client.generation for client in clients}) == 1
    return same and all(client.assignment is not None for client in clients)
