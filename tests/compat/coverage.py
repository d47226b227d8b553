"""Lists which test covers which area of which client: the source of docs/compatibility.md.

    python tests/compat/coverage.py > docs/compatibility.md

test_coverage.py compares the page with this table, and this table with the tests.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = "tests/compat"
AREAS = ("produce", "consume", "groups", "transactions", "admin")
MATRIX = f"{HERE}/test_matrix.py::test_stored_as_sent"
READS = f"{HERE}/test_matrix.py::test_read_by_another"
GROUPS = f"{HERE}/test_groups.py::test_a_group_shares_commits_and_comes_back"
TRANSACTIONS = f"{HERE}/test_transactions.py::test_aborted_records_are_seen_by_no_consumer"
ADMIN = f"{HERE}/test_admin.py::test_topics_come_grow_are_configured_and_go"
TOOLS = f"{HERE}/java_tools/test_java_tools.py"
STREAMS = (
    f"{HERE}/kafka_streams/test_kafka_streams.py::"
    "test_word_count_is_exact_though_broker_and_application_are_killed"
)
STREAMS_PROTOCOL = (
    f"{HERE}/kafka_streams/test_streams_protocol.py"
    "::test_words_are_counted_once_though_an_instance_is_killed"
)
GO = f"{HERE}/go/test_go_clients.py"
IN_GO = {
    "produce": f"{GO}::test_librdkafka_reads_what_go_produced",
    "consume": f"{GO}::test_go_reads_what_every_other_produced",
    "groups": f"{GO}::test_members_of_a_group_in_go",
}
JAVA_GROUPS = f"{TOOLS}::test_groups"


@dataclass(frozen=True)
class Client:
    """`parameter` is its name in the parameters of tests. An area that is not
    named does not exist for it; a string in place of a test says why it is not tested."""

    title: str
    version: str
    parameter: str | None = None
    tests: dict[str, str] = field(default_factory=dict)
    not_tested: dict[str, str] = field(default_factory=dict)


def node_version(package: str) -> str:
    told = json.loads((ROOT / HERE / "node" / "package.json").read_text())
    return str(told["dependencies"][package])


def python_version(package: str) -> str:
    """The oldest version that the tests allow; they run with the newest."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(rf'"{package}>=([\d.]+)"', text)
    assert found is not None, package
    return f"{found[1]} and newer"


def clients() -> list[Client]:
    both = {"produce": MATRIX, "consume": READS}
    whole = {**both, "groups": GROUPS, "transactions": TRANSACTIONS, "admin": ADMIN}
    java = {**both, "groups": GROUPS, "transactions": TRANSACTIONS}
    by_tools = {area: "see Streams and the tools" for area in ("groups", "transactions", "admin")}
    return [
        Client("Java client", "2.7.2", "java_27", java),
        Client("Java client", "4.3.1", "java_43", both, by_tools),
        Client("Java client", "4.4.0", "java_44", java),
        Client("Kafka Streams, exactly once v2", "4.3.1", None,
               dict.fromkeys(AREAS, STREAMS)),
        Client("Kafka Streams, streams protocol (KIP-1071)", "4.3.1", None,
               {"groups": STREAMS_PROTOCOL, "admin": f"{TOOLS}::test_streams_groups"}),
        Client("Kafka's command line tools", "4.3.1", None, {
            "produce": f"{TOOLS}::test_console_producer_and_consumer",
            "consume": f"{TOOLS}::test_console_producer_and_consumer",
            "groups": JAVA_GROUPS,
            "transactions": f"{TOOLS}::test_transactions",
            "admin": f"{TOOLS}::test_topics",
        }),
        Client("confluent-kafka (librdkafka)", python_version("confluent-kafka"),
               "confluent_kafka", whole),
        Client("kcat (librdkafka)", "1.7, of Debian 12", "kcat", {
            **both, "groups": GROUPS, "transactions": TRANSACTIONS}),
        Client("kafka-python", python_version("kafka-python"), "kafka_python", whole),
        Client("aiokafka", python_version("aiokafka"), "aiokafka", whole),
        Client("kafkajs", node_version("kafkajs"), "kafkajs", {
            **dict.fromkeys(("produce", "consume", "transactions"), TRANSACTIONS),
            "groups": GROUPS, "admin": ADMIN}),
        Client("@platformatic/kafka", node_version("@platformatic/kafka"), "platformatic", {
            **dict.fromkeys(("produce", "transactions"), TRANSACTIONS),
            "consume": f"{HERE}/test_transactions.py::test_an_abort_is_not_seen_by_platformatic",
            "groups": GROUPS, "admin": ADMIN}),
        Client("kafka-go", "0.2.0, 0.4.51", None, IN_GO),
        Client("sarama, also as of Kafka 0.8.2 to 0.11", "1.61.1", None, IN_GO),
        Client("franz-go, also as of Kafka 0.8.2 to 0.10", "1.22.3", None, IN_GO),
    ]  # fmt: skip


HEAD = """# Clients that are tested

Each cell links to the file of the test that CI runs with that client against a broker; parametrized
tests have the client's name as a parameter. A dash means that the client has no such feature, or
that it is not tested. Each client reads records that clients of every other family produced:
[tests/compat/README.md](../tests/compat/README.md). [answers.md](answers.md) lists the versions of
each request and the Kafka release with which they agree. kcat reads transactions and writes none.
The tests of the clients in Go run in the long form (`make long`).

`python tests/compat/coverage.py` generates this page.
"""


