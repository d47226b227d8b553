"""`barnabas security`: what it makes protects a broker, and Kafka's clients and tools take it."""

import contextlib
import json
import ssl
import stat
import subprocess

import pytest
from compat.support import KAFKA, rival

from barnabas import Broker
from barnabas.cli import main
from barnabas.cli.security import BROKER as PEM
from barnabas.cli.security import CA, CA_KEY, CLIENT, MODES, SERVER
from barnabas.config.properties import parse_properties
from barnabas.config.tls import is_built_in

pytestmark = pytest.mark.skipif(not is_built_in(), reason="this build has no TLS")

QUICK = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def run(action, folder, *words):
    return main(["security", action, "--to", str(folder / "security"), *words])


def init(folder, *words):
    return run("init", folder, "--set", f"log.dirs={folder / 'data'}", *words)


def properties(path):
    return {row.key: row.value for row in parse_properties(path.read_bytes())}


@contextlib.contextmanager
def started(folder):
    """A broker with the settings that were made, on a free port."""
    free = {name: "SAFE://127.0.0.1:0" for name in ("listeners", "advertised.listeners")}
    with Broker(properties(folder / "security" / SERVER) | free) as broker:
        yield broker


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The directory of one `init` and its running broker."""
    folder = tmp_path_factory.mktemp("made")
    assert init(folder) == 0
    with started(folder) as broker:
        yield folder / "security", broker.bootstrap_servers


def confluent(directory, address, **changed):
    client = properties(directory / CLIENT)
    jaas = client["sasl.jaas.config"]
    return {
        "bootstrap.servers": address,
        "security.protocol": client["security.protocol"],
        "sasl.mechanisms": client["sasl.mechanism"],
        "sasl.username": jaas.partition('username="')[2].partition('"')[0],
        "sasl.password": jaas.partition('password="')[2].partition('"')[0],
        "ssl.ca.location": client["ssl.truststore.location"],
        **changed,
    }


def test_our_commands_take_the_file_of_the_client(made, capfd):
    directory, address = made
    where = ("-b", address, "--command-config", str(directory / CLIENT))
    assert main(["topics", "create", "ours", *where]) == 0
    assert main(["topics", "list", *where]) == 0
    assert "ours" in capfd.readouterr().out
    assert main(["topics", "list", "-b", address]) == 1  # without it


def test_a_producer_with_the_password_and_the_authority(made):
    from confluent_kafka import Producer

    directory, address = made
    errors = []
    producer = Producer(confluent(directory, address))
    producer.produce("new", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0 and errors == [None]


def test_another_user_may_do_nothing_until_a_rule_permits_it(made, tmp_path, capfd):
    directory, address = made
    admin = ("-b", address, "--command-config", str(directory / CLIENT))
    other = tmp_path / "bob.properties"
    bob = "SCRAM-SHA-512=[iterations=4096,password=secret]"
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    command = rival.tool(KAFKA, "configs", tmp_path / "tool.log", heap=QUICK)
    words = ["--bootstrap-server", address, "--command-config", str(directory / CLIENT)]
    words += ["--alter", "--entity-type", "users", "--entity-name", "bob", "--add-config", bob]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    mine = properties(directory / CLIENT)["sasl.jaas.config"]
    password = mine.partition('password="')[2].partition('"')[0]
    text = (directory / CLIENT).read_text().replace('"admin"', '"bob"')
    other.write_text(text.replace(password, "secret"))
    assert main(["topics", "create", "ruled", *admin]) == 0
    as_bob = ("-b", address, "--command-config", str(other))
    assert main(["topics", "describe", "ruled", *as_bob]) == 1
    allow = ("--operation", "describe", "--operation", "describe_configs", "--topic", "ruled")
    assert main(["acls", "add", "--allow-principal", "User:bob", *allow, *admin]) == 0
    assert main(["topics", "describe", "ruled", *as_bob]) == 0


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_client_with_a_wrong_password_or_another_authority(made, tmp_path, wrong):
    from confluent_kafka import KafkaError, KafkaException, Producer

    directory, address = made
    changed = {"sasl.password": "no"}
    code = KafkaError._AUTHENTICATION
    if wrong == "authority":
        assert init(tmp_path) == 0
        changed = {"ssl.ca.location": str(tmp_path / "security" / CA)}
        code = KafkaError._SSL
    codes = []
    producer = Producer(
        confluent(directory, address, **changed) | {"error_cb": lambda e: codes.append(e.code())}
    )
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)
    producer.poll(1)
    assert code in codes


@pytest.mark.java
def test_the_tools_of_kafka_take_the_file_of_the_client(made, tmp_path):
    if reason := rival.missing(KAFKA):
        pytest.skip(reason)
    directory, address = made
    command = rival.tool(KAFKA, "topics", tmp_path / "tool.log", heap=QUICK)
    where = ["--bootstrap-server", address, "--command-config", str(directory / CLIENT)]
    words = [*command, *where, "--create", "--topic", "by-kafka-topics"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Created topic by-kafka-topics" in done.stdout


def test_secrets_are_for_their_owner_alone(made):
    directory, _ = made
    modes = {name: stat.S_IMODE((directory / name).stat().st_mode) for name in MODES}
    assert modes == MODES
    assert [name for name, mode in MODES.items() if mode & 0o077] == [CA]


def test_nothing_is_overwritten(tmp_path, capsys):
    assert init(tmp_path) == 0
    before = {name: (tmp_path / "security" / name).read_bytes() for name in MODES}
    assert init(tmp_path) == 1
    assert "is there already" in capsys.readouterr().err
    assert {name: (tmp_path / "security" / name).read_bytes() for name in MODES} == before


def test_a_broker_that_runs_leaves_no_file_behind(tmp_path, capsys):
    with Broker({"log.dirs": str(tmp_path / "data")}):
        assert init(tmp_path) == 1
    assert list((tmp_path / "security").iterdir()) == []
    assert init(tmp_path) == 0


def test_a_host_is_bound_advertised_and_in_the_certificate(tmp_path):
    words = ("--host", "kafka1.example.com", "--host", "10.1.2.3", "--port", "9093")
    assert init(tmp_path, *words) == 0
    settings = properties(tmp_path / "security" / SERVER)
    assert settings["listeners"] == "SAFE://0.0.0.0:9093"
    assert settings["advertised.listeners"] == "SAFE://kafka1.example.com:9093"
    from barnabas.tls.authority import hosts_of

    hosts = hosts_of((tmp_path / "security" / PEM).read_bytes())
    assert hosts[:2] == ["kafka1.example.com", "10.1.2.3"]
    assert {"localhost", "127.0.0.1", "::1"} < set(hosts)


def test_an_ipv6_address_has_brackets_in_its_listener(tmp_path):
    assert init(tmp_path, "--host", "2001:db8::1") == 0
    settings = properties(tmp_path / "security" / SERVER)
    assert settings["advertised.listeners"] == "SAFE://[2001:db8::1]:9092"


def test_settings_of_a_file_are_kept_and_its_open_listener_is_not(tmp_path):
    file = tmp_path / "old.properties"
    file.write_text(
        "listeners=PLAINTEXT://0.0.0.0:9092\nallow.unauthenticated.remote=true\n"
        "num.partitions=7\nlog.retention.hours=3\n"
    )
    assert init(tmp_path, "--config", str(file)) == 0
    settings = properties(tmp_path / "security" / SERVER)
    assert settings["num.partitions"] == "7" and settings["log.retention.hours"] == "3"
    assert settings["listeners"] == "SAFE://127.0.0.1:9092"
    assert "allow.unauthenticated.remote" not in settings


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--port", "0"), "--port 0"),
        (("--host", "a" * 65), "cannot be the name of a certificate"),
        (("--host", "kä.example"), "neither a DNS name"),
        (("--set", "nothing"), "not KEY=VALUE"),
        (("--config", "/nowhere/x"), "cannot be read"),
        (("--admin", ""), "name of the user is missing"),
        (("--admin", "a;b"), "separates names by `;`"),
        (("--set", "num.partitions=many"), "num.partitions"),
    ],
)
def test_what_cannot_be_made_is_one_error_and_no_file(tmp_path, capsys, words, text):
    assert init(tmp_path, *words) == 1
    said = capsys.readouterr().err
    assert text in said and "Traceback" not in said
    directory = tmp_path / "security"
    assert not directory.exists() or list(directory.iterdir()) == []


def test_a_file_whose_listener_is_protected_is_refused(tmp_path, capsys):
    file = tmp_path / "old.properties"
    file.write_text("ssl.keystore.location=/x\n")
    assert init(tmp_path, "--config", str(file)) == 1
    assert "ssl.keystore.location protects a broker already" in capsys.readouterr().err


def test_renew_keeps_the_authority_and_the_names(made, capsys):
    directory, address = made
    before = {name: (directory / name).read_bytes() for name in MODES}
    assert main(["security", "renew", "--to", str(directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(directory / PEM)
    after = {name: (directory / name).read_bytes() for name in MODES}
    assert [name for name in MODES if after[name] != before[name]] == [PEM]
    from barnabas.tls.authority import hosts_of

    assert hosts_of(after[PEM]) == hosts_of(before[PEM])
    context = ssl.create_default_context(cafile=str(directory / CA))
    context.load_cert_chain(str(directory / PEM))  # the key is that of the certificate


@pytest.mark.parametrize("missing", [CA, CA_KEY, PEM])
def test_renew_names_what_is_missing(tmp_path, capsys, missing):
    assert init(tmp_path) == 0
    (tmp_path / "security" / missing).unlink()
    assert run("renew", tmp_path) == 1
    assert missing in capsys.readouterr().err


def test_renew_refuses_the_key_of_another_authority(tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    assert init(tmp_path) == init(other) == 0
    before = (tmp_path / "security" / PEM).read_bytes()
    (tmp_path / "security" / CA_KEY).write_bytes((other / "security" / CA_KEY).read_bytes())
    assert run("renew", tmp_path) == 1
    assert "does not belong to the authority" in capsys.readouterr().err
    assert (tmp_path / "security" / PEM).read_bytes() == before
