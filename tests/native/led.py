"""A partition that broker 1 leads with followers, and requests to it by bytes."""

import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from native.conftest import Broker
from native.fetch_broker import decoded
from oracle.produce import batch, produce_answer, produce_frame

from barnabas.cext.fetch.fetch import FetchHandler, ParkedFetch
from barnabas.cext.fetch.sessions import FetchSessions
from barnabas.cext.log.log_handle import LogHandle
from barnabas.wire import request
from barnabas.wire.headers import encode_request

LEADER, EPOCH = 1, 5
LONG_MS = 20_000
RECORDS = 3  # of a batch


@dataclass
class Led:
    broker: Broker
    selects_by_rack: bool = False
    fetches: FetchHandler = field(init=False)

    def __post_init__(self) -> None:
        sessions = FetchSessions(100, seed=1)
        self.fetches = FetchHandler(
            self.broker.table,
            sessions,
            fetch_bytes_max=1 << 26,
            selects_by_rack=self.selects_by_rack,
        )

    def lead(self, replicas=(1, 2, 3), isr=(1, 2, 3), **options: Any):
        """Adds orders-0; returns its handle."""
        self.broker.ids["orders"] = uuid.uuid4().bytes
        self.table.add_topic("orders", self.broker.ids["orders"])
        options = {"leader_epoch": EPOCH, "replicas": replicas, "isr": isr} | options
        return self.broker.partition("orders", 0, **options)

    def restart(self, high_watermark: int, *, clean: bool, replicas=(1, 2), isr=(1, 2)):
        """Opens the log again, as a broker that starts with this checkpoint; returns its handle."""
        self.table.remove_partition("orders", 0)
        self.log.close(clean=clean)
        log = self.broker.open_log("orders", 0, clean=clean, high_watermark=high_watermark)
        self.broker.logs["orders", 0] = log
        return self.table.add_partition(
            "orders", 0, log, directory=self.broker.directory, leader_epoch=EPOCH,
            replicas=replicas, isr=isr, high_watermark=high_watermark,
        )  # fmt: skip

    def forget(self) -> None:
        """Removes orders, if it is there."""
        if self.broker.ids.pop("orders", None) is not None:
            self.table.remove_topic("orders")
            self.broker.logs.pop(("orders", 0)).close(clean=True)
            shutil.rmtree(Path(self.broker.directory, "orders-0"))
        self.table.caught_up()  # of earlier fetches

    @property
    def table(self):
        return self.broker.table

    @property
    def log(self) -> LogHandle:
        return self.broker.logs["orders", 0]

    @property
    def high_watermark(self) -> int:
        return self.table.partition("orders", 0).high_watermark

    def produce(self, acks: int = 1, **options: Any):
        """One batch. Returns the answer of its partition, or with acks=-1 the waiting request."""
        frame = produce_frame([("orders", 0, batch(RECORDS))], acks=acks, **options)
        return answered(self.broker.native.handle_frame(frame))

    def append(self, batches: int = 1) -> None:
        """Appends durably; the followers do not have the records yet."""
        for _ in range(batches):
            assert self.produce(acks=1).errorCode == 0
        self.log.flush()

    def fetch(self, replica: int, offset: int, **fields: Any):
        """One Fetch. Returns the answer of its partition, or a ParkedFetch."""
        version = fields.get("version", 17)
        answer = self.fetches.handle_frame(self.frame(replica, offset, **fields))
        return answer if isinstance(answer, ParkedFetch) else part_of(answer, version)

    def frame(
        self,
        replica: int,
        offset: int,
        *,
        version: int = 17,
        epoch: int = EPOCH,
        fetched: int = -1,
        log_start: int = 0,
        broker_epoch: int = -1,
        isolation: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        rack: str = "",
        session: tuple[int, int] = (0, -1),
    ) -> bytes:
        message = request(1)
        partition = message.struct("topics.partitions")(
            partition=0, currentLeaderEpoch=epoch, fetchOffset=offset, lastFetchedEpoch=fetched,
            logStartOffset=log_start, partitionMaxBytes=1 << 20,
        )  # fmt: skip
        name = {"topicId": self.broker.ids["orders"]} if version >= 13 else {"topic": "orders"}
        topic = message.struct("topics")(partitions=[partition], **name)
        body = message.cls(
            maxWaitMs=max_wait_ms, minBytes=min_bytes, maxBytes=1 << 24, isolationLevel=isolation,
            sessionId=session[0], sessionEpoch=session[1], topics=[topic], rackId=rack,
        )  # fmt: skip
        if version >= 15:
            state = message.struct("replicaState")
            body.replicaState = state(replicaId=replica, replicaEpoch=broker_epoch)
        else:
            body.replicaId = replica
        return encode_request(1, version, 7, "tests", body, framed=False)

    def consume(self, offset: int, **fields: Any):
        return self.fetch(-1, offset, epoch=-1, **fields)

    def states(self) -> dict[int, Any]:
        return {state.broker_id: state for state in self.table.replica_states("orders", 0)}


def part_of(frame: bytes, version: int = 17):
    """The answer of the one partition of a Fetch."""
    return decoded(frame, version).responses[0].partitions[0]


def answered(found):
    """The answer of the one partition of a Produce, or the request that waits."""
    if not isinstance(found, bytes):
        return found
    return produce_answer(found).responses[0].partitionResponses[0]
