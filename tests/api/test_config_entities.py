"""Settings of loggers, client metrics subscriptions and groups: altered, described, listed, stored.

The error codes and messages are those of Apache Kafka 4.3.1.
"""

import logging

import pytest
from api.admin_calls import APPEND, DELETE, SET, SUBTRACT, admin_on

LOGGER, METRICS, GROUP = 8, 16, 32
INVALID_CONFIG, INVALID_REQUEST = 40, 42
DEFAULT, LOGGER_SOURCE, METRICS_SOURCE, GROUP_SOURCE = 5, 6, 7, 8
SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def a(tmp_path):
    with admin_on(tmp_path, node_id="1") as admin:
        yield admin


@pytest.fixture
def some_logger():
    logger = logging.getLogger("barnabas.test_of_levels")
    root = logging.getLogger().level
    yield logger
    logger.setLevel(logging.NOTSET)
    logging.getLogger().setLevel(root)
    logging.getLogger("barnabas").setLevel(logging.NOTSET)


def refused(admin, kind, name):
    """Error code and message of a refused DescribeConfigs."""
    resource = {"resourceType": kind, "resourceName": name, "configurationKeys": None}
    [row] = admin.call(32, 4, resources=[resource], includeSynonyms=False).results
    assert row.configs == []
    return row.errorCode, row.errorMessage


def replace(admin, kind, name, only=False, **configs):
    rows = [{"name": n.replace("_", "."), "value": v} for n, v in configs.items()]
    resource = {"resourceType": kind, "resourceName": name, "configs": rows}
    row = admin.call(33, 2, resources=[resource], validateOnly=only).responses[0]
    return row.errorCode, row.errorMessage


def listed(admin, kind):
    rows = admin.call(74, 1, resourceTypes=[kind]).configResources
    assert {row.resourceType for row in rows} <= {kind}
    return [row.resourceName for row in rows]


def shown(admin, kind, name, setting):
    row = admin.configs(kind, name, setting)[setting]
    return row.value, row.configSource, [(s.name, s.value, s.source) for s in row.synonyms]


def test_a_loggers_level_is_altered_live(a, some_logger):
    name = some_logger.name
    assert a.alter(LOGGER, "1", (name, SET, "WARN")) == (0, None)
    assert not some_logger.isEnabledFor(logging.INFO)
    assert shown(a, LOGGER, "1", name) == ("WARN", LOGGER_SOURCE, [])
    assert a.alter(LOGGER, "1", (name, SET, "TRACE")) == (0, None)
    assert some_logger.isEnabledFor(5) and not some_logger.isEnabledFor(4)
    assert a.alter(LOGGER, "1", ("root", SET, "FATAL"), ("barnabas", SET, "ERROR")) == (0, None)
    assert a.alter(LOGGER, "1", (name, DELETE, None)) == (0, None)
    assert shown(a, LOGGER, "1", name)[0] == "ERROR"
    assert shown(a, LOGGER, "1", "root")[0] == "FATAL"
    everything = a.configs(LOGGER, "1")
    assert {"root", "barnabas", "barnabas.api", name} <= set(everything)
    assert {row.configType for row in everything.values()} == {0}
    assert not any(row.readOnly for row in everything.values())


