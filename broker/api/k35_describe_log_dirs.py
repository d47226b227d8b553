"""DescribeLogDirs (35), versions 0-5: partitions and disk space of each log directory.

A size is that of the segments' log files. A replica that moves to another directory has a second
row there (isFutureKey), whose lag is the number of records that it lacks; the lag of others is 0.
Topics null means all. The answer lists every directory, also those without a requested partition.

v1 nothing on the wire; v2 flexible; v3 an error for all; v4 the volume's total and usable bytes;
v5 whether the directory accepts no new partitions; this build has no such directories.
"""

from collections import defaultdict
from pathlib import Path

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import PartitionContext
from barnabas.cext.log.log_handle import LogError
from barnabas.errors import KafkaStorageError
from barnabas.security.acl_codes import DESCRIBE
from barnabas.storage.log_dirs import disk_space
from barnabas.storage.log_manager import PartitionLog
from barnabas.wire import Struct

KEY = 35
VERSIONS = (0, 5)
CONTEXT = PartitionContext
ACCESS = of_cluster(DESCRIBE)
UNKNOWN = -1


def handle(request: Struct, call: Call[PartitionContext]) -> Struct:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    found: dict[Path, list[PartitionLog]] = defaultdict(list)
    logs = call.context.logs
    for row in (*logs.logs(), *logs.futures()):
        if wanted is None or (row.topic, row.partition) in wanted:
            found[row.directory.parent].append(row)
    directories = call.context.logs.directories()
    results = [_result(row.path, found[row.path], call) for row in directories]
    row_of = call.struct("results")
    for path in call.context.logs.failed_directories:
        results.append(row_of(logDir=str(path), errorCode=KafkaStorageError.code, topics=[]))
    return call.answer()(results=results)


def refuse(request: Struct, code: int, call: Call[PartitionContext]) -> Struct:
    return call.answer()(errorCode=code, results=[])


def _result(path: Path, logs: list[PartitionLog], call: Call[PartitionContext]) -> Struct:
    row = call.struct("results")(logDir=str(path), topics=_topics(logs, call))
    if call.version >= 4:
        row.totalBytes = row.usableBytes = UNKNOWN
        try:
            row.totalBytes, row.usableBytes = disk_space(path)
        except OSError:
            row.errorCode = KafkaStorageError.code
    return row


def _topics(logs: list[PartitionLog], call: Call[PartitionContext]) -> list[Struct]:
    topic_of, row_of = call.struct("results.topics"), call.struct("results.topics.partitions")
    partitions: dict[str, list[Struct]] = defaultdict(list)
    known = call.context.logs
    for log in sorted(logs, key=lambda log: (log.topic, log.partition)):
        is_future = log is known.future(log.topic, log.partition)
        try:
            size_bytes = sum(segment.size_bytes for segment in log.handle.segments())
            lag = known.future_lag(log) if is_future else 0
        except LogError:
            continue  # the topic was deleted, or the move ended, since the list was made
        partitions[log.topic].append(
            row_of(
                partitionIndex=log.partition,
                partitionSize=size_bytes,
                offsetLag=lag,
                isFutureKey=is_future,
            )
        )
    return [topic_of(name=name, partitions=rows) for name, rows in partitions.items()]
