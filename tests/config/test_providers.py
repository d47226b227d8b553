import os

import pytest

from barnabas.config import BrokerConfig, ConfigError
from barnabas.config.providers import Providers, check_private


def written(path, text, mode=0o600):
    path.write_text(text)
    os.chmod(path, mode)
    return path


def test_env_and_file_give_values(tmp_path):
    other = written(tmp_path / "other.properties", "dirs=/data/a\n")
    path = written(
        tmp_path / "server.properties",
        f"log.dirs=${{file:{other}:dirs}},/x/${{env:DISK}}\nnum.partitions=${{env::PARTS}}\n",
    )
    config = BrokerConfig.load(path, environ={"DISK": "b", "PARTS": "3"})
    assert config.log_dirs == ("/data/a", "/x/b")
    assert config["num.partitions"] == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("${env:ABSENT}", "ABSENT is not set"),
        ("${file:/nowhere/x:key}", "cannot be read"),
        ("${file:nokey}", "names no key"),
        ("${vault:a:b}", "not known"),
        ("${env:A}" * 65, "more than 64"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(tmp_path, value, reason):
    path = written(tmp_path / "server.properties", f"log.dirs={value}\n")
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.load(path, environ={"A": "x"})


def test_what_a_provider_gives_is_not_resolved_again():
    providers = Providers({"A": "${env:B}", "B": "secret"})
    assert providers.resolve("k", "${env:A}") == ("${env:B}", set())


@pytest.mark.parametrize("where", ["environ", "overrides"])
def test_references_outside_the_file_are_refused(where):
    more = {"environ": {"KAFKA_LOG_DIRS": "${env:HOME}"}} if where == "environ" else {"environ": {}}
    if where == "overrides":
        more["overrides"] = ["log.dirs=${file:/etc/passwd:root}"]
    with pytest.raises(ConfigError, match="settings file only"):
        BrokerConfig.load(None, **more)


def test_a_file_with_a_password_must_be_private(tmp_path):
    path = written(tmp_path / "server.properties", "zookeeper.ssl.keystore.password=x\n", 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        BrokerConfig.load(path, environ={})
    os.chmod(path, 0o600)
    BrokerConfig.load(path, environ={})


def test_the_file_a_password_comes_from_must_be_private(tmp_path):
    secret = written(tmp_path / "secret", "p=x\n", 0o640)
    text = f"zookeeper.ssl.keystore.password=${{file:{secret}:p}}\n"
    path = written(tmp_path / "server.properties", text, 0o644)
    with pytest.raises(ConfigError, match=f"{secret}: holds zookeeper.ssl.keystore.password"):
        BrokerConfig.load(path, environ={})
    os.chmod(secret, 0o600)
    assert BrokerConfig.load(path, environ={})["zookeeper.ssl.keystore.password"] == "x"


def test_a_password_is_not_printed_when_it_is_refused(tmp_path):
    check_private(str(written(tmp_path / "f", "")), "x")
    path = written(tmp_path / "server.properties", "ssl.key.password=swordfish\n")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(path, environ={})
    assert "swordfish" not in str(caught.value)
