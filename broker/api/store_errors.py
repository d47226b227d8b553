"""Which Kafka error answers a request whose metadata store, or log directory, failed.

RETRIED: the change may succeed, or may have succeeded, when the client tries again. Everything else
that the store refuses is either the disk's fault (KAFKA_STORAGE_ERROR) or the request's
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
ANSWERED = (KafkaError, MetadataError, OSError)  # what `kafka_error_of` takes


def kafka_error_of(failure: Exception, call: Call[object]) -> KafkaError:
    """The error that the client gets for one of ANSWERED; a failure of the store is logged. Raises
    `failure` itself when it means that the broker used the store wrongly (a node that is absent, a
    version that changed)."""
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
