"""ListPartitionReassignments (46), version 0: the reassignments in progress.

Null topics means all; the answer leaves out unknown topics and partitions.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.metadata.cluster_state import Topic
from barnabas.security.acl_codes import DESCRIBE
from barnabas.wire import Struct

KEY = 46
VERSIONS = (0, 0)
CONTEXT = MetadataContext
ACCESS = of_cluster(DESCRIBE)


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    state = call.context.cluster()
    if request.topics is None:
        asked = [(topic, list(topic.partitions)) for topic in state.topics.values()]
    else:
        asked = [
            (topic, row.partitionIndexes)
            for row in request.topics
            if (topic := state.topic(row.name)) is not None
        ]
    topic_of = call.struct("topics")
    found = [(topic.name, _moving(topic, indexes, call)) for topic, indexes in asked]
    return call.answer()(
        errorMessage=None,
        topics=[topic_of(name=name, partitions=rows) for name, rows in found if rows],
    )


def refuse(_request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=None)


def _moving(topic: Topic, indexes: list[int], call: Call[MetadataContext]) -> list[Struct]:
    row_of = call.struct("topics.partitions")
    adding, removing = topic.assignment.adding_replicas, topic.assignment.removing_replicas
    return [
        row_of(
            partitionIndex=index,
            replicas=list(topic.partitions[index].replicas),
            addingReplicas=list(adding.get(index, ())),
            removingReplicas=list(removing.get(index, ())),
        )
        for index in indexes
        if index in topic.partitions and (adding.get(index) or removing.get(index))
    ]
