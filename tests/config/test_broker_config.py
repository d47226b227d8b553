import pytest

from barnabas.config import BrokerConfig, ConfigError


def test_hours_minutes_and_milliseconds():
    assert BrokerConfig({})["log.retention.ms"] == 168 * 3600000
    assert BrokerConfig({"log.retention.hours": "2"})["log.retention.ms"] == 7200000
    both = {"log.retention.hours": "2", "log.retention.minutes": "3"}
    assert BrokerConfig(both)["log.retention.ms"] == 180000
    assert BrokerConfig({**both, "log.retention.ms": "4"})["log.retention.ms"] == 4
    assert BrokerConfig({"log.retention.hours": "-1"})["log.retention.ms"] == -1
    assert BrokerConfig({"log.roll.hours": "1"})["log.roll.ms"] == 3600000
    assert BrokerConfig({})["log.roll.jitter.ms"] == 0
    assert BrokerConfig({})["log.flush.interval.ms"] == (1 << 63) - 1
    assert BrokerConfig({"log.flush.scheduler.interval.ms": "9"})["log.flush.interval.ms"] == 9


def test_the_old_timestamp_limit_stands_for_both_new_ones():
    config = BrokerConfig({"log.message.timestamp.difference.max.ms": "5"})
    assert config["log.message.timestamp.before.max.ms"] == 5
    assert config["log.message.timestamp.after.max.ms"] == 5
    assert BrokerConfig({})["log.message.timestamp.after.max.ms"] == 3600000


def test_data_directories():
    assert BrokerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_identity():
    assert BrokerConfig({}).node_id == -1
    assert BrokerConfig({"broker.id": "3"}).node_id == 3
    assert BrokerConfig({"node.id": "3", "broker.id": "3"}).node_id == 3
    assert BrokerConfig({"node.id": "3"})["broker.id"] == 3


def test_only_selectors_of_kafka_choose_the_replica_of_a_consumer():
    package = "org.apache.kafka.common.replica"
    for name in ("LeaderSelector", "RackAwareReplicaSelector"):
        BrokerConfig({"replica.selector.class": f"{package}.{name}"})
    with pytest.raises(ConfigError, match="this class is not known. Set .*RackAware"):
        BrokerConfig({"replica.selector.class": "com.example.Nearest"})


ZOOKEEPER = {"metadata.store": "zookeeper", "zookeeper.connect": "h:2181"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"node.id": "1", "broker.id": "2"}, "differ"),
        ({"log.dirs": "/a,/a"}, "twice"),
        ({"log.dirs": ""}, "at least one directory"),
        ({"log.dirs": "/a,,/b"}, "empty"),
        ({"metadata.store": "zookeeper"}, "needs zookeeper.connect"),
        (ZOOKEEPER | {"zookeeper.connect": "h:2181,"}, "'' is not HOST:PORT"),
        (ZOOKEEPER | {"zookeeper.connect": "h:99999"}, "not HOST:PORT"),
        (ZOOKEEPER | {"zookeeper.connect": "h:1/a/../b"}, "not the path of a node"),
        (ZOOKEEPER | {"zookeeper.set.acl": "true"}, "needs zookeeper.auth"),
        (ZOOKEEPER | {"zookeeper.auth": "x509:me:secret"}, "not of the form digest:USER:PASSWORD"),
        (ZOOKEEPER | {"zookeeper.auth": "digest:me"}, "not of the form digest:USER:PASSWORD"),
        ({"zookeeper.set.acl": "true"}, "metadata.store=embedded keeps none there"),
        ({"zookeeper.auth": "digest:me:secret"}, "metadata.store=embedded keeps none there"),
        ({"process.roles": "controller"}, "serve no clients"),
        ({"process.roles": "observer"}, "any of broker or controller"),
        ({"log.durability": "maybe"}, "fsync or os"),
        ({"log.retention.ms": "0"}, "-1, or 1 or more ms"),
        ({"queued.max.request.bytes": "1000"}, "could never be read"),
        ({"group.min.session.timeout.ms": "9999999"}, "group.max.session.timeout.ms"),
        ({"metrics.port": "65536"}, "-1 to 65535"),
    ],
)
def test_contradictions_and_bad_values(values, reason):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(values)
    (line,) = caught.value.problems
    assert reason in line


