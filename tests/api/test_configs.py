"""Settings that are altered while the broker runs take effect at once and survive a restart."""

import time

from api.admin_calls import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, admin_on
from node.test_settings import refused

UNKNOWN_TOPIC, TOO_LARGE, INVALID_CONFIG, INVALID_REQUEST, NO_BROKER = 3, 10, 40, 42, 102
TOPIC_SOURCE, BROKER_SOURCE, CLUSTER_SOURCE, DEFAULT_SOURCE = 1, 2, 3, 5


def value(admin, kind, name, setting):
    row = admin.configs(kind, name, setting)[setting]
    return row.value, row.configSource


def test_a_topic_setting_takes_effect_and_stays(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t")
        assert a.produce("t", size=500) == 0
        assert a.alter(TOPIC, "t", ("max.message.bytes", SET, "200")) == (0, None)
        assert a.produce("t", size=500) == TOO_LARGE
        assert value(a, TOPIC, "t", "max.message.bytes") == ("200", TOPIC_SOURCE)
    with admin_on(tmp_path) as a:
        assert a.produce("t", size=500) == TOO_LARGE
        assert a.alter(TOPIC, "t", ("max.message.bytes", DELETE, None)) == (0, None)
        assert a.produce("t", size=500) == 0
        assert value(a, TOPIC, "t", "max.message.bytes") == ("1048588", DEFAULT_SOURCE)


def test_a_setting_of_every_broker_takes_effect_and_stays(tmp_path):
    with admin_on(tmp_path, node_id="1") as a:
        a.create("t")
        a.create("own", max_message_bytes="9999")
        assert a.alter(BROKER, "", ("message.max.bytes", SET, "200")) == (0, None)
        assert a.produce("t", size=500) == TOO_LARGE
        assert a.produce("own", size=500) == 0
        assert value(a, BROKER, "1", "message.max.bytes") == ("200", CLUSTER_SOURCE)
        assert a.alter(BROKER, "1", ("message.max.bytes", SET, "5000")) == (0, None)
        assert a.produce("t", size=500) == 0
        assert value(a, BROKER, "1", "message.max.bytes") == ("5000", BROKER_SOURCE)
    with admin_on(tmp_path, node_id="1") as a:
        assert value(a, BROKER, "1", "message.max.bytes") == ("5000", BROKER_SOURCE)
        assert a.alter(BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
        assert a.produce("t", size=500) == TOO_LARGE
        assert value(a, BROKER, "", "message.max.bytes") == ("200", CLUSTER_SOURCE)
        assert list(a.configs(BROKER, "")) == ["message.max.bytes"]


def test_a_socket_limit_takes_effect_and_stays(tmp_path):
    with admin_on(tmp_path) as a:
        assert not refused(a.broker)
        assert a.alter(BROKER, "", ("max.connections.per.ip", SET, "1")) == (0, None)
        assert refused(a.broker)
    with admin_on(tmp_path) as a:
        assert refused(a.broker)
        assert a.alter(BROKER, "", ("max.connections.per.ip", DELETE, None)) == (0, None)
        assert not refused(a.broker)


def test_request_handlers_grow_and_shrink(tmp_path):
    with admin_on(tmp_path, **{"num.io.threads": "4"}) as a:
        handlers = a.broker.node.handlers
        assert handlers.thread_count == 4
        assert a.alter(BROKER, "", ("num.io.threads", SET, "9"))[0] == INVALID_REQUEST
        assert a.alter(BROKER, "", ("num.io.threads", SET, "1"))[0] == INVALID_REQUEST
        assert a.alter(BROKER, "", ("num.io.threads", SET, "8")) == (0, None)
        assert handlers.thread_count == 8
        assert a.alter(BROKER, "", ("num.io.threads", SET, "5")) == (0, None)
        deadline = time.monotonic() + 10
        while handlers.thread_count > 5 and time.monotonic() < deadline:
            assert a.names() == []
            time.sleep(0.05)
        assert handlers.thread_count == 5
    with admin_on(tmp_path, **{"num.io.threads": "4"}) as a:
        assert a.broker.node.handlers.thread_count == 5


def test_lists_are_appended_to_and_subtracted_from(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t")
        assert a.alter(TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
        assert value(a, TOPIC, "t", "cleanup.policy")[0] == "delete,compact"
        assert a.alter(TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
        assert a.alter(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == (0, None)
        assert value(a, TOPIC, "t", "cleanup.policy")[0] == "compact"
        code, said = a.alter(TOPIC, "t", ("retention.ms", APPEND, "1"))
        assert code == INVALID_CONFIG and "retention.ms" in said


def test_a_wrong_change_changes_nothing(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t")
        good = ("retention.ms", SET, "1000")
        code, said = a.alter(TOPIC, "t", good, ("retention.bytes", SET, "much"))
        assert code == INVALID_CONFIG
        assert "Invalid value much for configuration retention.bytes" in said
        assert a.alter(TOPIC, "t", good, ("no.such", SET, "1"))[0] == INVALID_CONFIG
        assert a.alter(TOPIC, "t", good, good)[0] == INVALID_REQUEST
        assert a.alter(TOPIC, "t", good, ("retention.bytes", SET, None))[0] == INVALID_REQUEST
        assert a.alter(TOPIC, "t", good, ("retention.bytes", 9, "1"))[0] == INVALID_REQUEST
        assert a.alter(TOPIC, "absent", good)[0] == UNKNOWN_TOPIC
        assert a.alter(99, "t", good)[0] == INVALID_REQUEST
        assert a.alter(BROKER, "x", good)[0] == INVALID_REQUEST
        assert a.alter(BROKER, "77", good)[0] == NO_BROKER
        assert a.alter(BROKER, "", ("num.partitions", SET, "4"))[0] == INVALID_REQUEST
        assert a.alter(BROKER, "", ("ssl.keystore.password", SET, "x"))[0] == INVALID_REQUEST
        assert a.alter(TOPIC, "t", good, only=True) == (0, None)
        assert a.alter(BROKER, "", ("message.max.bytes", SET, "9"), only=True) == (0, None)
        assert value(a, TOPIC, "t", "retention.ms") == ("604800000", DEFAULT_SOURCE)
        assert a.configs(BROKER, "") == {}


def test_a_resource_named_twice_is_refused_and_the_others_are_not(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t")
        a.create("u")
        rows = [{"name": "retention.ms", "configOperation": SET, "value": "7"}]
        asked = [{"resourceType": TOPIC, "resourceName": name, "configs": rows} for name in "ttu"]
        answers = a.call(44, 1, resources=asked, validateOnly=False).responses
        told = {row.resourceName: row.errorCode for row in answers}
        assert told == {"t": INVALID_REQUEST, "u": 0}
        assert value(a, TOPIC, "u", "retention.ms")[0] == "7"
        assert value(a, TOPIC, "t", "retention.ms")[0] != "7"


def test_alter_configs_replaces_the_whole(tmp_path):
    def replace(admin, kind, name, only=False, **configs):
        rows = [{"name": n.replace("_", "."), "value": v} for n, v in configs.items()]
        resource = {"resourceType": kind, "resourceName": name, "configs": rows}
        return admin.call(33, 2, resources=[resource], validateOnly=only).responses[0].errorCode

    with admin_on(tmp_path, node_id="1") as a:
        a.create("t", retention_ms="1000")
        assert replace(a, TOPIC, "t", retention_bytes="5") == 0
        assert value(a, TOPIC, "t", "retention.bytes") == ("5", TOPIC_SOURCE)
        assert value(a, TOPIC, "t", "retention.ms")[1] == DEFAULT_SOURCE
        assert replace(a, TOPIC, "t", retention_ms=None) == INVALID_REQUEST
        assert replace(a, TOPIC, "t", retention_ms="soon") == INVALID_CONFIG
        assert replace(a, TOPIC, "t", only=True) == 0
        assert value(a, TOPIC, "t", "retention.bytes") == ("5", TOPIC_SOURCE)
        assert replace(a, BROKER, "", message_max_bytes="5000", log_retention_ms="9") == 0
        assert replace(a, BROKER, "", log_retention_ms="8") == 0
        assert list(a.configs(BROKER, "")) == ["log.retention.ms"]
        assert value(a, TOPIC, "t", "retention.ms") == ("8", CLUSTER_SOURCE)


def test_describe_tells_synonyms_types_and_documentation(tmp_path):
    with admin_on(tmp_path, node_id="1", log_retention_hours="5") as a:
        a.create("t", retention_ms="1000")
        row = a.configs(TOPIC, "t", "retention.ms")["retention.ms"]
        told = [(s.name, s.value, s.source) for s in row.synonyms]
        assert told[:2] == [("retention.ms", "1000", 1), ("log.retention.hours", "5", 4)]
        assert row.configType == 5 and row.documentation
        everything = a.configs(BROKER, "1")
        assert everything["ssl.keystore.password"].isSensitive
        assert everything["ssl.keystore.password"].value is None
        assert everything["num.partitions"].readOnly
        assert not everything["message.max.bytes"].readOnly
        resource = {"resourceType": BROKER, "resourceName": "2", "configurationKeys": None}
        [wrong] = a.call(32, 1, resources=[resource], includeSynonyms=False).results
        assert wrong.errorCode == INVALID_REQUEST and wrong.configs == []


def test_the_configuration_goes_with_its_topic(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t")
        a.alter(TOPIC, "t", ("retention.ms", SET, "1000"))
        a.delete("t")
        a.create("t")
        assert value(a, TOPIC, "t", "retention.ms")[1] == DEFAULT_SOURCE


def test_list_config_resources(tmp_path):
    with admin_on(tmp_path, node_id="1") as a:
        a.create("t")
        told = a.call(74, 1, resourceTypes=[]).configResources
        assert {(row.resourceType, row.resourceName) for row in told} == {
            (2, "t"),
            (4, "1"),
            (8, "1"),
        }
        assert a.call(74, 1, resourceTypes=[99]).errorCode == 35
        assert a.call(74, 0).configResources == []
