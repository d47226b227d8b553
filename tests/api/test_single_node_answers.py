"""Administrative requests on a single node: access rules, elections, reassignments, the quorum,
client metrics. tests/compat/answers compares the others with Apache Kafka's answers."""

from base64 import urlsafe_b64encode
from dataclasses import replace

import pytest
from api.admin_calls import Admin, admin_on

from barnabas.metadata import znodes

INVALID_REQUEST, SECURITY_DISABLED, BAD_REPLICAS = 42, 54, 39
PREFERRED_NOT_AVAILABLE, ELIGIBLE_NOT_AVAILABLE, ELECTION_NOT_NEEDED = 80, 83, 84
UNKNOWN_SUBSCRIPTION, TOO_LARGE = 117, 118
PREFERRED, UNCLEAN = 0, 1


def text_of(client_id: bytes) -> str:
    return urlsafe_b64encode(client_id).decode().rstrip("=")


def announced(a: Admin) -> dict[int, tuple[int, int]]:
    rows = a.call(18, 0).apiKeys
    return {row.apiKey: (row.minVersion, row.maxVersion) for row in rows}


def test_access_rules_are_announced_and_security_is_disabled(tmp_path):
    """F15: librdkafka said "requires broker version >= 0.11"."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient
    from confluent_kafka.admin import ResourcePatternType as Pattern
    from confluent_kafka.admin import ResourceType as Kind

    with admin_on(tmp_path) as a:
        assert {announced(a)[key] for key in (29, 30, 31)} == {(0, 3)}
        admin = AdminClient({"bootstrap.servers": a.broker.bootstrap_servers})
        rule = AclBinding(
            Kind.TOPIC, "t", Pattern.LITERAL, "User:a", "*", AclOperation.READ,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        [created] = admin.create_acls([rule]).values()
        with pytest.raises(KafkaException) as refused:
            created.result(30)
        assert refused.value.args[0].code() == SECURITY_DISABLED


def elect(a, kind, partitions):
    rows = None if partitions is None else [{"topic": "t", "partitions": partitions}]
    answer = a.call(43, 2, electionType=kind, topicPartitions=rows, timeoutMs=9000)
    return {
        topic.topic: [(row.partitionId, row.errorCode) for row in topic.partitionResult]
        for topic in answer.replicaElectionResults
    }


def test_elections_are_needed_only_where_no_leader_lives(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t", 2)
        assert elect(a, PREFERRED, None) == {"t": []}
        assert elect(a, UNCLEAN, [0]) == {"t": [(0, ELECTION_NOT_NEEDED)]}
        node = a.broker.node
        state = replace(node.cluster().partition("t", 1).state, leader=-1, isr=(9,))
        node.opened.tree.set(znodes.partition_state_path("t", 1), state.encode())
        node.opened.tree.create(
            znodes.ISR_CHANGE_PREFIX + "9", znodes.encode_partitions([("t", 1)])
        )
        for _ in range(500):
            if elect(a, PREFERRED, None) == {"t": [(1, PREFERRED_NOT_AVAILABLE)]}:
                break
        assert elect(a, PREFERRED, None) == {"t": [(1, PREFERRED_NOT_AVAILABLE)]}
        assert elect(a, UNCLEAN, [0, 1]) == {"t": [(0, ELECTION_NOT_NEEDED), (1, 0)]}
        assert node.cluster().partition("t", 1).state.isr == (1,)
        assert elect(a, PREFERRED, None) == {"t": []}


def test_reassignments_that_the_tree_records_are_listed(tmp_path):
    with admin_on(tmp_path, broker_id="1") as a:
        a.create("t", 2)
        node = a.broker.node
        topic = node.cluster().topic("t")
        moving = replace(
            topic.assignment, partitions={0: (1,), 1: (1, 2)}, adding_replicas={1: (2,)}
        )
        node.opened.tree.set(znodes.topic_path("t"), moving.encode())
        for _ in range(500):
            topics = a.call(46, 0, timeoutMs=9000, topics=None).topics
            if topics:
                break
        [row] = topics[0].partitions
        assert (row.partitionIndex, row.replicas, row.addingReplicas) == (1, [1, 2], [2])


def test_a_partition_is_not_moved_to_another_broker(tmp_path):
    with admin_on(tmp_path, broker_id="1") as a:
        a.create("t")
        asked = [{"name": "t", "partitions": [{"partitionIndex": 0, "replicas": [2]}]}]
        answer = a.call(45, 1, timeoutMs=9000, topics=asked, allowReplicationFactorChange=True)
        assert answer.responses[0].partitions[0].errorCode == BAD_REPLICAS


def test_the_controller_is_the_quorum(tmp_path):
    with admin_on(tmp_path, broker_id="7") as a:
        asked = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]

        def quorum():
            answer = a.call(55, 2, topics=asked)
            return answer, answer.topics[0].partitions[0]

        answer, before = quorum()
        assert before.leaderId == 7 and [row.replicaId for row in before.currentVoters] == [7]
        [address] = answer.nodes[0].listeners
        assert f"{address.host}:{address.port}" == a.broker.bootstrap_servers
        a.create("t")
        assert quorum()[1].highWatermark > before.highWatermark > 0


def test_telemetry_max_bytes(tmp_path):
    """Kafka also answers keys 71 and 72 when no plugin receives metrics, but does not announce
    them."""
    with admin_on(tmp_path, **{"telemetry.max.bytes": "1000"}) as a:
        assert not {71, 72} & announced(a).keys()
        given = a.call(71, 0, clientInstanceId=text_of(bytes(16)))
        assert given.clientInstanceId != bytes(16) and given.requestedMetrics == []
        assert given.telemetryMaxBytes == 1000
        mine = bytes(range(16))
        assert a.call(71, 0, clientInstanceId=text_of(mine)).clientInstanceId == mine

        def push(client_id=mine, subscription=given.subscriptionId, metrics=b""):
            return a.call(
                72, 0, clientInstanceId=text_of(client_id), subscriptionId=subscription,
                terminating=False, compressionType=0, metrics=text_of(metrics),
            ).errorCode  # fmt: skip

        assert push() == 0
        assert push(client_id=bytes(16)) == INVALID_REQUEST
        assert push(subscription=given.subscriptionId + 1) == UNKNOWN_SUBSCRIPTION
        assert push(metrics=bytes(999)) == 0
        assert push(metrics=bytes(1002)) == TOO_LARGE
