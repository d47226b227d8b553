"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id.

Groups and transactions are not served yet: every key gets COORDINATOR_NOT_AVAILABLE, which clients
take as "ask again later".

v1 key type, throttle time, message; v3 flexible; v4 several keys in one request; v6 share groups.
"""

from barnabas.api.call import Call
from barnabas.errors import CoordinatorNotAvailable, InvalidRequest, error_of
from barnabas.wire import Struct

KEY = 10
VERSIONS = (0, 6)


GROUP, TRANSACTION, SHARE = range(3)
SHARE_FIRST_VERSION = 6


def handle(request: Struct, call: Call) -> Struct:
    known = (GROUP, TRANSACTION, SHARE) if call.version >= SHARE_FIRST_VERSION else (0, 1)
    if request.keyType not in known:
        return refuse(request, InvalidRequest.code, call)
    return refuse(request, CoordinatorNotAvailable.code, call)


def refuse(request: Struct, code: int, call: Call) -> Struct:
    message = error_of(code).meaning
    if call.version >= 4:
        row = call.struct("coordinators")
        return call.answer()(
            coordinators=[
                row(key=key, nodeId=-1, host="", port=-1, errorCode=code, errorMessage=message)
                for key in request.coordinatorKeys
            ]
        )
    return call.answer()(errorCode=code, nodeId=-1, host="", port=-1, errorMessage=message)
