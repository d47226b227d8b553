"""Maps failures of the metadata store or of a log directory to Kafka errors.

RETRIED gives REQUEST_TIMED_OUT: the change may have succeeded, or may succeed when the client
retries. Other failures are those of the disk (KAFKA_STORAGE_ERROR) or of the request
(INVALID_REQUEST: a path or value beyond the store's limits).
"""

from __future__ import annotations

import logging

from barnabas.api.call import Call
from barnabas.errors import InvalidRequest, KafkaError, KafkaStorageError, RequestTimedOut
from barnabas.metadata.tree import (
    Forbidden,
    InvalidPath,
    MetadataError,
    MultiFailed,
    OutcomeUnknown,
    SessionLost,
    StoreUnavailable,
    StoreUnreachable,
    TooLarge,
)
from barnabas.wire.api_keys import api_key

log = logging.getLogger("barnabas.api")

RETRIED = (StoreUnreachable, SessionLost, OutcomeUnknown)
ANSWERED = (KafkaError, MetadataError, OSError)  # the exceptions that `kafka_error_of` accepts


def kafka_error_of(failure: Exception, call: Call[object]) -> KafkaError:
    """Returns the error that the client gets for one of ANSWERED; logs a failure of the store.
    Raises `failure` itself when the broker has used the store wrongly (a node is absent, a version
    has changed)."""
    if isinstance(failure, KafkaError):
        return failure
    cause = failure.error if isinstance(failure, MultiFailed) else failure
    if isinstance(cause, TooLarge | InvalidPath):
        return InvalidRequest(str(cause))
    if isinstance(cause, RETRIED):
        error: KafkaError = RequestTimedOut(str(cause))
    elif isinstance(cause, StoreUnavailable | Forbidden | OSError):
        error = KafkaStorageError(str(cause))
    else:
        raise failure
    name = api_key(call.key).name
    log.error("%s from %s answered with %s: %s", name, call.peer, error.name, cause)
    return error
