"""The rights of clients, as native handlers ask for them: see permissions.pyx.

A handler calls permission_begin, then permission_ask for each right, before it changes anything. If
any answer is PERMISSION_UNKNOWN, it answers HANDLER_PYTHON: Python decides (security/decisions.py),
and the reactor calls the handler again with the same request. A request that waited, and has
changed nothing yet, asks again when permission_moved.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from barnabas.cext.memory.atomics cimport atomic_load_i64
from barnabas.cext.network.handler cimport PermissionTable, Request

cdef enum:                      # Kafka's AclOperation
    OPERATION_READ = 3
    OPERATION_WRITE = 4
    OPERATION_CLUSTER_ACTION = 9

cdef enum:                      # Kafka's ResourceType
    RESOURCE_TOPIC = 2
    RESOURCE_GROUP = 3
    RESOURCE_CLUSTER = 4
    RESOURCE_TRANSACTIONAL_ID = 5

cdef enum:                      # the answers, so that the largest of several is that of all
    PERMISSION_ALLOWED = 0
    PERMISSION_DENIED = 1
    PERMISSION_UNKNOWN = 2

cdef struct Permissions:
    int64_t epoch               # atomic: of the rules
    int (*ask)(
        Permissions* permissions, Request* request, int operation, int resource_type,
        const uint8_t* name, int32_t name_bytes) noexcept nogil

cdef inline void permission_begin(Request* r) noexcept nogil:
    if r.permissions != NULL:
        r.rules_epoch = atomic_load_i64(&(<Permissions*>r.permissions).epoch)

cdef inline int permission_ask(Request* r, int operation, int resource_type, const uint8_t* name, int32_t name_bytes) noexcept nogil:
    """Returns whether the client of the request has a right; notes a question for Python when that
    is unknown. Without an authorizer every right is given."""
    if r.permissions == NULL:
        return PERMISSION_ALLOWED
    return (<Permissions*>r.permissions).ask(
        <Permissions*>r.permissions, r, operation, resource_type, name, name_bytes)

cdef inline bint permission_moved(const Request* r) noexcept nogil:
    """Returns whether the rules have changed since permission_begin."""
    return r.permissions != NULL and (
        atomic_load_i64(&(<Permissions*>r.permissions).epoch) != r.rules_epoch)
