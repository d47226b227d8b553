"""WordCount.java as a process, its input, and its counts."""

import os
import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from compat.java import driver
from compat.support import KAFKA, rival
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from history.last_read import consumer_of
from history.workload import COMMON

SOURCE = Path(__file__).with_name("WordCount.java")
NAME = "words"  # the application's id, and so its group's
LINES, COUNTS, DAYS = "lines", "counts", "days"
PARTITIONS = 3
SESSION_MS, TRANSACTION_MS = 3000, 3000
STARTED_S_MAX = 60.0
WORDS_A_LINE = 4
PAUSE_S = 0.004  # between two lines


def missing() -> str | None:
    """Why Kafka Streams cannot run here, or None."""
    if not list(rival.libs(KAFKA).glob("kafka-streams-*.jar")):
        return driver.missing(KAFKA) or f"no Kafka Streams: run bench/kafka/fetch {KAFKA}"
    return driver.missing(KAFKA)


class Application:
    """The program, and its output."""

    def __init__(
        self, address: str, folder: Path, protocol: str = "classic", state: str = "state"
    ) -> None:
        """`protocol`: classic or streams. `state`: the folder of its local state in `folder`."""
        self.said: list[str] = []
        self._heard = threading.Condition()
        classes = driver.compiled(KAFKA, SOURCE)
        start = driver.quick_java(KAFKA, classes, folder / "streams.log", "-Xmx512M")
        start.insert(1, f"-Djava.io.tmpdir={folder}")
        settings = [NAME, folder / state, SESSION_MS, TRANSACTION_MS, protocol]
        with open(folder / "streams.err", "a") as errors:
            self.process = subprocess.Popen(
                [*start, "WordCount", address, *map(str, settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._heard:
                self.said.append(line.rstrip("\n"))
                self._heard.notify_all()

    def wait_until_running(self) -> None:
        with self._heard:
            running = self._heard.wait_for(lambda: "state RUNNING" in self.said, STARTED_S_MAX)
        assert running, self.said

    def failures(self) -> list[str]:
        return [line for line in self.said if line.startswith("failed") or line.endswith("ERROR")]

    def kill(self) -> None:
        """kill -9."""
        assert self.process.poll() is None, self.said
        self.process.kill()
        assert self._end() == -9

    def stop(self) -> int:
        """Closes its standard input. Returns the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._end()

    def _end(self) -> int:
        status = self.process.wait(40)
        self._reader.join(10)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        return status


class Sender:
    """Sends lines of known words until `stop`; each line is acknowledged exactly once."""

    def __init__(self, address: str, seed: int) -> None:
        self.words: Counter[str] = Counter()
        self.errors: list[KafkaError] = []
        self._chance = random.Random(f"{seed}:lines")
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
                **COMMON,
            }
        )
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def waiting(self) -> int:
        """The number of lines that are not acknowledged yet."""
        return len(self._producer)

    def stop(self) -> Counter[str]:
        """Stops. Returns how often each word was sent."""
        self._stopping.set()
        self._thread.join(20)
        assert self._producer.flush(60) == 0 and not self.errors, self.errors
        return self.words

    def _send(self) -> None:
        vocabulary = [f"word{at:02}" for at in range(40)]
        while not self._stopping.wait(PAUSE_S):
            words = self._chance.choices(vocabulary, k=WORDS_A_LINE)
            partition = self._chance.randrange(PARTITIONS)
            self._producer.produce(
                LINES, " ".join(words), partition=partition, on_delivery=self._told
            )
            self.words.update(words)
            self._producer.poll(0)

    def _told(self, error: KafkaError | None, _message: object) -> None:
        if error is not None:
            self.errors.append(error)


class Progress:
    """The position that the application has committed in its input."""

    def __init__(self, address: str) -> None:
        self._consumer = consumer_of(address, NAME, committed=False)

    def lines(self) -> int:
        """The number of lines below the committed positions, as soon as the broker answers."""
        rows = [TopicPartition(LINES, at) for at in range(PARTITIONS)]
        deadline = time.monotonic() + STARTED_S_MAX
        while True:
            try:
                found = self._consumer.committed(rows, timeout=5)
                if all(row.error is None for row in found):
                    return sum(max(row.offset, 0) for row in found)
            except KafkaException:
                pass
            assert time.monotonic() < deadline, "the broker does not tell committed positions"
            time.sleep(0.05)

    def wait_beyond(self, lines: int) -> int:
        deadline = time.monotonic() + STARTED_S_MAX
        while (found := self.lines()) <= lines:
            assert time.monotonic() < deadline, f"the application stays at {found} lines"
            time.sleep(0.02)
        return found

    def close(self) -> None:
        self._consumer.close()


class Counted:
    """The records that a reader of committed records sees in the two topics of counts."""

    def __init__(self, address: str) -> None:
        self.of: dict[str, dict[str, list[int]]] = {
            topic: defaultdict(list) for topic in (COUNTS, DAYS)
        }
        self._consumer: Consumer = consumer_of(address, "readers-of-counts")
        self._consumer.assign(
            [TopicPartition(topic, at, 0) for topic in self.of for at in range(PARTITIONS)]
        )

    def read_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for message in self._consumer.consume(1000, min(left, 0.2)):
                error = message.error()
                if error is None:
                    found = self.of[message.topic()][message.key().decode()]
                    found.append(int.from_bytes(message.value(), "big"))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)

    def is_all_of(self, words: Counter[str]) -> bool:
        """Returns whether there are at least as many counts as words were sent."""
        wanted = sum(words.values())
        return all(
            sum(len(counts) for counts in found.values()) >= wanted for found in self.of.values()
        )

    def close(self) -> None:
        self._consumer.close()


def remove_state(folder: Path) -> None:
    """Deletes the local state, as if the application restarted on another machine."""
    for path in sorted((folder / "state").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else os.unlink(path)
