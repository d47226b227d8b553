"""DescribeQuorum (55), versions 0-2: the voters of the cluster's metadata and their offsets.

There is no KRaft quorum. The answer shows the controller as the only voter and the leader of
`__cluster_metadata`, partition 0, and the number of the metadata store's last commit as the end of
that log. If a request names any other partition, all its partitions get UNKNOWN_TOPIC_OR_PARTITION,
as in Kafka.

v1 times of the last fetch; v2 messages, directory ids, the controllers' addresses.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.controller.topic_names import CLUSTER_METADATA
from barnabas.errors import UnknownTopicOrPartition
from barnabas.security.acl_codes import DESCRIBE
from barnabas.wire import Struct

KEY = 55
VERSIONS = (0, 2)
CONTEXT = MetadataContext
ACCESS = of_cluster(DESCRIBE)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    asked = [(t.topicName, [row.partitionIndex for row in t.partitions]) for t in request.topics]
    is_quorum = asked == [(CLUSTER_METADATA, [0])]
    topic_of, row_of = call.struct("topics"), call.struct("topics.partitions")
    unknown = UnknownTopicOrPartition()
    topics = []
    for name, indexes in asked:
        rows = [
            _quorum(call)
            if is_quorum
            else row_of(partitionIndex=index, errorCode=unknown.code, errorMessage=unknown.message)
            for index in indexes
        ]
        topics.append(topic_of(topicName=name, partitions=rows))
    return call.answer()(topics=topics, nodes=_nodes(call) if is_quorum else [])


def refuse(_request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code)


def _quorum(call: Call[MetadataContext]) -> Struct:
    state = call.context.cluster()
    controller = -1 if state.controller_id is None else state.controller_id
    end, now_ms = call.context.last_commit(), call.context.wall_ms()
    voter = call.struct("topics.partitions.currentVoters")(
        replicaId=controller,
        logEndOffset=end,
        lastFetchTimestamp=now_ms,
        lastCaughtUpTimestamp=now_ms,
    )
    return call.struct("topics.partitions")(
        partitionIndex=0,
        leaderId=controller,
        leaderEpoch=state.controller_epoch,
        highWatermark=end,
        currentVoters=[voter] if controller >= 0 else [],
    )


def _nodes(call: Call[MetadataContext]) -> list[Struct]:
    """Returns the controller with its advertised listeners; nothing before version 2."""
    state = call.context.cluster()
    controller = state.brokers.get(-1 if state.controller_id is None else state.controller_id)
    if call.version < 2 or controller is None:
        return []
    listener_of = call.struct("nodes.listeners")
    return [
        call.struct("nodes")(
            nodeId=controller.broker_id,
            listeners=[
                listener_of(name=row.listener_name, host=row.host, port=row.port)
                for row in controller.registration.endpoints
            ],
        )
    ]
