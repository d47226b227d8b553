"""Each setting of logins, left out or wrong: the broker does not start, or refuses access."""

import pytest
from compat.support import Wire
from security.login_broker import (
    PASSWORD,
    PLAIN_MODULE,
    SAFE,
    SCRAM_MODULE,
    SETTINGS,
    header,
    login_broker,
)

from barnabas import Broker
from barnabas.config import BrokerConfig, ConfigError
from barnabas.node import CannotStart
from barnabas.wire import request

JAAS = SAFE + "plain.sasl.jaas.config"
GOOD = f"\0alice\0{PASSWORD}".encode()


def refusal(tmp_path, **settings):
    """Why the broker does not start."""
    with pytest.raises((ConfigError, CannotStart)) as caught:
        with login_broker(tmp_path, **settings):
            pass
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


def test_without_mechanisms_the_broker_does_not_start(tmp_path):
    """Kafka's default is GSSAPI, which needs a keytab."""
    said = refusal(tmp_path, **{"sasl.enabled.mechanisms": None})
    assert "listener.name.safe.gssapi.sasl.jaas.config is not set" in said


@pytest.mark.parametrize("mechanisms", ["", "PLAIN,EXTERNAL", "EXTERNAL", "plain", "PLAIN,"])
def test_with_a_mechanism_that_is_not_available_the_broker_does_not_start(tmp_path, mechanisms):
    assert "available" in refusal(tmp_path, **{"sasl.enabled.mechanisms": mechanisms})


@pytest.mark.parametrize("mechanism", ["plain", "scram-sha-256", "scram-sha-512"])
def test_without_its_jaas_line_the_broker_does_not_start(tmp_path, monkeypatch, mechanism):
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    name = f"{SAFE}{mechanism}.sasl.jaas.config"
    assert f"{name} is not set" in refusal(tmp_path, **{name: None})


@pytest.mark.parametrize(
    "line",
    [
        "",
        f'{PLAIN_MODULE} required user_alice="{PASSWORD}"',
        f"{SCRAM_MODULE} required;",
        f"{PLAIN_MODULE} required; {PLAIN_MODULE} required;",
        "org.example.OwnLoginModule required;",
    ],
)
def test_with_a_wrong_jaas_line_the_broker_does_not_start(tmp_path, line):
    assert JAAS in refusal(tmp_path, **{JAAS: line})


def test_a_jaas_line_without_users_logs_no_client_in(tmp_path):
    with login_broker(tmp_path, **{JAAS: f"{PLAIN_MODULE} required;"}) as login:
        with login.connect() as c:
            c.handshake("PLAIN")
            assert c.token(GOOD)[0] == 58


def test_the_user_name_and_password_of_the_broker_itself_log_no_client_in(tmp_path):
    line = f'{PLAIN_MODULE} required username="alice" password="{PASSWORD}";'
    with login_broker(tmp_path, **{JAAS: line}) as login, login.connect() as c:
        c.handshake("PLAIN")
        assert c.token(GOOD)[0] == 58


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.other.plain.sasl.jaas.config", "x"),
        ("listener.name.SAFE.plain.sasl.jaas.config", "x"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "x"),
        ("listener.name.other.sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.jaas.config", "x"),
        ("listener.name.safe.sasl.jaas.config", "x"),
        ("listener.name.safe.external.sasl.jaas.config", "x"),
        ("listener.name.safe.plain.sasl.server.callback.handler.class", "x"),
        ("listener.name.other.sasl.server.max.receive.size", "1000"),
        ("sasl.server.callback.handler.class", "x"),
        ("sasl.kerberos.service.name", "kafka"),
        ("sasl.oauthbearer.jwks.endpoint.url", "https://x"),
        ("listener.name.safe.sasl.oauthbearer.expected.issuer", "x"),
        ("sasl.oauthbearer.token.endpoint.url", "https://x"),
        ("listener.name.other.connections.max.reauth.ms", "1000"),
        ("listener.name.safe.scram.connections.max.reauth.ms", "1000"),
        ("connections.max.reauth.ms", "soon"),
        ("super.users", "User:alice"),
        ("authorizer.class.name", "org.example.Authorizer"),
        ("listener.name.safe.ssl.keystore.location", "/k"),
    ],
)
def test_a_setting_that_would_protect_nothing_stops_the_start(tmp_path, name, value):
    assert name in refusal(tmp_path, **{name: value})


def test_mechanisms_without_a_listener_that_asks_for_a_login_stop_the_start():
    with pytest.raises(ConfigError, match="no listener uses SASL"):
        BrokerConfig({"sasl.enabled.mechanisms": "PLAIN"})


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_listener_of_tls_stops_the_start(tmp_path, protocol):
    settings = {"listener.security.protocol.map": f"SAFE:{protocol},PLAINTEXT:PLAINTEXT"}
    assert "a TLS listener needs a certificate" in refusal(tmp_path, **settings)


def test_without_the_protocol_map_a_listener_has_no_protocol(tmp_path):
    assert "no protocol is known" in refusal(tmp_path, **{"listener.security.protocol.map": None})


