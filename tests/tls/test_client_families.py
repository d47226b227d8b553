"""Every client of tests/compat over TLS, with each mechanism that it has: what it wrote it reads
again. And what each family is refused for, and that it goes on while certificates are renewed.

The short form has each mechanism and each refusal with one client of each family or less."""

import importlib
import time
from dataclasses import dataclass

import pytest
from compat.matrix import CLIENTS as IN_MODULES
from compat.matrix import cannot_run_client
from compat.support import Wire, create_topic
from long_form import pick
from security.json_tokens import oauth_settings, signed
from security.login_broker import MECHANISMS, NUMBERS, SETTINGS
from security.login_broker import SAFE as OF_SAFE
from security.users import alter, upsertion
from tls.authority import Authority
from tls.protected_clients import FAMILIES, PROTECTIONS, REFUSED_S, Writer, java_options
from tls.test_reload import NAME, certificate_of, text_of
from tls.tls_broker import AUTHORITY, CLIENTS, pem_settings, replace_file, trust_settings
from waiting import soon

from barnabas import Broker
from barnabas.client import Cluster, Reader
from barnabas.client.acls import Acl, AclFilter, create_acls, delete_acls
from barnabas.security.acl_codes import ALL as ALL_OPERATIONS
from barnabas.security.acl_codes import ALLOW, GROUP, LITERAL, TOPIC

pytestmark = [pytest.mark.java, pytest.mark.takes(seconds=60)]

STRANGERS = Authority("CN=nobody knows me")
HOUR = 3600
IN_MATRIX = {"tools": "java_43"}  # Kafka's command line tools are of that release
MTLS, PLAIN = PROTECTIONS["mtls"], PROTECTIONS["plain"]
LISTENERS = {
    "SAFE": "SASL_SSL", "MUTUAL": "SSL", "CLEAR": "SASL_PLAINTEXT", "PLAINTEXT": "PLAINTEXT",
}  # fmt: skip
ALICE = ("User:alice", "User:O=Example,CN=alice")
VALUES = ["first", "x" * 300_000, "last"]  # more than one record of TLS
REFUSALS = {
    "a wrong password": PLAIN.but(password="bad"),
    "a wrong SCRAM password": PROTECTIONS["scram-512"].but(password="bad"),
    "an expired token": PROTECTIONS["oauth"].but(
        token=lambda: signed(iat=int(time.time()) - 2 * HOUR, exp=int(time.time()) - HOUR)
    ),
    "an expired certificate": MTLS.but(own=CLIENTS.issue("CN=alice", (), days=(-9, -1))),
    "a certificate of an unknown authority": MTLS.but(own=STRANGERS.issue("CN=alice", ())),
    "no certificate": MTLS.but(own=None),
    "a broker that the client does not trust": PLAIN.but(trusted=STRANGERS),
}


def has(name, how):
    kinds = FAMILIES[name][1]
    return any(how.mechanism == PROTECTIONS[kind].mechanism for kind in kinds)


ALL = [
    (name, kind, tls)
    for name, (_, kinds) in FAMILIES.items()
    for kind in kinds
    for tls in (("tls",) if kind == "mtls" else ("tls", "clear"))
]
SHORT = [
    ("confluent_kafka", "oauth"), ("kcat", "plain"), ("kafka_python", "oauth"),
    ("aiokafka", "scram-512"), ("kafkajs", "scram-256"), ("platformatic", "mtls"),
    ("kafkajs", "oauth"), ("java_27", "mtls"), ("java_44", "scram-512"), ("ours", "scram-256"),
    ("ours", "mtls"), ("ours", "oauth"), ("tools", "plain"),
]  # fmt: skip
SHORT = [(*pair, "tls") for pair in SHORT] + [("kafkajs", "plain", "clear")]
ALL_REFUSED = [(n, why) for n in FAMILIES for why, how in REFUSALS.items() if has(n, how)]
SHORT_REFUSED = [
    ("confluent_kafka", "a wrong SCRAM password"), ("kcat", "no certificate"),
    ("kafka_python", "an expired certificate"), ("aiokafka", "an expired token"),
    ("kafkajs", "a wrong password"), ("platformatic", "a certificate of an unknown authority"),
    ("java_44", "a broker that the client does not trust"), ("ours", "a wrong password"),
]  # fmt: skip
SHORT_REVOKED = [("confluent_kafka", "scram-512"), ("java_43", "oauth"), ("ours", "mtls")]
ALL_REVOKED = [
    (name, kind)
    for name, (_, kinds) in FAMILIES.items()
    for kind in ("mtls", "scram-512", "oauth")
    if kind in kinds
]
SHORT_RELOADED = ["confluent_kafka", "aiokafka", "kafkajs", "ours"]


