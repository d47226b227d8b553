"""Brings answers that last to the network threads, and takes them back when they no longer do.

Which answers last is said by the module of their API key (`lasting`, see table.py).
"""

from collections.abc import Callable
from functools import partial

from barnabas.cext.network.request_queue import PendingRequest
from barnabas.cext.network.response_cache import KeptAnswers
from barnabas.metadata.cluster_state import ClusterState


def keeper(kept: KeptAnswers, pending: PendingRequest) -> Callable[[bytes, int], object] | None:
    """What takes the answer to this request; to be made before the answer is begun. None for a
    request of another API key."""
    if pending.api_key != kept.api_key:
        return None
    return partial(_keep, kept, pending, kept.generation)


def _keep(
    kept: KeptAnswers, pending: PendingRequest, generation: int, frame: bytes, code_count: int
) -> None:
    kept.keep(
        generation=generation,
        listener_index=pending.listener_index,
        api_version=pending.api_version,
        question=pending.data[pending.body_at :],
        frame=frame,
        good_codes=code_count,
    )


def forgetting(
    kept: KeptAnswers, apply: Callable[[ClusterState], object]
) -> Callable[[ClusterState], None]:
    """Wraps `apply` to clear the response cache before and after it. The second time removes
    responses that were made of the new state while its logs were still being opened."""

    def changed(state: ClusterState) -> None:
        kept.forget()
        try:
            apply(state)
        finally:
            kept.forget()

    return changed
