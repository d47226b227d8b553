"""StreamsGroupTopologyDescriptionUpdate (93), version 0: a member describes its topology, for a
plugin that stores the description.

Kafka answers UNSUPPORTED_VERSION while group.streams.topology.description.plugin.class names no
class. That setting has no effect here, so this is the answer; StreamsGroupDescribe says that no
description is stored, and heartbeats ask for none.
"""

from barnabas.api.access import of_group
from barnabas.api.call import Call
from barnabas.api.contexts import StreamsContext
from barnabas.api.k88_streams_group_heartbeat import check_enabled
from barnabas.errors import UnsupportedVersion, error_of
from barnabas.security.acl_codes import READ
from barnabas.wire import Struct

KEY = 93
VERSIONS = (0, 0)
CONTEXT = StreamsContext
ACCESS = of_group(READ)


def handle(request: Struct, call: Call[StreamsContext]) -> Struct:
    check_enabled(call)
    return call.answer()(
        errorCode=UnsupportedVersion.code,
        errorMessage="The broker has no streams group topology description plugin configured.",
    )


def refuse(request: Struct, code: int, call: Call[StreamsContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=error_of(code)().message)