@dataclass
class Served:
    broker: Broker
    folder: object

    def address(self, name):
        ports = {row.name: row.port for row in self.broker.node.listeners}
        return f"localhost:{ports[name]}"

    @property
    def plain(self):
        return self.address("PLAINTEXT").replace("localhost", "127.0.0.1")

    def client(self, name, how):
        listener = "MUTUAL" if how.mechanism is None else "SAFE" if how.is_tls else "CLEAR"
        return Writer(name, self.address(listener), how, self.folder)

    @property
    def port(self):
        return int(self.address("SAFE").rpartition(":")[2])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    settings = SETTINGS | oauth_settings(folder) | pem_settings(folder) | trust_settings(folder)
    settings |= {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "advertised.listeners": ",".join(
            f"{name}://{'127.0.0.1' if name == 'PLAINTEXT' else 'localhost'}:0"
            for name in LISTENERS
        ),
        "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # of the tests' own listener
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": f"{MECHANISMS},OAUTHBEARER",
        "log.dirs": str(folder / "data"),
    }
    for name, text in list(settings.items()):  # the listener without TLS has the same logins
        if name.startswith(OF_SAFE) and ".ssl." not in name:
            settings[name.replace(OF_SAFE, "listener.name.clear.")] = text
    with pytest.MonkeyPatch.context() as patch, Broker(settings) as broker:
        patch.setenv("JAVA_TOOL_OPTIONS", java_options(folder))
        made = Served(broker, folder)
        with Wire(made.plain) as wire:
            for mechanism in NUMBERS.values():
                alice = upsertion("alice", PLAIN.password, mechanism)
                assert alter(wire, upsertions=[alice]) == {"alice": (0, None)}
        yield made


@pytest.fixture
def topic(served, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    create_topic(served.plain, name)
    with Cluster(served.plain) as cluster:
        create_acls(cluster, rules(TOPIC, name) + rules(GROUP, "*"))
    return name


def rules(kind, name):
    """They permit alice everything, by her login or certificate."""
    return [Acl(kind, name, LITERAL, who, "*", ALL_OPERATIONS, ALLOW) for who in ALICE]


def skip_without(name):
    reason = None if name == "ours" else cannot_run_client(IN_MATRIX.get(name, name))
    if reason:
        pytest.skip(reason)


def fail_soon(monkeypatch, name):
    """The client waits a few seconds for each call."""
    if name in IN_MODULES:
        module = importlib.import_module(IN_MODULES[name].partition(":")[0])
        monkeypatch.setattr(module, "CALL_TIMEOUT_S", REFUSED_S, raising=False)


@pytest.mark.parametrize(("name", "kind", "tls"), pick(short=SHORT, long=ALL))
def test_a_client_reads_what_it_wrote(served, topic, name, kind, tls):
    skip_without(name)
    client = served.client(name, PROTECTIONS[kind].but(is_tls=tls == "tls"))
    try:
        client.write(topic, VALUES)
        assert client.values(topic, len(VALUES)) == VALUES
    finally:
        client.close()


@pytest.mark.parametrize(("name", "why"), pick(short=SHORT_REFUSED, long=ALL_REFUSED))
def test_a_client_is_refused_and_nothing_is_written(served, topic, monkeypatch, name, why):
    skip_without(name)
    fail_soon(monkeypatch, name)
    assert FAMILIES[name][0](REFUSALS[why], served.folder)  # a mistake in them is no refusal
    client = None
    try:
        with pytest.raises(Exception):  # noqa: B017 - each client has its own
            client = served.client(name, REFUSALS[why])
            client.write(topic, VALUES)
    finally:
        if client is not None:
            client.close()
    assert stored(served, topic) == []


def stored(served, topic):
    with Cluster(served.plain) as cluster:
        reader = Reader(cluster, topic, offsets={0: 0}, to_end=True)
        return [row.value.decode() for _, row in reader]


@pytest.mark.parametrize(("name", "kind"), pick(short=SHORT_REVOKED, long=ALL_REVOKED))
def test_a_client_whose_rule_is_revoked_writes_no_more(served, topic, monkeypatch, name, kind):
    """Over the connections that it has."""
    skip_without(name)
    fail_soon(monkeypatch, name)
    client = served.client(name, PROTECTIONS[kind])
    try:
        client.write(topic, ["before"])
        with Cluster(served.plain) as cluster:
            assert len(delete_acls(cluster, [AclFilter(TOPIC, topic)])) == len(ALICE)
        with pytest.raises(Exception):  # noqa: B017 - each client has its own
            client.write(topic, ["after"])
    finally:
        client.close()
    assert stored(served, topic) == ["before"]


@pytest.mark.parametrize("name", pick(short=SHORT_RELOADED, long=list(FAMILIES)))
def test_a_client_goes_on_while_the_certificate_is_renewed(served, topic, name):
    skip_without(name)
    client = served.client(name, PLAIN)
    try:
        client.write(topic, ["before"])
        renewed = AUTHORITY.issue(NAME, kind="rsa")
        replace_file(served.folder / "broker.pem", text_of(renewed))
        soon(lambda: certificate_of(served) == renewed.certificate_der)
        client.write(topic, ["after"])
        assert client.values(topic, 2) == ["before", "after"]
    finally:
        client.close()
