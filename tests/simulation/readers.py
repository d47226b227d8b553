"""The reader of committed records of a simulated cluster.

It fetches each partition of a topic from its leader, as Kafka's consumer does with
isolation.level=read_committed: from the list of aborted transactions in the answer, and the markers
in the records, it finds out which records it leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simulation.log_rows import Row, next_offset, records_of

from barnabas.errors import OffsetOutOfRange
from barnabas.metadata.znodes import uuid_bytes
from barnabas.wire import Struct, request, response
from barnabas.wire.headers import decode_response_header, encode_request

if TYPE_CHECKING:
    from simulation.base_world import BaseWorld
    from simulation.judge import Log
    from simulation.node import SimNode

FETCH, VERSION, BYTES_MAX = 1, 13, 1 << 20
READ_COMMITTED = 1


def aborted_in(answer: Struct) -> dict[int, int]:
    """Returns the producers of the aborted transactions in the answer for a partition, by the first
    offset of each."""
    return {row.firstOffset: row.producerId for row in answer.abortedTransactions or ()}


class Reader:
    """The reader of a world. `read`: offset and value of the records of transactions, by log."""

    def __init__(self, world: BaseWorld, topic: str) -> None:
        self._world, self._topic = world, topic
        self._positions: dict[Log, int] = {}
        self.read: dict[Log, list[tuple[int, bytes]]] = {}

    def take_back(self, ends: Mapping[Log, int]) -> None:
        """Goes back to the last stable offset of a log from which a power cut has taken records or
        markers."""
        for log, rows in self.read.items():
            self.read[log] = [row for row in rows if row[0] < ends.get(log, 0)]
            self._positions[log] = min(self._positions[log], ends.get(log, 0))

    def act(self) -> None:
        """Fetches one partition from the broker that leads it in the view of some broker."""
        world = self._world
        topic = world.choice(world.alive()).reader.state.topic(self._topic)
        if topic is None or topic.topic_id is None:
            return
        index = world.below(len(topic.partitions))
        state = topic.partitions[index].state
        leader = None if state is None else world.brokers.get(state.leader)
        if leader is not None and leader.is_running and not leader.is_paused:
            self.fetch(leader, (uuid_bytes(topic.topic_id), index))

    def fetch(self, broker: SimNode, log: Log) -> int:
        """Fetches once; returns the number of offsets that it has read."""
        message = request(FETCH)
        position = self._positions.get(log, 0)
        part = message.struct("topics.partitions")(
            partition=log[1], fetchOffset=position, partitionMaxBytes=BYTES_MAX
        )
        topic = message.struct("topics")(topicId=log[0], partitions=[part])
        body = message.cls(maxWaitMs=0, minBytes=0, maxBytes=BYTES_MAX, topics=[topic],
                           isolationLevel=READ_COMMITTED, sessionEpoch=-1)  # fmt: skip
        frame = encode_request(FETCH, VERSION, 1, "client", body, framed=False)
        data = broker.handle(frame)
        assert isinstance(data, bytes)
        _, at = decode_response_header(data, FETCH, VERSION)
        answer = response(FETCH).decode(data, VERSION, at)
        if answer.errorCode or not answer.responses:
            return 0
        found = answer.responses[0].partitions[0]
        if found.errorCode == OffsetOutOfRange.code:
            return self._begin_again(broker, log, position)
        if found.errorCode:
            return 0
        data = bytes(found.records or b"")
        rows = [row for row in records_of(data) if row.offset >= position]
        self._take(broker, log, rows, aborted_in(found))
        self._positions[log] = next_offset(data, position)
        return self._positions[log] - position

    def _begin_again(self, broker: SimNode, log: Log, position: int) -> int:
        """Goes on at the start of the log, as with auto.offset.reset=earliest, when it is above
        the position. Returns the number of offsets in between."""
        for place, row in self._world.partitions().items():
            handle = broker.table.partition(*place)
            if row.log == log and handle is not None and handle.log is not None:
                self._positions[log] = max(position, handle.log.start_offset)
        return self._positions.get(log, position) - position

    def _take(self, broker: SimNode, log: Log, rows: list[Row], aborted: dict[int, int]) -> None:
        left_out: set[int] = set()  # producers whose records belong to an aborted transaction
        starts = sorted(aborted)
        read = self.read.setdefault(log, [])
        for row in rows:
            while starts and starts[0] <= row.offset:
                left_out.add(aborted[starts.pop(0)])
            if row.commits is False:
                left_out.discard(row.producer_id)
            elif row.commits is None and row.is_transactional and row.producer_id not in left_out:
                name = f"{self._topic}-{log[1]} of broker {broker.node_id}"
                self._world.judge.transactions.check_read(name, log, row)
                read.append((row.offset, row.value))
        self._world.counts["read"] += len(rows)

    def read_all(self) -> None:
        """Reads each partition to its end, when all replicas are equal."""
        for (name, _), row in self._world.partitions().items():
            if name == self._topic and row.state is not None:
                while self.fetch(self._world.brokers[row.state.leader], row.log):
                    pass
