"""Produce 0 to 2 and Fetch 0 to 3 of one partition to a running broker."""

from compat.support import Wire

from barnabas.wire import Struct, request


def fetch_old(wire: Wire, topic: str, version: int) -> Struct:
    """The answer of partition 0, from its first offset on."""
    asks = request(1)
    part = asks.struct("topics.partitions")(partitionMaxBytes=1 << 20)
    body = asks.cls(replicaId=-1, topics=[asks.struct("topics")(topic=topic, partitions=[part])])
    if version >= 3:
        body.maxBytes = 1 << 20
    return wire.call(1, version, body).responses[0].partitions[0]


def produce_old(wire: Wire, topic: str, version: int, records: bytes) -> Struct:
    """The answer of partition 0."""
    asks = request(0)
    part = asks.struct("topicData.partitionData")(records=records)
    topics = [asks.struct("topicData")(name=topic, partitionData=[part])]
    answer = wire.call(0, version, asks.cls(acks=-1, timeoutMs=5000, topicData=topics))
    return answer.responses[0].partitionResponses[0]