PROTECTED = """
## TLS and logins

With each mechanism the client writes records and reads them, with and without TLS. The broker
refuses each family with a wrong password, an expired token, and with an expired, an untrusted or no
certificate; no family trusts a broker with an untrusted certificate. Each continues while the
broker's certificate is renewed, and can no longer write over its connections when its rule is
revoked. CI runs one client for each of these cases and `make long` runs all;
[evidence/clients.md](evidence/clients.md) has the last results. GSSAPI over TLS has tests of its
own (tests/tls/test_kerberos_over_tls.py; Java's client in the long form). A dash means that the
client does not support the mechanism, or that it is not tested here.
kcat of Debian 12 cannot log in by SCRAM: its librdkafka 2.0.2 sends its part of the nonce twice.
Kafka 4.3.1 refuses it with the same error text, and Kafka 3.9.2 accepts it
(tests/security/test_kcat_scram.py). confluent-kafka, whose librdkafka is newer, logs in.
"""
FAMILIES = "tests/tls/test_client_families.py::test_a_client_reads_what_it_wrote"
LOGINS = "tests/security/test_clients_log_in.py::test_java_tools"
COMMANDS = "tests/security/test_protected_commands.py::test_a_command_over_tls_with_a_login"
MIRROR = (
    "tests/security/test_protected_commands.py::"
    "test_the_mirror_reads_and_writes_over_tls_with_a_login"
)
OLD = "tests/security/test_old_clients.py::test_the_old_clients_write_and_read"
MIRROR_TOKEN = "tests/security/test_protected_commands.py::test_the_mirror_logs_in_by_token"
OLD_TOKEN = "tests/security/test_old_clients.py::test_the_old_clients_log_in_by_token"
SPARK = "tests/spark/test_protected_broker.py::test_spark_writes_and_reads_over_tls_with_a_login"
SPARK_TOKEN = (
    "tests/spark/test_protected_broker.py::test_spark_writes_and_reads_with_a_token_of_an_endpoint"
)
KERBEROS = "tests/security/test_kerberos.py::"
KERBEROS_TLS = "tests/tls/test_kerberos_over_tls.py::"
OURS = "tests/client/test_logins.py::"
MECHANISMS = ("client certificates", "PLAIN", "SCRAM", "OAUTHBEARER", "GSSAPI")


def protected() -> dict[str, dict[str, str]]:
    """Client -> mechanism -> its test."""

    def family(*more: str) -> dict[str, str]:
        return dict.fromkeys((*MECHANISMS[:3], *more), FAMILIES)

    oauth, kerberos = "OAUTHBEARER", "GSSAPI"
    java = "tests/security/test_oauthbearer.py::test_the_java_client"
    return {
        "Java client 2.7.2, 4.3.1, 4.4.0": family(oauth),  # from 3.1 on
        "Kafka's command line tools": {
            "client certificates": "tests/tls/test_clients.py::test_java_tools",
            "PLAIN": LOGINS,
            "SCRAM": LOGINS,
            oauth: java,
            kerberos: f"{KERBEROS}test_the_java_client",
        },
        "confluent-kafka (librdkafka)": family(oauth),
        "kcat (librdkafka)": {
            "client certificates": FAMILIES,
            "PLAIN": FAMILIES,
            kerberos: f"{KERBEROS}test_kcat",
        },
        "kafka-python": family(oauth) | {kerberos: f"{KERBEROS}test_kafka_python"},
        "aiokafka": family(oauth) | {kerberos: f"{KERBEROS_TLS}test_aiokafka"},
        "kafkajs": family(oauth),
        "@platformatic/kafka": family(oauth),
        "our commands and Python client": family(oauth)
        | {"SCRAM": COMMANDS, kerberos: f"{OURS}test_a_key_of_a_keytab_logs_in"},
        "`barnabas mirror`": {
            "SCRAM": MIRROR,
            oauth: MIRROR_TOKEN,
            kerberos: f"{KERBEROS_TLS}test_the_mirror_and_commands",
        },
        "the old producer and consumers": {
            "SCRAM": OLD,
            oauth: OLD_TOKEN,
            kerberos: f"{KERBEROS_TLS}test_old_clients",
        },
        "Spark's readers and writers": {"SCRAM": SPARK, oauth: SPARK_TOKEN},
    }


def lines() -> Iterator[str]:
    yield HEAD
    yield f"| client | version | {' | '.join(AREAS)} |"
    yield "|---" * (2 + len(AREAS)) + "|"
    for client in clients():
        cells = [cell(client, area) for area in AREAS]
        yield f"| {client.title} | {client.version} | {' | '.join(cells)} |"
    yield PROTECTED
    yield f"| client | {' | '.join(MECHANISMS)} |"
    yield "|---" * (1 + len(MECHANISMS)) + "|"
    for name, tests in protected().items():
        cells = [linked(tests[kind]) if kind in tests else "–" for kind in MECHANISMS]
        yield f"| {name} | {' | '.join(cells)} |"


def cell(client: Client, area: str) -> str:
    test = client.tests.get(area)
    if test is None:
        return client.not_tested.get(area, "–")
    return linked(test)


def linked(test: str) -> str:
    path, name = test.split("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})"


def page() -> str:
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
