"""New certificates without a restart: from a changed file, and by an altered setting."""

import logging
import socket

import pytest
from compat.support import Wire
from tls.test_listener import asked
from tls.tls_broker import (
    AUTHORITY,
    CLIENTS,
    OWN,
    PAIR,
    Served,
    client_context,
    pem_settings,
    replace_file,
    tls_broker,
    trust_settings,
)

from barnabas import Broker
from barnabas.wire import request

NAME = "CN=broker,O=Example"
RENEWED = AUTHORITY.issue(NAME, kind="rsa")
OTHER_SUBJECT = AUTHORITY.issue("CN=another")
FEWER_NAMES = AUTHORITY.issue(NAME, ("localhost",))


def certificate_of(served, context=None):
    with asked(served.port, context or client_context()) as client:
        return client.getpeercert(True)


def look_at_files(served):
    """Returns when the broker has looked at its files, as it does each second."""
    served.broker.clock.advance(seconds=1)


def text_of(issued):
    return issued.key_pem() + issued.chain_pem


def test_a_changed_file_is_served(tmp_path):
    with tls_broker(tmp_path) as served:
        before = asked(served.port, client_context())
        replace_file(tmp_path / "broker.pem", text_of(RENEWED))
        look_at_files(served)
        assert certificate_of(served) == RENEWED.certificate_der
        assert before.getpeercert(True) == OWN.certificate_der
        before.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (text_of(OTHER_SUBJECT), "ssl.allow.dn.changes"),
        (text_of(FEWER_NAMES), "ssl.allow.san.changes"),
        ("rubbish", "no private key"),
        (RENEWED.key_pem() + OWN.chain_pem, "key values mismatch"),
    ],
)
def test_a_changed_file_that_cannot_be_used_changes_nothing(tmp_path, caplog, text, why):
    with tls_broker(tmp_path) as served, caplog.at_level(logging.ERROR, "barnabas.tls"):
        replace_file(tmp_path / "broker.pem", text)
        look_at_files(served)
        assert certificate_of(served) == OWN.certificate_der
        look_at_files(served)
        assert caplog.text.count(why) == 1
        replace_file(tmp_path / "broker.pem", text_of(RENEWED))
        look_at_files(served)
        assert certificate_of(served) == RENEWED.certificate_der


def test_ssl_allow_dn_changes(tmp_path):
    settings = pem_settings(tmp_path) | {"ssl.allow.dn.changes": "true"}
    with tls_broker(tmp_path, settings) as served:
        replace_file(tmp_path / "broker.pem", text_of(OTHER_SUBJECT))
        look_at_files(served)
        assert certificate_of(served) == OTHER_SUBJECT.certificate_der


def test_ssl_allow_san_changes(tmp_path):
    settings = pem_settings(tmp_path) | {"ssl.allow.san.changes": "true"}
    with tls_broker(tmp_path, settings) as served:
        replace_file(tmp_path / "broker.pem", text_of(FEWER_NAMES))
        look_at_files(served)
        assert certificate_of(served) == FEWER_NAMES.certificate_der


def alter(served, name, value):
    """The error code and text of IncrementalAlterConfigs for this broker."""
    return alter_all(served, {name: value})


def alter_all(served, values):
    """As alter, in one request; None deletes."""
    ask = request(44)
    configs = [
        ask.struct("resources.configs")(name=name, configOperation=int(value is None), value=value)
        for name, value in values.items()
    ]
    broker_id = str(served.broker.node.node_id)
    row = ask.struct("resources")(resourceType=4, resourceName=broker_id, configs=configs)
    with Wire(served.plain) as wire:
        answer = wire.call(44, 1, ask.cls(resources=[row], validateOnly=False)).responses[0]
    return answer.errorCode, answer.errorMessage


def test_an_altered_location_is_served(tmp_path):
    name = "listener.name.safe.ssl.keystore.location"
    with tls_broker(tmp_path) as served:
        RENEWED.write(tmp_path / "renewed.pem")
        assert alter(served, name, str(tmp_path / "renewed.pem")) == (0, None)
        assert certificate_of(served) == RENEWED.certificate_der
        for bad, why in ((OTHER_SUBJECT, "ssl.allow.dn.changes"), (FEWER_NAMES, "alternative")):
            bad.write(tmp_path / "bad.pem")
            code, text = alter(served, name, str(tmp_path / "bad.pem"))
            assert code == 42 and why in text
        code, text = alter(served, name, "/nowhere.pem")
        assert code == 42 and "cannot be read" in text
        assert certificate_of(served) == RENEWED.certificate_der


