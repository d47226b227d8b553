"""FindCoordinator (10), versions 0-6: the broker that coordinates a group or a transactional id.

The coordinator is the leader of one partition of an internal topic; the hash of the id selects the
partition. The first request creates the topic. While there is no coordinator, the answer is
COORDINATOR_NOT_AVAILABLE, and clients retry.

v1 key type, throttle time, message; v3 flexible; v4 several keys in one request; v6 share groups.
"""

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import FindContext
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    KafkaError,
    error_of,
)
from barnabas.security import acl_codes
from barnabas.security.acl_codes import CLUSTER_ACTION, DESCRIBE
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_bytes

KEY = 10
VERSIONS = (0, 6)
CONTEXT = FindContext
ACCESS = Access(elsewhere="_coordinator: DESCRIBE of the group or transactional id; CLUSTER_ACTION")


GROUP, TRANSACTION, SHARE = range(3)
RESOURCES = {GROUP: acl_codes.GROUP, TRANSACTION: acl_codes.TRANSACTIONAL_ID}
SHARE_FIRST_VERSION = 6
SEVERAL_FROM = 4
NOWHERE = (-1, "", -1)

Found = tuple[str, tuple[int, str, int], KafkaError | None]


def handle(request: Struct, call: Call[FindContext]) -> Struct:
    known = (GROUP, TRANSACTION, SHARE) if call.version >= SHARE_FIRST_VERSION else (0, 1)
    if request.keyType not in known:
        return refuse(request, InvalidRequest.code, call)
    names = request.coordinatorKeys if call.version >= SEVERAL_FROM else [request.key]
    found: list[Found] = []
    for name in names:
        try:
            found.append((name, _coordinator(request.keyType, name, call), None))
        except KafkaError as error:
            found.append((name, NOWHERE, error))
    return _answer(found, call)


def _coordinator(key_type: int, name: str, call: Call[FindContext]) -> tuple[int, str, int]:
    if key_type == SHARE:
        call.require(CLUSTER_ACTION)
        _check_share_key(name)
    else:
        call.require(DESCRIBE, RESOURCES[key_type], name)
    journal = call.context.journals.get(key_type)
    if journal is None:
        raise CoordinatorNotAvailable()
    try:
        journal.ensure()
    except KafkaError as error:  # as in Kafka: clients retry, and the next attempt may succeed
        raise CoordinatorNotAvailable() from error
    state = call.context.cluster()
    partition = state.partition(journal.topic, journal.partition_of(name))
    if partition is None or partition.state is None:
        raise CoordinatorNotAvailable()
    leader = state.brokers.get(partition.state.leader)
    for endpoint in leader.registration.endpoints if leader is not None else ():
        if leader is not None and endpoint.listener_name == call.listener:
            return leader.broker_id, endpoint.host, endpoint.port
    raise CoordinatorNotAvailable()


def _check_share_key(name: str) -> None:
    """Checks that a key is `group:topic id:partition`; the group's name may contain colons. Raises
    InvalidRequest."""
    group, topic_id, partition = name.rsplit(":", 2) if name.count(":") >= 2 else ("", "", "")
    try:
        uuid_bytes(topic_id)
        int(partition)
    except ValueError:
        group = ""
    if not group:
        raise InvalidRequest(f"Share coordinator key is invalid: {name[:200]}")


def _answer(found: list[Found], call: Call[FindContext]) -> Struct:
    if call.version >= SEVERAL_FROM:
        row = call.struct("coordinators")
        return call.answer()(
            coordinators=[
                row(
                    key=name,
                    nodeId=place[0],
                    host=place[1],
                    port=place[2],
                    errorCode=0 if error is None else error.code,
                    errorMessage="" if error is None else error.message,
                )
                for name, place, error in found
            ]
        )
    ((_, (node_id, host, port), error),) = found
    return call.answer()(
        errorCode=0 if error is None else error.code,
        errorMessage="NONE" if error is None else error.message,  # Kafka's word for it
        nodeId=node_id,
        host=host,
        port=port,
    )


def refuse(request: Struct, code: int, call: Call[FindContext]) -> Struct:
    names = request.coordinatorKeys if call.version >= SEVERAL_FROM else [request.key]
    return _answer([(name, NOWHERE, error_of(code)()) for name in names], call)
