import pytest

from barnabas.config import BrokerConfig, ConfigError, DynamicConfig, TopicConfig, layers
from barnabas.config.dynamic_config import UNKNOWN_COUNT_MAX


def made(**more):
    return DynamicConfig(BrokerConfig({"broker.id": "1", "log.retention.hours": "2", **more}))


def entry(config, name, broker_id=1):
    (found,) = config.describe([name], broker_id)
    return found


def test_precedence_of_broker_cluster_file_default():
    config = made()
    assert config["log.retention.ms"] == 7200000
    config.alter(None, {"log.retention.ms": "7000"})
    assert config["log.retention.ms"] == 7000
    config.alter(1, {"log.retention.ms": "5000"})
    config.alter(2, {"log.retention.ms": "1"})
    assert config["log.retention.ms"] == 5000
    found = entry(config, "log.retention.ms")
    assert (found.value, found.source, found.is_default, found.read_only) == (
        "5000",
        2,
        False,
        False,
    )
    assert (
        found.synonyms
        == [
            ("log.retention.ms", "5000", 2),
            ("log.retention.ms", "7000", 3),
            ("log.retention.hours", "2", 4),
            ("log.retention.hours", "168", 5),
        ][: len(found.synonyms)]
    )
    assert len(found.synonyms) == 4
    config.alter(1, {"log.retention.ms": None})
    assert config["log.retention.ms"] == 7000
    config.alter(None, {"log.retention.ms": None})
    assert config["log.retention.ms"] == 7200000


def test_listeners_hear_the_names_whose_value_changed():
    config, heard = made(), []
    config.on_change.append(heard.append)
    config.alter(None, {"num.io.threads": "4", "log.cleaner.threads": "1"})
    assert heard == [{"num.io.threads"}]  # the cleaner already has its default value
    config.alter(1, {"num.io.threads": "4"})
    config.alter(2, {"num.io.threads": "9"})
    assert len(heard) == 1
    config.alter(1, {"num.io.threads": None})
    config.alter(None, {"num.io.threads": None})
    assert heard[1:] == [{"num.io.threads"}]


def test_a_failing_listener_stops_neither_the_change_nor_the_others():
    errors, heard = [], []

    def failing(names):
        raise RuntimeError("no")

    config = DynamicConfig(BrokerConfig({"broker.id": "1"}), on_error=errors.append)
    config.on_change += [failing, heard.append]
    config.alter(1, {"num.io.threads": "4"})
    assert config["num.io.threads"] == 4 and len(heard) == 1
    assert [str(error) for error in errors] == ["no"]


def test_all_or_nothing_and_validate_only():
    config = made()
    with pytest.raises(ConfigError) as caught:
        config.alter(1, {"num.io.threads": "4", "log.dirs": "/x", "log.segment.bytes": "1"})
    assert len(caught.value.problems) == 2
    assert config.texts(1) == {}
    assert config.alter(1, {"num.io.threads": "4"}, validate_only=True) == {"num.io.threads": "4"}
    assert config.texts(1) == {} and config["num.io.threads"] == 8


# The first two as Kafka 4.3.1 answers; per-broker settings have no cluster default there, either.
@pytest.mark.parametrize(
    ("broker_id", "name", "text", "reason"),
    [
        (1, "log.dirs", "/x", "cannot change"),
        (1, "log.retention.hours", "5", "cannot change"),
        (1, "listeners", "PLAINTEXT://0.0.0.0:1", "allow.unauthenticated.remote"),
        (None, "listeners", "PLAINTEXT://:1", "broker to broker"),
        (None, "cordoned.log.dirs", "/x", "broker to broker"),
        (None, "ssl.keystore.password", "x", "broker to broker"),
        (1, "message.max.bytes", "${env:HOME}", "own file only"),
        (1, "plugin.key", "${file:/etc/passwd:root}", "own file only"),
        (1, "plugin.key", "x" * 40000, "longer than"),
        (1, "log.cleaner.min.compaction.lag.ms", "9223372036854775807", None),
        (None, "log.cleaner.max.compaction.lag.ms", "5", None),
    ],
)
def test_what_may_change_live(broker_id, name, text, reason):
    config = made()
    if reason is None:
        config.alter(broker_id, {name: text})
        return
    with pytest.raises(ConfigError, match=reason):
        config.alter(broker_id, {name: text})


def test_a_change_that_contradicts_another_value_is_refused():
    config = made()
    config.alter(None, {"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="is more than"):
        config.alter(1, {"log.cleaner.min.compaction.lag.ms": "6"})


def test_unknown_settings_are_kept_hidden_and_counted():
    config = made(**{"plugin.token": "abc"})
    config.alter(1, {"nosuch": "1"})
    assert config["nosuch"] == "1" and config["plugin.token"] == "abc"
    for name, source in (("nosuch", 2), ("plugin.token", 4)):
        found = entry(config, name)
        assert (found.value, found.is_sensitive, found.source) == (None, True, source)
    with pytest.raises(ConfigError, match="more than"):
        config.alter(1, {f"x{n}": "" for n in range(UNKNOWN_COUNT_MAX)})


def test_passwords_are_hidden():
    static = BrokerConfig({"zookeeper.ssl.keystore.password": "swordfish"})
    for found in DynamicConfig(static, 1).describe(None, 1):
        assert found.value != "swordfish"
        assert "swordfish" not in [value for _, value, _ in found.synonyms]
        if found.is_sensitive:
            assert found.value is None


def test_cluster_defaults_show_what_was_altered_only():
    config = made()
    assert config.describe() == []
    config.alter(None, {"num.io.threads": "4"})
    (found,) = config.describe()
    assert (found.name, found.value, found.source) == ("num.io.threads", "4", 3)


def test_stored_values_this_build_does_not_accept_are_left_out():
    config = made()
    problems = config.replace(1, {"num.io.threads": "none", "message.max.bytes": "5"})
    assert len(problems) == 1 and "num.io.threads" in problems[0]
    assert config.texts(1) == {"message.max.bytes": "5"} and config["message.max.bytes"] == 5


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_a_read_that_meets_a_change_leaves_no_old_value_behind(kind, monkeypatch):
    config = made()
    topic = TopicConfig({}, config)
    config.on_change.append(lambda names: topic.refresh())
    reader, name = (config, "num.io.threads") if kind == "broker" else (topic, "retention.bytes")
    changed = name if kind == "broker" else "log.retention.bytes"
    real, changes = layers.candidates, [lambda: config.alter(1, {changed: "5"})]

    def change_meanwhile(*arguments):
        found = real(*arguments)
        if changes:
            changes.pop()()
        return found

    monkeypatch.setattr(layers, "candidates", change_meanwhile)
    assert reader[name] != 5  # it began before the change
    assert reader[name] == 5


def test_two_brokers_in_one_process_share_nothing():
    first, second = made(), made()
    first.alter(None, {"num.io.threads": "4"})
    assert second["num.io.threads"] == 8