def test_other_hosts_reach_a_listener_with_logins_and_no_other(tmp_path):
    settings = {"listeners": "SAFE://0.0.0.0:0", "inter.broker.listener.name": "SAFE"}
    settings["advertised.listeners"] = "SAFE://127.0.0.1:0"
    config = BrokerConfig(SETTINGS | settings)
    assert any("clear text" in line for line in config.warnings)
    assert not any("read, write and delete" in line for line in config.warnings)
    with pytest.raises(ConfigError, match=r"allow\.unauthenticated\.remote"):
        BrokerConfig(SETTINGS | {"listeners": "SAFE://0.0.0.0:0,PLAINTEXT://0.0.0.0:0"})


def test_a_jaas_file_is_read_as_kafka_reads_it(tmp_path, monkeypatch):
    path = tmp_path / "jaas.conf"
    path.write_text(
        f'KafkaServer {{ {PLAIN_MODULE} required user_alice="other"; }};\n'
        f'safe.KafkaServer {{ {PLAIN_MODULE} required user_alice="{PASSWORD}"; }};\n'
    )
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1G -Djava.security.auth.login.config={path} -Dx=y")
    settings = {name: None for name in SETTINGS if name.endswith("jaas.config")}
    settings["sasl.enabled.mechanisms"] = "PLAIN"
    assert "chmod 600" in refusal(tmp_path / "a", **settings)
    path.chmod(0o600)
    with login_broker(tmp_path / "b", **settings) as login, login.connect() as c:
        c.handshake("PLAIN")
        assert c.token(GOOD)[0] == 0
    path.write_text("KafkaClient { m.M required; };")
    assert "is not set" in refusal(tmp_path / "c", **settings)
    path.unlink()
    assert "cannot be read" in refusal(tmp_path / "d", **settings)


def alter_broker(wire, name, value):
    ask = request(44)
    config = ask.struct("resources.configs")(name=name, configOperation=0, value=value)
    row = ask.struct("resources")(resourceType=4, resourceName="1", configs=[config])
    answer = wire.call(44, 1, ask.cls(resources=[row])).responses[0]
    return answer.errorCode, answer.errorMessage


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connections.max.reauth.ms", "0"),
        ("listener.name.safe.plain.connections.max.reauth.ms", "0"),
        ("listener.name.safe.sasl.server.max.receive.size", "1000000"),
        ("listener.name.safe.oauthbearer.sasl.server.callback.handler.class", "x"),
        ("listener.name.safe.sasl.oauthbearer.expected.issuer", "x"),
        ("listener.security.protocol.map", "SAFE:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
        ("listener.security.protocol.map", "SAFE:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"),
    ],
)
def test_a_running_broker_refuses_to_change_what_is_read_at_its_start(tmp_path, name, value):
    settings = {"node.id": "1", "inter.broker.listener.name": "SAFE"}
    with login_broker(tmp_path, **settings) as login, Wire(login.plain) as wire:
        code, text = alter_broker(wire, name, value)
        assert code == 42 and "cannot change" in text
        with login.connect() as c:
            assert not c.is_served()


def test_a_listener_with_logins_is_added_while_the_broker_runs(tmp_path):
    """Its settings must be there already; without them it is refused."""
    settings = {"node.id": "1"}
    settings["listener.security.protocol.map"] = (
        "SAFE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,MORE:SASL_PLAINTEXT"
    )
    listeners = "SAFE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,MORE://127.0.0.1:0"
    with login_broker(tmp_path, **settings) as login, Wire(login.plain) as wire:
        code, text = alter_broker(wire, "listeners", listeners)
        assert code == 42 and "listener.name.more.plain.sasl.jaas.config is not set" in text


def test_describe_configs_shows_no_password(login):
    with Wire(login.plain) as wire:
        ask = request(32)
        row = ask.struct("resources")(resourceType=4, resourceName="1", configurationKeys=None)
        brokers = wire.call(3, 1, request(3).cls(topics=[])).brokers
        row.resourceName = str(brokers[0].nodeId)
        answer = wire.call(32, 4, ask.cls(resources=[row], includeSynonyms=True))
        [found] = [one for one in answer.results[0].configs if one.name == JAAS]
        assert found.value is None and found.isSensitive
        assert PASSWORD not in repr(answer)


def test_no_password_and_no_token_is_logged(tmp_path, caplog):
    caplog.set_level(0)
    with login_broker(tmp_path) as login:
        for token in (GOOD, GOOD + b"x", b"\0" + PASSWORD.encode() + b"\0x", PASSWORD.encode()):
            for version in (0, 1):
                with login.connect() as c:
                    c.handshake("PLAIN", version=version)
                    c.ask(token) if version == 0 else c.token(token)
        with login.connect() as c:
            c.ask(header(17, 1, len(PASSWORD).to_bytes(2, "big") + PASSWORD.encode()))
    assert "logged in as 'User:alice'" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_broker_without_logins_needs_no_setting_of_sasl(tmp_path):
    with Broker({"log.dirs": str(tmp_path)}) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.call(3, 1, request(3).cls(topics=[])).brokers
