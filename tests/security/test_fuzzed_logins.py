"""Fuzz: conversations of a login that are cut, or have one byte changed, at each byte.

The sizes and headers of frames, the mechanism's name and the tokens alike. A change of the
correlation or the client id does not hurt, so the test compares: exactly those connections are
served that have logged in, and the log has a line of each of these logins.
"""

import contextlib
import logging
import socket
import struct
from functools import partial

import pytest
from security.login_broker import HASHES, PASSWORD, scram_final

GOOD = f"\0alice\0{PASSWORD}".encode()
SIZE_BYTES = 4  # of a frame
LINE = "on SAFE logged in as 'User:"


class Spoilt:
    """A socket whose sent bytes are cut before, or changed at, one place. Where a frame then has
    another size, nothing more is sent: the broker would wait for the rest. `sent` counts bytes."""

    def __init__(self, connection, at=-1, cut=False):
        self._connection, self._at, self._cut = connection, at, cut
        self.sent = 0

    def sendall(self, data):
        at = self._at - self.sent
        self.sent += len(data)
        if not 0 <= at < len(data):
            self._connection.sendall(data)
        elif self._cut:
            self._connection.sendall(data[:at])
            self._connection.shutdown(socket.SHUT_WR)
        else:
            self._connection.sendall(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
            if at < SIZE_BYTES:
                self._connection.shutdown(socket.SHUT_WR)

    def recv(self, size):
        return self._connection.recv(size)

    def close(self):
        self._connection.close()


def plain(conversation):
    conversation.handshake("PLAIN")
    conversation.token(GOOD)


def plain_without_headers(conversation):
    conversation.handshake("PLAIN", version=0)
    conversation.ask(GOOD)


def scram(mechanism, conversation):
    bare = b"n=bob,r=abc"
    conversation.handshake(mechanism)
    first = conversation.token(b"n,," + bare)
    if first is not None and not first[0]:
        conversation.token(scram_final(mechanism, PASSWORD, bare, first[2])[0])


LOGINS = {
    "PLAIN": plain,
    "PLAIN without headers": plain_without_headers,
    **{name: partial(scram, name) for name in HASHES},
}


@pytest.mark.parametrize("name", LOGINS)
def test_a_conversation_cut_or_changed_at_each_byte(login, caplog, name):
    caplog.set_level(logging.INFO)
    with login.connect() as c:
        c.socket = whole = Spoilt(c.socket)
        LOGINS[name](c)
        size = whole.sent
        assert c.is_served()
    assert sum(LINE in line for line in caplog.messages) == 1
    served = {True: 0, False: 0}
    for at in range(size):
        for cut in (True, False):
            caplog.clear()
            with login.connect() as c:
                c.socket = Spoilt(c.socket, at, cut)
                is_served = False
                with contextlib.suppress(ConnectionError, struct.error):
                    LOGINS[name](c)
                    is_served = c.is_served()
            lines = [line for line in caplog.messages if LINE in line]
            assert len(lines) == is_served, (at, cut, lines)
            assert not [row for row in caplog.records if row.exc_info], (at, cut)
            served[cut] += is_served
    assert served[True] == 0 < served[False]  # an id in a header does not count
    assert login.broker.node.reactor.counters()["held_bytes"] < 1 << 20
