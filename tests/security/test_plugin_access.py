"""The hooks authorize and build_principal: a plugin decides before the rules, takes back what it
has allowed, and denies when it fails."""

import importlib
import ssl
import threading
import time

import pytest
from compat.support import Wire
from installed_plugins import install
from security.login_broker import PASSWORD, header, login_broker
from security.ruled_broker import ruled_broker
from security.test_access_settings import code_of_metadata
from security.test_rules_under_load import (
    REFUSED,
    WAIT_S,
    Client,
    codes_since,
    read,
    wait_for,
    write,
)
from tls.test_listener import asked
from tls.test_principals import mutual
from tls.tls_broker import CLIENTS, client_context, tls_broker
from waiting import soon

from barnabas import Broker
from barnabas.config import ConfigError
from barnabas.controller.topics import NewTopic
from barnabas.security.acl_codes import DESCRIBE, TOPIC
from barnabas.stages.configured import CannotStart
from barnabas.wire import request

NAME = "busy"  # the topic of write() and read()
COMMIT_REFUSED, ID_REFUSED, CLUSTER_REFUSED = 30, 53, 31
SOURCE = """
    from barnabas import hookimpl
    from barnabas.hooks import Reject


    class Gate:
        answer = None
        name = None
        asked = []
        services = None

        @hookimpl
        def authorize(self, principal, host, operation, resource_type, name):
            Gate.asked.append((principal, host, operation, resource_type, name))
            if isinstance(Gate.answer, Exception):
                raise Gate.answer
            return Gate.answer() if callable(Gate.answer) else Gate.answer

        @hookimpl
        def broker_started(self, services):
            Gate.services = services


    class Names:
        answer = None
        seen = []

        @hookimpl
        def build_principal(self, connection):
            Names.seen.append(connection)
            if isinstance(Names.answer, Exception):
                raise Names.answer
            return Names.answer


    class Nothing:
        @hookimpl
        def own_metrics(self):
            return {}
"""


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    entries = {"gate": "Gate", "names": "Names", "nothing": "Nothing"}
    install(tmp_path / "installed", monkeypatch, "security_plugins", SOURCE, **entries)
    return importlib.import_module("security_plugins")


@pytest.fixture
def gate(plugins):
    return plugins.Gate


@pytest.fixture
def broker(tmp_path, gate):
    """A broker that asks the plugin `gate`."""
    with gated(tmp_path) as made:
        yield made


def gated(tmp_path, **settings):
    made = {"authorizer.class.name": "gate", "super.users": "User:admin"}
    return ruled_broker(tmp_path / "data", **(made | settings))


def with_topic(ruled):
    ruled.broker.node.serving.administration.topics.create(NewTopic(NAME, 1, 1), False)
    return Wire(ruled.address)


def find_group(wire):
    """The first search makes the topic of offsets."""
    soon(lambda: wire.call(10, 3, request(10).cls(key="g", keyType=0)).errorCode == 0)


def commit(wire):
    message = request(8)
    part = message.struct("topics.partitions")(partitionIndex=0, committedOffset=1)
    topic = message.struct("topics")(name=NAME, partitions=[part])
    answer = wire.call(8, 8, message.cls(groupId="g", topics=[topic]))
    return answer.topics[0].partitions[0].errorCode


def end_transaction(wire):
    body = request(26).cls(transactionalId="id", producerId=1, producerEpoch=0, committed=True)
    return wire.call(26, 3, body).errorCode


def metadata(wire):
    row = request(3).struct("topics")
    return wire.call(3, 9, request(3).cls(topics=[row(name=NAME)])).topics[0].errorCode


PATHS = [  # how a request is sent, and its code when it is denied
    pytest.param(write, REFUSED, id="produce"),
    pytest.param(read, REFUSED, id="fetch"),
    pytest.param(commit, COMMIT_REFUSED, id="commit"),
    pytest.param(end_transaction, ID_REFUSED, id="transaction"),
    pytest.param(metadata, REFUSED, id="python"),
]


@pytest.mark.parametrize(("ask", "denied"), PATHS)
def test_a_plugin_allows_denies_or_leaves_it_to_the_rules_on_every_path(broker, gate, ask, denied):
    def answered(answer):
        gate.answer = answer
        gate.services.rules_changed()
        return ask(wire)

    with with_topic(broker) as wire:
        assert answered(None) == denied  # there is no rule
        assert answered(True) != denied
        assert answered(False) == denied
        rights = {(o, kind, name) for _, _, o, kind, name in gate.asked}
        assert rights & {
            ("WRITE", "TOPIC", NAME),
            ("READ", "TOPIC", NAME),
            ("READ", "GROUP", "g"),
            ("WRITE", "TRANSACTIONAL_ID", "id"),
            ("DESCRIBE", "TOPIC", NAME),
        }
        assert {row[:2] for row in gate.asked} == {("User:ANONYMOUS", "127.0.0.1")}


