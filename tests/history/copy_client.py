"""A program that copies "input" to "copy" in transactions, to be killed at any moment.

It prints each step as a line of JSON before it takes the step: "open"
with the whole transaction when its records and positions are written, "deciding" before it asks for
the commit, "aborting" before it aborts, "done" after the response. So the test knows the state at
the kill. Its transaction number HELD stays open until the kill; with 0, none does.

    python -m history.copy_client ADDRESS FIRST_VALUE SEED TIMEOUT_MS HELD
"""

import json
import random
import sys
import time
from dataclasses import replace

from confluent_kafka import Consumer, Producer, TopicPartition
from history.model import Operation, Outcome, dump, now
from history.workload import COMMON, COPY, INPUT, PARTITIONS, Burst, ends_of, read_of, rows_of

GROUP, TRANSACTIONAL_ID = "copiers", "copier"
RECORDS_MAX = 12
HELD_S_MAX = 0.05  # between the writes and the end
COMMITTING = 0.8


def say(kind: str, operation: Operation | None = None, **more: int) -> None:
    row = {"kind": kind, "operation": operation and dump(operation), **more}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main(address: str, first_value: int, seed: str, timeout_ms: int, held: int) -> None:
    chance, opened = random.Random(seed), 0
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": TRANSACTIONAL_ID,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            **COMMON,
        }
    )
    producer.init_transactions(30)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **COMMON,
        }
    )
    name, value = f"client-{first_value}", first_value
    fresh = True
    while True:
        if fresh:
            begin_at_committed(consumer, name)
        began, more = now(), {"fresh": fresh, "group": GROUP, "process": name}
        reads = tuple(read_of(row) for row in consumer.consume(chance.randint(1, RECORDS_MAX), 0.2))
        fresh = False
        if not reads:
            say("idle", Operation(began=began, ended=now(), **more))
            continue
        producer.begin_transaction()
        burst = Burst()
        for read in reads:
            partition = int(read.partition.split("/")[1])
            burst.send(producer, COPY, partition, value, source=read.value)
            value += 1
        ends = ends_of(reads)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(rows_of(ends), metadata, 30)
        producer.flush(30)
        sends = burst.sends(transactional=True)
        known = Operation(
            began=began, ended=None, outcome=Outcome.FAIL, transactional=True,
            sends=sends, reads=reads, commits=ends, **more,
        )  # fmt: skip
        say("open", known)
        opened += 1
        while opened == held:
            time.sleep(1)
        time.sleep(chance.random() * HELD_S_MAX)
        if chance.random() < COMMITTING:
            say("deciding", at=(deciding := now()))
            producer.commit_transaction(30)
            known = replace(known, outcome=Outcome.OK, deciding=deciding)
        else:
            say("aborting")
            producer.abort_transaction(30)
            fresh = True
        say("done", replace(known, ended=now()))


def begin_at_committed(consumer: Consumer, name: str) -> None:
    began = now()
    rows = consumer.committed([TopicPartition(INPUT, at) for at in range(PARTITIONS)], timeout=30)
    positions = {}
    for row in rows:
        assert row.error is None, row.error
        positions[f"{row.topic}/{row.partition}"] = row.offset if row.offset >= 0 else None
        row.offset = max(row.offset, 0)
    consumer.assign(rows)
    say(
        "idle",
        Operation(process=name, began=began, ended=now(), group=GROUP, positions=positions),
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
