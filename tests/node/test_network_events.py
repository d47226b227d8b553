"""Malformed frames are logged: one line for each peer and second, not one for each frame."""

import logging
import socket
import time

from waiting import soon

from barnabas import Broker


def test_nonsense_is_one_line_a_second(tmp_path, caplog):
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with caplog.at_level(logging.WARNING, "barnabas.network"), Broker(settings) as broker:
        host, port = broker.bootstrap_servers.split(":")
        began = time.monotonic()
        for _ in range(50):
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
                peer.settimeout(60)
                assert peer.recv(1) == b""
        soon(lambda: caplog.messages)
        took_s = time.monotonic() - began
        lines = [line for line in caplog.messages if "127.0.0.1" in line]
    assert 1 <= len(lines) <= 2 + took_s, lines
    assert "closed" in lines[0]
