"""Frames in, answers out, in order, whatever the segments of the stream look like."""

import struct

import pytest
from reactor.network import Served, is_closed, receive, request, response


def test_one_request_is_answered():
    with Served() as served, served.connect() as c:
        c.sendall(request(7, b"hello"))
        assert response(c) == (7, b"hello")


def test_pipelined_requests_are_answered_in_order():
    with Served(handlers=3) as served, served.connect() as c:
        c.sendall(b"".join(request(i, b"x" * i) for i in range(500)))
        assert [response(c) for _ in range(500)] == [(i, b"x" * i) for i in range(500)]
