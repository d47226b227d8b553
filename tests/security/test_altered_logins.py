"""Logins that alter-configs changes while the broker runs; what may change is as in Kafka."""

import pytest
from compat.support import Wire
from security.login_broker import (
    NUMBERS,
    PASSWORD,
    PLAIN_MODULE,
    SAFE,
    SCRAM_MODULE,
    login_broker,
    scram_login,
)
from security.users import alter, upsertion

from barnabas.config.logins import IN_FRONT
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.metadata import znodes
from barnabas.node import CannotStart
from barnabas.wire import request

JAAS = SAFE + "plain.sasl.jaas.config"
ENABLED = SAFE + "sasl.enabled.mechanisms"
OTHER = "a looking glass, 2 ways"
INVALID_REQUEST, FAILED, UNSUPPORTED = 42, 58, 33
SET, DELETE = 0, 1
OWN = {
    "node.id": "1",
    "password.encoder.secret": "an encoder's secret",
    "password.encoder.iterations": "1024",
}
ALICE_AND_BOB = f'{PLAIN_MODULE} required user_alice="{PASSWORD}" user_bob="{OTHER}";'
BOB = f'{PLAIN_MODULE} required user_bob="{OTHER}";'


def changed(login, name, value, broker="1", more=()):
    """Code and text. `value`: None deletes; `more`: further pairs of the same request."""
    ask = request(44)
    rows = [
        ask.struct("resources.configs")(
            name=name, configOperation=DELETE if value is None else SET, value=value
        )
        for name, value in ((name, value), *more)
    ]
    row = ask.struct("resources")(resourceType=4, resourceName=broker, configs=rows)
    with Wire(login.plain) as wire:
        answer = wire.call(44, 1, ask.cls(resources=[row])).responses[0]
    return answer.errorCode, answer.errorMessage


def plain_login(c, user, password):
    """The code of the handshake, or of the token."""
    code = c.handshake("PLAIN")
    return code or c.token(f"\0{user}\0{password}".encode())[0]


def codes(login, **users):
    found = []
    for user, password in users.items():
        with login.connect() as c:
            found.append(plain_login(c, user, password))
            assert c.is_served() is (found[-1] == 0)
    return found


@pytest.fixture
def login(tmp_path):
    with login_broker(tmp_path, **OWN) as made:
        yield made


def test_a_new_user_logs_in_and_a_removed_one_does_not(login):
    with login.connect() as before:
        assert plain_login(before, "alice", PASSWORD) == 0
        assert codes(login, alice=PASSWORD, bob=OTHER) == [0, FAILED]
        assert changed(login, JAAS, ALICE_AND_BOB) == (0, None)
        assert codes(login, alice=PASSWORD, bob=OTHER) == [0, 0]
        assert changed(login, JAAS, BOB) == (0, None)
        assert codes(login, alice=PASSWORD, bob=OTHER) == [FAILED, 0]
        assert changed(login, JAAS, None) == (0, None)  # the line of the file is in force again
        assert codes(login, alice=PASSWORD, bob=OTHER) == [0, FAILED]
        assert before.is_served()


def test_a_login_that_has_begun_ends_by_the_new_line(login):
    with login.connect() as c:
        c.handshake("PLAIN")
        assert changed(login, JAAS, BOB) == (0, None)
        assert c.token(f"\0alice\0{PASSWORD}".encode())[0] == FAILED


@pytest.mark.parametrize(
    "line",
    [
        f'{PLAIN_MODULE} required user_bob="{OTHER}"',
        f'{PLAIN_MODULE} needed user_bob="{OTHER}";',
        f'{SCRAM_MODULE} required user_bob="{OTHER}";',
        f"{BOB} {BOB}",
        f'org.example.OwnModule required user_bob="{OTHER}";',
        f'"{OTHER}" "{OTHER}";',
        "${file:/etc/passwd:x}",
    ],
)
def test_a_line_that_cannot_be_used_is_refused_and_changes_nothing(login, caplog, line):
    caplog.set_level(0)
    code, text = changed(login, JAAS, line)
    assert code == INVALID_REQUEST and text.startswith(JAAS)
    assert OTHER not in text + caplog.text
    assert codes(login, alice=PASSWORD, bob=OTHER) == [0, FAILED]
    assert login.broker.node.dynamic.texts(1) == {}


def test_mechanisms_of_a_listener_that_serves(login):
    with Wire(login.plain) as wire:
        alter(wire, upsertions=[upsertion("carol", OTHER, NUMBERS["SCRAM-SHA-256"])])
    assert changed(login, ENABLED, "SCRAM-SHA-256") == (0, None)
    with login.connect() as c:
        assert c.handshake("PLAIN") == UNSUPPORTED
    with login.connect() as c:
        _, last, _ = scram_login(c, "SCRAM-SHA-256", "carol", OTHER)
        assert last[0] == 0 and c.is_served()
    for value, why in (
        ("PLAIN,OAUTHBEARER", "oauthbearer.sasl.jaas.config is not set"),
        ("EXTERNAL", "not available"),
        ("", "not available"),
    ):
        code, text = changed(login, ENABLED, value)
        assert code == INVALID_REQUEST and why in text
    assert changed(login, ENABLED, None) == (0, None)
    assert codes(login, alice=PASSWORD) == [0]


