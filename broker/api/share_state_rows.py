"""Handles the requests about the state of share partitions (83-87), which have the same shape. The
answer is sent when all its rows are complete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from barnabas.api.call import Call
from barnabas.api.contexts import ShareContext
from barnabas.api.later import Later
from barnabas.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from barnabas.wire import Struct
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_state import ShareKey

Fields = dict[str, object]
NOTHING: Fields = {}


class Done(Protocol):
    """Completes one partition of a request, with the error or the fields of its row."""

    def __call__(self, error: KafkaError | None, fields: Fields = NOTHING) -> object: ...


# Handles one partition of a request: calls `done`, at once or later, or raises a KafkaError.
Part = Callable[["ShareKey", Struct, Done], object]
NO_ID = bytes(16)


def answered(
    request: Struct,
    call: Call[ShareContext],
    part: Part,
    *,
    of_topics: bool = True,
) -> Struct | Later:
    """Answers with a row for each partition of the request when all rows are known. Without
    `of_topics` a partition that does not exist counts as one without a state."""
    from barnabas.coordinator.share.share_state import ShareKey

    if not request.groupId:
        return call.answer()()  # as Kafka: nothing is known of no group
    rows = list(_rows(request))
    if not rows:
        return call.answer()()
    later = Later()
    lock = threading.Lock()
    found: list[Fields] = [NOTHING for _ in rows]
    left = [len(rows)]

    def done(at: int, error: KafkaError | None, fields: Fields = NOTHING) -> None:
        with lock:
            found[at] = fields
            if error is not None:
                found[at] = {"errorCode": error.code, "errorMessage": error.message}
            left[0] -= 1
            if left[0]:
                return
        later.settle(_answer(rows, found, call))

    for at, (topic, row) in enumerate(rows):
        key = ShareKey(request.groupId, topic.topicId, row.partition)
        try:
            _check(key, row)
            if of_topics:
                _check_topic(key, call)
            part(key, row, partial(done, at))
        except KafkaError as error:
            done(at, error)
    return later


def _rows(request: Struct) -> Iterator[tuple[Struct, Struct]]:
    for topic in request.topics:
        for row in topic.partitions:
            yield topic, row


def _check(key: ShareKey, row: Struct) -> None:
    if key.topic_id == NO_ID:
        raise InvalidRequest("The topic id cannot be null.")
    if key.partition < 0:
        raise InvalidRequest("The partition id cannot be a negative number.")
    for name in ("leaderEpoch", "stateEpoch"):
        if getattr(row, name, 0) < 0:
            words = "leader" if name == "leaderEpoch" else "state"
            raise InvalidRequest(f"The {words} epoch cannot be a negative number.")


def _check_topic(key: ShareKey, call: Call[ShareContext]) -> None:
    topic = call.context.cluster().topic_by_id(uuid_text(key.topic_id))
    if topic is None or key.partition not in topic.partitions:
        raise UnknownTopicOrPartition()


def _answer(
    rows: list[tuple[Struct, Struct]], fields: list[Fields], call: Call[ShareContext]
) -> Struct:
    topic_of, row_of = call.struct("results"), call.struct("results.partitions")
    topics: dict[bytes, list[Struct]] = {}
    for (topic, row), values in zip(rows, fields, strict=True):
        listed = topics.setdefault(topic.topicId, [])
        listed.append(row_of(partition=row.partition, **values))
    return call.answer()(
        results=[topic_of(topicId=topic_id, partitions=rows) for topic_id, rows in topics.items()]
    )


def refused(request: Struct, code: int, call: Call[ShareContext]) -> Struct:
    rows = list(_rows(request))
    return _answer(rows, [{"errorCode": code} for _ in rows], call)
