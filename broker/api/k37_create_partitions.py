"""CreatePartitions (37), versions 0-3: adds partitions to topics.

When the answer arrives, clients can produce to the new partitions. `assignments` has the replicas
of each new one; null leaves the choice to the broker. validateOnly checks and adds nothing.

v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED, where older versions carry out and throttle.
"""

from collections import Counter
from functools import partial

from barnabas.api.access import of_rows
from barnabas.api.call import Call
from barnabas.api.contexts import TopicContext
from barnabas.api.store_errors import ANSWERED, kafka_error_of
from barnabas.errors import InvalidRequest, UnknownTopicOrPartition
from barnabas.security.acl_codes import ALTER, TOPIC
from barnabas.wire import Struct

KEY = 37
VERSIONS = (0, 3)
CONTEXT = TopicContext
ACCESS = of_rows(ALTER, TOPIC, "topics", "results", "name")
STRICT_FROM = 3  # over the quota of mutations, nothing is added


def handle(request: Struct, call: Call[TopicContext]) -> Struct:
    call.context.controller_role.required()
    asked = Counter(topic.name for topic in request.topics)
    once = {topic.name: topic for topic in request.topics}
    rows = []
    for name, topic in once.items():
        row = call.struct("results")(name=name)
        try:
            if asked[name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            assignments = topic.assignments
            call.context.growth.grow(
                name,
                topic.count,
                None if assignments is None else [tuple(each.brokerIds) for each in assignments],
                request.validateOnly,
                partial(call.context.charge, call.pending, call.version >= STRICT_FROM),
            )
        except UnknownTopicOrPartition as error:
            row.errorCode = error.code  # Kafka sends no message with it
        except ANSWERED as failure:
            answered = kafka_error_of(failure, call)
            row.errorCode, row.errorMessage = answered.code, answered.message
        rows.append(row)
    return call.answer()(results=rows)


def refuse(request: Struct, code: int, call: Call[TopicContext]) -> Struct:
    row = call.struct("results")
    return call.answer()(results=[row(name=topic.name, errorCode=code) for topic in request.topics])
