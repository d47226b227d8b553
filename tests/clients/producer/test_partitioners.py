"""Each built-in partitioner chooses the same partitions as the client that it follows."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from compat.java.driver import compiled, missing, quick_java
from confluent_kafka import Producer as ConfluentProducer

from barnabas.clients import InvalidConfig, KeyedMessage, Producer, ProducerData
from barnabas.hooks.builtin import ALIASES
from barnabas.hooks.direct import ClientPlugins, caller

COUNT = 7
WORDS = [f"member-{i}" for i in range(60)] + [
    "",
    "a",
    "ab",
    "abc",
    "é",
    "日本",
    "𝄞 clef",
    "x" * 500,
]
JAVA = Path(__file__).with_name("KeyPlaces.java")


def chosen(name, keys, encoded=None, count=COUNT, topic="t", available=None):
    plugin = ClientPlugins({}).plugin("partitioner.class", name, "choose_partitions")
    data = [key.encode() if isinstance(key, str) else key for key in keys]
    places = list(range(count)) if available is None else available
    found = caller(plugin, "choose_partitions")(topic, keys, encoded or data, count, places)
    return [found] * len(keys) if isinstance(found, int) else list(found)


def confluent_places(broker, topic, keys, partitioner):
    told = {}
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": partitioner}
    )
    for at, key in enumerate(keys):
        producer.produce(
            topic, b"v", key, on_delivery=lambda _, sent, at=at: told.update({at: sent.partition()})
        )
    assert producer.flush(30) == 0
    return [told[at] for at in range(len(keys))]


@pytest.mark.parametrize(
    ("name", "theirs"), [("crc32", "consistent_random"), ("murmur2", "murmur2_random")]
)
def test_keys_land_where_librdkafka_puts_them(session_broker, name, theirs):
    topic = session_broker.create_topic(f"places-{name}", COUNT)
    keys = [word.encode() for word in WORDS if word or name == "murmur2"]  # "": none, for crc32
    assert chosen(name, keys) == confluent_places(session_broker, topic, keys, theirs)


def test_an_empty_key_is_none_for_crc32_as_for_librdkafka():
    assert len({chosen("crc32", [b""])[0] for _ in range(200)}) == COUNT


def java_places(version, broker, topic, keys, *partitioner):
    reason = missing(version)
    if reason:
        pytest.skip(reason)
    classes = compiled(version, JAVA)
    start = quick_java(version, classes, classes / "places.log", "-Xmx128M")
    command = [*start, "KeyPlaces", broker.bootstrap_servers, topic]
    lines = "\n".join("-" if key is None else key for key in keys) + "\n"
    ran = subprocess.run(
        [*command, *partitioner], input=lines.encode(), capture_output=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr.decode()[-2000:]
    return [[int(word) for word in line.split()] for line in ran.stdout.splitlines()]


@pytest.mark.java
def test_keys_land_where_javas_clients_put_them(session_broker):
    topic = session_broker.create_topic("places-java", COUNT)
    rows = java_places("4.3.1", session_broker, topic, WORDS)
    assert chosen("murmur2", WORDS) == [row[0] for row in rows]
    # The clients of 0.7 and 0.8 used Java's hashCode, which has not changed.
    expected = [0 if row[1] == -(1 << 31) else abs(row[1]) % COUNT for row in rows]
    assert chosen("hash", WORDS) == expected
    bytes_expected = [0 if row[2] == -(1 << 31) else abs(row[2]) % COUNT for row in rows]
    assert chosen("hash", [word.encode() for word in WORDS]) == bytes_expected


@pytest.mark.java
def test_round_robin_goes_on_as_javas_does(session_broker):
    topic = session_broker.create_topic("places-robin", COUNT)
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    theirs = [row[0] for row in java_places("4.3.1", session_broker, topic, WORDS, name)]
    for places in (theirs, chosen(name, WORDS)):  # Java's order is the order of its metadata
        assert set(places[:COUNT]) == set(range(COUNT))
        assert all(a == b for a, b in zip(places, places[COUNT:], strict=False))


@pytest.mark.java
def test_sticky_keeps_a_batch_together_as_javas_does(session_broker):
    topic = session_broker.create_topic("places-sticky", COUNT)
    name = "org.apache.kafka.clients.producer.UniformStickyPartitioner"
    theirs = [row[0] for row in java_places("3.9.2", session_broker, topic, WORDS, name)]
    assert len(set(theirs)) == 1 and len(set(chosen(name, WORDS))) == 1


def test_sticky_changes_with_each_batch():
    plugin = ClientPlugins({}).plugin("partitioner.class", "sticky", "choose_partitions")
    choose = caller(plugin, "choose_partitions")
    found = [choose("t", [None] * 3, [None] * 3, 5, range(5)) for _ in range(300)]
    assert all(a != b for a, b in zip(found, found[1:], strict=False))
    assert set(found) == set(range(5))


@pytest.mark.parametrize("name", ["hash", "murmur2", "crc32"])
def test_without_keys_partitions_with_a_leader_are_taken_at_random(name):
    counts = Counter(
        place for _ in range(300) for place in chosen(name, [None, None], available=[1, 4, 6])
    )
    assert set(counts) == {1, 4, 6} and min(counts.values()) > 100


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(5, 5), (-5, -5), (1 << 40, 256), (True, 1231), (1.5, 1073217536), (-(1 << 31), -(1 << 31))],
)
def test_numbers_hash_as_javas_do(key, hashed):
    from barnabas.plugins.partitioner_hash import hash_code

    assert hash_code(key) == hashed


def test_a_key_without_a_hash_in_java_is_reported():
    with pytest.raises(TypeError, match="murmur2"):
        chosen("hash", [("a", "tuple")], encoded=[b""])


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_each_alias_names_a_plugin_that_is_there(name):
    plugins = ClientPlugins({})
    plugin = plugins.plugin("x", name, "choose_partitions", "encode", "decode", "handle_events")
    assert plugin.name == ALIASES[name]


@pytest.mark.parametrize("name", ["hash", "murmur2", "crc32", "round-robin", "sticky"])
def test_each_drives_the_producer(session_broker, name):
    topic = session_broker.create_topic(f"driven-{name}", 3)
    settings = {
        "metadata.broker.list": session_broker.bootstrap_servers,
        "serializer.class": "string",
        "partitioner.class": name,
    }
    with Producer(settings) as producer:
        for _ in range(2):
            producer.send([KeyedMessage(topic, str(i), key=f"k{i % 5}") for i in range(30)])
    rows = session_broker.records(topic)
    assert sorted(int(row.value) for row in rows) == sorted(2 * list(range(30)))
    if name in ("hash", "murmur2", "crc32"):
        keys = [row.key.decode() for row in rows]
        assert [row.partition for row in rows] == chosen(name, keys, count=3)


def test_a_partitioner_of_ones_own(session_broker, tmp_path, monkeypatch):
    """A user's partitioner: as an installed plugin with options, as module:Class, and as an
    object."""
    from installed_plugins import install

    install(
        tmp_path / "site",
        monkeypatch,
        "always-one",
        """
        from barnabas import hookimpl
        from barnabas.hooks import Option

        class Always:
            OPTIONS = {"place": Option("integer", "where to", default=1)}

            def __init__(self, options):
                self.place = options["place"]

            @hookimpl
            def choose_partitions(self, keys):
                return [self.place for _ in keys]
        """,
        always="Always",
    )
    topic = session_broker.create_topic("own", 4)
    address = {"metadata.broker.list": session_broker.bootstrap_servers}
    with Producer(address | {"partitioner.class": "always", "plugin.always.place": "2"}) as one:
        one.send(ProducerData(topic, b"by name"))
    with Producer(address | {"partitioner.class": "always_one:Always"}) as two:
        two.send(ProducerData(topic, b"by class"))
    from always_one import Always

    with Producer(address | {"partitioner.class": Always({"place": 3})}) as three:
        three.send(ProducerData(topic, b"by object"))
    found = {row.value: row.partition for row in session_broker.records(topic)}
    assert found == {b"by name": 2, b"by class": 1, b"by object": 3}


def test_a_partitioner_that_answers_nonsense(session_broker):
    from barnabas import hookimpl

    class Wrong:
        answer = 99

        @hookimpl
        def choose_partitions(self):
            return self.answer

    topic = session_broker.create_topic("nonsense", 2)
    wrong = Wrong()
    settings = {
        "metadata.broker.list": session_broker.bootstrap_servers,
        "partitioner.class": wrong,
    }
    with Producer(settings) as producer:
        for answer in (99, -1, [0, 0, 0], ["x"]):
            wrong.answer = answer
            with pytest.raises(ValueError, match="partition"):
                producer.send(ProducerData(topic, b"v"))
        wrong.answer = 1
        producer.send(ProducerData(topic, b"right"))
    assert [row.value for row in session_broker.records(topic)] == [b"right"]


def test_a_name_without_a_node():
    with pytest.raises(InvalidConfig, match="the plugin 'nobody' is not installed"):
        Producer({"metadata.broker.list": "127.0.0.1:1", "partitioner.class": "nobody"})
    with pytest.raises(InvalidConfig, match="does not implement choose_partitions"):
        Producer({"metadata.broker.list": "127.0.0.1:1", "partitioner.class": "json"})