def test_rules_decide_what_a_plugin_leaves_to_them(broker, gate):
    gate.answer = None
    with with_topic(broker) as wire, broker.rights([(DESCRIBE, TOPIC, NAME)]):
        assert metadata(wire) == 0
        gate.answer = False
        gate.services.rules_changed()
        assert metadata(wire) == REFUSED


@pytest.mark.parametrize(
    "answer", [RuntimeError("no"), "yes", 1, object()], ids=["error", "text", "number", "object"]
)
@pytest.mark.parametrize(("ask", "denied"), PATHS)
def test_a_failure_denies(tmp_path, gate, ask, denied, answer):
    """Although a rule would allow it, and with on.failure=open."""
    gate.answer = answer
    settings = {"plugin.gate.on.failure": "open", "allow.everyone.if.no.acl.found": "true"}
    with gated(tmp_path, **settings) as ruled, with_topic(ruled) as wire:
        assert ask(wire) == denied
        assert ruled.broker.node.plugins.registry.failures["gate"] > 0


def test_too_slow_denies_and_so_does_a_plugin_that_is_switched_off(tmp_path, gate, caplog):
    caplog.set_level("INFO", "barnabas")
    go_on = threading.Event()
    gate.answer = lambda: go_on.wait(WAIT_S)
    settings = {"plugin.gate.budget.ms": "20", "plugin.gate.abandoned.max": "1"}
    try:
        with gated(tmp_path, **settings) as ruled, with_topic(ruled) as wire:
            assert metadata(wire) == REFUSED
            gate.answer = True  # it is switched off now
            assert metadata(wire) == REFUSED and write(wire) == REFUSED
            assert "plugin gate failed in authorize; the plugin is switched off" in caplog.text
            assert "was denied DESCRIBE on TOPIC 'busy'" in caplog.text
    finally:
        go_on.set()


def test_super_users_are_not_asked_about(tmp_path, gate):
    gate.answer = RuntimeError("no")
    with gated(tmp_path, **{"super.users": "User:ANONYMOUS"}) as ruled, with_topic(ruled) as wire:
        assert [ask(wire) for ask in (write, read, metadata)] == [0, 0, 0]
        find_group(wire)
        soon(lambda: commit(wire) == 0)


def test_what_native_handlers_keep_is_asked_once_until_the_rules_change(broker, gate):
    gate.answer = True
    with with_topic(broker) as wire, Wire(broker.address) as other:
        for epoch in (1, 2, 3):
            for _ in range(20):
                assert write(wire) == 0 and write(other) == 0
            asked = [row for row in gate.asked if row[2:] == ("WRITE", "TOPIC", NAME)]
            assert len(asked) == epoch
            gate.services.rules_changed()


def test_a_permission_that_it_takes_back_under_load(broker, gate):
    gate.answer = True
    with with_topic(broker) as wire:
        find_group(wire)
    stopped = threading.Event()
    clients = [Client(broker.address, ask, stopped) for ask in (write, write, read, commit)]
    denied = [REFUSED, REFUSED, REFUSED, COMMIT_REFUSED]
    for client in clients:
        client.start()
    try:
        for _ in range(5):
            gate.answer = True
            gate.services.rules_changed()
            wait_for(clients, 0)
            gate.answer = False
            gate.services.rules_changed()
            taken_ns = time.monotonic_ns()
            assert codes_since(clients, taken_ns) == [{code} for code in denied]
    finally:
        stopped.set()
        for client in clients:
            client.join(WAIT_S)


def test_an_idempotent_producer_is_asked_about_with_some_topic(broker, gate):
    body = request(22).cls(transactionalId=None, transactionTimeoutMs=1000)
    with Wire(broker.address) as wire:
        gate.answer = False
        assert wire.call(22, 4, body).errorCode == CLUSTER_REFUSED
        assert ("User:ANONYMOUS", "127.0.0.1", "WRITE", "TOPIC", None) in gate.asked
        gate.answer = lambda: gate.asked[-1][4] is None
        assert wire.call(22, 4, body).errorCode == 0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"authorizer.class.name": "nothing"}, "nothing lacks the hook authorize"),
        ({"authorizer.class.name": "absent"}, "'absent' is not installed"),
        ({"principal.builder.class": "gate"}, "gate lacks the hook build_principal"),
        ({"plugins": "gate"}, "would not be asked. Set authorizer.class.name=gate"),
        ({"plugins": "names"}, "would not be asked. Set principal.builder.class=names"),
        (
            {"authorizer.class.name": "gate", "plugin.gate.isolation": "process"},
            r"plugin\.gate\.isolation: .*isolation=thread",
        ),
    ],
    ids=str,
)
def test_a_plugin_that_would_not_protect_stops_the_start(tmp_path, plugins, settings, why):
    with pytest.raises(CannotStart, match=why):
        Broker({"log.dirs": str(tmp_path / "data")} | settings).start()


