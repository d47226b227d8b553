"""Stores answers in the response cache of the network threads, and clears it at each change.

The module of an API key says which of its answers may be cached (`cacheable_codes`, see table.py).
"""

from collections.abc import Callable, Mapping
from functools import partial

from barnabas.api.table import Api
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.cext.network.response_cache import ResponseCache
from barnabas.metadata.cluster_state import ClusterState


def response_cache(table: Mapping[int, Api]) -> ResponseCache:
    """Returns a cache for the APIs whose answers may be cached."""
    return ResponseCache(
        tuple(
            (row.key, row.version_min, row.version_max)
            for row in table.values()
            if row.cacheable_codes is not None
        )
    )


def storing(cache: ResponseCache, pending: PendingRequest) -> Callable[[bytes, int], object]:
    """Returns the function that stores the answer to this request: it takes frame and number
    of error codes. Call this before the answer is begun: it reads the cache's generation."""
    return partial(_store, cache, pending, cache.generation)


def _store(
    cache: ResponseCache, pending: PendingRequest, generation: int, frame: bytes, code_count: int
) -> None:
    cache.store(
        generation=generation,
        listener_index=pending.listener_index,
        api_key=pending.api_key,
        api_version=pending.api_version,
        question=pending.data[pending.body_at :],
        frame=frame,
        good_codes=code_count,
        caller=pending.caller,
    )


def forgetting(
    cache: ResponseCache, apply: Callable[[ClusterState], object]
) -> Callable[[ClusterState], None]:
    """Wraps `apply` to clear the response cache before and after it. The second time removes
    responses that were made of the new state while its logs were still being opened."""

    def changed(state: ClusterState) -> None:
        cache.forget()
        try:
            apply(state)
        finally:
            cache.forget()

    return changed
