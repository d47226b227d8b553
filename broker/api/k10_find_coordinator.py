"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id.

Groups and transactions are not served yet: every key gets COORDINATOR_NOT_AVAILABLE, which clients
take as "ask again later".

v1 key type, throttle time, message; v3 flexible; v4 several keys in one request; v6 share groups.
"""

from barnabas.api.call import Call
from barnabas.errors import CoordinatorNotAvailable
from barnabas.wire import Struct

KEY = 10
VERSIONS = (0, 6)


def handle(request: Struct, call: Call) -> Struct:
    return refuse(request, CoordinatorNotAvailable.code, call)


def refuse(request: Struct, code: int, call: Call) -> Struct:
    if call.version >= 4:
        row = call.struct("coordinators")
        return call.answer()(
            coordinators=[
                row(key=key, nodeId=-1, host="", port=-1, errorCode=code)
                for key in request.coordinatorKeys
            ]
        )
    return call.answer()(errorCode=code, nodeId=-1, host="", port=-1)
