"""Commands over TLS with a user name and a password from a file, as Kafka's own commands read
it."""

import pytest
from cli.conftest import run_command
from compat.secure_kafka import secure_kafka

from barnabas.client import Cluster
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.files import LocalFiles
from barnabas.spark.offsets import offsets_json

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with secure_kafka(tmp_path_factory.mktemp("secure")) as found:
        yield found


@pytest.fixture
def command(secure, tmp_path):
    """Runs a command at the secure listener."""

    def run(*words, stdin=b"", **wrong):
        file = tmp_path / "client.properties"
        settings = secure.settings("SCRAM-SHA-512", **wrong)
        # Such files also have group.id and similar settings.
        lines = [f"{name}={value}" for name, value in settings.items()] + ["group.id=other"]
        file.write_text("\n".join(lines))
        where = ("-b", secure.address, "--command-config", str(file))
        return run_command(*words, *where, stdin=stdin)

    return run


def test_commands_log_in(command):
    assert command("topics", "create", "news").status == 0
    assert command("produce", "news", stdin=b"hello\n").status == 0
    assert command("consume", "news", "--from-beginning", "--end").out == b"hello\n"
    assert "news" in command("offsets", "news").text
    assert command("groups", "list").status == command("transactions", "list").status == 0


def test_a_checkpoint_goes_to_a_group_and_comes_from_one(command, secure, tmp_path):
    assert command("topics", "create", "t").status == 0
    assert command("produce", "t", stdin=b"x\n" * 30).status == 0
    place = str(tmp_path / "cp")
    with Cluster(secure.bootstrap_servers) as cluster:
        commit_offsets(cluster, "from", {"t": {0: 12}})
    seeded = command("checkpoint", "seed-from-group", "from", place)
    assert seeded.status == 0, seeded.err
    checkpoint = Checkpoint(LocalFiles(place))
    checkpoint.plan(1, [offsets_json({"t": {0: 25}})], now_ms=1)
    checkpoint.commit_batch(1)
    assert command("checkpoint", "to-group", "to", place).status == 0
    assert command("checkpoint", "verify", place, "--broker").status == 0
    with Cluster(secure.bootstrap_servers) as cluster:
        assert committed_offsets(cluster, "to") == {"t": {0: 25}}
    refused = command("checkpoint", "to-group", "nobody", place, password="not-this")
    assert refused.status == 1
    with Cluster(secure.bootstrap_servers) as cluster:
        assert committed_offsets(cluster, "nobody") == {}


def test_what_is_wrong_is_one_line_without_the_password(command, secure, tmp_path):
    for words, wrong in (
        ("user bob at localhost", {"password": "not-this"}),
        ("CERTIFICATE_VERIFY_FAILED", {"trusted": secure.other}),
        ("/none.pem: [Errno 2] No such file", {"trusted": "/none.pem"}),
        ("ssl.truststore.location=/trust.jks: cannot be read", {"trusted": "/trust.jks"}),
    ):
        got = command("topics", "list", **wrong)
        assert got.status == 1 and words in got.err and len(got.err.splitlines()) == 1, got.err
        assert "not-this" not in got.err and "the-builder" not in got.err
    at = ("-b", secure.address)
    got = run_command("topics", "list", *at, "--command-config", str(tmp_path / "none"))
    assert (got.status, got.err.count("\n")) == (1, 1) and f"cannot read {tmp_path}/none" in got.err