def test_what_a_mechanism_needs_is_not_deleted(tmp_path):
    settings = OWN | {JAAS: None, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    with login_broker(tmp_path, **settings) as login:
        more = [(ENABLED, "SCRAM-SHA-256,PLAIN")]
        assert changed(login, JAAS, ALICE_AND_BOB, more=more) == (0, None)
        assert codes(login, bob=OTHER) == [0]
        code, text = changed(login, JAAS, None)
        assert code == INVALID_REQUEST and f"{JAAS} is not set" in text
        assert codes(login, bob=OTHER) == [0]
        assert changed(login, JAAS, None, more=[(ENABLED, None)]) == (0, None)
        assert codes(login, bob=OTHER) == [UNSUPPORTED]


def test_a_listener_is_added_with_its_users_and_removed_without_a_trace(tmp_path):
    line = "listener.name.more.plain.sasl.jaas.config"
    protocols = "SAFE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,MORE:SASL_PLAINTEXT"
    settings = OWN | {
        "listener.security.protocol.map": protocols,
        "listener.name.more.sasl.enabled.mechanisms": None,
    }
    with login_broker(tmp_path, **settings) as login:
        ports = {row.name: row.port for row in login.broker.node.listeners}
        own = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        listeners = f"{own},MORE://127.0.0.1:0"
        more = [("listener.name.more.sasl.enabled.mechanisms", "PLAIN"), ("listeners", listeners)]
        code, text = changed(login, *more[1], more=more[:1])
        assert code == INVALID_REQUEST and f"{line} is not set" in text
        assert changed(login, line, BOB, more=more) == (0, None)
        [port] = [row.port for row in login.broker.node.listeners if row.name == "MORE"]
        login.safe, before = f"127.0.0.1:{port}", login.safe
        assert codes(login, bob=OTHER, alice=PASSWORD) == [0, FAILED]
        gone = [(line, None), ("listener.name.more.sasl.enabled.mechanisms", None)]
        assert changed(login, "listeners", own, more=gone) == (0, None)
        login.safe = before
        assert codes(login, alice=PASSWORD) == [0]
        assert login.broker.node.bound.logins().listeners == ("SAFE",)


def test_a_setting_of_an_unknown_listener_is_refused(login):
    code, text = changed(login, "listener.name.other.plain.sasl.jaas.config", BOB)
    assert code == INVALID_REQUEST and "no SASL listener has this name" in text
    code, text = changed(login, "sasl.jaas.config", BOB)
    assert code == INVALID_REQUEST and OTHER not in text
    code, text = changed(login, JAAS, BOB, broker="")
    assert code == INVALID_REQUEST and "differs from broker to broker" in text


def test_without_a_secret_of_the_encoder_it_is_refused(tmp_path):
    with login_broker(tmp_path, **{"node.id": "1"}) as login:
        code, text = changed(login, JAAS, BOB)
        assert code == INVALID_REQUEST and "Set password.encoder.secret" in text
        assert codes(login, alice=PASSWORD, bob=OTHER) == [0, FAILED]


def test_the_line_is_stored_encrypted_and_in_force_after_a_restart(tmp_path, caplog):
    caplog.set_level(0)
    with login_broker(tmp_path, **OWN) as login:
        assert changed(login, JAAS, BOB) == (0, None)
        path = znodes.config_path("brokers", "1")
        stored = login.broker.node.opened.tree.get(path)[0].decode()
        assert JAAS in stored and "PBKDF2WithHmacSHA512" in stored
        assert OTHER not in stored
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(OTHER.encode() in path.read_bytes() for path in files)
    with login_broker(tmp_path, **OWN) as login:
        assert codes(login, alice=PASSWORD, bob=OTHER) == [FAILED, 0]
        shown = described(login)
    assert OTHER not in caplog.text + shown
    with pytest.raises(CannotStart, match="another password.encoder.secret"):
        with login_broker(tmp_path, **OWN | {"password.encoder.secret": "another"}):
            pass


def described(login):
    ask = request(32)
    row = ask.struct("resources")(resourceType=4, resourceName="1", configurationKeys=None)
    with Wire(login.plain) as wire:
        answer = wire.call(32, 4, ask.cls(resources=[row], includeSynonyms=True))
    [found] = [one for one in answer.results[0].configs if one.name == JAAS]
    assert found.value is None and found.isSensitive
    return repr(answer)


def test_what_may_change_is_what_kafka_lets_change():
    """Its mode per-broker (tests/config/golden has Kafka's own table)."""
    found = {base for base in IN_FRONT if not BROKER_SETTINGS[base].is_read_only}
    assert found == {
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.mechanism.inter.broker.protocol",
    }