@pytest.mark.parametrize(
    ("logger", "operation", "level", "code", "said"),
    [
        ("root", SET, "debug", INVALID_CONFIG, "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        ("root", SET, "OFF", INVALID_CONFIG, "Cannot set the log level of root to OFF"),
        ("root", SET, None, INVALID_REQUEST, "Null value not supported for : root"),
        ("root", DELETE, None, INVALID_REQUEST, "Removing the log level of the root logger"),
        ("no.such", SET, "INFO", INVALID_CONFIG, "Logger no.such does not exist!"),
        ("no.such", DELETE, None, INVALID_CONFIG, "Logger no.such does not exist!"),
        ("root", APPEND, "INFO", INVALID_REQUEST, "APPEND operation is not allowed"),
        ("root", SUBTRACT, "INFO", INVALID_REQUEST, "SUBTRACT operation is not allowed"),
        ("root", 9, "INFO", INVALID_REQUEST, "operation 9"),
    ],
)
def test_wrong_levels_change_no_logger(a, some_logger, logger, operation, level, code, said):
    before = shown(a, LOGGER, "1", some_logger.name)
    got, words = a.alter(LOGGER, "1", (some_logger.name, SET, "FATAL"), (logger, operation, level))
    assert got == code and said in words
    assert shown(a, LOGGER, "1", some_logger.name) == before


def test_loggers_belong_to_this_broker(a, some_logger):
    change = (some_logger.name, SET, "INFO")
    assert refused(a, LOGGER, "") == (INVALID_REQUEST, "Broker id must not be empty")
    assert refused(a, LOGGER, "x")[1] == "Broker id must be an integer, but it is: x"
    assert refused(a, LOGGER, "2")[1] == "Unexpected broker id, expected 1 but received 2"
    for name, words in (
        ("", "Node id must be an integer, but it is: "),
        ("x", "Node id must be an integer, but it is: x"),
        ("2", "Unexpected node id. Expected 1, but received 2"),
    ):
        assert a.alter(LOGGER, name, change) == (INVALID_REQUEST, words)
    assert a.alter(LOGGER, "1", (some_logger.name, SET, "FATAL"), only=True) == (0, None)
    assert some_logger.level == logging.NOTSET
    assert replace(a, LOGGER, "1", root="INFO") == (INVALID_REQUEST, "Unknown resource type 8")
    assert listed(a, LOGGER) == ["1"]


def test_a_subscription_is_kept_and_described(tmp_path):
    with admin_on(tmp_path) as a:
        assert shown(a, METRICS, "m", "interval.ms") == ("300000", DEFAULT, [])
        changes = [
            ("interval.ms", SET, "5000"),
            ("metrics", SET, "org.apache.a,b"),
            ("match", SET, "client_id=.*,client_software_name=a"),
        ]
        assert a.alter(METRICS, "m", *changes) == (0, None)
        assert a.alter(METRICS, "a b/ü", ("metrics", SET, "*")) == (0, None)
        assert a.alter(METRICS, "..", ("metrics", SET, "*")) == (0, None)
    with admin_on(tmp_path) as a:
        assert listed(a, METRICS) == ["..", "a b/ü", "m"]
        assert [row.resourceName for row in a.call(74, 0).configResources] == listed(a, METRICS)
        for name, _, value in changes:
            told = (value, METRICS_SOURCE, [(name, value, METRICS_SOURCE)])
            assert shown(a, METRICS, "m", name) == told
        types = {row.name: row.configType for row in a.configs(METRICS, "m").values()}
        assert types == {"interval.ms": 3, "match": 7, "metrics": 7}
        assert a.alter(METRICS, "m", *[(name, DELETE, None) for name, _, _ in changes])[0] == 0
        assert a.alter(METRICS, "..", ("metrics", DELETE, None)) == (0, None)
        assert listed(a, METRICS) == ["a b/ü"]
        assert replace(a, METRICS, "n", interval_ms="500") == (0, None)
        assert shown(a, METRICS, "n", "interval.ms")[0] == "500"
        assert replace(a, METRICS, "n", only=True) == (0, None)
        assert replace(a, METRICS, "n", metrics="a") == (0, None)
        assert shown(a, METRICS, "n", "interval.ms")[0] == "300000"
        assert replace(a, METRICS, "n") == (0, None)
        assert listed(a, METRICS) == ["a b/ü"]


@pytest.mark.parametrize(
    ("setting", "operation", "value", "code", "said"),
    [
        ("interval.ms", SET, "99", INVALID_REQUEST, "interval must be between 100 and 3600000"),
        ("interval.ms", SET, "3600001", INVALID_REQUEST, "Invalid value 3600001 for interval.ms"),
        ("interval.ms", SET, "-1", INVALID_REQUEST, "Invalid value -1 for interval.ms"),
        ("interval.ms", SET, "x", INVALID_CONFIG, "Invalid value x for configuration interval.ms"),
        ("match", SET, "x", INVALID_CONFIG, "Illegal client matching pattern: x"),
        ("match", SET, "client_id=[", INVALID_CONFIG, "Illegal client matching pattern"),
        ("match", SET, "foo=a", INVALID_CONFIG, "Illegal client matching pattern"),
        ("match", SET, "client_id=", INVALID_CONFIG, "Illegal client matching pattern"),
        ("match", SET, "client_id=a=b", INVALID_CONFIG, "Illegal client matching pattern"),
        ("nope", SET, "1", INVALID_REQUEST, "Unknown client metrics configuration: nope"),
        ("metrics", APPEND, "a", INVALID_CONFIG, "metrics"),
        ("metrics", SUBTRACT, "a", INVALID_CONFIG, "metrics"),
        ("metrics", SET, None, INVALID_REQUEST, "metrics"),
    ],
)
def test_wrong_subscriptions_are_not_kept(a, setting, operation, value, code, said):
    got, words = a.alter(METRICS, "m", (setting, operation, value))
    assert got == code and said in words
    assert listed(a, METRICS) == []


@pytest.mark.parametrize("text", ["", "client_id=a,client_id=b", " client_source_port = 1 "])
def test_patterns_that_kafka_takes(a, text):
    assert a.alter(METRICS, "m", ("match", SET, text)) == (0, None)


def test_what_has_no_name_has_no_configuration(a):
    assert refused(a, METRICS, "") == (
        INVALID_REQUEST,
        "Client metrics subscription name must not be empty",
    )
    assert refused(a, GROUP, "") == (INVALID_REQUEST, "Group name must not be empty")
    told = a.alter(METRICS, "", ("interval.ms", SET, "500"))
    assert told == (INVALID_REQUEST, "Subscription name can't be empty")
    told = a.alter(GROUP, "", (SESSION, SET, "50000"))
    assert told == (INVALID_REQUEST, "Default group resources are not allowed.")


def test_a_group_is_kept_and_described_with_what_it_follows(tmp_path):
    with admin_on(tmp_path) as a:
        default = [("group." + SESSION, "45000", DEFAULT)]
        assert shown(a, GROUP, "g", SESSION) == ("45000", DEFAULT, default)
        reset = ("share.auto.offset.reset", SET, "by_duration:PT1H")
        assert a.alter(GROUP, "g", (SESSION, SET, "50000"), reset) == (0, None)
        assert a.alter(GROUP, "only", (SESSION, SET, "50000"), only=True) == (0, None)
    with admin_on(tmp_path) as a:
        assert listed(a, GROUP) == ["g"]
        own = [(SESSION, "50000", GROUP_SOURCE), *default]
        assert shown(a, GROUP, "g", SESSION) == ("50000", GROUP_SOURCE, own)
        name = "share.auto.offset.reset"
        assert shown(a, GROUP, "g", name) == (
            "by_duration:PT1H",
            GROUP_SOURCE,
            [(name, "by_duration:PT1H", GROUP_SOURCE), (name, "latest", DEFAULT)],
        )
        assert a.broker.node.serving.administration.entities.group("g").integer(SESSION) == 50000
        assert a.alter(GROUP, "g", (SESSION, DELETE, None), (name, DELETE, None)) == (0, None)
        assert listed(a, GROUP) == []
        assert replace(a, GROUP, "h", share_session_timeout_ms="50000") == (0, None)
        assert replace(a, GROUP, "h", zz="1")[0] == INVALID_CONFIG
        assert replace(a, GROUP, "h") == (0, None)
        assert listed(a, GROUP) == []


BEYOND = [
    (SESSION, "10", "group.consumer.min.session.timeout.ms"),
    (SESSION, "60001", "group.consumer.max.session.timeout.ms"),
    (SESSION, "x", "Invalid value x for configuration"),
    ("consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms"),
    ("consumer.heartbeat.interval.ms", "0", "Invalid value 0"),
    ("share.session.timeout.ms", "10", "group.share.min.session.timeout.ms"),
    ("share.heartbeat.interval.ms", "10", "group.share.min.heartbeat.interval.ms"),
    ("share.record.lock.duration.ms", "500", "Invalid value 500"),
    ("share.record.lock.duration.ms", "70000", "group.share.max.record.lock.duration.ms"),
    ("share.delivery.count.limit", "1", "Invalid value 1"),
    ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
    ("share.partition.max.record.locks", "5000", "group.share.max.partition.max.record.locks"),
    ("share.auto.offset.reset", "by_duration:P1", "by_duration:P1"),
    ("share.auto.offset.reset", "none", "'earliest', 'latest'"),
    ("share.auto.offset.reset", "LATEST", "'earliest', 'latest'"),
    ("share.isolation.level", "x", "Invalid value x"),
    ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas"),
    ("streams.session.timeout.ms", "1", "group.streams.min.session.timeout.ms"),
    ("streams.initial.rebalance.delay.ms", "-1", "Invalid value -1"),
    ("share.renew.acknowledge.enable", "x", "Invalid value x"),
    ("nope", "1", "nope"),
]


@pytest.mark.parametrize(("setting", "value", "said"), BEYOND)
def test_what_a_group_may_not_ask_for(a, setting, value, said):
    got, words = a.alter(GROUP, "g", (setting, SET, value))
    assert got == INVALID_CONFIG and said in words
    assert listed(a, GROUP) == []


def test_unknown_kinds(a):
    assert refused(a, 99, "x")[0] == INVALID_REQUEST
    told = (INVALID_REQUEST, "Unknown resource type 99")
    assert a.alter(99, "x", ("a", SET, "1")) == told
    assert replace(a, 99, "x", a="1") == told