def test_a_problem_names_where_the_value_stands(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("\nnum.partitions=zero\n")
    with pytest.raises(ConfigError, match=f"num.partitions=zero: .*{path} line 2"):
        BrokerConfig.load(path, environ={})


def test_unknown_settings_are_kept_and_logged_once(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("log.retention.houres=3\n")
    config = BrokerConfig.load(path, environ={})
    (line,) = config.warnings
    assert line.startswith(f"log.retention.houres ({path} line 1)") and "not known" in line
    assert config["log.retention.houres"] == "3"
    assert config.unknown() == {"log.retention.houres": "3"}
    assert config.with_prefix("log.retention.") == {"log.retention.houres": "3"}
    with pytest.raises(KeyError):
        config["absent.key"]


def test_an_unknown_setting_of_a_file_is_warned_of_with_a_suggestion(tmp_path):
    """F24: the warning did not say which setting was meant."""
    path = tmp_path / "server.properties"
    path.write_text("log.retention.houres=3\nxyzzy=1\n")
    near, far = BrokerConfig.load(path, environ={}).warnings
    assert "not known. Did you mean log.retention.hours? It is kept" in near
    assert "xyzzy" in far and "Did you mean" not in far


@pytest.mark.parametrize(
    "name",
    [
        "plugin.mine.size",
        "config.providers.mine.class",
        "listener.name.internal.max.connections",
        "listener.name.internal.ssl.secure.random.implementation",
    ],
)
def test_set_takes_names_of_plugins_and_of_listeners(name):
    assert BrokerConfig.load(None, [f"{name}=7"], {}).is_set(name)


def test_settings_without_effect_are_named_at_the_start_with_the_reason(tmp_path):
    """F23: those of tier B were silent, the others named without a reason."""
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=/a\nbackground.threads=4\nremote.log.reader.threads=3\n")
    environ = {"KAFKA_REMOTE_LOG_MANAGER_THREAD_POOL_SIZE": "9"}
    config = BrokerConfig.load(path, ["ssl.protocol=TLSv1.3"], environ)
    threads, remote, tls = config.notices
    assert threads.startswith("background.threads has no effect: each repeating task")
    assert remote == (
        "remote.log.manager.thread.pool.size, remote.log.reader.threads have no effect:"
        " tiered storage is not built."
    )
    assert tls == (
        "ssl.protocol has no effect: the start checks the value only; ssl.enabled.protocols says"
        " which versions a listener offers, as in Kafka."
    )
    assert config.warnings == []
    assert next(iter(config.ineffective)) == "background.threads"
    assert BrokerConfig({"log.dirs": "/a", "num.io.threads": "4"}).notices == []


def test_a_duplicate_key_is_reported(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=/a\nlog.dirs=/b\n")
    config = BrokerConfig.load(path, environ={})
    assert config.log_dirs == ("/b",)
    (line,) = config.warnings
    assert "line 1 and again on line 2" in line


def test_a_missing_file_and_a_bad_override():
    with pytest.raises(ConfigError, match="/nowhere: cannot be read"):
        BrokerConfig.load("/nowhere", environ={})
    with pytest.raises(ConfigError, match="Write --set name=value"):
        BrokerConfig.load(None, ["num.partitions"], {})


@pytest.mark.parametrize(
    ("name", "one", "two"),
    [
        ("controller.quorum.voters", "1@a:9093", "1@a:9093,2@b:9093"),
        ("controller.quorum.bootstrap.servers", "a:9093", "a:9093,b:9093"),
    ],
)
def test_a_quorum_of_several_nodes_is_refused_unless_allowed(name, one, two):
    """F9: a file that names three voters started three clusters of one."""
    with pytest.raises(ConfigError, match=f"{name}=.* names 2 nodes.*allow.cluster.of.one=true"):
        BrokerConfig({name: two})
    BrokerConfig({name: one})
    BrokerConfig({name: two, "metadata.store": "zookeeper", "zookeeper.connect": "h:2181"})
    config = BrokerConfig({name: two, "allow.cluster.of.one": "true"})
    assert any("there is no KRaft quorum" in line for line in config.notices)


def test_zookeeper_store_is_taken_when_asked_for():
    given = {"metadata.store": "zookeeper", "zookeeper.connect": "h:2181", "log.dirs": "/a"}
    config = BrokerConfig(given)
    assert config.metadata_store == "zookeeper" and config.notices == []


def test_typed_access():
    config = BrokerConfig({"plugins": "a,b", "log.preallocate": "true"})
    assert config.integer("num.partitions") == 1
    assert config.number("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.boolean("log.preallocate") is True
    assert config.names("plugins") == ("a", "b")
    assert config.text("log.durability") == "fsync"
    with pytest.raises(AssertionError, match="log.preallocate"):
        config.integer("log.preallocate")


def test_limits_of_an_unknown_listener_are_reported():
    config = BrokerConfig({"listener.name.internal.max.connections": "5"})
    (line,) = config.warnings
    assert "listener.name.internal.max.connections: no listener" in line
    assert BrokerConfig({"listener.name.plaintext.max.connections": "5"}).warnings == []


def test_settings_of_one_listener_are_reported_to_have_no_effect():
    config = BrokerConfig({"listener.name.internal.num.network.threads": "5"})
    assert len(config.warnings) == 1
