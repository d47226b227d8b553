"""`barnabas checkpoint`, as a user calls it."""

import json

import pytest
from confluent_kafka import Producer

from barnabas.cli import main
from barnabas.client import Cluster
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.spark.checkpoint import Checkpoint
from barnabas.spark.files import LocalFiles, files_at
from barnabas.spark.offsets import offsets_json


@pytest.fixture
def place(tmp_path):
    """Batches 0 to 3 of topic t, the last one not committed."""
    checkpoint = Checkpoint(LocalFiles(tmp_path / "cp"))
    checkpoint.create(query_id="q-1")
    checkpoint.begin_at({"t": {0: 0, 1: 0}}, now_ms=1_763_768_400_000)
    for n in (1, 2, 3):
        line = offsets_json({"t": {0: n * 10, 1: n * 5}})
        checkpoint.plan(n, [line], now_ms=1_763_768_400_000 + n)
        if n < 3:
            checkpoint.commit_batch(n)
    return str(tmp_path / "cp")


def run(capsys, *words):
    status = main(["checkpoint", *words])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_show(place, capsys):
    status, out, err = run(capsys, "show", place)
    assert status == 0 and "query q-1" in err
    assert out.splitlines()[-1].split() == ["3", "no", "2025-11-21T23:40:00.003Z", "t", "1", "15"]
    status, out, _ = run(capsys, "show", place, "--json", "--batches", "1")
    assert json.loads(out) == {
        "query": "q-1",
        "began": {"t": {"0": 0, "1": 0}},
        "batches": [
            {
                "batch": 3,
                "committed": False,
                "timestamp": 1_763_768_400_003,
                "offsets": {"t": {"0": 30, "1": 15}},
            }
        ],
    }


def test_verify_and_its_exit_status(place, capsys):
    status, out, err = run(capsys, "verify", place)
    assert (status, out) == (0, "") and "batch 3 was planned" in err
    path = f"{place}/commits/1"
    with open(path, "ab") as file:
        file.write(b" ")
    status, out, _ = run(capsys, "verify", place)
    assert status == 1 and out.startswith(f"{path}: bytes 0 to 512")


def test_export_and_rewind_do_not_pass_over_an_unfinished_batch(place, capsys):
    status, out, err = run(capsys, "export", place)
    assert (status, out) == (1, "") and f"{place}/offsets/3: batch 3 was planned" in err
    assert run(capsys, "export", place, "--replay")[:2] == (0, '{"t":{"0":20,"1":10}}\n')
    assert run(capsys, "export", place, "--batch", "1")[:2] == (0, '{"t":{"0":10,"1":5}}\n')
    assert run(capsys, "rewind", "1", place)[0] == 1
    status, _, err = run(capsys, "rewind", "1", place, "--replay")
    assert status == 0 and "batches 2 to 3 will be read again" in err
    assert run(capsys, "export", place)[1] == '{"t":{"0":10,"1":5}}\n'


def test_from_a_group_and_back(session_broker, topic, tmp_path, capsys):
    servers = session_broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(30):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(10) == 0
    with Cluster(servers) as cluster:
        commit_offsets(cluster, "from", {topic: {0: 12}})
    place = str(tmp_path / "cp")
    assert run(capsys, "seed-from-group", "from", place, "-b", servers)[0] == 0
    checkpoint = Checkpoint(LocalFiles(place))
    assert checkpoint.last_committed().kafka() == checkpoint.initial() == {topic: {0: 12}}
    status, _, err = run(capsys, "seed-from-group", "from", place, "-b", servers)
    assert status == 1 and f"{place}/metadata: it already exists" in err

    checkpoint.plan(1, [offsets_json({topic: {0: 25}})], now_ms=1)
    assert run(capsys, "to-group", "to", place, "-b", servers)[0] == 1
    checkpoint.commit_batch(1)
    assert run(capsys, "to-group", "to", place, "-b", servers)[0] == 0
    with Cluster(servers) as cluster:
        assert committed_offsets(cluster, "to") == {topic: {0: 25}}
    assert run(capsys, "verify", place, "--broker", "-b", servers)[0] == 0
    checkpoint.plan(2, [offsets_json({topic: {0: 31}})], now_ms=1)
    checkpoint.commit_batch(2)
    status, out, _ = run(capsys, "verify", place, "--broker", "-b", servers)
    assert status == 1 and "is at offset 31, the topic has 0 to 30" in out
    checkpoint.plan(3, [offsets_json({topic: {0: 31}}, {topic: b"\1" * 16})], now_ms=1)
    checkpoint.commit_batch(3)
    status, out, _ = run(capsys, "verify", place, "--broker", "-b", servers)
    assert status == 1 and f"topic {topic} was deleted and created again since batch 3" in out
    nobody = run(capsys, "seed-from-group", "nobody", str(tmp_path / "n"), "-b", servers)
    assert nobody[0] == 1 and "has no committed offsets" in nobody[2]


def test_every_verb_on_each_store(session_broker, topic, store, capsys):
    servers = session_broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(30):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(10) == 0
    group = f"{topic}-group"
    with Cluster(servers) as cluster:
        commit_offsets(cluster, group, {topic: {0: 12}})
    assert run(capsys, "seed-from-group", group, store, "-b", servers)[0] == 0
    status, _, err = run(capsys, "seed-from-group", group, store, "-b", servers)
    assert status == 1 and f"{store}/metadata: it already exists" in err
    checkpoint = Checkpoint(files_at(store))
    for batch, offset in ((1, 20), (2, 30)):
        checkpoint.plan(batch, [offsets_json({topic: {0: offset}})], now_ms=1)
        checkpoint.commit_batch(batch)
    status, out, _ = run(capsys, "show", store, "--json")
    assert [row["offsets"][topic]["0"] for row in json.loads(out)["batches"]] == [12, 20, 30]
    assert run(capsys, "verify", store, "--broker", "-b", servers)[0] == 0
    assert run(capsys, "rewind", "1", store)[0] == 0
    assert json.loads(run(capsys, "export", store)[1]) == {topic: {"0": 20}}
    assert run(capsys, "to-group", group, store, "-b", servers)[0] == 0
    with Cluster(servers) as cluster:
        assert committed_offsets(cluster, group) == {topic: {0: 20}}
    checkpoint.files.replace("commits/1", b"v1")
    status, out, _ = run(capsys, "verify", store)
    assert status == 1 and out.startswith(f"{store}/commits/1: it ends after its version line")


def test_what_is_not_there_is_named(tmp_path, capsys):
    status, _, err = run(capsys, "show", str(tmp_path / "none"))
    assert status == 1 and f"{tmp_path}/none/metadata: there is no such file" in err
    status, _, err = run(capsys, "show", "ftp://nn/cp")
    assert status == 1 and "ftp: is not supported" in err
