import pytest

from barnabas.config import (
    BrokerConfig,
    ConfigError,
    DynamicConfig,
    GroupConfig,
    TopicConfig,
    check_group,
    check_topic,
)
from barnabas.config.settings import TOPIC_SETTINGS

EMPTY = BrokerConfig({"broker.id": "1"})


def entry(config, name):
    (found,) = config.describe([name])
    return found


def test_precedence_over_the_broker_in_every_layer():
    broker = DynamicConfig(BrokerConfig({"broker.id": "1", "log.retention.minutes": "1"}))
    topic = TopicConfig({}, broker)
    assert topic["retention.ms"] == 60000
    found = entry(topic, "retention.ms")
    assert (found.value, found.source) == ("60000", 4)
    assert found.synonyms[0] == ("log.retention.minutes", "1", 4)
    broker.alter(None, {"log.retention.ms": "7000"})
    topic.refresh()
    assert (topic["retention.ms"], entry(topic, "retention.ms").source) == (7000, 3)
    broker.alter(1, {"log.retention.ms": "5000"})
    topic.refresh()
    assert (topic["retention.ms"], entry(topic, "retention.ms").source) == (5000, 2)
    own = TopicConfig({"retention.ms": "1000"}, broker)
    assert own["retention.ms"] == 1000
    assert entry(own, "retention.ms").synonyms == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "5000", 2),
        ("log.retention.ms", "7000", 3),
        ("log.retention.minutes", "1", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_defaults_through_the_broker_are_the_topic_defaults_of_the_table():
    topic = TopicConfig({}, EMPTY)
    for name, setting in TOPIC_SETTINGS.items():
        found = entry(topic, name) if not name.startswith("internal.") else None
        if found and setting.default is not None:
            assert found.value == setting.default, name
            assert found.is_default and not found.read_only, name


def test_the_old_timestamp_limit_of_a_topic():
    topic = TopicConfig({"message.timestamp.difference.max.ms": "9"}, EMPTY)
    assert topic["message.timestamp.before.max.ms"] == 9
    assert topic["message.timestamp.after.max.ms"] == 9
    new = {"message.timestamp.difference.max.ms": "9", "message.timestamp.after.max.ms": "8"}
    assert TopicConfig(new, EMPTY)["message.timestamp.after.max.ms"] == 8


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"retention.ms": "-2"}, "-1 or more"),
        ({"nosuch": "1"}, "no topic setting has this name"),
        ({"cleanup.policy": "none"}, "compact or delete"),
        ({"retention.ms": "${env:HOME}"}, "own file only"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "is more than"),
        ({"leader.replication.throttled.replicas": "x" * 40000}, "longer than"),
        ({"remote.storage.enable": "true"}, "there is no tiered storage"),
    ],
)
def test_refused_overrides(overrides, reason):
    with pytest.raises(ConfigError, match=reason):
        check_topic(overrides, EMPTY)


def test_accepted_overrides_are_typed():
    topic = check_topic({"cleanup.policy": "compact,delete", "preallocate": "TRUE"}, EMPTY)
    assert topic["cleanup.policy"] == ("compact", "delete") and topic["preallocate"] is True
    with pytest.raises(KeyError):
        topic["nosuch"]


def test_groups():
    group = check_group({"share.record.lock.duration.ms": "20000"}, EMPTY)
    assert group["share.record.lock.duration.ms"] == 20000
    assert entry(group, "share.record.lock.duration.ms").source == 8
    lower = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    assert GroupConfig({}, lower)["consumer.session.timeout.ms"] == 50000
    with pytest.raises(ConfigError, match="no group setting"):
        check_group({"retention.ms": "1"}, EMPTY)
