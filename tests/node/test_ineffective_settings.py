"""A start logs settings that a single node cannot fulfil, and those that an alteration
overrides."""

import logging

import pytest
from api.admin_calls import BROKER, DELETE, SET, TOPIC, admin_on

FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
MIN_ISRS = (
    "min.insync.replicas",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.min.isr",
)


def warnings_of_start(path, caplog, **settings):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "barnabas"), admin_on(path, **settings):
        pass
    rows = [row for row in caplog.records if row.name == "barnabas.node"]
    return [row.getMessage() for row in rows if row.levelno == logging.WARNING]


@pytest.mark.parametrize("name", FACTORS + MIN_ISRS)
def test_a_single_node_that_cannot_keep_a_number_of_replicas_says_so(tmp_path, caplog, name):
    """F3: default.replication.factor=3 and min.insync.replicas=2 started without a warning."""
    [line] = warnings_of_start(tmp_path, caplog, **{name: "2"})
    assert line.startswith(f"{name}=2 (given at the start) is not applied: ")
    assert ("replication factor 1" if "topic.rep" in name or "log.rep" in name else "1") in line
    assert warnings_of_start(tmp_path, caplog, **{name: "1"}) == []


def test_a_start_without_settings_warns_of_nothing(tmp_path, caplog):
    assert warnings_of_start(tmp_path, caplog) == []


def test_min_insync_replicas_of_topics_and_altered_ones_are_said_at_the_start(tmp_path, caplog):
    with admin_on(tmp_path, broker_id="1") as a:
        for index in range(5):
            a.create(f"t{index}", min_insync_replicas="2")
        a.create("one", min_insync_replicas="1")
        assert a.alter(BROKER, "", ("min.insync.replicas", SET, "3"))[0] == 0
    of_broker, of_topics = warnings_of_start(tmp_path, caplog, broker_id="1")
    assert "min.insync.replicas=3 (altered while a broker ran, for every broker)" in of_broker
    assert of_topics.startswith(
        "min.insync.replicas=2 of topic t0, min.insync.replicas=2 of topic t1,"
        " min.insync.replicas=2 of topic t2 and 2 more topics: not applied: "
    )


def test_a_setting_that_an_alteration_beats_is_said_at_the_start(tmp_path, caplog):
    """F20: an alteration while the broker ran overrode --set permanently, without a warning."""
    hours = "log.retention.hours"
    with admin_on(tmp_path, broker_id="1", **{hours: "5"}) as a:
        assert a.alter(BROKER, "", ("log.retention.ms", SET, "1000"))[0] == 0
        assert a.alter(BROKER, "1", ("log.cleaner.threads", SET, "2"))[0] == 0
    given = {hours: "7", "log.cleaner.threads": "1", "broker_id": "1"}
    [threads, retention] = warnings_of_start(tmp_path, caplog, **given)
    assert threads == (
        "log.cleaner.threads=1 (given at the start) has no effect: log.cleaner.threads=2 was set"
        " for this broker while a broker ran, and overrides it. To remove that value: barnabas"
        " configs alter broker 1 --delete log.cleaner.threads"
    )
    assert "log.retention.hours=7" in retention and "configs alter default --delete" in retention
    same = {"log.cleaner.threads": "2", "broker_id": "1"}
    assert warnings_of_start(tmp_path, caplog, **same) == []
    with admin_on(tmp_path, **given) as a:  # the remedy of the log line
        assert a.alter(BROKER, "", ("log.retention.ms", DELETE, None))[0] == 0
        assert a.alter(BROKER, "1", ("log.cleaner.threads", DELETE, None))[0] == 0
        a.create("t")
        assert a.configs(TOPIC, "t", "retention.ms")["retention.ms"].value == "25200000"
    assert warnings_of_start(tmp_path, caplog, **given) == []
