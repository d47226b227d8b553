"""OffsetCommit (8), versions 0-10: how far a group has read; answered when it is durable.

A native handler answers versions 1 to 10 on the network threads (next:
cext/coordinator/offset_commit.pyx). It passes a request here when it has as many commits as it may
have; Python takes them, and the handler goes on.

v0 offsets go to the metadata tree, as 0.8 kept them; v1 generation, member, a timestamp of the
client's; v2 a retention time (to v4); v3 throttle time; v6 leader epochs; v7 static members; v8
flexible; v9 members of the new protocol (GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH); v10 topic ids.
"""

from barnabas.api.access import Access
from barnabas.api.by_partition import with_code, with_codes
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.api.later import Later
from barnabas.errors import KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.security.acl_codes import GROUP, READ, TOPIC
from barnabas.wire import Struct

KEY = 8
VERSIONS = (0, 10)
CONTEXT = GroupContext
ACCESS = Access(native=((READ, GROUP), (READ, TOPIC)), elsewhere="_to_the_tree: the same")


def handle(request: Struct, call: Call[GroupContext]) -> Struct | Later:
    if call.version == 0:
        return _to_the_tree(request, call)
    call.context.groups.take_commits()
    return call.proceed()


def _to_the_tree(request: Struct, call: Call[GroupContext]) -> Struct:
    call.require(READ, GROUP, request.groupId)
    codes = []
    for topic in request.topics:
        allowed = call.may(READ, TOPIC, topic.name)
        for row in topic.partitions:
            try:
                if not allowed:
                    raise TopicAuthorizationFailed()
                if call.context.cluster().partition(topic.name, row.partitionIndex) is None:
                    raise UnknownTopicOrPartition()
                call.context.tree_offsets.commit(
                    request.groupId, topic.name, row.partitionIndex, row.committedOffset
                )
                codes.append(0)
            except KafkaError as error:
                codes.append(error.code)
    return with_codes(request, codes, call)


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return with_code(request, code, call)
