"""`barnabas mirror`, a process of its own, between brokers."""

import contextlib
import os
import pty
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from durability.broker_process import free_port
from installed_plugins import install
from mirror_process import (
    WAIT_S,
    MirrorProcess,
    command,
    figure,
    page,
    run,
)
from waiting import soon

from barnabas import Broker
from barnabas.client import Cluster
from barnabas.client.groups import committed_offsets
from barnabas.clients import KeyedMessage, Producer
from barnabas.errors import KafkaError

pytestmark = pytest.mark.takes(seconds=35)


@pytest.fixture
def clusters():
    """Two sources and a target."""
    with Broker() as east, Broker() as west, Broker() as target:
        yield east, west, target


def fill(broker, topic, messages):
    with Producer(
        {"metadata.broker.list": broker.bootstrap_servers, "serializer.class": "string"}
    ) as producer:
        producer.send([KeyedMessage(topic, *row) for row in messages])


def count_of(broker, topic):
    """The number of records in the topic; 0 while it is being created or gets partitions."""
    with contextlib.suppress(KafkaError):
        return len(broker.records(topic))
    return 0


def what(rows):
    return [(r.partition, r.key, r.value, tuple(r.headers), r.timestamp) for r in rows]


def test_many_clusters_into_one(clusters):
    """Partitions, keys, headers, timestamps and tombstones are copied; topics are created like the
    source's."""
    east, west, target = clusters
    for name, broker in (("east", east), ("west", west)):
        for topic, count in ((f"orders-{name}", 3), ("both", 2), ("left-out", 1)):
            broker.create_topic(topic, count)
        rows = [(f"{name}-{i}", f"k{i % 10}", None, (("h", b"%d" % i),)) for i in range(300)]
        fill(broker, f"orders-{name}", [*rows, (None, "k1")])
        fill(broker, "both", [(f"{name}-{i}",) for i in range(20)])
    ran = run(
        "--source", f"east={east.bootstrap_servers}",
        "--source", f"west={west.bootstrap_servers}",
        "--target", target.bootstrap_servers,
        "--whitelist", "orders-.*, both",
        "--end",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "mirrored 642 records" in ran.stderr
    assert target.topics == ["both", "orders-east", "orders-west"]
    for name, broker in (("east", east), ("west", west)):
        topic = f"orders-{name}"
        assert what(target.records(topic)) == what(broker.records(topic))
        own = [row for row in target.records("both") if row.value.startswith(name.encode())]
        assert what(own) == what(broker.records("both"))


def test_a_blacklist_and_a_second_run_that_copies_what_came_since(clusters):
    east, _, target = clusters
    for topic in ("news", "tmp-1", "tests"):
        east.create_topic(topic)
        fill(east, topic, [("1",)])
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers, "--end")
    for count in (1, 2):
        ran = run(*words, "--blacklist", "tmp.*,tests", "--group", "copies")
        assert ran.returncode == 0, ran.stderr
        assert target.topics == ["news"]
        target.assert_records("news", [b"1"] * count)
        fill(east, "news", [("1",)])


def test_partitions_are_chosen_anew(clusters):
    east, _, target = clusters
    east.create_topic("t", 2)
    target.create_topic("t", 5)
    fill(east, "t", [(f"{i}", f"k{i % 40}") for i in range(200)])
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers, "--end")
    ran = run(*words, "--whitelist", "t", "--partitioner", "murmur2", "--codec", "lz4")
    assert ran.returncode == 0, ran.stderr
    from barnabas.client.partitioner import partition_of

    rows = target.records("t")
    assert len(rows) == 200
    assert all(row.partition == partition_of(row.key, 5) for row in rows)


