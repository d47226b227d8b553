"""Every znode that a release of Kafka writes in ZooKeeper mode, and in which form: `python -m
zookeeper.znode_forms 2.8.2 3.9.2 2.8.2/2.6 barnabas` records them into kafka_znodes.json; behind a
slash is an inter.broker.protocol.version that is not the release's own.

A form is what the JSON of a znode has: its version, and the names of its fields. Names and numbers
in a path are replaced: /brokers/ids/N. The same actions can be carried out on brokers of barnabas.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cluster.kafka_brokers import KafkaProcess
from cluster.three_brokers import BrokerProcess
from confluent_kafka import Consumer, Producer
from waiting import soon
from zookeeper.transaction_log import written
from zookeeper_server import ZooKeeperServer

from barnabas.client import Cluster, NewTopic, create_topics
from barnabas.client.acls import Acl, create_acls
from barnabas.client.admin import (
    ConfigChange,
    Resource,
    alter_configs,
    create_partitions,
    delete_topics,
)
from barnabas.client.quotas import alter_quotas
from barnabas.client.scram_users import NewCredential, store_credentials
from barnabas.wire import request

OURS = "barnabas"
RECORDED = Path(__file__).with_name("kafka_znodes.json")
TOPIC_KIND, BROKER_KIND, SET = 2, 4, 0
LITERAL, PREFIXED, READ, ALLOW = 3, 4, 3, 3
SHA_256 = 1
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.replication.factor": "1",
    "auto.create.topics.enable": "false",
}
# The first that fits an element of a path names it.
NAMES = (
    (re.compile(r"\A/(brokers/ids|kafka-acl-extended/prefixed/\w+|kafka-acl/\w+)/[^/]+"), r"/\1/N"),
    (re.compile(r"\A/brokers/topics/[^/]+"), "/brokers/topics/T"),
    (re.compile(r"\A/brokers/topics/T/partitions/\d+"), "/brokers/topics/T/partitions/P"),
    (re.compile(r"\A/admin/delete_topics/[^/]+"), "/admin/delete_topics/T"),
    (re.compile(r"\A/config/(topics|brokers|clients|ips)/[^/]+"), r"/config/\1/N"),
    (re.compile(r"\A/config/users/[^/]+"), "/config/users/U"),
    (re.compile(r"\A/config/users/U/clients/[^/]+"), "/config/users/U/clients/C"),
    (re.compile(r"_\d{10}\Z"), "_S"),
)


def place_of(path: str) -> str:
    for pattern, instead in NAMES:
        path = pattern.sub(instead, path)
    return path


def forms(server: ZooKeeperServer, chroot: str = "") -> dict[str, list[str]]:
    """The forms of all znodes below a chroot by their places, as texts."""
    found: dict[str, set[str]] = {}
    ephemeral = set()
    for row in written(server.data_dir / "data"):
        if not row.path.startswith(chroot + "/"):
            continue
        place = place_of(row.path.removeprefix(chroot))
        if row.is_ephemeral:
            ephemeral.add(place)
        found.setdefault(place, set()).add(form_of(row.data))
    return {
        place: sorted(
            f"ephemeral {form}" if place in ephemeral else form
            for form in rows
            if form != "nothing" or len(rows) == 1
        )
        for place, rows in sorted(found.items())
        if not place.startswith("/zookeeper")
    }


def form_of(data: bytes) -> str:
    """The form of a znode's data: "nothing", "number", "text", or version and names of fields."""
    if not data:
        return "nothing"
    try:
        value = json.loads(data)
    except ValueError:
        return "text"
    if not isinstance(value, dict):
        return "number" if isinstance(value, int) else "text"
    fields = [name for name in value if name != "version"]
    return f"version {value.get('version', '-')}: {' '.join(sorted(fields))}"


def act(bootstrap: str) -> None:
    """Carries out what makes a broker write each kind of znode."""
    with Cluster(bootstrap) as cluster:
        create_topics(cluster, [NewTopic("t", 2, 2), NewTopic("gone", 1, 1)])
        soon(lambda: _leaders(cluster, "t") == 2 and _leaders(cluster, "gone") == 1, "no leaders")
        alter_configs(cluster, Resource(TOPIC_KIND, "t"), [ConfigChange(SET, "retention.ms", "9")])
        for name in ("1", ""):
            change = ConfigChange(SET, "log.cleaner.threads", "2")
            alter_configs(cluster, Resource(BROKER_KIND, name), [change])
        for names in (
            {"user": "u"},
            {"user": None},
            {"client-id": "c"},
            {"user": "u", "client-id": "c"},
        ):
            alter_quotas(cluster, names, {"producer_byte_rate": 1e9})
        alter_quotas(cluster, {"ip": "127.0.0.9"}, {"connection_creation_rate": 1e6})
        store_credentials(cluster, [NewCredential("u", SHA_256, 4096, b"salt", bytes(32))])
        rules = [
            Acl(TOPIC_KIND, "t", kind, "User:u", "*", READ, ALLOW) for kind in (LITERAL, PREFIXED)
        ]
        create_acls(cluster, rules)
        create_partitions(cluster, {"t": 3})
        delete_topics(cluster, ["gone"])
        soon(lambda: _leaders(cluster, "t") == 3, "the new partition has no leader")
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        producer.produce("t", b"value", partition=0)
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        assert soon(lambda: consumer.poll(1), "nothing was read") is not None
        consumer.close()
        _reassign(cluster, "t", 0)


