"""A broker whose system allows no more threads: it says so at the start; later its clients get
errors, and everything works again when threads are allowed."""

import os
import subprocess
import sys

import pytest
from compat.support import Wire
from confluent_kafka import Consumer, KafkaException, Producer
from durability.broker_process import BrokerProcess, free_port
from hostile.control_groups import THREADS, missing, thread_group
from node.test_settings import create, produce

pytestmark = [
    pytest.mark.takes(seconds=12),
    pytest.mark.skipif(missing(THREADS) is not None, reason=str(missing(THREADS))),
]

TOO_FEW = (2, 8, 16, 20, 24, 30)
STARTS_IN_S = 20
MORE = 100


@pytest.mark.parametrize("most", TOO_FEW)
def test_the_start_is_refused_in_one_line(tmp_path, most):
    words = ["--set", f"log.dirs={tmp_path}", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    with thread_group(most) as group:
        started = subprocess.run(
            [*group.prefix, sys.executable, "-m", "barnabas", "start", *words],
            capture_output=True,
            text=True,
            timeout=STARTS_IN_S,
        )
    assert started.returncode == 1
    assert "the system allows no more threads" in started.stderr.splitlines()[-1]
    assert "Traceback" not in started.stderr


def transaction(address):
    settings = {"bootstrap.servers": address, "transactional.id": "t", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(3)
    producer.begin_transaction()
    producer.produce("first", b"transaction")
    producer.commit_transaction(10)


def test_clients_get_errors_and_later_answers(tmp_path):
    with thread_group(MORE) as group:
        with BrokerProcess(tmp_path, free_port(), {"metrics.port": -1}, group.prefix) as broker:
            with Wire(broker.address) as wire:
                create(wire, "first")
                group.limit(len(os.listdir(f"/proc/{broker.process.pid}/task")))
                with pytest.raises(KafkaException):  # its timers and loaders have no threads
                    transaction(broker.address)
                assert produce(wire, "first", b"plain").errorCode == 0
                group.limit(MORE)
                transaction(broker.address)
            group_member = {
                "bootstrap.servers": broker.address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
            consumer = Consumer(group_member)
            consumer.subscribe(["first"])
            found = {row.value() for row in consumer.consume(2, 20)}
            consumer.close()
            assert found == {b"plain", b"transaction"}
            assert broker.process.poll() is None