def test_a_message_handler(clusters, tmp_path, monkeypatch):
    install(
        tmp_path / "site",
        monkeypatch,
        "rename-topics",
        """
        from barnabas import hookimpl
        from barnabas.hooks import KeyedMessage, Option

        class Rename:
            OPTIONS = {"prefix": Option("text", "before names")}

            def __init__(self, options):
                self.prefix = options["prefix"]

            @hookimpl
            def handle_mirrored(self, source, messages):
                return [
                    KeyedMessage(
                        f"{self.prefix}{source}.{row.topic}", row.value.upper(), row.key,
                        headers=(*row.headers, ("offset", str(row.offset).encode())),
                        partition=row.partition,
                    )
                    for row in messages
                    if row.value != b"secret"
                ]
        """,
        rename="Rename",
    )
    east, west, target = clusters
    for broker in (east, west):
        broker.create_topic("t", 2)
        fill(broker, "t", [("a", None, None, (), -1, 1), ("secret",), ("b", None, None, (), -1, 1)])
    words = ("--message-handler", "rename", "--option", "plugin.rename.prefix=copy.")
    ran = run(
        "--source", f"east={east.bootstrap_servers}",
        "--source", f"west={west.bootstrap_servers}",
        "--target", target.bootstrap_servers,
        "--whitelist", "t", "--end", *words,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert target.topics == ["copy.east.t", "copy.west.t"]
    for topic in target.topics:
        rows = target.records(topic)
        assert [row.value for row in rows] == [b"A", b"B"]
        assert {row.partition for row in rows} == {1}
        assert [row.headers[0][0] for row in rows] == ["offset", "offset"]


def test_mirror_into_its_own_source_is_refused(clusters):
    """One record became 354 in 8 seconds."""
    east, west, target = clusters
    for broker in clusters:
        broker.create_topic("t")
        fill(broker, "t", [("a",)])
    words = ("--target", target.bootstrap_servers, "--whitelist", "t", "--end")
    ran = run("--source", f"here={target.bootstrap_servers}", *words)
    assert ran.returncode == 1 and len(ran.stderr.strip().splitlines()) == 1, ran.stderr
    assert "source here: the source and the target are the same cluster" in ran.stderr
    assert "--target" in ran.stderr
    target.assert_records("t", [b"a"])
    ran = run("--source", east.bootstrap_servers, *words)
    assert ran.returncode == 0, ran.stderr


def test_mirror_end_takes_the_ends_once(clusters):
    """Producers write all the time; the mirror ends at the end offsets that it found at its
    start."""
    east, _, target = clusters
    east.create_topic("t")
    fill(east, "t", [(f"{i}",) for i in range(100)])
    stopping = threading.Event()

    def write():
        settings = {
            "metadata.broker.list": east.bootstrap_servers,
            "serializer.class": "string",
        }
        with Producer(settings) as producer:
            while not stopping.is_set():
                producer.send([KeyedMessage("t", "more")])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers)
        ran = run(*words, "--whitelist", "t", "--end")
    finally:
        stopping.set()
        writer.join()
    assert ran.returncode == 0, ran.stderr
    copied = target.records("t")
    assert len(copied) >= 100
    assert committed(east) == {"t": {0: len(copied)}}


def test_mirror_end_of_topics_that_are_not_there(clusters):
    """It waited for the first one without end."""
    east, _, target = clusters
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers)
    ran = run(*words, "--whitelist", "nowhere", "--end")
    assert ran.returncode == 0 and "mirrored 0 records" in ran.stderr, ran.stderr


def test_a_message_handler_that_fails_ends_the_mirror_and_commits_nothing(
    clusters, tmp_path, monkeypatch
):
    install(
        tmp_path / "site",
        monkeypatch,
        "fails-once",
        """
        from barnabas import hookimpl

        class Fails:
            @hookimpl
            def handle_mirrored(self, messages):
                raise RuntimeError("not today")
        """,
        fails="Fails",
    )
    east, _, target = clusters
    east.create_topic("t")
    fill(east, "t", [("a",)])
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers, "--end")
    ran = run(*words, "--whitelist", "t", "--message-handler", "fails")
    assert ran.returncode == 1 and "RuntimeError: not today" in ran.stderr
    assert run(*words, "--whitelist", "t").returncode == 0
    target.assert_records("t", [b"a"])


def committed(broker, group="mirror"):
    with Cluster(broker.bootstrap_servers) as cluster:
        return committed_offsets(cluster, group)


