"""Go's clients on one topic with librdkafka: kafka-go, sarama and franz-go, each as of the oldest
release of Kafka that it knows and as of today.

kafka-go 0.2.0 asks for no versions and sends its own ones; what it compresses no Kafka can read,
nor can it read the compressed records of others. The broker counts requests by version, so that
each old version was really sent.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from compat.old_java.old_clients import Row, row_of, text, watched_broker
from compat.old_java.test_old_clients import RECORDS, Today, sent_versions
from compat.support import cache_dir, rival
from telemetry.conftest import Watched

pytestmark = [pytest.mark.takes(seconds=120), pytest.mark.only_long]

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4")
OF_FORMAT_0 = CODECS[:3]  # sarama and franz-go leave lz4 with the wrong checksum of format 0 out
SETS = (CODECS, OF_FORMAT_0, CODECS[:1])
GO = shutil.which("go") or "/usr/local/go/bin/go"
BUILD_S = 900
OF_TODAY = 11  # librdkafka's last requests count when their connection closes, a moment later


class Client(NamedTuple):
    """`program`: a folder here; `modfile`: its dependencies; `release`: as of which Kafka;
    `produces`, `fetches`: the request versions that it must send, or None: the newest it knows;
    `codecs`: what it can read and write; `has_groups`: of that release."""

    program: str
    modfile: str
    release: str
    produces: int | None
    fetches: int | None
    codecs: tuple[str, ...] = CODECS
    has_groups: bool = True

    @property
    def has_times(self) -> bool:
        """Message format 0 has no timestamps."""
        return self.produces is None or self.produces >= 2


CLIENTS = {
    "kafka-go 0.2.0": Client("kafkago", "old.mod", "-", 2, 1, ("none",)),
    "kafka-go 0.4": Client("kafkago", "go.mod", "-", None, None),
    "sarama as of 0.8.2": Client("sarama", "go.mod", "0.8.2.0", 0, 0, OF_FORMAT_0, False),
    "sarama as of 0.9": Client("sarama", "go.mod", "0.9.0.0", 0, 1, OF_FORMAT_0, False),
    "sarama as of 0.10": Client("sarama", "go.mod", "0.10.0.0", 2, 2, CODECS, False),
    "sarama as of 0.11": Client("sarama", "go.mod", "0.11.0.0", 3, 5),
    "sarama as of 4.0": Client("sarama", "go.mod", "4.0.0", None, None),
    "franz-go as of 0.8": Client("franz", "go.mod", "v0.8.2", 0, 0, OF_FORMAT_0, False),
    "franz-go as of 0.9": Client("franz", "go.mod", "v0.9.0", 1, 1, OF_FORMAT_0),
    "franz-go as of 0.10": Client("franz", "go.mod", "v0.10.0", 2, 2),
    "franz-go": Client("franz", "go.mod", "newest", None, None),
}


class Program:
    """A running client: a line of words in, a line of words out."""

    def __init__(self, client: Client, address: str) -> None:
        made = built(client)
        self._process = subprocess.Popen(
            [made, address, client.release],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: object) -> list[Row]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().rstrip("\n")
        assert not line.startswith("error"), line
        return [row_of(word) for word in line.split("\t") if word]

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        rival.end(self._process)


def built(client: Client) -> Path:
    """The compiled program. go compiles again only what changed."""
    made = cache_dir() / "go" / f"{client.program}-{client.modfile.removesuffix('.mod')}"
    command = [GO, "build", f"-modfile={client.modfile}", "-o", str(made), "."]
    done = subprocess.run(
        command, cwd=HERE / client.program, capture_output=True, text=True, timeout=BUILD_S
    )
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if not Path(GO).exists():
        pytest.skip("Go is not installed")
    with watched_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


Rows = list[Row]


@pytest.fixture(scope="module")
def produced(watched: Watched) -> dict[tuple[str, ...], Rows]:
    """By the codecs of a topic: every record as stored, of every producer that has these codecs."""
    return {codecs: _fill(watched, codecs) for codecs in SETS}


def _fill(watched: Watched, codecs: tuple[str, ...]) -> Rows:
    topic, found = topic_of(codecs), []
    watched.broker.create_topic(topic)

    def add(times: bool) -> None:
        for record in RECORDS:
            stamp = record.timestamp if times else -1
            found.append(record._replace(offset=len(found), timestamp=stamp))

    for client in CLIENTS.values():
        if set(codecs) - set(client.codecs):
            continue
        with Program(client, watched.bootstrap) as program:
            for codec in codecs:
                before = sent_versions(watched, "Produce")
                program.ask("produce", codec, topic, *words_of(RECORDS))
                assert_sent(before, sent_versions(watched, "Produce"), client.produces)
                add(client.has_times)
    for codec in codecs:
        Today(watched.bootstrap).produce(topic, codec, RECORDS)
        add(True)
    return found


def topic_of(codecs: tuple[str, ...]) -> str:
    return "-".join(codecs)


def words_of(records: list[Row]) -> list[str]:
    return [f"{text(r.key)}:{text(r.value)}:{r.timestamp}" for r in records]


def assert_sent(before: dict[int, int], after: dict[int, int], version: int | None) -> None:
    if version is not None:
        sent = {v for v in after if after[v] > before.get(v, 0)}
        assert {v for v in sent if v < OF_TODAY} == {version}


def test_librdkafka_reads_what_go_produced(watched: Watched, produced) -> None:
    for codecs, rows in produced.items():
        assert Today(watched.bootstrap).read(topic_of(codecs), 0, len(rows)) == rows


@pytest.mark.parametrize("name", CLIENTS)
def test_go_reads_what_every_other_produced(watched: Watched, produced, name: str) -> None:
    client = CLIENTS[name]
    before = sent_versions(watched, "FetchConsumer")
    with Program(client, watched.bootstrap) as program:
        for codecs, stored in produced.items():
            if not set(codecs) <= set(client.codecs):
                continue
            expected = [seen_by(client, row) for row in stored]
            rows = program.ask("read", topic_of(codecs), 0, len(stored))
            assert [seen_by(client, row) for row in rows] == expected
            inside = program.ask("read", topic_of(codecs), 7, 3)  # in the middle of a batch
            assert [seen_by(client, row) for row in inside] == expected[7:10]
    assert_sent(before, sent_versions(watched, "FetchConsumer"), client.fetches)


def seen_by(client: Client, row: Row) -> Row:
    """Fetch 0 and 1 have no timestamps; kafka-go gives an empty field as nil."""
    if client.fetches is not None and client.fetches < 2:
        row = row._replace(timestamp=-1)
    if client.program == "kafkago":
        row = row._replace(key=row.key or None, value=row.value or None)
    return row


@pytest.mark.parametrize("name", [n for n, c in CLIENTS.items() if c.has_groups])
def test_members_of_a_group_in_go(watched: Watched, name: str) -> None:
    """A member commits and leaves; another one of the group goes on there."""
    client = CLIENTS[name]
    topic = name.replace(" ", "-")
    watched.broker.create_topic(topic)
    for number in range(2):
        Today(watched.bootstrap).produce(topic, client.codecs[-1], RECORDS)
        with Program(client, watched.bootstrap) as program:
            rows = program.ask("group", f"g-{topic}", topic, len(RECORDS))
        first = number * len(RECORDS)
        expected = [r._replace(offset=first + i) for i, r in enumerate(RECORDS)]
        assert [seen_by(client, r) for r in rows] == [seen_by(client, r) for r in expected]