@pytest.mark.parametrize(
    "altered", [{"plugins": "gate"}, {"principal.builder.class": "names"}], ids=str
)
def test_no_setting_that_is_altered_makes_one_that_would_not_protect(tmp_path, plugins, altered):
    with Broker({"log.dirs": str(tmp_path / "data")}) as broker:
        opened = broker.node.opened
        with pytest.raises(ConfigError, match="would not be asked|not available"):
            opened.dynamic.alter(opened.node_id, altered)


def test_blocked_principals(tmp_path):
    """The built-in example: a line of a file denies everything, on open connections too."""
    path = tmp_path / "blocked"
    path.write_text("# nobody yet\n")
    settings = {
        "authorizer.class.name": "blocked-principals",
        "plugin.blocked-principals.file": str(path),
        "plugin.blocked-principals.look.ms": "10",
        "allow.everyone.if.no.acl.found": "true",
    }

    def rewritten(text):
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    with ruled_broker(tmp_path / "data", **settings) as ruled, with_topic(ruled) as wire:
        client = Client(ruled.address, write, stopped := threading.Event())
        client.start()
        try:
            wait_for([client], 0)
            rewritten("User:alice\nUser:ANONYMOUS\n")
            wait_for([client], REFUSED)
            assert metadata(wire) == REFUSED
            rewritten("no principal\n")  # what was blocked stays blocked
            rewritten("User:alice\n")
            wait_for([client], 0)
            assert code_of_metadata(ruled.address, NAME) == 0
        finally:
            stopped.set()
            client.join(WAIT_S)


# -- principals -------------------------------------------------------------------------------


def principal_after_login(login):
    """What the broker calls a client that has logged in as alice; None: it has refused it."""
    with login.connect() as client:
        assert client.handshake("PLAIN") == 0
        code, text, _ = client.token(f"\0alice\0{PASSWORD}".encode())
        return text if code else None


def test_principal_builder_class(tmp_path, plugins, caplog):
    """principal.builder.class: a plugin makes the principal of a login, which rules are for."""
    caplog.set_level("INFO", "barnabas.security")
    names = plugins.Names
    with login_broker(tmp_path, **{"principal.builder.class": "names"}) as login:
        for answer in ("Service:billing", None):
            names.answer = answer
            assert principal_after_login(login) is None
        names.answer = plugins.Reject("alice is on leave")
        assert principal_after_login(login) == "Authentication failed: alice is on leave"
        for answer in (RuntimeError("no"), "alice", ":alice", "User:", 7, b"User:alice"):
            names.answer = answer
            text = "Authentication failed: the plugin names has made no principal"
            assert principal_after_login(login) == text
    seen = names.seen[0]
    assert (seen.listener, seen.host, seen.mechanism, seen.user) == (
        "SAFE", "127.0.0.1", "PLAIN", "alice",
    )  # fmt: skip
    logged = [r.getMessage().rpartition(" as ")[2] for r in caplog.records if " as " in r.message]
    assert logged == ["'Service:billing'", "'User:alice'"]


def test_rules_and_plugins_see_the_principal_that_a_plugin_made(tmp_path, plugins):
    plugins.Names.answer = "Service:billing"
    plugins.Gate.answer = False
    settings = {
        "authorizer.class.name": "gate",
        "principal.builder.class": "names",
        "super.users": "User:admin",
    }
    with login_broker(tmp_path, **settings) as login, login.connect() as client:
        assert client.handshake("PLAIN") == 0
        assert client.token(f"\0alice\0{PASSWORD}".encode())[0] == 0
        assert client.is_served()
        client.ask(header(3, 1, (1).to_bytes(4, "big") + b"\0\1t"))
    assert {row[0] for row in plugins.Gate.asked} == {"Service:billing"}


def test_it_makes_a_principal_of_a_certificate(tmp_path, plugins, caplog):
    caplog.set_level("INFO", "barnabas")
    names = plugins.Names
    names.answer = "User:spiffe://example/alice"
    settings = mutual(tmp_path) | {"principal.builder.class": "names"}
    issued = CLIENTS.issue("O=Example,CN=alice", ())
    with tls_broker(tmp_path, settings) as served:
        asked(served.port, client_context(issued, tmp_path)).close()
        names.answer = plugins.Reject("no")
        with pytest.raises((OSError, EOFError)):
            asked(served.port, client_context(issued, tmp_path))
        soon(lambda: "login: Authentication failed: no" in caplog.text)
    seen = names.seen[0]
    assert seen.subject == "CN=alice,O=Example" and seen.mechanism == seen.user == ""
    assert ssl.DER_cert_to_PEM_cert(seen.certificate) in issued.certificate_pem
    assert "logged in as 'User:spiffe://example/alice'" in caplog.text
