"""Brokers of Apache Kafka in ZooKeeper mode, for clusters that also have barnabas brokers.

They have the interface of BrokerProcess (three_brokers.py): start, stop, kill, signal, batches."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from cluster.three_brokers import batches_in
from compat.support import rival
from waiting import pause

KAFKA = "3.9.2"
HEAP = ("-Xmx256m", rival.QUICK)


class KafkaProcess:
    """One broker of Apache Kafka."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        connect: str,
        settings: dict[str, str],
        version: str = KAFKA,
    ):
        self.node_id = node_id
        given = {
            "broker.id": str(node_id),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "6000",
            "num.network.threads": "1",
            "num.io.threads": "4",
            "num.recovery.threads.per.data.dir": "1",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "replica.lag.time.max.ms": "3000",
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            **settings,
        }
        place = folder / f"kafka-{node_id}"
        self._kafka = rival.Rival(version, place, "zookeeper", given, heap=HEAP)
        self.address = self._kafka.address
        self.is_running = False

    def start(self) -> KafkaProcess:
        self._kafka.start()
        self.is_running = True
        return self

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._kafka.pid, number)

    def pause(self) -> None:
        """Pauses the process (SIGSTOP); returns when it has stopped."""
        pause(self._kafka.pid)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the process (SIGKILL)."""
        self._kafka.kill()
        self.is_running = False

    def stop(self) -> None:
        self._kafka.stop()
        self.is_running = False

    def batches(self, topic: str, partition: int) -> Iterator[tuple[int, int, bytes]]:
        """Returns the batches of one partition, as `batches_in`. The broker must be stopped."""
        return batches_in(self._kafka.log_dir / f"{topic}-{partition}")

    def log(self) -> str:
        """Returns the lines that the broker has logged."""
        return (self._kafka.data_dir / "logs" / "server.log").read_text(errors="replace")
