"""Each command that talks to a broker, over TLS with a login: by --command-config and not without.

The table has every one of them; a new one without a row fails a test."""

import argparse
import contextlib
import io
import sys

import pytest
from security.test_security_command import init, properties, started

from barnabas import Broker
from barnabas.cli import COMMANDS, configure, main
from barnabas.cli.parser import CommandParser
from barnabas.cli.security import CLIENT
from barnabas.client import Cluster
from barnabas.client.groups import commit_offsets
from barnabas.client.security_settings import parse_security
from barnabas.config.tls import is_built_in

pytestmark = pytest.mark.skipif(not is_built_in(), reason="this build has no TLS")

# What is given to the command beside the broker; where status 1 is right, what the broker said.
RUNS = {
    "status": ("", ""),
    "cluster describe": ("", ""),
    "cluster health": ("", ""),
    "cluster under-replicated": ("", ""),
    "cluster elect": ("", ""),
    "cluster reassign": ("", ""),
    "cluster drain": ("1", "no live broker"),
    "cluster features": ("", ""),
    "topics list": ("", ""),
    "topics create": ("created", ""),
    "topics describe": ("news", ""),
    "topics alter": ("news --config retention.ms=7200000", ""),
    "topics delete": ("doomed", ""),
    "produce": ("news", ""),
    "consume": ("news --from-beginning --end", ""),
    "offsets": ("news", ""),
    "groups list": ("", ""),
    "groups describe": ("readers", ""),
    "groups reset": ("readers --topic news --to earliest", ""),
    "groups delete": ("leavers", ""),
    "transactions list": ("", ""),
    "transactions describe": ("absent", "TRANSACTIONAL_ID_NOT_FOUND"),
    "transactions open": ("news", ""),
    "transactions find-hanging": ("", ""),
    "transactions abort": ("news 0 --start-offset 5", "no open transaction that begins at 5"),
    "configs describe": ("topic news", ""),
    "configs alter": ("topic news --add retention.ms=3600000", ""),
    "users list": ("", ""),
    "users add": ("alice --password-file -", ""),
    "users remove": ("bob", ""),
    "acls list": ("", ""),
    "acls add": ("--allow-principal User:bob --operation read --topic news", ""),
    "acls remove": ("--principal User:carol", "no rule matches"),
    "quotas list": ("", ""),
    "quotas add": ("--user bob producer_byte_rate=1000", ""),
    "quotas remove": ("--user carol", "carol"),
    "plugins reload": ("", ""),
    "bench produce": ("news --records 10", ""),
    "bench consume": ("news", ""),
    "bench latency": ("news --records 10", ""),
    "checkpoint seed-from-group": ("readers DIR/seeded", ""),
    "checkpoint verify": ("DIR/there --broker", ""),
    "checkpoint to-group": ("copies DIR/there", ""),
}
# With a test of its own below, in tests/spark/test_sink_security.py, in tests/cli/test_doctor.py.
ELSEWHERE = {"mirror", "spark-load", "doctor"}


def words_of_commands():
    """COMMAND or COMMAND ACTION of all that have --command-config."""

    def takes_it(parser):
        return any("--command-config" in row.option_strings for row in parser._actions)

    for name in COMMANDS:
        parser = CommandParser(prog=name)
        configure(name, parser)
        if takes_it(parser):
            yield name
        for row in parser._actions:
            if isinstance(row, argparse._SubParsersAction):
                for action, sub in row.choices.items():
                    if takes_it(sub):
                        yield f"{name} {action}"