def test_offsets_are_committed_when_the_target_has_acknowledged_and_not_before(clusters):
    east, _, target = clusters
    east.create_topic("t")
    target.create_topic("t")
    fill(east, "t", [(f"{i}",) for i in range(10)])
    fault = target.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
    with MirrorProcess(
        "--source", east.bootstrap_servers, "--target", target.bootstrap_servers,
        "--whitelist", "t", "--commit-interval", 50,
    ) as mirror:  # fmt: skip
        soon(lambda: fault.fired >= 15, "it did not try again and again")
        assert committed(east) == {} and target.records("t") == []
        fault.clear()
        soon(lambda: committed(east) == {"t": {0: 10}}, "nothing was committed")
        target.assert_records("t", [b"%d" % i for i in range(10)])
        fill(east, "t", [("last",)])
        soon(lambda: count_of(target, "t") == 11, "it stopped")
        assert mirror.end() == 0
        assert "mirrored 11 records" in mirror.lines[-1]
    assert committed(east) == {"t": {0: 11}}


def test_what_the_target_refuses_for_good_ends_the_mirror(clusters):
    east, _, target = clusters
    east.create_topic("t")
    target.create_topic("t", configs={"max.message.bytes": 500})
    fill(east, "t", [("small",), ("x" * 2000,)])
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers)
    ran = run(*words, "--whitelist", "t")
    assert ran.returncode == 1 and "MessageTooLarge" in ran.stderr
    assert committed(east).get("t", {}).get(0, 0) < 2
    target.delete_topic("t")
    assert run(*words, "--whitelist", "t", "--end").returncode == 0
    assert [len(row.value) for row in target.records("t")][-1] == 2000


def test_lag_and_progress_on_metrics(clusters):
    east, _, target = clusters
    east.create_topic("t", 2)
    target.create_topic("t", 2)
    fault = target.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
    port = free_port()
    with MirrorProcess(
        "--source", f"east={east.bootstrap_servers}", "--target", target.bootstrap_servers,
        "--whitelist", "t", "--metrics-port", port,
    ) as mirror:  # fmt: skip
        soon(lambda: figure(port, "barnabas_mirror_lag_records") == 0, "no lag is told")
        # The amount that is read ahead of the target stays below this.
        for _ in range(3):
            fill(east, "t", [("x" * 900_000,) for _ in range(20)])
        soon(lambda: (figure(port, "barnabas_mirror_lag_records") or 0) > 0, "it has no lag")
        assert (figure(port, "barnabas_mirror_pending_bytes") or 0) > 0
        assert (figure(port, "barnabas_mirror_retries_total") or 0) > 0
        assert figure(port, "barnabas_mirror_records_total") is None
        fault.clear()
        soon(lambda: figure(port, "barnabas_mirror_records_total") == 60, "not all arrived")
        soon(lambda: figure(port, "barnabas_mirror_lag_records") == 0, "the lag stayed")
        soon(lambda: figure(port, "barnabas_mirror_committed_offset") == 60, "not committed")
        assert 'barnabas_mirror_records_total{source="east",topic="t"} 60' in page(port)
        assert figure(port, "barnabas_mirror_bytes_total") > 60 * 900_000
        assert figure(port, "process_resident_memory_bytes") > 0
        assert any(line.startswith("metrics: http://127.0.0.1:") for line in mirror.lines)
        assert mirror.end() == 0


def test_topics_and_partitions_that_come_later(clusters, tmp_path):
    east, _, target = clusters
    east.create_topic("t-1", 1)
    config = tmp_path / "east.properties"
    config.write_text(
        f"bootstrap.servers={east.bootstrap_servers}\ntopic.metadata.refresh.interval.ms=200\n"
    )
    with MirrorProcess(
        "--source-config", config, "--target", target.bootstrap_servers, "--whitelist", "t-.*"
    ) as mirror:
        fill(east, "t-1", [("a",)])
        soon(lambda: count_of(target, "t-1"), "the first topic")
        east.create_topic("t-2", 3)
        fill(east, "t-2", [(f"{i}", None, None, (), -1, i) for i in range(3)])
        soon(lambda: count_of(target, "t-2") == 3, "a new topic")
        from barnabas.client import create_partitions

        with Cluster(east.bootstrap_servers) as cluster:
            create_partitions(cluster, {"t-1": 4})
        fill(east, "t-1", [("in a new partition", None, None, (), -1, 3)])
        soon(lambda: count_of(target, "t-1") == 2, "a new partition")
        assert target.records("t-1")[-1].partition == 3
        assert mirror.end(signal.SIGINT) == 0