@pytest.mark.parametrize("name", ["ssl.keystore.password", "ssl.keystore.key", "ssl.client.auth"])
def test_what_cannot_be_altered_says_so(tmp_path, name):
    with tls_broker(tmp_path) as served:
        code, text = alter(served, f"listener.name.safe.{name}", "required")
        assert code == 42 and "restart" in text


def test_a_withdrawn_authority_is_trusted_no_more(tmp_path):
    """A session of one of its clients is not resumed, either."""
    settings = pem_settings(tmp_path) | trust_settings(tmp_path)
    settings["ssl.client.auth"] = "required"
    context = client_context(CLIENTS.issue("CN=alice", ()), tmp_path)
    with tls_broker(tmp_path, settings) as served:
        first = asked(served.port, context)
        session = first.session
        replace_file(tmp_path / "clients.pem", AUTHORITY.pem)

        def is_refused():
            try:
                asked(served.port, context).close()
            except (OSError, EOFError):
                return True
            return False

        look_at_files(served)
        assert is_refused()
        plain = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        with pytest.raises((OSError, EOFError)):
            client = context.wrap_socket(plain, server_hostname="localhost", session=session)
            client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")
            if not client.recv(4):
                raise EOFError
        plain.close()
        first.close()


def test_a_listener_that_was_added_follows_its_files(tmp_path):
    settings = pem_settings(tmp_path) | trust_settings(tmp_path)
    protocols = {"listener.security.protocol.map": "SAFE:SSL,LATE:SSL,PLAINTEXT:PLAINTEXT"}
    with tls_broker(tmp_path, settings | protocols) as served:
        new = "SAFE://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,LATE://127.0.0.1:0"
        assert alter(served, "listeners", new) == (0, None)
        [late] = [row for row in served.broker.node.listeners if row.name == "LATE"]
        served.safe = f"localhost:{late.port}"
        assert certificate_of(served) == OWN.certificate_der
        replace_file(tmp_path / "broker.pem", text_of(RENEWED))
        look_at_files(served)
        assert certificate_of(served) == RENEWED.certificate_der


def test_a_listener_cannot_change_its_protocol_while_it_is_bound(tmp_path):
    settings = pem_settings(tmp_path) | {"inter.broker.listener.name": "SAFE"}
    with tls_broker(tmp_path, settings) as served:
        other = "SAFE:SSL,PLAINTEXT:SSL"
        code, text = alter(served, "listener.security.protocol.map", other)
        assert code == 42 and "cannot change while it is bound" in text


@pytest.mark.parametrize("kind", ["inline", "file"])
def test_a_listener_goes_in_one_request_with_its_keystore(tmp_path, caplog, kind):
    """Kafka 4.3.1 refuses this, and the keystore's removal afterwards: "Cannot remove the SSL
    keystore from an existing listener for which a keystore was configured."."""
    of_safe = "listener.name.safe.ssl.keystore."
    store = {of_safe + "type": "PEM", of_safe + "location": str(OWN.write(tmp_path / "own.pem"))}
    if kind == "inline":
        del store[of_safe + "location"]
        store |= {of_safe + "key": OWN.key_pem(), of_safe + "certificate.chain": OWN.chain_pem}
    plain = {"listeners": "PLAINTEXT://127.0.0.1:0", "inter.broker.listener.name": "PLAINTEXT"}
    settings = PAIR | plain | {"password.encoder.secret": "an encoder's secret"}
    without = dict.fromkeys(store)
    with Broker(settings) as broker:
        address = f"127.0.0.1:{broker.node.listeners[0].port}"
        served = Served(broker, "", address)
        assert alter_all(served, store | {"listeners": PAIR["listeners"]}) == (0, None)
        safe = next(row.port for row in broker.node.listeners if row.name == "SAFE")
        asked(safe, client_context()).close()
        code, text = alter_all(served, without)
        assert code == 42 and "ssl.keystore" in text
        asked(safe, client_context()).close()
        assert alter_all(served, without | {"listeners": plain["listeners"]}) == (0, None)
        assert [row.name for row in broker.node.listeners] == ["PLAINTEXT"]
        with pytest.raises(OSError):
            asked(safe, client_context())
        broker.node.bound.tls().look_at_files()
    assert "keeps its certificates" not in caplog.text
