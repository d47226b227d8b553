"""Repeated `kill -9` under load: each acknowledged record is present, in order, exactly once."""

import threading
import time

from compat.support import Wire
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from durability.broker_process import BrokerProcess, free_port, starts_in_time
from long_form import pick
from node.test_settings import fetch

from barnabas.wire.batches import decode_batches

BETWEEN_KILLS_S = 1.0
KINDS = {"plain": False, "idempotent": True}


class Load:
    """One producer with acks=all that numbers its records and keeps the acknowledged ones."""

    def __init__(self, address: str, topic: str, idempotent: bool) -> None:
        self.topic = topic
        self.acknowledged: dict[int, int] = {}  # number -> offset
        self.failed = 0
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "linger.ms": 2,
                "message.timeout.ms": 60000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "log_level": 0,
            }
        )
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error, message) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged[int(message.value())] = message.offset()

    def _run(self) -> None:
        while not self._stopping:
            if self.sent - len(self.acknowledged) - self.failed < 2000:
                value = b"%d" % self.sent
                self._producer.produce(self.topic, value, partition=0, on_delivery=self._delivered)
                self.sent += 1
            else:
                time.sleep(0.001)
            self._producer.poll(0.0005 if self.sent % 20 == 0 else 0)

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(30)
        assert self._producer.flush(60) == 0


def read_all(address: str, topic: str) -> list[tuple[int, int]]:
    """Returns (offset, number) of every record, fetched over one connection."""
    found: list[tuple[int, int]] = []
    with Wire(address) as wire:
        while True:
            offset = found[-1][0] + 1 if found else 0
            [row] = fetch(wire, topic, offset=offset).responses[0].partitions
            assert row.errorCode == 0
            if offset >= row.highWatermark:
                return found
            for batch in decode_batches(bytes(row.records), size_max=1 << 26, partial_tail=True):
                found += [(row.offset, int(row.value)) for row in batch.records]


def create(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(name, 1, 1) for name in KINDS], operation_timeout=10)
    for future in made.values():
        future.result(10)


def check(load: Load, found: list[tuple[int, int]], idempotent: bool) -> None:
    assert load.failed == 0
    assert len(load.acknowledged) == load.sent > 0
    at = dict(found)
    wrong = {
        number: offset for number, offset in load.acknowledged.items() if at.get(offset) != number
    }
    if idempotent:
        assert [number for _, number in found] == list(range(load.sent))
    else:
        first_seen = list(dict.fromkeys(number for _, number in found))
        assert first_seen == list(range(load.sent))
    assert not wrong, f"{len(wrong)} acknowledged records are not at their offsets"


def kill_again_and_again(tmp_path, kills: int) -> None:
    port, data = free_port(), tmp_path / "data"
    broker = BrokerProcess(data, port)
    loads: dict[str, Load] = {}
    took = []
    try:
        create(broker.address)
        loads = {name: Load(broker.address, name, kind) for name, kind in KINDS.items()}
        for _ in range(kills):
            time.sleep(BETWEEN_KILLS_S)
            broker.kill()
            broker = BrokerProcess(data, port)
            took.append(broker.ready_s)
        time.sleep(BETWEEN_KILLS_S)
        for load in loads.values():
            load.stop()
        for name, load in loads.items():
            check(load, read_all(broker.address, name), KINDS[name])
    finally:
        for load in loads.values():
            load._stopping = True
        if broker.process.poll() is None:
            broker.kill()
    counts = {name: len(load.acknowledged) for name, load in loads.items()}
    print(f"serving after {', '.join(f'{s:.2f}' for s in took)} s; acknowledged {counts}")
    assert starts_in_time(took, tmp_path / "empty"), took


def test_kills_lose_nothing(tmp_path):
    kill_again_and_again(tmp_path, kills=pick(short=3, long=10))