def test_the_table_has_every_command_that_talks_to_a_broker():
    assert set(words_of_commands()) == RUNS.keys() | ELSEWHERE


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    """The address of a protected broker with something in it, the administrator's file, and a
    directory for what commands make."""
    folder = tmp_path_factory.mktemp("protected")
    assert init(folder) == 0
    file = folder / "security" / CLIENT
    with started(folder) as broker:
        at = ("-b", broker.bootstrap_servers, "--command-config", str(file))
        assert main(["topics", "create", "news", "doomed", "--partitions", "1", *at]) == 0
        assert ran("users", "add", "bob", "--password-file", "-", *at)[0] == 0
        assert ran("produce", "news", *at)[0] == 0
        security = parse_security(properties(file))
        with Cluster(broker.bootstrap_servers, security=security) as cluster:
            for group in ("readers", "leavers"):
                commit_offsets(cluster, group, {"news": {0: 1}})
        assert ran("checkpoint", "seed-from-group", "readers", f"{folder}/there", *at)[0] == 0
        yield broker.bootstrap_servers, str(file), folder


def ran(*words):
    """The exit status, and all that was printed."""
    out, err = io.TextIOWrapper(io.BytesIO(), errors="replace"), io.StringIO()
    real, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b"sesame\n"))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(list(words))
    finally:
        sys.stdin = real
    out.seek(0)
    return status, out.read() + err.getvalue()


@pytest.mark.parametrize("name", RUNS)
def test_a_command_over_tls_with_a_login(protected, name):
    address, file, folder = protected
    more, said = RUNS[name]
    words = [*name.split(), *more.replace("DIR", str(folder)).split(), "-b", address]
    status, printed = ran(*words, "--command-config", file)
    assert status == (1 if said else 0), printed
    assert said in printed and "Traceback" not in printed
    refused, printed = ran(*words, "--timeout", "2")
    assert refused == 1 and (not said or said not in printed), printed


def test_the_mirror_reads_and_writes_over_tls_with_a_login(protected, tmp_path):
    """From the protected cluster to an open one and back: a file of one cluster overrides
    --command-config."""
    address, file, _ = protected
    settings = {"log.dirs": str(tmp_path / "open"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with Broker(settings) as other:
        plain = other.bootstrap_servers
        target = tmp_path / "target.properties"
        target.write_text("security.protocol=PLAINTEXT\n")
        source = tmp_path / "open.properties"
        source.write_text(f"security.protocol=PLAINTEXT\nbootstrap.servers={plain}\n")
        out = ["--source", f"safe={address}", "--target", plain, "--target-config", str(target)]
        status, printed = ran(
            "mirror", *out, "--whitelist", "news", "--end", "--command-config", file
        )
        assert status == 0, printed
        assert "sesame" in ran("consume", "news", "--from-beginning", "--end", "-b", plain)[1]
        assert ran("topics", "create", "back", "-b", plain, "--partitions", "1")[0] == 0
        assert ran("produce", "back", "-b", plain)[0] == 0
        back = ["--source-config", str(source), "--target", address, "--whitelist", "back"]
        status, printed = ran("mirror", *back, "--end", "--command-config", file)
        assert status == 0, printed
    read = ("consume", "back", "--from-beginning", "--end", "-b", address, "--command-config", file)
    assert "sesame" in ran(*read)[1]


def test_the_mirror_logs_in_by_token(tmp_path):
    """Both clusters have tokens of the same provider; with one of another it stops."""
    pytest.importorskip("jwt")
    from security.json_tokens import MODULE, oauth_settings, signed
    from security.login_broker import login_broker

    token, file = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(signed())
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={MODULE} required;\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
    login = ("--command-config", str(file))
    with (
        login_broker(folders[0], **oauth_settings(tmp_path)) as source,
        login_broker(folders[1], **oauth_settings(tmp_path)) as target,
    ):
        for broker in (source, target):
            made = ran("topics", "create", "news", "--partitions", "1", "-b", broker.safe, *login)
            assert made[0] == 0, made[1]
        assert ran("produce", "news", "-b", source.safe, *login)[0] == 0
        ways = ("--source", f"one={source.safe}", "--target", target.safe, "--whitelist", "news")
        status, printed = ran("mirror", *ways, "--end", *login)
        assert status == 0, printed
        read = ("consume", "news", "--from-beginning", "--end", "-b", target.safe, *login)
        assert "sesame" in ran(*read)[1]
        token.write_text(signed("other"))
        assert ran(*read)[0] != 0
