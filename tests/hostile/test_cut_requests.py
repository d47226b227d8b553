"""Every served request, cut at every byte and sent a byte at a time.

The requests are the vectors of Kafka's own classes (tests/vectors). A frame that is cut and has
the right size is malformed: the connection is closed without a response. A complete one that
arrives in pieces gets the same response.
"""

import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from hostile.raw import connect, framed
from oracle.vectors import vectors

from barnabas.api.table import api_table
from barnabas.wire import request
from barnabas.wire.headers import encode_request

# Long enough for the waiting requests of this test.
MORE_SETTINGS = {"request.receive.timeout.ms": 10_000}
CORRELATION_ID = 5
AT_ONCE = 40  # fewer than the listener's backlog: a refused connection is retried after 1 s
CUT_BYTES_MAX = 250  # of a vector: longer ones repeat the contents of shorter ones
ANSWER_S = 0.5  # a request without a response for this long counts as waiting
KEYS = sorted(api_table())


def frames_of(key: int) -> dict[tuple[int, str], bytes]:
    """The requests of a key by version and case, without the size in front."""
    api = api_table()[key]
    found = {}
    for vector in vectors("rpc"):
        name = request(key).name
        if vector["api"] == name and api.serves(vector["version"]):
            body = request(key).decode(vector["bytes"], vector["version"])
            frame = encode_request(key, vector["version"], CORRELATION_ID, "cut", body)
            found[vector["version"], vector["case"]] = frame[4:]
    return found


def largest(key: int) -> Iterator[bytes]:
    """For each version the longest frame that is short enough to be cut at every byte."""
    by_version: dict[int, list[bytes]] = {}
    for (version, _), frame in frames_of(key).items():
        by_version.setdefault(version, []).append(frame)
    for frames in by_version.values():
        short = [frame for frame in frames if len(frame) <= CUT_BYTES_MAX]
        yield max(short, key=len) if short else min(frames, key=len)


def outcomes(broker, sent: list[bytes]) -> list[bytes | None]:
    """For each of `sent`, on its own connection: the response, b"" if it was closed,
    None when nothing came for as long as the others took and ANSWER_S more."""
    connections: list[socket.socket] = []
    found: dict[int, bytes | None] = {}
    try:
        for data in sent:
            connections.append(connect(broker))
            connections[-1].sendall(data)
        waiting = select.epoll()
        by_number = {one.fileno(): index for index, one in enumerate(connections)}
        for number in by_number:
            waiting.register(number, select.EPOLLIN)
        give_up = time.monotonic() + ANSWER_S
        while len(found) < len(sent) and time.monotonic() < give_up:
            for number, _ in waiting.poll(0.05):
                index = by_number[number]
                try:
                    found[index] = connections[index].recv(1 << 20)
                except ConnectionResetError:
                    found[index] = b""
                waiting.unregister(number)
                give_up = time.monotonic() + ANSWER_S
        waiting.close()
    finally:
        for one in connections:
            one.close()
    return [found.get(index) for index in range(len(sent))]


def test_every_served_version_has_a_request():
    for key in KEYS:
        api = api_table()[key]
        versions = {version for version, _ in frames_of(key)}
        assert versions == set(range(api.version_min, api.version_max + 1)), key


@pytest.mark.parametrize("key", KEYS)
def test_a_request_cut_at_any_byte_closes_the_connection(broker, key):
    cut = [frame[:size] for frame in largest(key) for size in range(len(frame))]
    for at in range(0, len(cut), AT_ONCE):
        batch = cut[at : at + AT_ONCE]
        for frame, told in zip(batch, outcomes(broker, [framed(f) for f in batch]), strict=True):
            assert told == b"", (key, frame.hex(), told)


def same_answer(whole: bytes | None, pieces: bytes | None) -> bool:
    """Both closed, both wait, or both answered with the same number of bytes: times and new ids
    differ."""
    if not whole or not pieces:
        return whole == pieces
    is_answer = whole[4:8] == struct.pack(">i", CORRELATION_ID) == pieces[4:8]
    return is_answer and whole[:8] == pieces[:8]


@pytest.mark.parametrize("key", KEYS)
def test_a_request_in_pieces_of_one_byte_is_answered_as_whole(broker, key):
    """The case without content in the newest version, which changes nothing and can be sent
    twice."""
    frames = frames_of(key)
    version = max(version for version, _ in frames)
    cases = {case: frame for (v, case), frame in frames.items() if v == version}
    frame = framed(cases.get("empty") or min(cases.values(), key=len))
    [whole] = outcomes(broker, [frame])
    with connect(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(frame)):
            connection.sendall(frame[at : at + 1])
        connection.settimeout(ANSWER_S)
        try:
            pieces: bytes | None = connection.recv(1 << 20)
        except ConnectionResetError:
            pieces = b""
        except TimeoutError:
            pieces = None
    assert same_answer(whole, pieces), (key, whole, pieces)


def test_a_frame_that_is_not_whole_waits(broker):
    """The size announces more bytes than arrived: no response and no close until the rest
    arrives."""
    frames = [framed(next(largest(key))) for key in KEYS]
    sent = [frame[: len(frame) // 2] for frame in frames] + [frames[0][:3], frames[0][:4]]
    assert outcomes(broker, sent) == [None] * len(sent)
