"""Requests of commands on this machine to the running broker, over a socket without a file.

The socket has a name of Linux's abstract namespace, which is made from the device and the inode of
the first log directory. So a command finds the broker by that directory, and no network client
reaches it. The broker serves processes of its own user and of root, by the kernel's word
(SO_PEERCRED), and closes other connections without an answer.

    request   one line of JSON: {"request": NAME}
    answer    one line of JSON: what the handler returns, or {"error": one plain line}

Requests run one after the other on the thread `local-requests`. Limits: REQUEST_BYTES_MAX, and
REQUEST_S for a request to arrive.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from barnabas.cext.memory.threads import start_when_allowed

REQUEST_BYTES_MAX = 4096
REQUEST_S = 5.0
CLOSE_S = 10.0
CREDENTIALS = struct.Struct("iii")  # pid, uid, gid

log = logging.getLogger("barnabas.local")

Handler = Callable[[], Mapping[str, Any]]


class NoLocalBroker(Exception):
    """No broker answers for a directory: one plain line."""


def _name_of(directory: Path) -> bytes:
    found = directory.stat()
    return b"\0barnabas/%d/%d" % (found.st_dev, found.st_ino)


def _peer_uid(connection: socket.socket) -> int:
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(data)[1])


class LocalRequests:
    """Serves the requests of one broker until close()."""

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[str, Handler],
        reason_of: Callable[[Exception], str | None],
    ) -> None:
        """`directory`: the first log directory. `reason_of` returns the answer to a request whose
        handler raised an expected error; None for others."""
        self._handlers, self._reason_of = handlers, reason_of
        self._thread: threading.Thread | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(_name_of(directory))
            self._socket.listen(4)
        except OSError as error:
            self._socket.close()
            log.warning(
                "commands on this machine cannot ask this broker: %s. Another process has the"
                " socket for %s.",
                error.strerror,
                directory,
            )
            return
        self._thread = start_when_allowed(self._serve, "local-requests")

    def close(self) -> None:
        """Ends the thread, and waits CLOSE_S for a request that it serves: the next broker on the
        directory needs the name of the socket."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was never bound
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # close()
            with connection:
                try:
                    self._answer(connection)
                except OSError as error:
                    log.info("a command went away: %s", error)
                except Exception:
                    log.exception("a request of a command failed")

    def _answer(self, connection: socket.socket) -> None:
        if _peer_uid(connection) not in (0, os.geteuid()):
            log.warning("refused a request of uid %d", _peer_uid(connection))
            return
        connection.settimeout(REQUEST_S)
        line = connection.makefile("rb").readline(REQUEST_BYTES_MAX)
        answer = self._run(line)
        connection.sendall(json.dumps(answer).encode() + b"\n")

    def _run(self, line: bytes) -> Mapping[str, Any]:
        try:
            handler = self._handlers[json.loads(line)["request"]]
        except (ValueError, KeyError, TypeError):
            return {"error": "this broker does not know the request: it has another version"}
        try:
            return handler()
        except Exception as error:
            reason = self._reason_of(error)
            if reason is None:
                raise
            return {"error": reason}


def ask(directory: Path, request: str, timeout_s: float) -> dict[str, Any]:
    """Sends a request to the broker whose first log directory this is, and returns its answer.
    Raises NoLocalBroker, OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(_name_of(directory))
        except ConnectionRefusedError as error:
            raise NoLocalBroker(
                f"no broker runs on {directory} here. Give the first directory of log.dirs, and run"
                " the command in the broker's container."
            ) from error
        if _peer_uid(connection) not in (0, directory.stat().st_uid):
            raise NoLocalBroker(f"a process of another user answers for {directory}")
        line = b""
        with suppress(ConnectionError):  # the broker has closed it without an answer
            connection.sendall(json.dumps({"request": request}).encode() + b"\n")
            line = connection.makefile("rb").readline()
    if not line:
        raise NoLocalBroker(
            f"the broker on {directory} did not answer: run the command as its user or as root,"
            " and look at the broker's log"
        )
    answer: dict[str, Any] = json.loads(line)
    return answer
