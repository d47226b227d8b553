"""Tells the service manager (systemd) how far the broker is.

systemd starts a unit with Type=notify and passes the address of a datagram socket in NOTIFY_SOCKET:
a path, or with @ a name in the abstract namespace. A message is lines NAME=VALUE:

    STATUS=...                what `systemctl status` shows
    READY=1                   clients are served: the start is complete
    STOPPING=1                the stop has begun
    EXTEND_TIMEOUT_USEC=...   the start may take so much longer from now on; sent again and again
                              while logs are recovered after an unclean stop
    WATCHDOG=1                the process runs; sent three times in WatchdogSec (WATCHDOG_USEC)

A message that cannot be sent is logged, and the broker continues: it serves clients without a
service manager too. The watchdog shows that Python's threads run. It looks at no disk: a restart
does not repair one that hangs. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import MutableMapping

from barnabas.cext.memory.threads import NamedThread
from barnabas.telemetry.metrics_page import RECOVERY, RUNNING, MetricsPage

log = logging.getLogger("barnabas.service")

NOTIFY_SOCKET = "NOTIFY_SOCKET"
WATCHDOG_US, WATCHDOG_PID = "WATCHDOG_USEC", "WATCHDOG_PID"
PROGRESS_S = 1.0  # between two messages while the broker starts
EXTENSION_US = 30_000_000  # much longer than PROGRESS_S, because a busy disk may delay threads
PINGS_A_TIMEOUT = 3
SEND_S_MAX = 5.0  # systemd reads its socket at once; a message must not hold the broker for long
STATUS_CHARACTERS_MAX = 500


class ServiceManager:
    """The socket of the service manager. `watch` starts a thread; `close` ends it."""

    def __init__(self, address: str, watchdog_us: int = 0) -> None:
        """`address`: the value of NOTIFY_SOCKET. `watchdog_us`: after this time without WATCHDOG=1,
        in microseconds, the service manager kills the broker; 0: it does not watch. Raises
        ValueError for an address of another kind than a path or an abstract name."""
        if not address.startswith(("/", "@")) or len(address) < 2:
            raise ValueError(f"{NOTIFY_SOCKET}={address} is not a path and not an abstract name")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._ping_s = watchdog_us / 1e6 / PINGS_A_TIMEOUT
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(SEND_S_MAX)
        self._lock = threading.Lock()  # so that no older state is sent after READY=1
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, page: MetricsPage) -> None:
        """Begins to send the state of the start that `page` shows, and after it WATCHDOG=1."""
        self._thread = NamedThread(
            target=self._run, args=(page,), name="service-manager", daemon=True
        )
        self._thread.start()

    def ready(self, served: str) -> None:
        """Sends that clients are served, at the addresses `served`."""
        self._send("READY=1", _status(f"serves clients at {served}"))

    def stopping(self) -> None:
        """Sends that the stop has begun."""
        self._send("STOPPING=1", _status("stopping"))

    def refused(self, reason: str) -> None:
        """Sends why the broker does not start, and closes the socket."""
        self._send(_status(reason))
        self.close()

    def close(self) -> None:
        """Ends the thread and closes the socket."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._socket.close()

    def _run(self, page: MetricsPage) -> None:
        period_s = min(PROGRESS_S, self._ping_s or PROGRESS_S)
        while not self._ended.wait(period_s) and self._tell_progress(page):
            pass
        while self._ping_s and not self._ended.wait(self._ping_s):
            self._send("WATCHDOG=1")

    def _tell_progress(self, page: MetricsPage) -> bool:
        """Sends the state of the start; returns False when the start is over."""
        with self._lock:
            if page.state >= RUNNING:
                return False
            more = (f"EXTEND_TIMEOUT_USEC={EXTENSION_US}",) if page.state == RECOVERY else ()
            self._send_unlocked(_status(page.problem()), *more)
            return True

    def _send(self, *lines: str) -> None:
        with self._lock:
            self._send_unlocked(*lines)

    def _send_unlocked(self, *lines: str) -> None:
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning(
                "cannot send %s to the service manager (%s): %s", lines[0], NOTIFY_SOCKET, error
            )


def from_environment(
    environment: MutableMapping[str, str], process_id: int
) -> ServiceManager | None:
    """Returns the service manager that `environment` names; None when it names none, or one that
    cannot be used, which is logged. Removes the variables, so that child processes (plugins, the
    brokers of --cluster) send nothing in the name of this process."""
    address = environment.pop(NOTIFY_SOCKET, "")
    watchdog_us = environment.pop(WATCHDOG_US, "")
    watched_id = environment.pop(WATCHDOG_PID, str(process_id))
    if not address:
        return None
    is_watched = watched_id == str(process_id) and watchdog_us.isdecimal()
    try:
        return ServiceManager(address, int(watchdog_us) if is_watched else 0)
    except ValueError as error:
        log.warning("%s; the service manager gets no messages", error)
        return None


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())[:STATUS_CHARACTERS_MAX]}"