def _leaders(cluster: Cluster, topic: str) -> int:
    cluster.refresh([topic])
    known = cluster.known(topic)
    return 0 if known is None else sum(row.leader >= 0 for row in known.partitions.values())


def _reassign(cluster: Cluster, topic: str, index: int) -> None:
    """Gives a partition one replica, its leader, so that the other one goes."""
    message = request(45)
    leader = cluster.topic(topic).partition(index).leader
    row = message.struct("topics.partitions")(partitionIndex=index, replicas=[leader])
    topics = [message.struct("topics")(name=topic, partitions=[row])]
    cluster.controller().call(45, message.cls(timeoutMs=10_000, topics=topics))


def forms_of_ours(folder: Path, server: ZooKeeperServer) -> dict[str, list[str]]:
    """The forms of two brokers of barnabas."""
    brokers = [
        BrokerProcess(folder, node_id, server.connect(), SETTINGS | {"broker.rack": "r"})
        for node_id in (1, 2)
    ]
    try:
        for broker in brokers:
            broker.start()
        act(",".join(broker.address for broker in brokers))
    finally:
        for broker in brokers:
            if broker.is_running:
                broker.kill()
    return forms(server)


def record(release: str) -> dict[str, list[str]]:
    """The forms of one release: two brokers; one loses a log directory and falls behind."""
    if release == OURS:
        with tempfile.TemporaryDirectory(prefix="barnabas-znodes-") as folder:
            with ZooKeeperServer(Path(folder) / "zookeeper") as server:
                return forms_of_ours(Path(folder), server)
    version, _, protocol = release.partition("/")
    with tempfile.TemporaryDirectory(prefix="barnabas-znodes-") as folder:
        with ZooKeeperServer(Path(folder) / "zookeeper") as server:
            brokers = []
            for node_id in (1, 2):
                dirs = [
                    Path(folder) / f"kafka-{node_id}" / "data",
                    Path(folder) / f"spare-{node_id}",
                ]
                settings = SETTINGS | {
                    "log.dirs": ",".join(map(str, dirs)),
                    "delegation.token.master.key": "key",
                    "broker.rack": "r",
                }
                if protocol:
                    settings["inter.broker.protocol.version"] = protocol
                brokers.append(
                    KafkaProcess(Path(folder), node_id, server.connect(), settings, version).start()
                )
            try:
                act(",".join(broker.address for broker in brokers))
                _lose_directory(Path(folder) / "spare-2")
                wanted = ["/log_dir_event_notification/log_dir_event_S"]
                soon(lambda: wanted[0] in forms(server), "no note of the directory")
                brokers[1].pause()
                producer = Producer({"bootstrap.servers": brokers[0].address, "acks": 1})
                soon(lambda: _fallen_behind(producer, server), "the ISR does not shrink")
                if protocol:
                    note = "/isr_change_notification/isr_change_S"
                    soon(lambda: note in forms(server), "no note of the ISR")
            finally:
                for broker in brokers:
                    broker.kill()
            return forms(server)


def _lose_directory(folder: Path) -> None:
    """A file in place of a log directory: the next checkpoint fails."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    folder.write_bytes(b"")


def _fallen_behind(producer: Producer, server: ZooKeeperServer) -> bool:
    """Produces, and returns whether an ISR is without broker 2."""
    for index in range(3):
        producer.produce("t", b"value", partition=index)
    producer.poll(0.5)
    return any(
        row.path.endswith("/state") and json.loads(row.data)["isr"] == [1]
        for row in written(server.data_dir / "data")
        if row.data and not row.is_creation
    )


def table() -> str:
    """docs/znodes.md: a row for each znode, a column for each release."""
    known = json.loads(RECORDED.read_text())
    releases = [*(name for name in known if name != OURS), OURS]
    lines = [
        "# Znodes",
        "",
        "Every znode that Kafka writes in ZooKeeper mode, with the version and the fields of its",
        "data, recorded from two brokers of each release. After a slash is the",
        "`inter.broker.protocol.version` if it is not the release's own. Generated by",
        "`(cd tests && PYTHONPATH=. python -m zookeeper.znode_forms table > ../docs/znodes.md)`.",
        "",
        "N, T, P, U, C: a name or number; S: ten digits. A dot: as in the column before; `-`: not",
        "written. The table omits znodes without data that all releases have. What was done on the",
        "brokers of barnabas made no token and no log fail: with the first token they make",
        "`/delegation_token/tokens`, and for a failed log a note in Kafka's form.",
        "",
        "| znode | " + " | ".join(name.replace(OURS, "barnabas") for name in releases) + " |",
        "|---|" + "---|" * len(releases),
    ]
    for place in sorted({place for rows in known.values() for place in rows}):
        cells = ["; ".join(known[name].get(place, ["-"])) for name in releases]
        if set(cells) == {"nothing"}:
            continue
        shown = [cells[0]]
        shown += ["." if now == last else now for last, now in itertools.pairwise(cells)]
        lines.append(f"| `{place}` | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def main(releases: Iterable[str]) -> None:
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for release in releases:
        if release == "table":
            print(table(), end="")
            return
        known[release] = record(release)
        print(f"{release}: {len(known[release])} places")
    RECORDED.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
