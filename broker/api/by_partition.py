"""Builds answers that have the shape of the request: a row for each topic, which contains one for
each partition."""

from collections.abc import Callable, Sequence

from barnabas.api.call import Call
from barnabas.wire import Struct


def by_topic(
    request: Struct,
    call: Call[object],
    partitions: Callable[[Struct], list[Struct]],
    names: Sequence[str] = ("name",),
) -> Struct:
    """Returns the answer: each topic has the request's fields `names`, and the rows that
    `partitions` returns for it."""
    topic_of = call.struct("topics")
    return call.answer()(
        topics=[
            topic_of(partitions=partitions(topic), **{name: getattr(topic, name) for name in names})
            for topic in request.topics
        ]
    )


def with_codes(request: Struct, codes: Sequence[int], call: Call[object]) -> Struct:
    """Returns the answer to a commit. `codes`: one error code for each partition, in the order of
    the request."""
    row_of = call.struct("topics.partitions")
    at = iter(codes)

    def rows(topic: Struct) -> list[Struct]:
        return [
            row_of(partitionIndex=row.partitionIndex, errorCode=next(at))
            for row in topic.partitions
        ]

    return by_topic(request, call, rows, ("name", "topicId"))


def with_code(request: Struct, code: int, call: Call[object]) -> Struct:
    """Returns the answer to a commit with the same error code for every partition."""
    return with_codes(request, [code] * sum(len(row.partitions) for row in request.topics), call)
