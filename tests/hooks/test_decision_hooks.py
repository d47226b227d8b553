"""Hooks that decide and hooks that are notified, in a running broker: each is called, its return
value counts, and a failure has the effect that its contract names."""

import threading
import time

import pytest
from installed_plugins import install
from waiting import soon

from barnabas import Broker
from barnabas.cext.record.records import Record
from barnabas.controller.config_changes import Change
from barnabas.errors import InvalidConfig, PolicyViolation
from barnabas.hooks import hookimpl
from barnabas.node import CannotStart
from barnabas.testing.plugins import Sender


def registered(broker, hook, answer, name="probe"):
    """A plugin with one hook; `calls` has the arguments of its calls."""
    calls = []

    class Probe:
        pass

    def remember(arguments):
        arguments.pop("self")
        calls.append(arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer(**arguments) if callable(answer) else answer

    words = {
        "deletable_segments": "log, now_ms",
        "should_roll": "log, now_ms",
        "should_flush": "log",
        "may_compact": "log",
        "place_partitions": "brokers, partition_count, replication_factor, first",
        "choose_log_directory": "topic, partition, directories",
        "check_new_topic": "topic",
        "client_quota": "quota, user, client_id",
        "check_config_change": "change",
        "report_metrics": "metrics, now_ms",
        "partition_led": "topic, partition, leader_epoch",
        "partition_lost": "topic, partition",
    }[hook]
    known = {"remember": remember}
    source = f"def {hook}(self, {words}): return remember(dict(locals()))"
    exec(source, known)  # noqa: S102 - the hook's own argument list
    setattr(Probe, hook, hookimpl(known[hook]))
    return broker.node.plugins.registry.register(Probe(), name), calls


@pytest.fixture
def broker():
    with Broker() as running:
        yield running


def alter(broker, topic, **settings):
    changes = [Change(name.replace("_", "."), 0, value) for name, value in settings.items()]
    broker.node.serving.administration.configs.change_topic(topic, changes)


# -- retention, roll ------------------------------------------------------------------------------


def segments(broker, topic):
    return broker.node.loaded.logs.get(topic, 0).handle.segments()


@pytest.mark.parametrize(("policy", "left"), [("probe", 3), ("none", 5), ("none,probe", 3)])
def test_the_policies_that_a_topic_names_decide_what_goes(broker, produce, policy, left):
    _, calls = registered(broker, "deletable_segments", lambda log, now_ms: 2)
    settings = {"retention.policy": policy, "segment.bytes": "300", "retention.ms": "1"}
    topic = broker.create_topic("t", configs=settings)
    for _ in range(5):
        produce(topic, [b"x" * 150])
    broker.node.running.retention.run()
    assert len(segments(broker, topic)) == left
    assert len(calls) == ("probe" in policy)


@pytest.mark.parametrize("answer", [True, False, 1, "yes", RuntimeError("no")])
def test_should_roll(broker, produce, topic, answer):
    plugin, calls = registered(broker, "should_roll", answer)
    broker.node.running.retention.run()
    assert not [row for row in calls if row["log"].topic == topic]  # it has no records
    produce(topic, [b"a"])
    broker.node.running.retention.run()
    assert len(segments(broker, topic)) == (2 if answer is True else 1)
    assert [row["log"].segments[0].next_offset for row in calls] == [1]
    assert bool(sum(plugin.failures.values())) == (type(answer) is not bool)


# -- flush, compaction ----------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, False, RuntimeError("no")])
def test_should_flush(answer):
    with Broker(
        {"log.flush.scheduler.interval.ms": 5, "log.durability": "os"}, durable=False
    ) as plain:
        topic = plain.create_topic("t", configs={"flush.ms": "3600000"})
        with Sender(plain.bootstrap_servers) as sender:
            sender.send(topic, [b"a"])
        _, calls = registered(plain, "should_flush", answer)
        soon(lambda: len(calls) >= 1)
        handle = plain.node.loaded.logs.get(topic, 0).handle
        if answer is True:
            soon(lambda: handle.flushed_offset == 1)
        else:
            time.sleep(0.05)
            assert handle.flushed_offset == 0
        assert calls[0]["log"].record_count == 1 and calls[0]["log"].topic == topic


@pytest.mark.parametrize("answer", [True, False, RuntimeError("no")])
def test_may_compact(produce, broker, answer):
    settings = {"cleanup.policy": "compact", "segment.bytes": "150"}
    settings["min.cleanable.dirty.ratio"] = "0"
    plugin, calls = registered(broker, "may_compact", answer)
    topic = broker.create_topic("t", configs=settings)
    for _ in range(4):
        produce(topic, [Record(b"x" * 60, b"k")])
    cleaner = broker.node.running.cleaner
    assert (cleaner.run() > 0) == (answer is True)
    assert calls[0]["log"].topic == topic and calls[0]["log"].dirty_bytes > 0
    plugin.common["on.failure"] = "open"
    assert (cleaner.run() > 0) == isinstance(answer, Exception)


# -- placement, directories -----------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, [[9]], [[0, 0]], "rubbish", RuntimeError("no")])
def test_a_placement_that_cannot_be_is_left_to_the_broker(broker, answer):
    plugin, calls = registered(broker, "place_partitions", answer)
    topic = broker.create_topic("t", partitions=1)
    assert broker.node.cluster().topics[topic].partitions[0].replicas
    assert calls[0]["partition_count"] == 1 and calls[0]["first"] == 0
    assert bool(sum(plugin.failures.values())) == (answer is not None)


def test_a_placement_of_a_plugin_counts_for_new_and_for_more_partitions(broker):
    node_id = broker.node.node_id
    _, calls = registered(
        broker,
        "place_partitions",
        lambda brokers, partition_count, replication_factor, first: [[node_id]] * partition_count,
    )
    topic = broker.create_topic("t", partitions=2)
    broker.node.serving.administration.growth.grow(topic, 5)
    assert [(row["partition_count"], row["first"]) for row in calls] == [(2, 0), (3, 2)]


@pytest.mark.parametrize("chooses", [0, 1, None])
def test_choose_log_directory(tmp_path, chooses):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    answer = (lambda **_: paths[chooses]) if chooses is not None else (lambda **_: "/elsewhere")
    with Broker({"log.dirs": ",".join(paths)}) as broker:
        plugin, calls = registered(broker, "choose_log_directory", answer)
        broker.create_topic("t", partitions=4)
        where = [str(broker.node.loaded.logs.get("t", i).directory.parent) for i in range(4)]
        assert len(calls) == 4 and calls[0]["directories"][0].free_bytes > 0
        if chooses is None:
            assert sorted(where) == sorted(paths * 2) and sum(plugin.failures.values()) == 4
        else:
            assert where == [paths[chooses]] * 4


# -- policies of the controller -------------------------------------------------------------------


def test_check_new_topic(broker):
    def answer(topic):
        return "too many partitions" if topic.partition_count > 2 else None

    registered(broker, "check_new_topic", answer)
    broker.create_topic("small", partitions=2)
    with pytest.raises(PolicyViolation, match="too many partitions"):
        broker.create_topic("large", partitions=3)
    assert "large" not in broker.topics


@pytest.mark.parametrize("answer", ["", 5, RuntimeError("no")])
def test_a_policy_that_fails_refuses_or_allows_as_configured(broker, answer):
    plugin, _ = registered(broker, "check_new_topic", answer)
    with pytest.raises(PolicyViolation, match="probe failed to check"):
        broker.create_topic("t")
    plugin.common["on.failure"] = "open"
    broker.create_topic("t")


def test_topics_of_the_broker_itself_are_not_asked_about(broker, produce):
    registered(broker, "check_new_topic", "nothing is allowed")
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["none"])
    consumer.poll(2)
    consumer.close()
    soon(lambda: "__consumer_offsets" in broker.node.cluster().topics)


