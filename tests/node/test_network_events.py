"""Malformed frames are logged: one line for each peer and second, not one for each frame."""

import logging
import socket
import time

from barnabas import Broker


def test_nonsense_is_one_line_a_second(tmp_path, caplog):
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with caplog.at_level(logging.WARNING, "barnabas.network"), Broker(settings) as broker:
        host, port = broker.bootstrap_servers.split(":")
        for _ in range(50):
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
                peer.settimeout(5)
                assert peer.recv(1) == b""
        deadline = time.monotonic() + 10
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.05)
        lines = [line for line in caplog.messages if "127.0.0.1" in line]
    assert 1 <= len(lines) <= 5, lines
    assert "closed" in lines[0]
