"""Answers in the shape of their question: a row for each topic, in it one for each partition."""

from collections.abc import Callable, Sequence

from barnabas.api.call import Call
from barnabas.wire import Struct


def by_topic(
    request: Struct,
    call: Call[object],
    partitions: Callable[[Struct], list[Struct]],
    names: Sequence[str] = ("name",),
) -> Struct:
    """The answer: its topics have the fields `names` of the request's, and `partitions` of each."""
    topic_of = call.struct("topics")
    return call.answer()(
        topics=[
            topic_of(partitions=partitions(topic), **{name: getattr(topic, name) for name in names})
            for topic in request.topics
        ]
    )


def with_codes(request: Struct, codes: Sequence[int], call: Call[object]) -> Struct:
    """The answer of a commit: the codes of all its partitions, in their order."""
    row_of = call.struct("topics.partitions")
    at = iter(codes)

    def rows(topic: Struct) -> list[Struct]:
        return [
            row_of(partitionIndex=row.partitionIndex, errorCode=next(at))
            for row in topic.partitions
        ]

    return by_topic(request, call, rows, ("name", "topicId"))


def with_code(request: Struct, code: int, call: Call[object]) -> Struct:
    """The same with one code for all."""
    return with_codes(request, [code] * sum(len(row.partitions) for row in request.topics), call)