def test_check_config_change(broker, topic):
    def answer(change):
        return "not here" if "retention.ms" in change.configs else None

    _, calls = registered(broker, "check_config_change", answer)
    alter(broker, topic, retention_bytes="5")
    with pytest.raises(PolicyViolation, match="not here"):
        alter(broker, topic, retention_ms="5")
    assert broker.node.cluster().config("topics", topic) == {"retention.bytes": "5"}
    broker.node.serving.administration.configs.change_broker(
        None, [Change("message.max.bytes", 0, "5000")]
    )
    last = calls[-1]["change"]
    assert (last.resource_type, last.resource_name) == ("broker", "")
    assert last.configs == {"message.max.bytes": "5000"}


# -- life cycle, metrics, the set of plugins -------------------------------------------------------

RECORDER = """
    from barnabas import hookimpl
    events = []

    class Recorder:
        @hookimpl
        def broker_started(self, services):
            events.append(("started", services is not None))

        @hookimpl
        def broker_stopping(self):
            events.append(("stopping",))

        @hookimpl
        def partition_led(self, topic, partition, leader_epoch):
            events.append(("led", topic, partition, leader_epoch))

        @hookimpl
        def partition_lost(self, topic, partition):
            events.append(("lost", topic, partition))

        @hookimpl
        def report_metrics(self, metrics, now_ms):
            events.append(("metrics", metrics))
"""


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    install(tmp_path / "site", monkeypatch, "test-recorder", RECORDER, recorder="Recorder")
    import importlib

    return importlib.import_module("test_recorder").events


