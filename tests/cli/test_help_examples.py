"""Runs the examples of `barnabas --help` and of each `barnabas COMMAND --help`, in their order, in
one folder, with a broker. tests/cli/not_run.tsv lists those that cannot run in a test."""

import re

import pytest
from cli.shown import NOT_RUN, Needs, runs, stage

from barnabas.cli import COMMANDS, DESCRIPTION, configure
from barnabas.cli.parser import CommandParser
from barnabas.config.tls import is_built_in

pytestmark = pytest.mark.takes(seconds=20)
NEWS = "barnabas topics create news --partitions 3\nprintf 'a\\nb\\n' | barnabas produce news\n"
READERS = "barnabas groups reset readers --topic news --to earliest\n"
SERVER = "mkdir etc\necho log.dirs=$PWD/data > etc/server.properties\ncp etc/server.properties .\n"
DISKS = """\
echo '{"version": 1, "partitions":
  [{"topic": "news", "partition": 0, "replicas": [1], "log_dirs": ["'$PWD'/logs"]}]}' > disks.json
"""
KAFKA_FILE = "{root}/tests/config/stock/kafka-4.3.1.properties"
NEEDS = {
    "acls": Needs(
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ),
    "bench": Needs(
        replaced={f"bench {what}": f"bench {what} --seconds 0.3" for what in ("produce", "latency")}
    ),
    "checkpoint": Needs(
        before=NEWS
        + """\
barnabas groups reset loader --topic news --to earliest
touch client.properties
mkdir cp
python - <<'END'
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.files import LocalFiles
from barnabas.spark.offsets import offsets_json
checkpoint = Checkpoint(LocalFiles("cp/clicks"))
checkpoint.create(query_id="q-1")
checkpoint.begin_at({"news": {0: 0, 1: 0, 2: 0}}, now_ms=1_763_768_400_000)
for batch in range(1, 43):
    checkpoint.plan(batch, [offsets_json({"news": {0: 0, 1: 0, 2: 0}})], now_ms=1_763_768_400_000)
    checkpoint.commit_batch(batch)
END
""",
        replaced={
            "seed-from-group loader /data/cp/clicks": "seed-from-group loader cp/new",
            "/data/cp/clicks": "cp/clicks",
        },
    ),
    "cluster": Needs(
        settings={"log.dirs": "{folder}/logs"},
        before=NEWS + SERVER + "cp -r STOPPED data\n" + DISKS,
        replaced={"--to 1,2,4": "--to 1", "STOPPED": "{stopped}"},
    ),
    "completion": Needs(
        before="mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc"
        " ~/.config/fish/completions\n"
    ),
    "config": Needs(
        before=SERVER + "echo zookeeper.connect=zk1:2181 >> server.properties\n",
        replaced={"/opt/kafka/config/server.properties": KAFKA_FILE},
    ),
    "configs": Needs(before=NEWS),
    "consume": Needs(
        before=NEWS
        + "seq 120 | barnabas produce news --partition 0\necho x | barnabas produce photos\n"
    ),
    "dev": Needs(
        replaced={
            "barnabas dev": "barnabas dev --set console.port=0",
            "19092": "{port}",
            " --set console.port=19500": "",
        }
    ),
    "doctor": Needs(replaced={"kafka1:9092": "{broker}"}),
    "groups": Needs(before=NEWS + READERS + "echo news,0,1 > offsets.csv\n"),
    "log": Needs(replaced={"data/": "{stopped}/"}),
    "mirror": Needs(
        before="echo bootstrap.servers=10.0.0.1:9092 > east.properties\n"
        "echo metadata.broker.list=127.0.0.1:9092 > here.properties\n",
        replaced={
            "barnabas mirror": "barnabas mirror --end",
            "10.0.0.1:9092": "{other}",
            "10.1.0.1:9092": "{third}",
            "9644": "{port}",
        },
    ),
    "offsets": Needs(before=NEWS),
    "plugins": Needs(before="mkdir plugins\n"),
    "produce": Needs(
        before=NEWS
        + "printf 'a\\nb\\n' > lines.txt\ncp lines.txt photo.jpg\n"
        + """echo '{"type": "record", "name": "Order", "fields": []}' > order.avsc\n""",
        replaced={"/var/log/dpkg.log": "lines.txt"},
        stdin="{}\n",
    ),
    "quotas": Needs(),
    "security": Needs(
        before=SERVER,
        replaced={"barnabas security init --": "rm -r security; barnabas security init --"},
    ),
    "start": Needs(before=SERVER, replaced={"19092": "{port}", "/srv/barnabas": "{folder}/srv"}),
    "status": Needs(replaced={"kafka1:9092": "{broker}"}),
    "storage": Needs(
        settings={"log.dirs": "{folder}/data,{folder}/disk2"},
        replaced={
            "/var/lib/barnabas-before-upgrade": "before-upgrade",
            "/var/lib/barnabas": "data",
            "verify disk1 disk2": "verify data disk2",
            "s3://backups/node-1 /var/lib/barnabas": "backups restored-2",
            "s3://backups/node-1": "backups",
            "snapshot data copy": "snapshot data copy-{port}",
            "19092": "{port}",
        },
    ),
    "transactions": Needs(
        before=NEWS
        + """\
python - <<'END'
import os
from confluent_kafka import Producer
at = {"bootstrap.servers": os.environ["BROKER_OF_THE_TEST"]}
producer = Producer({**at, "transactional.id": "my-transactional-id"})
producer.init_transactions()
producer.begin_transaction()
producer.produce("news", b"x")
producer.commit_transaction()
END
"""
    ),
    "users": Needs(
        before="(umask 077; echo 'a long password' > secret)\nmkdir security\n"
        "touch security/client.properties\n"
        "barnabas users add alice --mechanism SCRAM-SHA-256 --password-file secret\n" + SERVER,
        replaced={
            "kafka1:9092 ": "{broker} --password-file secret ",
            "/srv/barnabas": "{folder}/srv",
            "password=...": "password=a-long-password",
        },
    ),
}


def examples(name: str) -> list[str]:
    """The commands of a help: lines that are indented by two spaces, without what follows them."""
    text: str | None = DESCRIPTION
    if name:
        parser = CommandParser(prog=f"barnabas {name}")
        configure(name, parser)
        text = parser.epilog
    lines = re.findall(r"^  (\S.*)", re.sub(r" *\\\n *", " ", text or ""), re.M)
    return [re.split(r" {2,}", line)[0] for line in lines]


def place(name: str) -> str:
    return f"barnabas {name}".strip()


@pytest.mark.parametrize("name", ["", *COMMANDS], ids=place)
def test_each_example_of_the_help_runs(name, tmp_path):
    if name == "security" and not is_built_in():
        pytest.skip("this build has no TLS")
    wanted = [text for text in examples(name) if runs(place(name), text)]
    needs = NEEDS.get(name, Needs())
    if wanted:
        with stage(needs, tmp_path / "help") as shell:
            shell.run("\n".join(wanted), needs.stdin)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_has_an_example(name):
    assert any(f"barnabas {name}" in text for text in examples(name))


def test_every_reason_is_for_an_example():
    shown = [(place(name), text) for name in ("", *COMMANDS) for text in examples(name)]
    rows = [row for row in NOT_RUN if not row.place.startswith("docs/")]
    assert [row for row in rows if not any(row.is_about(*at) for at in shown)] == []
    assert set(NEEDS) <= set(COMMANDS)
