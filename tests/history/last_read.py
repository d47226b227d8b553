"""The end of a run: no transaction is open, and every partition is read from its start to its
end."""

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from history.model import History, Operation, now
from history.workload import COMMON, name_of, read_of

STABLE_S_MAX = 30.0
READ_S_MAX = 60.0
Partitions = list[tuple[str, int]]


def consumer_of(address: str, group: str, committed: bool = True) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **COMMON,
        }
    )


def ends(address: str, partitions: Partitions) -> dict[str, tuple[int, int]]:
    """The last stable offset and the high watermark of each partition."""
    found: dict[str, list[int]] = {}
    for committed in (True, False):
        consumer = consumer_of(address, "ends", committed)
        for topic, partition in partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            found.setdefault(name_of(topic, partition), []).append(end)
        consumer.close()
    return {name: (stable, high) for name, (stable, high) in found.items()}


def wait_until_stable(address: str, partitions: Partitions) -> float:
    """Waits until no transaction is open. Returns how long that took."""
    began = time.monotonic()
    while True:
        found = ends(address, partitions)
        took = time.monotonic() - began
        if all(stable == high for stable, high in found.values()):
            return took
        assert took < STABLE_S_MAX, f"transactions stay open: {found}"
        time.sleep(0.1)


def scan(address: str, history: History, partitions: Partitions, process: str) -> None:
    """Reads whole partitions, which get no more records, into the history: to the last
    stable offset, which is the high watermark where no transaction is open."""
    stables = {name: stable for name, (stable, _) in ends(address, partitions).items()}
    consumer = consumer_of(address, process)
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
    began, reads, ended = now(), [], {}
    deadline = time.monotonic() + READ_S_MAX
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, f"{process} read {ended} of {stables}"
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                reads.append(read_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended[name_of(message.topic(), message.partition())] = message.offset()
            else:
                raise KafkaException(error)
    consumer.close()
    assert ended == stables, f"{process} was told of an end before the last stable offset"
    _note(history, process, began, reads=tuple(reads), scan=True, scanned=tuple(stables))


def fetch_positions(
    address: str, history: History, group: str, partitions: Partitions
) -> dict[str, int | None]:
    """Fetches the positions that are committed for a group at the end."""
    consumer = consumer_of(address, group)
    began = now()
    rows = consumer.committed([TopicPartition(*row) for row in partitions], timeout=30)
    consumer.close()
    found = {}
    for row in rows:
        assert row.error is None, row.error
        found[name_of(row.topic, row.partition)] = row.offset if row.offset >= 0 else None
    _note(history, f"last-of-{group}", began, group=group, positions=found)
    return found


def _note(history: History, process: str, began: int, **more: Any) -> None:
    history.add(Operation(process=process, began=began, ended=now(), **more))