def test_the_life_of_a_broker_and_of_its_partitions(tmp_path, recorder):
    data = {"log.dirs": str(tmp_path / "data")}
    with Broker(data) as broker:
        broker.create_topic("old", partitions=1)
    with Broker(data | {"plugins": "recorder"}) as broker:
        assert recorder[:2] == [("started", True), ("led", "old", 0, recorder[1][3])]
        broker.create_topic("new", partitions=2)
        soon(lambda: len(recorder) == 4)
        assert recorder[2:] == [("led", "new", 0, 0), ("led", "new", 1, 0)]
        broker.delete_topic("new")
        soon(lambda: len(recorder) == 6)
        assert sorted(recorder[4:]) == [("lost", "new", 0), ("lost", "new", 1)]
    assert recorder[6:] == [("stopping",)]


def test_metrics_are_reported(recorder):
    brokers = "kafka_controller_kafkacontroller_activebrokercount"
    reports = []

    def is_told():
        reports[:] = [row[1] for row in recorder if row[0] == "metrics" and brokers in row[1]]
        return bool(reports)

    with Broker({"plugins": "recorder", "plugins.report.interval.ms": 100}):
        soon(is_told)  # a report during the start has fewer metrics
    metrics = reports[0]
    assert metrics[brokers] == 1
    assert metrics['barnabas_plugin_calls_total{plugin="recorder",hook="broker_started"}'] == 1


def test_a_reload_over_the_wire_takes_over_the_set_and_refuses_a_broken_one(
    tmp_path, recorder, capsys, caplog
):
    from barnabas.cli import main

    with Broker({"log.dirs": str(tmp_path / "data")}) as broker:
        servers = ["--bootstrap-server", broker.bootstrap_servers]
        alter_all = ["configs", "alter", "default", *servers, "--add"]
        assert main([*alter_all, "plugins=recorder"]) == 0
        assert broker.node.plugins.registry.names() == ["recorder"]
        assert recorder == [("started", True)]
        before = broker.node.plugins.registry.plugin("recorder")
        assert main(["plugins", "reload", *servers]) == 0
        assert broker.node.plugins.registry.plugin("recorder") is not before
        assert recorder == [("started", True), ("stopping",)]  # the new module has another list
        assert main([*alter_all, "plugins=recorder,nobody"]) == 1
        assert "the plugin 'nobody' is not installed" in capsys.readouterr().err
        assert broker.node.plugins.registry.names() == ["recorder"]
        assert main([*alter_all, "plugin.recorder.budget.ms=none"]) == 1
    with Broker({"log.dirs": str(tmp_path / "data")}) as broker:
        assert broker.node.plugins.registry.names() == ["recorder"]


def test_plugins_reloads_counted_up_loads_them_anew(recorder):
    with Broker({"plugins": "recorder"}) as broker:
        before = broker.node.plugins.registry.plugin("recorder")
        broker.node.serving.administration.configs.change_broker(
            None, [Change("plugins.reloads", 0, "1")]
        )
        assert broker.node.plugins.registry.plugin("recorder") is not before
        assert recorder == [("started", True), ("stopping",)]


