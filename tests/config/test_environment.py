import re
from pathlib import Path

import pytest

from barnabas.config import BrokerConfig
from barnabas.config.environment import OWN_SWITCHES, is_setting, setting_name, settings_from


@pytest.mark.parametrize(
    ("rest", "name"),
    [
        ("LOG_DIRS", "log.dirs"),
        ("ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
        ("A__B", "a_b"),
        ("A___B", "a-b"),
        ("LISTENER_NAME_MY___NET_X__Y", "listener.name.my-net.x_y"),
    ],
)
def test_variable_names_become_setting_names(rest, name):
    assert setting_name(rest) == name


def test_the_more_specific_prefix_wins():
    environ = {"BARNABAS_LOG_DIRS": "/b", "KAFKA_LOG_DIRS": "/k", "KAFKA_CFG_LOG_DIRS": "/c"}
    assert settings_from(environ)["log.dirs"] == ("/b", "BARNABAS_LOG_DIRS")
    del environ["BARNABAS_LOG_DIRS"]
    assert settings_from(environ)["log.dirs"] == ("/k", "KAFKA_LOG_DIRS")
    del environ["KAFKA_LOG_DIRS"]
    assert settings_from(environ) == {"log.dirs": ("/c", "KAFKA_CFG_LOG_DIRS")}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_HEAP_OPTS", "-Xmx1G"),
        ("KAFKA_OPTS", "-Dx=y"),
        ("KAFKA_HOME", "/opt/kafka"),
        ("KAFKA_LOG4J_ROOT_LOGLEVEL", "INFO"),
        ("KAFKA_JMX_PORT", "9999"),
        ("KAFKA_SERVICE_HOST", "10.0.0.1"),
        ("KAFKA_PORT", "tcp://10.0.0.1:9092"),
        ("KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("BARNABAS_TRACE_HOOKS", "1"),
        ("KAFKA_", "x"),
        ("PATH", "/bin"),
    ],
)
def test_variables_that_are_no_settings(variable, value):
    assert not is_setting(variable, value)
    assert settings_from({variable: value}) == {}


def test_file_then_environment_then_command_line(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlog.dirs=/file\nlog.segment.bytes=1000\n")
    environ = {"KAFKA_LOG_DIRS": "/env", "KAFKA_LOG_SEGMENT_BYTES": "2000"}
    config = BrokerConfig.load(path, ["log.segment.bytes=3000"], environ)
    assert (config["num.partitions"], config.log_dirs) == (2, ("/env",))
    assert config["log.segment.bytes"] == 3000
    assert config["message.max.bytes"] == 1048588
    assert config.origins["num.partitions"] == f"{path} line 1"
    assert config.origins["log.dirs"] == "environment KAFKA_LOG_DIRS"
    assert config.origins["log.segment.bytes"] == "--set"


def test_the_process_environment_is_read_by_default(monkeypatch):
    monkeypatch.setenv("BARNABAS_NUM_PARTITIONS", "7")
    assert BrokerConfig.load()["num.partitions"] == 7


def test_every_switch_of_our_own_is_no_setting():
    """Variables for the build, the tests and the commands must not be read as broker settings."""
    root = Path(__file__).resolve().parents[2]
    files = [root / "setup.py", root / "tests" / "run", *root.glob("bench/**/*.py")]
    files += [p for room in ("broker", "tests") for p in (root / room).rglob("*.py")]
    named = set()
    for path in (path for path in files if path.parent != Path(__file__).resolve().parent):
        named |= set(re.findall(r"""environ[^\n]*?["'](BARNABAS_[A-Z_]+)["']""", path.read_text()))
    named |= set(re.findall(r"\b(BARNABAS_[A-Z_]+)=", (root / "tests" / "run").read_text()))
    assert {"BARNABAS_C_DIR", "BARNABAS_TEST_HOME"} <= named
    assert named - OWN_SWITCHES == set()
