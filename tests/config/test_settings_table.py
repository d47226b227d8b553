"""The table of settings, and its comparison with Kafka 4.4.0's own definitions."""

import os
import re
import time
from pathlib import Path

import pytest

from barnabas.config.data_directory import default_data_directory
from barnabas.config.settings import (
    BROKER_SETTINGS,
    CLUSTER_WIDE,
    GROUP_SETTINGS,
    PER_BROKER,
    READ_ONLY,
    TABLE_PATH,
    TOPIC_SETTINGS,
    read_table,
    settings_of,
)
from barnabas.config.values import parse_value

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.4.0-configdef.tsv"
EVERY = [s for scope in ("broker", "topic", "group") for s in settings_of(scope).values()]

# Where this broker differs from Kafka on purpose: (name, Kafka's, ours).
OTHER_DEFAULTS = {
    "log.dir": ("/tmp/kafka-logs", default_data_directory(os.environ, os.geteuid())),
    "listeners": ("PLAINTEXT://:9092", "PLAINTEXT://127.0.0.1:9092"),
    "queued.max.request.bytes": ("-1", "268435456"),
    "node.id": ("(required)", "-1"),
    "process.roles": ("(required)", ""),
    "controller.listener.names": ("(required)", ""),
    # Kafka's own server.properties has 0, too: a first member need not wait for others.
    "group.initial.rebalance.delay.ms": ("3000", "0"),
    "metric.reporters": ("org.apache.kafka.common.metrics.JmxReporter", ""),
}
WIDER_RANGES = {"log.segment.bytes", "segment.bytes", "node.id"}


def golden_rows():
    lines = GOLDEN.read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def table_problems(settings):
    wrong = []
    for s in settings:
        if s.importance not in ("HIGH", "MEDIUM", "LOW") or s.tier not in ("A", "B", ""):
            wrong.append(f"{s.name}: importance or tier")
        modes = {"broker": (READ_ONLY, PER_BROKER, CLUSTER_WIDE)}.get(s.scope, (s.scope,))
        if s.mode not in modes:
            wrong.append(f"{s.name}: mode {s.mode}")
        if not s.meaning or s.meaning.endswith("."):
            wrong.append(f"{s.name}: meaning")
        if s.name.endswith("password") and not s.is_sensitive:
            wrong.append(f"{s.name}: a password that would be shown")
        for synonym in s.synonyms:
            where = settings_of(s.scope) if synonym.same_resource else BROKER_SETTINGS
            if synonym.name not in where:
                wrong.append(f"{s.name}: synonym {synonym.name} does not exist")
        try:
            parse_value(s, s.default)
        except ValueError as error:
            wrong.append(f"{s.name}: its own default is refused: {error}")
    return wrong


def test_every_line_is_sound():
    assert len(BROKER_SETTINGS) > 400
    assert table_problems(EVERY) == []


def test_a_damaged_line_is_seen():
    damaged = read_table()["broker"]["ssl.key.password"]
    damaged.type, damaged.mode, damaged.default = "INT", "sometimes", "many"
    assert len(table_problems([damaged])) == 3


def test_a_line_with_a_missing_column_is_refused(tmp_path):
    lines = Path(TABLE_PATH).read_text().splitlines()
    path = tmp_path / "settings.tsv"
    path.write_text("\n".join([lines[0], lines[1], lines[2].rpartition("\t")[0]]))
    with pytest.raises(ValueError, match="line 3"):
        read_table(str(path))
    path.write_text("\n".join([lines[0], lines[1], lines[1]]))
    with pytest.raises(ValueError, match="line 3"):
        read_table(str(path))


def test_lines_are_sorted_so_that_a_name_is_easy_to_find():
    for scope in ("broker", "topic", "group"):
        assert list(settings_of(scope)) == sorted(settings_of(scope))


def test_types_and_defaults_are_those_of_kafka_4_4():
    compared = 0
    for scope, name, kind, default, *_ in golden_rows():
        ours = settings_of(scope).get(name)
        if ours is None:
            continue
        assert ours.type == kind, name
        shown = "null" if ours.default is None else ours.default
        if name in OTHER_DEFAULTS:
            assert (default, shown) == OTHER_DEFAULTS[name], name
        elif kind == "LIST" or name == "listener.security.protocol.map":
            assert sorted(shown.split(",")) == sorted(default.split(",")), name
        else:
            assert shown == default, name
        compared += 1
    assert compared > 380


def test_every_public_setting_of_kafka_4_4_topics_and_groups_is_there():
    for scope, name, *rest in golden_rows():
        if scope != "broker" and rest[4] == "false":
            assert name in settings_of(scope), name


def test_update_modes_are_those_of_kafka_4_4():
    for scope, name, *_, mode in golden_rows():
        if scope == "broker" and name in BROKER_SETTINGS:
            assert BROKER_SETTINGS[name].mode == mode, name


def test_ranges_are_those_of_kafka_4_4():
    compared = 0
    for scope, name, _, _, _, validator, *_ in golden_rows():
        if not re.match(r"\[-?[\d.]+,\.\.\.", validator) or name in WIDER_RANGES:
            continue
        ours = settings_of(scope).get(name)
        if ours is None:
            continue
        low, _, high = validator.partition("]")[0][1:].partition(",...")
        expected = f"{low}..{high[1:]}" if high else f">={low}"
        assert ours.valid.split("|")[0] == expected, name
        compared += 1
    assert compared > 200


def test_segments_may_be_small():
    assert parse_value(TOPIC_SETTINGS["segment.bytes"], "14") == 14
    with pytest.raises(ValueError, match="14 or more"):
        parse_value(TOPIC_SETTINGS["segment.bytes"], "13")


def test_own_settings_are_there_with_their_defaults():
    expected = {
        "log.durability": "fsync",
        "log.scrub.bytes.per.second": 4 << 20,
        "queued.max.request.bytes": 268435456,
        "request.receive.timeout.ms": 30000,
        "response.send.timeout.ms": 60000,
        "max.decompressed.bytes": 64 << 20,
        "max.tls.handshakes": 500,
        "metadata.store": "embedded",
        "metrics.port": -1,
        "allow.unauthenticated.remote": False,
        "plugins": (),
    }
    for name, value in expected.items():
        setting = BROKER_SETTINGS[name]
        assert parse_value(setting, setting.default) == value


def test_the_table_is_read_in_a_few_milliseconds():
    seconds = []
    for _ in range(10):
        begin = time.thread_time()
        read_table()
        seconds.append(time.thread_time() - begin)
    assert min(seconds) < 0.008


def test_group_settings_follow_the_broker():
    assert [s.name for s in GROUP_SETTINGS["share.session.timeout.ms"].synonyms] == [
        "group.share.session.timeout.ms"
    ]