def test_a_set_altered_at_run_time_does_not_stop_a_later_start(tmp_path, monkeypatch, caplog):
    data = {"log.dirs": str(tmp_path / "data")}
    with monkeypatch.context() as patch:
        install(tmp_path / "site", patch, "test-recorder", RECORDER, recorder="Recorder")
        with Broker(data) as broker:
            changes = [Change("plugins", 0, "none,recorder,size")]
            broker.node.serving.administration.configs.change_broker(None, changes)
            assert broker.node.plugins.registry.names() == ["none", "recorder", "size"]
    with Broker(data) as broker:
        assert broker.node.plugins.registry.names() == ["none", "size"]
        assert "the plugin 'recorder' is not installed" in caplog.text
        broker.node.serving.administration.configs.change_broker(
            None, [Change("plugins", 0, "size")]
        )
        assert broker.node.plugins.registry.names() == ["size"]


def test_a_broker_with_a_plugin_that_is_not_there_does_not_start():
    before = set(threading.enumerate())
    with pytest.raises(CannotStart, match="the plugin 'nobody' is not installed"):
        Broker({"plugins": "nobody"}).start()
    assert set(threading.enumerate()) <= before


def test_an_option_that_is_none_stops_the_start_with_one_line():
    with pytest.raises(CannotStart, match="plugin.none.days: the plugin none has no such option"):
        Broker({"plugins": "none", "plugin.none.days": "3"}).start()


def test_failures_are_on_the_metrics_page(broker, topic):
    registered(broker, "check_config_change", RuntimeError("no"))
    with pytest.raises(PolicyViolation):
        alter(broker, topic, retention_ms="5")
    metrics = broker.node.metrics.values()
    labels = '{plugin="probe",hook="check_config_change"}'
    assert metrics[f"barnabas_plugin_failures_total{labels}"] == 1
    assert metrics['barnabas_plugin_runs{plugin="probe",version=""}'] == 1


def test_wrong_settings_of_a_topic_are_refused_when_altered(broker, topic):
    with pytest.raises(InvalidConfig, match="the plugin 'x' does not run"):
        alter(broker, topic, retention_policy="time,x")
    alter(broker, topic, retention_policy="none")


POLICY = """
from barnabas import hookimpl


class Policy:
    @hookimpl
    def check_new_topic(self, topic):
        return None if topic.name.startswith("team-") else "topics are called team-..."

    @hookimpl
    def check_config_change(self, change):
        return "compaction is not for everybody" if "compact" in str(change.configs) else None
"""


def test_create_topic_policy_class_name(tmp_path, monkeypatch):
    """Kafka's setting create.topic.policy.class.name names a plugin, which need not be in
    `plugins`."""
    install(tmp_path, monkeypatch, "our-policy", POLICY, our_policy="Policy")
    with Broker({"create.topic.policy.class.name": "our-policy"}) as broker:
        broker.create_topic("team-a")
        with pytest.raises(PolicyViolation, match="team-"):
            broker.create_topic("mine")
        assert broker.node.plugins.registry.names() == ["our-policy"]


def test_alter_config_policy_class_name(tmp_path, monkeypatch):
    """The same for alter.config.policy.class.name; a plugin that both settings name runs once."""
    install(tmp_path, monkeypatch, "our-policy", POLICY, our_policy="Policy")
    both = dict.fromkeys(
        ["create.topic.policy.class.name", "alter.config.policy.class.name"], "our-policy"
    )
    with Broker(both) as broker:
        broker.create_topic("team-a")
        assert broker.node.plugins.registry.names() == ["our-policy"]
        from barnabas.client import Cluster, ConfigChange, Resource, alter_configs
        from barnabas.client.admin import SET, TOPIC

        with Cluster(broker.bootstrap_servers) as cluster:
            change = ConfigChange(SET, "cleanup.policy", "compact")
            with pytest.raises(PolicyViolation, match="not for everybody"):
                alter_configs(cluster, Resource(TOPIC, "team-a"), [change])


@pytest.mark.parametrize(
    ("setting", "name", "words"),
    [
        (
            "create.topic.policy.class.name",
            "com.acme.Policy",
            "the plugin 'com.acme.Policy' is not",
        ),
        ("alter.config.policy.class.name", "time", "does not implement check_config_change"),
    ],
)
def test_a_policy_that_cannot_be_had_stops_the_start(setting, name, words):
    with pytest.raises(CannotStart, match=words):
        Broker({setting: name}).start()
