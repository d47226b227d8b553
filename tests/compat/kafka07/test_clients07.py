"""Clients of Kafka 0.7 that registries still serve: brod 0.4.3 and samsa 0.3.11 from PyPI, prozess
0.7.0 from npm. Each reads what every other, and a client of today, has written to one topic.

prozess misreads messages of magic 0, and brod those of magic 1, so that brod has a broker of its
own.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from compat.kafka07.python2 import clients
from compat.support import cache_dir
from confluent_kafka import Producer
from legacy07.conftest import broker07, port_of
from oracle.kafka07 import Client07, message, messages, payloads_of

HERE = Path(__file__).parent
FOLDER = cache_dir() / "kafka07"


def missing() -> str | None:
    wanted = (HERE / "package-lock.json").read_bytes()
    complete = FOLDER / "complete"
    if shutil.which("node") is None or not complete.exists() or complete.read_bytes() != wanted:
        return f"no clients of Kafka 0.7: run tests/compat/kafka07/install {FOLDER}"
    return None


pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning"),
]
WORDS = ["one", "zwölf", "", "x" * 300]
BYTES = [word.encode() for word in WORDS]


@pytest.fixture
def python2():
    with clients(FOLDER) as found:
        yield found


def samsa_at(samsa, port):
    return samsa.Client("127.0.0.1", samsa.handlers.ThreadingHandler(), port=port)


def read_by_samsa(client, topic, size=1000):
    found, offset = [], 0
    while part := client.fetch(topic, 0, offset, size):
        assert all(each.valid for each in part)
        found += [bytes(each.payload) for each in part]
        offset = part[-1].next_offset
    return found, offset


def prozess(port, *arguments):
    done = subprocess.run(
        ["node", HERE / "prozess.mjs", FOLDER, str(port), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce_today(broker, topic):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "lz4"})
    for word in WORDS:
        producer.produce(topic, word, "key", partition=0)
    assert producer.flush(10) == 0


def test_samsa_and_prozess_read_what_all_have_written(tmp_path, python2) -> None:
    _, samsa = python2
    with broker07(tmp_path) as broker:
        port = port_of(broker)
        client = samsa_at(samsa, port)
        prozess(port, "produce", "t", *WORDS)
        client.produce("t", 0, BYTES)
        assert client.offsets("t", 0, samsa.OFFSET_LATEST, 1)[0] >= len(messages(BYTES))
        produce_today(broker, "t")
        client.multiproduce([("t", 0, BYTES[:2]), ("other", 0, BYTES)], version=1)
        everything = BYTES * 3 + BYTES[:2]
        end = len(messages(everything))
        assert client.offsets("t", 0, samsa.OFFSET_LATEST, 1) == [end]
        assert client.offsets("t", 0, samsa.OFFSET_EARLIEST, 1) == [0]
        assert read_by_samsa(client, "t") == (everything, end)
        both = client.multifetch([("t", 0, 0, 9999), ("other", 0, 0, 9999)])
        found = [[bytes(each.payload) for each in part] for part in both]
        assert found == [everything, BYTES]
        texts = [value.decode() for value in everything]
        assert json.loads(prozess(port, "consume", "t")) == {"found": texts, "next": end}
        assert int(prozess(port, "latest", "t")) == end
        assert [record.value for record in broker.records("t")] == everything
        with pytest.raises(samsa.ERROR_CODES[1]):
            client.fetch("t", 0, 1, 1000)


def test_brod_and_samsa_read_messages_of_magic_0(tmp_path, python2) -> None:
    brod, samsa = python2
    with broker07(tmp_path, {"legacy07.message.magic": "0"}) as broker:
        port = port_of(broker)
        kafka = brod.Kafka("127.0.0.1", port)
        kafka.produce("t", WORDS[1])
        kafka.produce("t", BYTES)
        assert kafka.earliest_offset(b"t", 0) == 0
        client = samsa_at(samsa, port)
        client.produce("t", 0, BYTES)
        assert client.offsets("t", 0, samsa.OFFSET_LATEST, 1)[0] > 0
        produce_today(broker, "t")
        everything = [BYTES[1]] + BYTES * 3
        end = len(messages(everything, magic=0))
        assert kafka.latest_offset(b"t", 0) == end
        found, offset = [], 0
        while part := kafka.fetch("t", offset, max_size=1000):
            found += [value for _, value in part]
            offset = part[-1][0] + len(message(part[-1][1], magic=0))
        assert (found, offset) == (everything, end)
        assert read_by_samsa(client, "t") == (everything, end)
        with Client07(port) as raw:
            assert payloads_of(raw.fetch("t", 0)[1]) == everything
        with pytest.raises(brod.OffsetOutOfRange):
            kafka.fetch("t", 1)
