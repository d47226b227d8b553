"""The frames of Kafka 0.7: requests and answers.

    request        int32 size, int16 type, body; the reactor cuts the frame and reads the type
    0 produce      topic, partition, int32 size, message set        no answer
    1 fetch        topic, partition, int64 address, int32 size_max
    2 multi-fetch  int16 count, as many bodies of a fetch
    3 multi-produce int16 count, as many bodies of a produce        no answer
    4 offsets      topic, partition, int64 time (-1 latest, -2 earliest), int32 count_max

    topic int16 size + UTF-8; partition int32

    answer         int32 size, int16 error, and
    to a fetch     the messages
    to a multi-fetch  error 0, as many answers to a fetch, each with its own size
    to offsets     int32 count, as many int64 addresses, the largest first

Bytes behind a body are ignored, as in 0.7. A request that is not well-formed raises BadRequest;
then the broker closes the connection, because most requests have no answer. The memory for a
request is limited by its frame."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

PRODUCE, FETCH, MULTI_FETCH, MULTI_PRODUCE, OFFSETS = range(5)

UNKNOWN_ERROR = -1
NO_ERROR = 0
OFFSET_OUT_OF_RANGE = 1
INVALID_MESSAGE = 2
WRONG_PARTITION = 3
INVALID_FETCH_SIZE = 4

LATEST, EARLIEST = -1, -2

_ANSWER = struct.Struct(">ih")


class BadRequest(ValueError):
    """The bytes are not a request of Kafka 0.7, or not messages of 0.7."""


class ProduceAsked(NamedTuple):
    topic: str
    partition: int  # -1: the broker chooses one
    messages: bytes


class FetchAsked(NamedTuple):
    topic: str
    partition: int
    address: int
    size_max: int


class OffsetsAsked(NamedTuple):
    topic: str
    partition: int
    time: int
    count_max: int


Asked = ProduceAsked | FetchAsked | OffsetsAsked


class _Fields:
    """The fields of a request, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, size_bytes: int) -> bytes:
        end = self._at + size_bytes
        if size_bytes < 0 or end > len(self._data):
            raise BadRequest(
                f"a field of {size_bytes} bytes at byte {self._at} of {len(self._data)}"
            )
        found = self._data[self._at : end]
        self._at = end
        return found

    def integer(self, size_bytes: int) -> int:
        return int.from_bytes(self.take(size_bytes), "big", signed=True)

    def place(self) -> tuple[str, int]:
        """Returns topic and partition."""
        try:
            topic = self.take(self.integer(2)).decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the topic is not UTF-8: {error}") from None
        return topic, self.integer(4)


def parse_request(kind: int, data: bytes, at: int) -> list[Asked]:
    """Returns what a request asks for. `data`: its frame without the size; `at`: where the body
    begins. Raises BadRequest."""
    fields = _Fields(data, at)
    if kind == OFFSETS:
        return [OffsetsAsked(*fields.place(), fields.integer(8), fields.integer(4))]
    if not PRODUCE <= kind < OFFSETS:
        raise BadRequest(f"there is no request type {kind}")
    count = fields.integer(2) if kind in (MULTI_FETCH, MULTI_PRODUCE) else 1
    if count < 0:
        raise BadRequest(f"a request with {count} parts")
    if kind in (FETCH, MULTI_FETCH):
        return [
            FetchAsked(*fields.place(), fields.integer(8), fields.integer(4)) for _ in range(count)
        ]
    return [ProduceAsked(*fields.place(), fields.take(fields.integer(4))) for _ in range(count)]


def fetch_answer(error: int, messages: bytes = b"") -> bytes:
    return _ANSWER.pack(2 + len(messages), error) + messages


def multi_fetch_answer(answers: Sequence[bytes]) -> bytes:
    return fetch_answer(NO_ERROR, b"".join(answers))


def offsets_answer(error: int, addresses: Sequence[int] = ()) -> bytes:
    return fetch_answer(error, struct.pack(f">i{len(addresses)}q", len(addresses), *addresses))
