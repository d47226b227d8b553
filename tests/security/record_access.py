"""Writes what Kafka's StandardAuthorizer answers into kafka_access.tsv beside this file.

    python tests/security/record_access.py              starts Kafka 4.3.1 (one or two minutes),
                                                        and 4.4.0 for what it lacks
    python tests/security/record_access.py zookeeper    starts Kafka 3.9.2 on ZooKeeper

The second writes kafka_access_zookeeper.tsv: what its AclAuthorizer answers to the requests that
brokers of that line send each other (BETWEEN_BROKERS), which Kafka 4 lacks.

User:ANONYMOUS asks on a plain listener, with one right after another. A line is one distinct
answer: API key, case, versions ("0-2,10"), the answer (access_questions.py), and the rights with
which it was given, separated by commas.
"""

import base64
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from compat.answers.asking import fitted  # noqa: E402
from compat.answers.record import versions_of, versions_text  # noqa: E402
from compat.support import CALL_TIMEOUT_S, KAFKA, Wire, rival  # noqa: E402
from security.access_questions import RIGHTS, TOPIC, ask, questions, rights_of  # noqa: E402
from security.login_broker import PLAIN_MODULE  # noqa: E402

from barnabas.api.table import LATE, MODULES, UNANNOUNCED  # noqa: E402
from barnabas.wire import request, response  # noqa: E402
from barnabas.wire.json_form import to_json  # noqa: E402

FILE, ZOOKEEPER_FILE = HERE / "kafka_access.tsv", HERE / "kafka_access_zookeeper.tsv"
ZOOKEEPER_KAFKA = "3.9.2"
LATER_KAFKA = "4.4.0"
ONLY_LATER = {93}  # StreamsGroupTopologyDescriptionUpdate
# LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition and
# AllocateProducerIds; and the requests of followers.
BETWEEN_BROKERS = (4, 5, 6, 7, 27, 56, 67)
OF_FOLLOWERS = (1, 2, 23)
BROKER_RIGHTS = (
    "nothing",
    "READ TOPIC",
    "DESCRIBE TOPIC",
    "ALTER CLUSTER",
    "CLUSTER_ACTION CLUSTER",
)
PASSWORD = "a secret of the test"
JAAS = f'{PLAIN_MODULE} required username="admin" password="{PASSWORD}" user_admin="{PASSWORD}";'
EVERYTHING = {
    "resourceTypeFilter": 1,
    "resourceNameFilter": None,
    "patternTypeFilter": 1,
    "principalFilter": None,
    "hostFilter": None,
    "operation": 1,
    "permissionType": 1,
}
Asked = dict[tuple[int, str, int, str], str]  # key, case, version, right -> answer


def recorded(file: Path = FILE) -> Asked:
    found: Asked = {}
    for line in file.read_text().splitlines():
        key, case, versions, answer, rights = line.split("\t")
        for version in versions_of(versions):
            for right in rights.split(","):
                found[int(key), case, version, right] = answer
    return found


def served_keys() -> list[int]:
    return sorted({module.KEY for module in MODULES} | set(LATE) - UNANNOUNCED)


def main(arguments: list[str]) -> None:
    if arguments:
        keys = sorted(BETWEEN_BROKERS + OF_FOLLOWERS)
        _write(ZOOKEEPER_FILE, _asked_of(_kafka_on_zookeeper, BROKER_RIGHTS, keys))
        return
    asked = _asked_of(_kafka, RIGHTS, sorted(set(served_keys()) - ONLY_LATER))
    _write(FILE, asked | _asked_of(_later_kafka, RIGHTS, sorted(ONLY_LATER)))


def _asked_of(
    make: Callable[[Path], rival.Rival], rights: Iterable[str], keys: Iterable[int]
) -> Asked:
    """Starts a broker and asks it."""
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder))
        made.start()
        try:
            return _asked(made.address, made.admin, rights, keys)
        finally:
            made.stop()


