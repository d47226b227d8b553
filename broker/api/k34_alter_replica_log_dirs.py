"""AlterReplicaLogDirs (34), versions 0-2: moves replicas of this broker to other log directories.

Replicas do not move between log directories yet. For the directory that contains the replica the
answer is success, as in Kafka; for another directory of this broker it is INVALID_REQUEST, and the
broker logs a warning. A directory that is not in log.dirs gets LOG_DIR_NOT_FOUND, also for unknown
topics.

v1 nothing on the wire; v2 flexible.
"""

import logging
import os
from pathlib import Path

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.errors import (
    InvalidRequest,
    KafkaError,
    LogDirNotFound,
    UnknownTopicOrPartition,
)
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

log = logging.getLogger("barnabas.api")

KEY = 34
VERSIONS = (0, 2)
CONTEXT = PartitionContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    codes = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                try:
                    _check(directory.path, topic.name, index, call)
                    codes[topic.name, index] = 0
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


def _check(path: str, topic: str, index: int, call: Call[PartitionContext]) -> None:
    """Checks that the replica is in the directory `path`. Raises LogDirNotFound,
    UnknownTopicOrPartition, and InvalidRequest when it is in another directory."""
    known = {os.path.abspath(row.path) for row in call.context.logs.directories()}
    wanted = os.path.normpath(path)  # a path from the request: no system call takes it
    if wanted not in known:
        raise LogDirNotFound()
    found = call.context.logs.get(topic, index)
    if found is None:
        raise UnknownTopicOrPartition()
    now = os.path.abspath(Path(found.directory).parent)
    if now != wanted:
        log.warning(
            "AlterReplicaLogDirs from %s: %s-%d stays in %s and is not moved to %s: replicas do not"
            " move between log directories yet",
            call.peer,
            topic,
            index,
            now,
            wanted,
        )
        raise InvalidRequest()


def _answer(codes: dict[tuple[str, int], int], call: Call[PartitionContext]) -> Struct:
    topic_of, row_of = call.struct("results"), call.struct("results.partitions")
    rows: dict[str, list[Struct]] = {}
    for (topic, index), code in codes.items():
        rows.setdefault(topic, []).append(row_of(partitionIndex=index, errorCode=code))
    return call.answer()(
        results=[topic_of(topicName=name, partitions=found) for name, found in rows.items()]
    )
