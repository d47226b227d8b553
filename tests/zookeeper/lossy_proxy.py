"""A TCP proxy in front of ZooKeeper that drops responses or requests, and then the connection."""

import contextlib
import socket
import struct
import threading

LOSE_ANSWER, LOSE_REQUEST = "answer", "request"
MULTI = 14


class LossyProxy:
    """Forwards packets. After `lose(what)` the next multi, or its response, is dropped and its
    connection is closed; `lost` counts how often that happened."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lose: str | None = None
        self._lock = threading.Lock()
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, what: str) -> None:
        with self._lock:
            self._lose = what

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                awaited: set[int] = set()  # numbers of multis whose response will be dropped
                for source, target, side in (
                    (client, server, self._request),
                    (server, client, self._answer),
                ):
                    arguments = (source, target, side, awaited)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source, target, side, awaited) -> None:
        first = True
        with contextlib.suppress(OSError):
            while len(size := _exactly(source, 4)) == 4:
                packet = _exactly(source, struct.unpack(">i", size)[0])
                if not first and side(packet, awaited):
                    with self._lock:
                        self.lost += 1
                    break
                first = False  # the first packet of each side opens the session
                target.sendall(size + packet)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _request(self, packet: bytes, awaited: set[int]) -> bool:
        number, kind = struct.unpack_from(">ii", packet)
        with self._lock:
            if kind != MULTI or self._lose is None:
                return False
            what, self._lose = self._lose, None
        if what == LOSE_ANSWER:
            awaited.add(number)
        return what == LOSE_REQUEST

    def _answer(self, packet: bytes, awaited: set[int]) -> bool:
        return struct.unpack_from(">i", packet)[0] in awaited


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (more := source.recv(count - len(found))):
        found += more
    return found
