"""Encoders, decoders and partitioners of `barnabas produce` and `barnabas consume`."""

import json
import subprocess
import sys

import pytest


@pytest.fixture
def topic(session_broker):
    name = session_broker.create_topic("lines-of-the-command")
    yield name
    session_broker.delete_topic(name)


def barnabas(broker, *words, given=""):
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *words, "-b", broker.bootstrap_servers],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_lines_are_encoded_and_records_decoded(session_broker, topic):
    lines = '{"b":1,"a":[true,null]}\n{"ü":"x"}\n'
    words = ("produce", topic, "--encoder", "json", "--from-json", "--quiet")
    ran = barnabas(session_broker, *words, "--option", "plugin.json.sort.keys=true", given=lines)
    assert ran.returncode == 0, ran.stderr
    session_broker.assert_records(topic, [b'{"a":[true,null],"b":1}', '{"ü":"x"}'.encode()])
    ran = barnabas(session_broker, "consume", topic, "--end", "--decoder", "json")
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [
        {"a": [True, None], "b": 1},
        {"ü": "x"},
    ]
    ran = barnabas(session_broker, "consume", topic, "--end", "--decoder", "json", "--json")
    assert json.loads(ran.stdout.splitlines()[0])["value"] == {"a": [True, None], "b": 1}


def test_keys_are_encoded_and_partitions_chosen(session_broker):
    topic = session_broker.create_topic("chosen-on-the-command-line", 5)
    lines = "".join(f"k{i % 7}:v{i}\n" for i in range(40))
    words = ("produce", topic, "--key-separator", ":", "--key-encoder", "string", "--quiet")
    ran = barnabas(session_broker, *words, "--partitioner", "consistent_random", given=lines)
    assert ran.returncode == 0, ran.stderr
    from zlib import crc32

    rows = session_broker.records(topic)
    assert len(rows) == 40
    assert all(row.partition == crc32(row.key) % 5 for row in rows)
    words = ("consume", topic, "--end", "--key", "--key-decoder", "string")
    ran = barnabas(session_broker, *words)
    assert sorted(ran.stdout.splitlines()) == sorted(f"k{i % 7}\tv{i}" for i in range(40))


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("produce", "T", "--encoder", "nobody"), "x\n", "the plugin 'nobody' is not installed"),
        (("produce", "T", "--encoder", "json", "--from-json"), "{\n", "is no JSON"),
        (("produce", "T", "--encoder", "none"), "x\n", "does not implement encode"),
        (("consume", "T", "--end", "--decoder", "json"), "", "JSONDecodeError"),
        (("consume", "T", "--end", "--decoder", "avro"), "", "plugin.avro.schema: must be set"),
    ],
)
def test_what_goes_wrong_is_one_plain_line(session_broker, topic, words, given, said):
    assert barnabas(session_broker, "produce", topic, "--quiet", given="not JSON\n").returncode == 0
    ran = barnabas(session_broker, *(topic if word == "T" else word for word in words), given=given)
    assert ran.returncode == 1 and said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
