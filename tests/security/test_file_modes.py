"""Modes of files: what other users of the host may read or change, and what the broker says."""

import logging
import os
import stat
import types

import pytest
from security.login_broker import login_broker
from tls.tls_broker import AUTHORITY, OWN, pem_settings, tls_broker, trust_settings
from waiting import soon

from barnabas import Broker
from barnabas.config import ConfigError, providers
from barnabas.config.providers import check_private
from barnabas.config.tls import is_built_in
from barnabas.node import CannotStart

needs_tls = pytest.mark.skipif(not is_built_in(), reason="this build has no TLS")


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_secret_that_others_may_read_or_write_is_refused(tmp_path, bits):
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(bits)
    with pytest.raises(ConfigError, match=f"holds a key and other .* {bits:04o}.*chmod 600 {path}"):
        check_private(str(path), "a key")
    path.chmod(0o600)
    check_private(str(path), "a key")
    path.chmod(0o400)
    check_private(str(path), "a key")


@pytest.mark.parametrize(
    ("owner", "bits", "is_private"),
    [
        (0, 0o640, True),  # as Kubernetes mounts a secret with fsGroup
        (0, 0o440, True),
        (0, 0o644, False),
        (0, 0o660, False),
        (1000, 0o640, False),
        (1000, 0o600, True),
    ],
)
def test_a_group_may_read_a_secret_that_root_gave_it(monkeypatch, owner, bits, is_private):
    """PostgreSQL's rule: be-secure-common.c, check_ssl_key_file_permissions."""
    status = types.SimpleNamespace(st_uid=owner, st_mode=stat.S_IFREG | bits)
    monkeypatch.setattr(providers.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(providers.os, "stat", lambda path: status)
    if is_private:
        check_private("/key", "a key")
    else:
        with pytest.raises(ConfigError):
            check_private("/key", "a key")


def refusal(tmp_path, settings):
    with pytest.raises((ConfigError, CannotStart)) as caught:
        with tls_broker(tmp_path, settings):
            pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


@needs_tls
def test_a_key_of_a_listener_that_others_may_read_refuses_the_start(tmp_path):
    settings = pem_settings(tmp_path)
    path = tmp_path / "broker.pem"
    path.chmod(0o644)
    said = refusal(tmp_path, settings)
    assert f"{path}: holds a key without a password" in said and f"chmod 600 {path}" in said
    path.chmod(0o600)
    with tls_broker(tmp_path, settings):
        pass


@needs_tls
def test_an_encrypted_key_may_have_any_mode(tmp_path):
    """Its password, which lies elsewhere, protects it; so it is with the stores of Java."""
    settings = pem_settings(tmp_path) | {"ssl.key.password": "sesame"}
    OWN.write(tmp_path / "broker.pem", "sesame").chmod(0o644)
    with tls_broker(tmp_path, settings):
        pass


@needs_tls
def test_a_renewed_key_that_others_may_read_is_not_used(tmp_path, caplog):
    with tls_broker(tmp_path), caplog.at_level(logging.ERROR, "barnabas.tls"):
        issued = AUTHORITY.issue("CN=broker,O=Example", kind="rsa")
        beside = issued.write(tmp_path / "new.pem")
        beside.chmod(0o644)
        os.replace(beside, tmp_path / "broker.pem")
        soon(lambda: "keeps its certificates" in caplog.text)
        assert "chmod 600" in caplog.text


@needs_tls
def test_certificates_to_trust_that_everyone_may_change_refuse_the_start(tmp_path):
    """Whoever writes an authority into the file could issue certificates of any user."""
    settings = pem_settings(tmp_path) | trust_settings(tmp_path) | {"ssl.client.auth": "required"}
    (tmp_path / "clients.pem").chmod(0o646)
    said = refusal(tmp_path, settings)
    assert "certificates to trust" in said and "chmod o-w" in said
    (tmp_path / "clients.pem").chmod(0o664)
    with tls_broker(tmp_path, settings):
        pass


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_log_directory_is_for_the_broker_alone(tmp_path, open_umask):
    """Whatever the umask is; files in it have the modes of the umask, as Kafka's. Metadata has
    credentials, and is private by itself."""
    data = tmp_path / "a" / "data"
    with Broker({"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        broker.create_topic("t")
        assert mode(data) == 0o700
        assert mode(data / "t-0") == 0o777
        assert mode(data / "t-0" / f"{0:020}.log") == 0o644
        assert mode(data / "metadata") == 0o700
        found = [path for path in (data / "metadata").iterdir() if path.is_file()]
        assert found and {mode(path) for path in found} == {0o600}


def test_the_mode_of_a_log_directory_that_exists_stays(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o750)
    with Broker({"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}):
        assert mode(tmp_path / "data") == 0o750


CLOSED = {
    "listeners": "SAFE://127.0.0.1:0",
    "advertised.listeners": None,
    "inter.broker.listener.name": "SAFE",
}


@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o702])
def test_a_log_directory_that_everyone_may_write_refuses_a_protected_broker(tmp_path, bits):
    """Another user could replace the credentials in it."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(bits)
    with pytest.raises(CannotStart, match=f"{bits:04o}.*chmod o-w {data}") as caught:
        with login_broker(tmp_path, **CLOSED):
            pass
    assert "\n" not in str(caught.value)
    with login_broker(tmp_path):  # its plain listener gives other users the data anyway
        pass


@pytest.mark.parametrize(("bits", "lines"), [(0o755, 1), (0o701, 1), (0o750, 0), (0o700, 0)])
def test_a_log_directory_that_everyone_may_read_is_one_warning(tmp_path, caplog, bits, lines):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(bits)
    with login_broker(tmp_path, **CLOSED):
        pass
    said = [row for row in caplog.records if "may read this log directory" in row.getMessage()]
    assert len(said) == lines
    caplog.clear()
    with login_broker(tmp_path):
        pass
    assert "may read this log directory" not in caplog.text