def _write(file: Path, asked: Asked) -> None:
    lines: dict[tuple[int, str, str, str], list[int]] = {}
    by_answer: dict[tuple[int, str, int, str], list[str]] = {}
    for (key, case, version, right), answer in asked.items():
        by_answer.setdefault((key, case, version, answer), []).append(right)
    for (key, case, version, answer), rights in by_answer.items():
        lines.setdefault((key, case, answer, ",".join(rights)), []).append(version)
    file.write_text(
        "".join(
            f"{key}\t{case}\t{versions_text(versions)}\t{answer}\t{rights}\n"
            for (key, case, answer, rights), versions in sorted(lines.items())
        )
    )


def _later_kafka(folder: Path) -> rival.Rival:
    return _kafka(folder, LATER_KAFKA)


def _kafka(folder: Path, version: str = KAFKA) -> rival.Rival:
    made = _ruled(rival.Rival(version, folder / "kafka"))
    made.settings |= {
        "listeners": f"{made.settings['listeners']},CONTROLLER://127.0.0.1:{made.side_port}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
        ),
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    return made


def _kafka_on_zookeeper(folder: Path) -> rival.Rival:
    made = _ruled(rival.Rival(ZOOKEEPER_KAFKA, folder / "kafka", "zookeeper"))
    made.settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
    return made


def _ruled(made: rival.Rival) -> rival.Rival:
    (port,) = rival.free_ports(1)
    made.admin = f"127.0.0.1:{port}"
    own = f"PLAINTEXT://{made.address},ADMIN://{made.admin}"
    made.settings |= {
        "listeners": own,
        "advertised.listeners": own,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ADMIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.admin.plain.sasl.jaas.config": JAAS,
        "super.users": "User:admin",
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return made


class _Admin(Wire):
    """Logs in with PLAIN."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.ask(17, 1, mechanism="PLAIN")
        self.ask(36, 1, authBytes=base64.b64encode(f"\0admin\0{PASSWORD}".encode()).decode())

    def ask(self, key: int, version: int, **fields: object):
        return self.call(key, version, fitted(request(key), fields, version))

    def wait_for_rules(self, count: int) -> None:
        """Until the broker has read from its controller what was changed."""
        deadline = time.monotonic() + CALL_TIMEOUT_S
        while sum(len(row.acls) for row in self.ask(29, 2, **EVERYTHING).resources) != count:
            assert time.monotonic() < deadline


def _asked(address: str, admin_address: str, rights: Iterable[str], keys: list[int]) -> Asked:
    found: Asked = {}
    with _Admin(admin_address) as admin:
        topic = {"name": TOPIC, "numPartitions": 1, "replicationFactor": 1}
        admin.ask(19, 5, topics=[topic | {"assignments": [], "configs": []}], timeoutMs=20_000)
        told = to_json(response(3), admin.ask(3, 12, topics=[{"name": TOPIC}]), 12)
        topic_id = told["topics"][0]["topicId"]
        with Wire(address) as wire:
            listed = wire.call(18, 0, request(18).cls()).apiKeys
        served = {row.apiKey: (row.minVersion, row.maxVersion) for row in listed}
        for right in rights:
            rules = [
                {
                    "resourceType": kind,
                    "resourceName": name,
                    "resourcePatternType": 3,
                    "principal": "User:ANONYMOUS",
                    "host": "*",
                    "operation": operation,
                    "permissionType": 3,
                }
                for operation, kind, name in rights_of(right)
            ]
            assert not any(row.errorCode for row in admin.ask(30, 2, creations=rules).results)
            admin.wait_for_rules(len(rules))
            for key in keys:
                low, high = served.get(key, (0, -1))
                for version in range(max(low, request(key).version_min), high + 1):
                    for case, fields in questions(key, version, topic_id):
                        with Wire(address) as wire:
                            answer = ask(wire, key, version, fields)
                        found[key, case, version, right] = answer
            assert not admin.ask(31, 2, filters=[EVERYTHING]).filterResults[0].errorCode
            admin.wait_for_rules(0)
            print(right, len(found), file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
