"""AlterReplicaLogDirs (34), versions 0-2: moves replicas of this broker to other log directories.

The answer comes when the moves have begun (server/alter_log_dirs.py); DescribeLogDirs shows those
in progress as future replicas. The directory that contains the replica ends its move. A directory
that is not in log.dirs gets LOG_DIR_NOT_FOUND, also for unknown topics. For a replica that this
broker does not have yet, REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION, the broker remembers
the directory and uses it when it creates the replica.

v1 nothing on the wire; v2 flexible.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.errors import KafkaError
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

KEY = 34
VERSIONS = (0, 2)
CONTEXT = PartitionContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    codes: dict[tuple[str, int], int] = {}
    moves = call.context.log_dir_moves()
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                codes[topic.name, index] = 0
                try:
                    moves.alter(topic.name, index, directory.path)
                except KafkaError as error:
                    codes[topic.name, index] = error.code
    return _answer(codes, call)


def refuse(request: Struct, code: int, call: Call[PartitionContext]) -> Struct:
    return _answer(
        {
            (topic.name, index): code
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        },
        call,
    )


def _answer(codes: dict[tuple[str, int], int], call: Call[PartitionContext]) -> Struct:
    topic_of, row_of = call.struct("results"), call.struct("results.partitions")
    rows: dict[str, list[Struct]] = {}
    for (topic, index), code in codes.items():
        rows.setdefault(topic, []).append(row_of(partitionIndex=index, errorCode=code))
    return call.answer()(
        results=[topic_of(topicName=name, partitions=found) for name, found in rows.items()]
    )
