"""The broker's implementation of the services for plugins, which hooks/services.py defines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from barnabas.cext.log.log_handle import LogError
from barnabas.cext.record.records import Record
from barnabas.controller.topics import NewTopic, TopicController
from barnabas.errors import (
    KafkaError,
    KafkaStorageError,
    RequestTimedOut,
    TopicAlreadyExists,
    error_of,
)
from barnabas.metadata.cluster_state import ClusterState
from barnabas.server.replica_manager import ReplicaManager
from barnabas.wire.batches import decode_batches, encode_batch

COMMIT_TIMEOUT_MS = 10_000
READ_BYTES = 1 << 20


class PluginServices:
    """The services of one broker. `keep_starts` writes log start offsets to disk; it returns False
    when that fails."""

    def __init__(
        self,
        replicas: ReplicaManager,
        topics: TopicController,
        cluster: Callable[[], ClusterState],
        keep_starts: Callable[[], bool],
        wall_ms: Callable[[], int],
        committed: Callable[[str, int], Mapping[str, int]],
        rules_changed: Callable[[], object],
    ) -> None:
        self._replicas = replicas
        self._topics = topics
        self._cluster = cluster
        self._keep_starts = keep_starts
        self._wall_ms = wall_ms
        self._committed = committed
        self._rules_changed = rules_changed

    def now_ms(self) -> int:
        return self._wall_ms()

    def rules_changed(self) -> None:
        self._rules_changed()

    def partition_count(self, topic: str) -> int:
        found = self._cluster().topic(topic)
        return 0 if found is None or found.deleting else len(found.partitions)

    def high_watermark(self, topic: str, partition: int) -> int:
        try:
            return self._replicas.partition(topic, partition).high_watermark
        except KafkaError:
            return 0

    def committed_offsets(self, topic: str, partition: int) -> Mapping[str, int]:
        return self._committed(topic, partition)

    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None:
        if self.partition_count(topic):
            return
        asked = NewTopic(topic, partition_count, 1, configs=dict(configs))
        with suppress(TopicAlreadyExists):
            self._topics.create(asked, is_own=True)

    def append(self, topic: str, partition: int, records: Iterable[Record]) -> int:
        handle = self._replicas.partition(topic, partition)
        log = self._replicas.log(topic, partition)
        try:
            done = log.append(bytearray(encode_batch(records)), leader_epoch=handle.leader_epoch)
        except LogError as error:
            raise error_of(error.code)(str(error)) from error
        handle.appended(wanted=True)
        if not handle.commit(COMMIT_TIMEOUT_MS):
            raise KafkaStorageError() if handle.offline else RequestTimedOut()
        return done.first_offset

    def read(self, topic: str, partition: int, offset: int) -> Iterator[Record]:
        handle = self._replicas.partition(topic, partition)
        log = self._replicas.log(topic, partition)
        size_max = self._replicas.topic_config(topic).integer("max.decompressed.message.bytes")
        end = handle.high_watermark
        offset = max(offset, log.start_offset)
        while offset < end:
            try:
                data = log.read(offset, READ_BYTES, limit_offset=end)
            except LogError as error:
                raise error_of(error.code)(str(error)) from error
            before = offset
            for batch in decode_batches(data, size_max=size_max, partial_tail=True):
                if not batch.control:
                    yield from (record for record in batch.records if record.offset >= offset)
                offset = batch.last_offset + 1
            if offset == before:
                return

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        handle = self._replicas.partition(topic, partition)
        before = min(before, handle.high_watermark)
        try:
            self._replicas.advance_log_start(topic, partition, before)
        except LogError as error:
            raise error_of(error.code)(str(error)) from error
        if not self._keep_starts():
            raise KafkaStorageError()