def test_mirrors_of_one_group_share_and_take_over(clusters):
    east, _, target = clusters
    east.create_topic("t", 4)
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers)
    words += ("--whitelist", "t", "--commit-interval", 50)
    ports = [free_port(), free_port()]
    with MirrorProcess(*words, "--metrics-port", ports[0]) as one:
        fill(east, "t", [(f"{i}", None, None, (), -1, i % 4) for i in range(40)])
        soon(lambda: count_of(target, "t") == 40, "the first one alone")
        with MirrorProcess(*words, "--metrics-port", ports[1]) as two:
            soon(
                lambda: all(
                    page(port).count("barnabas_mirror_lag_records{") == 2 for port in ports
                ),
                "they do not share",
            )
            fill(east, "t", [(f"{i}", None, None, (), -1, i % 4) for i in range(40, 80)])
            soon(lambda: count_of(target, "t") >= 80, "both")
            assert one.end() == 0  # sends LeaveGroup: the other gets all partitions at once
            fill(east, "t", [(f"{i}", None, None, (), -1, i % 4) for i in range(80, 120)])
            soon(lambda: count_of(target, "t") >= 120, "the second one alone")
            assert two.end() == 0
    found = [int(row.value) for row in target.records("t")]
    assert sorted(found) == list(range(120))  # it committed only what had arrived


def test_a_port_that_is_taken():
    with Broker() as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        words = ("--source", broker.bootstrap_servers, "--whitelist", "t", "--metrics-port", port)
        ran = run(*words)
    assert ran.returncode == 1 and f"--metrics-port {port}: Address already in use" in ran.stderr


def test_a_name_that_the_target_refuses_ends_the_mirror(clusters, tmp_path, monkeypatch):
    install(
        tmp_path / "site",
        monkeypatch,
        "bad-names",
        """
        from barnabas import hookimpl
        from barnabas.hooks import KeyedMessage

        class BadNames:
            @hookimpl
            def handle_mirrored(self, messages):
                return [KeyedMessage("no/topic", row.value) for row in messages]
        """,
        bad_names="BadNames",
    )
    east, _, target = clusters
    east.create_topic("t")
    fill(east, "t", [("1",)])
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers)
    ran = run(*words, "--whitelist", "t", "--message-handler", "bad-names")
    assert ran.returncode == 1 and "InvalidTopic" in ran.stderr
    assert committed(east) == {}


def test_progress_on_a_terminal(clusters):
    east, _, target = clusters
    east.create_topic("t")
    fill(east, "t", [(f"{i}",) for i in range(100)])
    ours, theirs = pty.openpty()
    words = ("--source", east.bootstrap_servers, "--target", target.bootstrap_servers)
    process = subprocess.Popen(command(*words, "--whitelist", "t"), stderr=theirs)
    os.close(theirs)
    said = b""
    end = time.monotonic() + WAIT_S
    while b"mirrored 100 records" not in said and time.monotonic() < end:
        said += os.read(ours, 10_000)
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    os.close(ours)
    assert b"behind" in said and b"\r" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--whitelist", "t"), "no source is named"),
        (("--source", "x", "--whitelist", "("), "not a regular expression"),
        (("--source", "a=h:1", "--source", "a=h:2", "--whitelist", "t"), "two sources"),
        (("--source", "h:port", "--whitelist", "t"), "not an address"),
        (("--source", "h:1", "--whitelist", "t", "--message-handler", "no"), "'no' is not"),
        (("--source-config", "/not/there", "--whitelist", "t"), "cannot read /not/there"),
        (("--source", "h:1", "--whitelist", "t", "--commit-interval", "0"), "--commit-interval"),
    ],
)
def test_what_cannot_be_run_is_one_plain_line(words, said):
    ran = run(*words)
    assert ran.returncode == 1 and said in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_the_page_shows_every_metric():
    from barnabas.cli.mirror_metrics import METRICS

    text = (Path(__file__).resolve().parents[3] / "docs" / "mirror.md").read_text()
    for metric in METRICS:
        row = f"| `{metric.name}` | {', '.join(metric.labels)} | {metric.meaning} |"
        assert row in text, metric.name
