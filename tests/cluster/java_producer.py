"""Kafka's Java producer in a process: VerifiableProducer, which prints each acknowledged record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

from cluster.acknowledged import read_all
from compat.support import rival
from waiting import soon

KAFKA = "3.9.2"
MAIN = "org.apache.kafka.tools.VerifiableProducer"
HEAP = ("-Xmx96m", rival.QUICK)


class JavaSender:
    """Produces numbers with acks=all and idempotence until `stop`."""

    def __init__(self, folder: Path, servers: str, topic: str, per_second: int = 100):
        self._topic = topic
        config = folder / "producer.properties"
        settings = ("enable.idempotence=true", "retries=2147483647", "metadata.max.age.ms=1000")
        config.write_text("\n".join(settings))
        command = [*rival.java(KAFKA, folder / "java-producer.log", HEAP), MAIN]
        command += ["--bootstrap-server", servers, "--topic", topic, "--acks", "-1"]
        command += ["--throughput", str(per_second), "--producer.config", str(config)]
        with open(folder / "java-producer.err", "wb") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self.unplaced: set[bytes] = set()
        self.refused: list[dict] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if told["name"] == "producer_send_success":
                value = told["value"].encode()
                if told["offset"] < 0:
                    self.unplaced.add(value)
                else:
                    self.acknowledged[told["partition"], told["offset"]] = value
            elif told["name"] == "producer_send_error":
                self.refused.append(told)

    def wait_for_more(self, count: int = 100) -> None:
        before = len(self.acknowledged)
        soon(lambda: len(self.acknowledged) >= before + count, "Java: nothing more is acknowledged")

    def stop(self) -> None:
        """Stops the process and waits until all records are acknowledged. Fails when one was
        refused."""
        os.kill(self._process.pid, signal.SIGTERM)
        self._process.wait(90)
        self._thread.join(30)
        assert self.refused == []

    def check(self, servers: str) -> None:
        """Reads all partitions: each acknowledged record must be at its offset, exactly once."""
        count = len(self.acknowledged) + len(self.unplaced)
        assert count, "the Java producer has sent nothing"
        found = read_all(servers, self._topic, count, group="java-reader")
        assert {place: found[place] for place in self.acknowledged} == self.acknowledged
        values = list(found.values())
        assert self.unplaced <= set(values)
        assert len(set(values)) == len(values), "a record is there twice"

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
