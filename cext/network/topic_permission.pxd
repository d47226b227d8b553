"""The right to a topic that a request names by name or id: one rule for all native handlers."""
from libc.stdint cimport int16_t, int32_t, uint8_t

from barnabas.cext.codec.error_codes cimport (
    ERROR_NONE, ERROR_TOPIC_AUTHORIZATION_FAILED, ERROR_UNKNOWN_TOPIC_ID,
)
from barnabas.cext.network.handler cimport Request
from barnabas.cext.network.permissions cimport permission_ask, PERMISSION_ALLOWED, RESOURCE_TOPIC
from barnabas.cext.partition.partitions cimport Table, topic_name_by_id

cdef inline int16_t topic_refusal(
    Request* r, int operation, Table* table, bint by_id, const uint8_t* topic_id,
    const uint8_t* topic, int32_t topic_bytes, int* worst
) noexcept nogil:
    """Asks for an operation on a topic, inside an epoch of the table. Returns the error code of its
    rows, and sets `worst` to the answer of permission_ask if that is larger. For an unknown id it
    returns UNKNOWN_TOPIC_ID and asks for no right; the caller must not look the id up again."""
    cdef int answer
    if by_id:
        topic = <const uint8_t*>topic_name_by_id(table, topic_id, &topic_bytes)
        if topic == NULL:
            return ERROR_UNKNOWN_TOPIC_ID
    answer = permission_ask(r, operation, RESOURCE_TOPIC, topic, topic_bytes)
    worst[0] = max(worst[0], answer)
    return ERROR_NONE if answer == PERMISSION_ALLOWED else ERROR_TOPIC_AUTHORIZATION_FAILED
